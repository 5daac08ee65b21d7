"""`everstep drop`: runs go with those inside them, on purpose, and never one that somebody works on."""

from __future__ import annotations

from pathlib import Path

import pytest

import everstep
from everstep import Runner, workflow
from tests.integration.cli_support import data, on_a_terminal, run


@workflow
def inner(x: int) -> int:
    return x


@workflow
def outer(x: int) -> int:
    return inner(x)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "t.db"
    with everstep.open(place) as trail:
        for name in ("one", "two"):
            Runner(trail).run(outer, 1, id=name)
        with trail.record("parent") as recorder:
            recorder.step("say", output=1)
        trail.fork("parent", id="child").finish()
    return place


def left(path: Path) -> set[str]:
    with everstep.open(path, read_only=True) as trail:
        return {each.id for each in trail.runs()}


def test_runs_go_with_those_inside_them_and_that_is_told(path: Path) -> None:
    done = run("drop", "one", "two", "--yes", "--trail", path)
    assert (done.exit_code, done.stdout) == (0, "")
    assert [line.rpartition(":")[0] for line in done.stderr.splitlines()] == [
        "dropped one, with 1 run inside it",
        "dropped two, with 1 run inside it",
    ]
    assert left(path) == {"parent", "child"}
    assert run("verify", "--trail", path).exit_code == 0


def test_a_run_is_named_once_however_often_it_is_typed_and_not_again_inside_another(path: Path) -> None:
    found = data("drop", "one", "one/inner#0", "one", "--yes", "--trail", path)["drop"]
    assert [(each["run"], each["runs"]) for each in found] == [("one", 2)]
    assert found[0]["entries"] > 0


def test_what_a_fork_shares_stays_and_that_is_said(path: Path) -> None:
    done = run("drop", "parent", "--yes", "--trail", path)
    assert done.stderr == "dropped parent: 0 entries. What its forks share stays until the last of them goes.\n"
    assert run("show", "child", "--trail", path).exit_code == 0


def test_if_one_is_not_there_none_goes(path: Path) -> None:
    assert run("drop", "one", "nobody", "--yes", "--trail", path).exit_code == 3
    assert "one" in left(path)


def test_one_that_is_at_work_is_refused(path: Path) -> None:
    with everstep.open(path) as trail:
        busy = trail.record("busy")
        refused = run("drop", "one", "busy", "--yes", "--trail", path)
        assert refused.exit_code == 5
        assert refused.stderr.endswith(f"Wait until it is over, or end it: everstep cancel busy --trail {path}\n")
        assert {"one", "busy"} <= left(path)
        busy.release()
    assert run("drop", "busy", "--yes", "--trail", path).exit_code == 0


def test_without_yes_a_program_is_refused_and_a_person_is_asked(path: Path) -> None:
    refused = run("drop", "one", "--trail", path)
    assert (refused.exit_code, "--yes" in refused.stderr) == (2, True)
    no = on_a_terminal("drop", "one", "--trail", path, typed="n\n")
    assert (no.code, "drop one (completed)? It cannot be taken back." in no.stdout) == (1, True)
    assert "one" in left(path)
    yes = on_a_terminal("drop", "one", "two", "--trail", path, typed="y\n")
    assert (yes.code, "drop 2 runs?" in yes.stdout) == (0, True)
    assert left(path) == {"parent", "child"}
