"""The note on the error that ended a run names the command that explains it, for the trail that it is in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import Runner, workflow
from everstep.trail.naming import command_for

AGAIN = "everstep: run {!r} failed; run it with this id again to go on there"


@workflow
def broken() -> None:
    raise ValueError("no")


@workflow
def outer() -> None:
    broken()


def notes(url: str | Path, flow: Any = broken) -> list[str]:
    """What is noted on the error of a failed run `r` in a trail."""
    with everstep.open(url) as trail, pytest.raises(ValueError, match="no") as failed:
        Runner(trail).run(flow, id="r")
    return list(failed.value.__notes__)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVERSTEP_TRAIL", raising=False)
    return tmp_path


def test_in_the_trail_where_commands_look_it_need_not_be_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert notes(".everstep/trail.db") == [AGAIN.format("r") + ". Find out why: everstep why r"]
    monkeypatch.setenv("EVERSTEP_TRAIL", str(here / "mine.db"))
    assert notes("mine.db") == [AGAIN.format("r") + ". Find out why: everstep why r"]


def test_another_is_named_as_one_would_type_it(here: Path) -> None:
    assert notes(here / "a b.db")[0].endswith(". Find out why: everstep why r --trail 'a b.db'")
    assert notes("folder/")[0].endswith(". Find out why: everstep why r --trail folder")
    below = here / "below"
    below.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(below)
        assert notes(here / "t.db")[0].endswith(f" --trail {here / 't.db'}")


def test_a_trail_in_memory_is_gone_when_somebody_could_look() -> None:
    assert notes(":memory:") == [AGAIN.format("r")]


def test_of_runs_inside_one_another_the_outermost_is_named(here: Path) -> None:
    first, last = notes("t.db", outer)
    assert first == AGAIN.format("r/broken#0")
    assert last.endswith("Find out why: everstep why r --trail t.db")


def test_a_server_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    place = "postgresql://ada@db.example:5432/agents"
    assert command_for(place, "why", "r") == f"everstep why r --trail {place}"
    monkeypatch.setenv("EVERSTEP_TRAIL", "postgresql://ada:secret@db.example:5432/agents")
    assert command_for(place, "why", "r") == "everstep why r"
