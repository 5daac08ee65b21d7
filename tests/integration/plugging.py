"""What the tests of the pytest plugin share: a program, runs of it on file, and pytest as its user calls it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from tests.integration.support import environment

PLUGIN = "everstep.testing.plugin"
SHOP = """
import everstep
from everstep import step, workflow

LIVE = []

@step
def search(city):
    LIVE.append(city)
    return [{"hotel": "A", "price": 90}, {"hotel": "B", "price": 70}]

@step
def pay(hotel, amount):
    raise ConnectionError("declined")

@workflow
def booking(city, budget=100):
    best = min(search(city), key=lambda offer: offer["price"])
    return pay(best["hotel"], best["price"])

class Client:
    def __everstep_digest__(self):
        return "client"

@workflow
def chat(client, question):
    return search(f"{question}, {type(client).__name__}")

@workflow
def approval(text):
    return f"{text}: {everstep.pause('send it?')}"
"""
EXPORT = """
import everstep, shop

with everstep.open(":memory:") as trail:
    runner = everstep.Runner(trail)
    runner.run(shop.booking, "Rome", id="b-1", error_handling="continue", tags={"user": "ada"})
    runner.run(shop.approval, "it", id="a-1")
    runner.run(shop.approval, id="a-1", answer="yes")
    runner.run(shop.approval, "it", id="a-2")
    runner.run(shop.chat, shop.Client(), "why?", id="c-1")
    for name in ("b-1", "a-1", "a-2", "c-1"):
        trail.export(name, f"runs/{name}.everstep")
"""
REPLAYS = """
import pytest, shop

@pytest.mark.everstep_replay("runs/b-1.everstep", workflow=shop.booking)
def test_booking():
    pass
"""


def made(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder with a program, and runs of it on file."""
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    pytester.makepyfile(shop=SHOP)
    pytester.mkdir("runs")
    export(pytester, EXPORT)
    return pytester


def export(place: pytest.Pytester, program: str) -> None:
    """Run the program and put its runs on file."""
    subprocess.run([sys.executable, "-c", program], cwd=place.path, env=environment(), check=True)


def plugin() -> list[str]:
    """What loads the plugin: nothing, where the package was installed with it."""
    known = any(found.value == PLUGIN for found in entry_points(group="pytest11"))
    return [] if known else ["-p", PLUGIN]


def pytest_in(place: pytest.Pytester, *words: str) -> pytest.RunResult:
    """Run pytest there as somebody does who has installed Everstep."""
    quick = ["-p", "no:cacheprovider", "-p", "no:langsmith_plugin"]  # which takes a second to load
    return place.runpytest_subprocess(*plugin(), *quick, "--strict-markers", *words)


def change(place: pytest.Pytester, old: str, new: str) -> None:
    path = place.path / "shop.py"
    assert old in path.read_text("utf-8")
    path.write_text(path.read_text("utf-8").replace(old, new), "utf-8")
    later = path.stat().st_mtime + 10  # Python knows compiled code by the second
    os.utime(path, (later, later))
