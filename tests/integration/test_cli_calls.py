"""The calls of recorded programs: answers that are errors, and the tools that a model calls."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import apsw
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


@pytest.mark.parametrize(
    ("kind", "output", "shown"),
    [
        ("process", {"exit": 0, "pid": 7, "stdout": "5\n"}, "'5\\n'"),
        ("process", {"exit": 0, "pid": 7, "stdout": ""}, "''"),
        ("process", {"exit": 1, "pid": 7, "stdout": "a", "stderr": "no such file"}, "exit 1 'no such file' 'a'"),
        ("tool", {"result": {"content": [{"type": "text", "text": "7 euros"}], "isError": False}}, "'7 euros'"),
        ("process", {"pid": 7}, "{'pid': 7}"),
        ("process", "mine", "'mine'"),
    ],
)
def test_what_a_process_printed_and_a_tool_answered_is_shown_and_not_how(
    tmp_path: Path, kind: str, output: Any, shown: str
) -> None:
    with everstep.open(tmp_path / "t.db") as trail, trail.record("r") as recorder:
        row = recorder.step("call", node_type=kind, output=output)
        assert result_of(row, 200).text == shown
        assert len(result_of(row, 20).text) <= 20


def test_a_model_that_was_streamed_is_shown_with_what_it_said_and_without_what_a_replay_goes_by(place: Path) -> None:
    pieces = [{"choices": [{"delta": {"content": text}}]} for text in ("two\n", "li", "nes")]
    body = "".join(f"data: {json.dumps(piece)}\n\n" for piece in pieces)
    about = {"turns": [1.000001], "fired": [[1, "main", 0, 0]], "seed": b"of a fork", "mine": 7}
    with everstep.open(place) as trail, trail.record("streamed") as recorder:
        recorder.step("openai chat", node_type="model", output=answered(200, body), metadata=about)
    shown = run("show", "streamed@1").stdout
    assert "\nsaid\n  two\n  lines\n" in shown
    assert re.search(r"^metadata +\{'mine': 7\}$", shown, re.MULTILINE)
    assert "fired" in run("show", "streamed@1", "--all").stdout


def streamed(*pieces: str) -> str:
    """What a model says, piece by piece."""
    events = [json.dumps({"id": "c-1", "choices": [{"index": 0, "delta": {"content": piece}}]}) for piece in pieces]
    return "".join(f"data: {event}\n\n" for event in events)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (streamed("The fer", "ry to Caci", "lhas leaves"), "'The ferry to Cacilhas leaves'"),
        (chat("a plan:\nferry to Cacilhas"), r"'a plan:\nferry to Cacilhas'"),
        (chat("la traversée: ferry to Cacilhas"), "'la traversée: ferry to Cacilhas'"),
        ('{"text": "a ferry to Cacilhas"}\n{"next": "a tram"}\n', "'a ferry to Cacilhas'"),
    ],
)
@pytest.mark.parametrize("words", [["ferry"], ["ferry to cacilhas"], ['"ferry to"', "cacil*"]])
def test_an_answer_is_found_by_the_words_in_it_however_they_travelled(
    place: Path, body: str, shown: str, words: list[str]
) -> None:
    with everstep.open(place) as trail, trail.record("trip") as recorder:
        recorder.step("openai chat", node_type="model", output=answered(200, body))
    found = json.loads(run("search", *words, "--json").stdout)["search"]
    assert [(hit["run"], hit["match"]) for hit in found] == [("trip", {"where": "output.body", "text": shown})]


def test_words_after_the_end_of_a_line_are_shown_where_they_stand(place: Path) -> None:
    with everstep.open(place) as trail, trail.record("trip") as recorder:
        recorder.step("mine", output="x" * 90 + "\nferry to Cacilhas")
    [hit] = json.loads(run("search", "ferry", "--json").stdout)["search"]
    assert hit["match"] == {"where": "output", "text": "..." + "x" * 38 + r"\nferry to Cacilhas'"}


def test_an_index_that_took_in_less_is_made_anew(place: Path) -> None:
    with everstep.open(place) as trail:
        with trail.record("trip") as recorder:
            recorder.step("openai chat", node_type="model", output=answered(200, streamed("fer", "ry")))
        assert [step.run_id for step in trail.search("ferry", field="output")] == ["trip"]
    index = apsw.Connection(f"{place}-search")
    index.execute("insert into words(words) values('delete-all'); pragma user_version = 0")
    index.close()
    with everstep.open(place) as trail:
        assert [step.run_id for step in trail.search("ferry")] == ["trip"]


def test_an_answer_that_spells_out_half_a_character_is_found_and_compared(place: Path) -> None:
    with everstep.open(place) as trail:
        for name, text in (("a", "half \ud83d of"), ("b", "other \ude00 half")):
            with trail.record(name) as recorder:
                recorder.step("openai chat", node_type="model", output=answered(200, chat(text)))
        assert {step.run_id for step in trail.search("half")} == {"a", "b"}
        assert not trail.compare("a", "b").identical
        assert trail.compare("a", "a").identical
