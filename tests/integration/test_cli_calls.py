"""The calls of recorded programs: answers that are errors, and the tools that a model calls."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep.cli.style import result_of
from tests.integration.cli_support import as_a_person, run

ANSI = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def answered(status: int, body: str = "{}") -> dict[str, Any]:
    return {"status": status, "headers": [], "body": body}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A short run of calls, of which some were answered with an error, and a long one with one such."""
    path = tmp_path / "t.db"
    monkeypatch.setenv("EVERSTEP_TRAIL", str(path))
    monkeypatch.setenv("COLUMNS", "100")
    with everstep.open(path) as trail:
        with trail.record("short") as recorder:
            for number, status in enumerate((200, 500, 404)):
                recorder.step("GET shop", node_type="http", output=answered(status, f"text {number}"))
            recorder.step("mine", output={"status": 500})
        with trail.record("long") as recorder:
            for number in range(200):
                recorder.step("GET shop", node_type="http", output=answered(503 if number == 100 else 200))
    return path


def test_an_answer_that_is_an_error_has_a_mark_of_its_own_and_is_counted(place: Path) -> None:
    piped = [line.split("  ") for line in run("show", "short").stdout.splitlines()]
    stands = [[word.strip() for word in line if word][1] for line in piped[-4:]]
    assert stands == ["completed", "answered 500", "answered 404", "completed"]
    assert any(line[-1] == "4 steps, 2 answered with an error, 6 entries" for line in piped)
    seen = ANSI.sub("", as_a_person("show", "short")).splitlines()
    assert [line.split()[1] for line in seen if " GET shop" in line] == ["✓", "!", "!"]


def test_it_is_not_folded_away(place: Path) -> None:
    lines = run("show", "long").stdout.splitlines()
    assert sum("answered 503" in line for line in lines) == 1
    assert sum("all completed" in line for line in lines) == 2


def test_a_call_is_no_node(place: Path) -> None:
    assert "call     http" in run("show", "short@1").stdout
    with everstep.open(place) as trail, trail.record("graph") as recorder:
        recorder.step("again", node_type="route", superstep=0, decision="write")
    assert re.search(r"^node +route$", run("show", "graph@1").stdout, re.MULTILINE)


def chat(words: str | None, *calls: tuple[str, str]) -> str:
    tools = [{"id": "1", "type": "function", "function": {"name": name, "arguments": given}} for name, given in calls]
    return json.dumps({"choices": [{"message": {"role": "assistant", "content": words, "tool_calls": tools}}]})


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (
            chat(None, ("price", '{"wood": "oak"}'), ("price", '{"wood": "elm", "n": 2}')),
            'price(wood="oak"), price(wood="elm", n=2)',
        ),
        (chat("I look.", ("price", '{"wood": "ökö"}')), "'I look.', price(wood=\"ökö\")"),
        (chat(None, ("stop", ""), ("price", "{}")), "stop(), price()"),
        (chat(None, ("say", '{"text": "-> go {}"}')), 'say(text="-> go {}")'),
        (chat(None, ("price", '{"wood": "o')), '\'-> price {"wood": "o\''),
        (chat("an arrow -> goes {on} here"), "'an arrow -> goes {on} here'"),
        (chat("plain words"), "'plain words'"),
    ],
)
def test_each_tool_that_a_model_calls_is_shown_as_a_call(tmp_path: Path, body: str, shown: str) -> None:
    with everstep.open(tmp_path / "t.db") as trail, trail.record("r") as recorder:
        row = recorder.step("openai chat", node_type="model", output=answered(200, body))
        assert result_of(row, 200).text == shown
        assert len(result_of(row, 20).text) <= 20
