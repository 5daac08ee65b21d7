"""The examples run offline, twice, as a person would run them, and the second time nothing is done again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


# Python runs it first thing: no program of this file reaches anybody.
OFFLINE = """
import sys

def refuse(event, args):
    if event in {"socket.connect", "socket.getaddrinfo"}:
        raise ConnectionError(f"offline: {args}")

sys.addaudithook(refuse)
"""


@pytest.fixture(autouse=True)
def an_empty_place_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offline, here = tmp_path / "offline", tmp_path / "here"
    for folder in (offline, here):
        folder.mkdir()
    (offline / "sitecustomize.py").write_text(OFFLINE, "utf-8")
    monkeypatch.chdir(here)
    monkeypatch.setenv("PYTHONPATH", f"{offline}{os.pathsep}{ROOT / 'src'}")


def example(name: str, *args: str) -> str:
    """What an example prints."""
    return _run(str(EXAMPLES / name), *args)


def everstep(*args: str) -> str:
    """What the command line prints."""
    return _run("-m", "everstep", *args)


def told_commands(printed: str) -> list[str]:
    """What the commands print that an example ends with."""
    return [
        everstep(*command.split()) for command in re.findall(r"^(?:next|  or): everstep (.+)$", printed, re.MULTILINE)
    ]


def _run(*args: str) -> str:
    done = subprocess.run([sys.executable, *args], capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == "" or "everstep" in args
    return done.stdout


def test_the_programs_of_this_file_have_no_network() -> None:
    with pytest.raises(AssertionError, match="ConnectionError: offline"):
        _run("-c", "import socket; socket.create_connection(('localhost', 80))")


def test_rag_answers_from_the_docs_and_asked_again_from_the_trail() -> None:
    first, second = example("rag.py"), example("rag.py")

    question, *lines = first.split("\n\n")[0].splitlines()
    assert question.endswith("?")
    sources = [re.fullmatch(r"- .+ \[(docs/\S+\.md), .+\]", line) for line in lines]
    assert len(sources) >= 2
    assert all(source and (ROOT / source[1]).is_file() for source in sources), lines
    assert "superstep 2: good_enough? " in first
    assert first.split("\n\n")[0] == second.split("\n\n")[0]
    assert ": completed, " in first
    assert ": completed (restored), " in second

    shown, drawn = told_commands(second)
    assert "every word is covered" in shown or "found nothing on" in shown
    assert "good_enough" in drawn


def test_rag_takes_another_question() -> None:
    printed = example("rag.py", "What is redacted,", "and where is the key?")
    assert printed.startswith("What is redacted, and where is the key?\n- ")
    assert "[docs/how-to/secrets.md, " in printed


def test_approval_waits_without_a_process_and_goes_on_when_it_is_answered() -> None:
    first, second = example("approval.py"), example("approval.py")
    assert first.splitlines()[0] == "writing"
    assert "Publish this? The archive is closed for repairs" in first
    assert "everstep answer notice-1 publish|shorter|kinder" in first
    assert second == first.removeprefix("writing\n")  # it still waits, and nothing was written again

    everstep("answer", "notice-1", "shorter")
    third = example("approval.py")
    assert third.splitlines()[:2] == [
        "writing again, shorter",
        "Publish this? The archive is closed for repairs on Friday from 9 to 12.",
    ]

    everstep("answer", "notice-1", "publish")
    fourth, fifth = example("approval.py"), example("approval.py")
    assert fourth.splitlines()[0] == "publishing"
    assert fifth == fourth.removeprefix("publishing\n")
    published = Path(".everstep/notices/notice-1.txt").read_text("utf-8")
    assert f"published in .everstep/notices/notice-1.txt: {published}\n" in fifth
    shown, drawn = told_commands(fifth)
    assert "-> publish" in shown
    assert re.search(r"yes: publish \S1, no: write \S1", drawn)


def test_another_id_is_another_notice() -> None:
    example("approval.py")
    assert example("approval.py", "notice-2").startswith("writing\n")


def test_a_map_that_met_a_rate_limit_does_what_is_left_the_next_time() -> None:
    pages = [path.read_text("utf-8").splitlines()[0][2:] for path in sorted((ROOT / "docs" / "adr").glob("*.md"))]
    allowed = 20  # calls of the model, each time
    for restored in range(0, len(pages), allowed):
        lines, told = example("map_many.py").split("\n\n")
        titles = [line.partition(": ")[0] for line in lines.splitlines()]
        left = len(pages) - restored - allowed
        assert titles == pages  # also of those that failed: the title needs no model
        assert lines.count(": (not yet)") == max(left, 0)
        assert f"digest digest-1: {'partial' if left > 0 else 'completed'}, {len(pages)} items in " in told
        assert (f", {left} failed" in told) is (left > 0)
        assert (f", {restored} restored" in told) is (restored > 0)
        assert ("RateLimitError" in told) is (left > 0)

    again = example("map_many.py")
    assert again.startswith(lines)
    assert f", {len(pages)} restored\n" in again
    assert everstep("runs", "--all", "--limit", "1000", "--workflow", "digest").count("digest-1/") == len(pages)


REPLAY = """
import runpy, sys
from everstep.run.workflows import Workflow
import everstep

sys.argv = sys.argv[1:]
names = runpy.run_path(sys.argv[0], run_name="__main__")
flows = {each.name: each for each in names.values() if isinstance(each, Workflow)}
told = 0
with everstep.open(".everstep/trail.db", read_only=True) as trail:
    for run in trail.runs():
        if run.workflow in flows and "digest-1" != run.id:  # that is the map itself
            for _ in range(20):
                report = trail.replay(run.id, flows[run.workflow])
                assert report.identical, str(report)
            told += 1
print(told)
"""


@pytest.mark.parametrize("name", ["rag.py", "approval.py", "map_many.py"])
def test_the_runs_of_an_example_are_replayed_identically(name: str) -> None:
    """Promise 6: twenty times of twenty, without a network."""
    for answer in (None, "shorter", "publish") if name == "approval.py" else (None,):
        if answer is not None:
            everstep("answer", "notice-1", answer)
        assert int(_run("-c", REPLAY, str(EXAMPLES / name)).splitlines()[-1]) >= 1
