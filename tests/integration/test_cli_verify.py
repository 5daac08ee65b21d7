"""What verify says where rows are damaged: the newest intact point, and the way back that fits the store."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import psycopg
import pytest

import everstep
from everstep.errors import DamagedError
from everstep.store.base import Keyframe, RunQuery, RunRow
from tests.integration.cli_support import data, overwrite, process, run


def filled(url: str) -> str:
    with everstep.open(url) as trail, trail.record("r") as recorder:
        for number in range(8):
            recorder.step(f"s{number}", append={"rows": [number]})
    return url


def test_rows_that_are_missing_on_a_server_lead_to_a_fork_below_them(postgres: str) -> None:
    """Promise 9."""
    filled(postgres)
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("delete from everstep_step where seq between 4 and 6")
    told = run("verify", "--trail", postgres)
    first, second = told.stderr.splitlines()
    assert second == "  or: restore the database from its backup."
    assert run(*shlex.split(first.removeprefix("next: everstep "))).exit_code == 0
    with everstep.open(postgres, read_only=True) as trail:
        [made] = [run.id for run in trail.runs() if run.forked_from is not None]
        assert trail.verify(made).ok
        assert trail.run(made).head == 3
        with pytest.raises(DamagedError, match="intact point before it is step 3"):
            trail.steps("r")


def test_a_point_is_intact_if_nothing_below_it_is_damaged(postgres: str) -> None:
    """Promise 9: a row that is missing is seen first, and is not the only one."""
    filled(postgres)
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("delete from everstep_step where seq = 6")
        connection.execute("update everstep_step set name = 'other' where seq = 3")
    found = data("verify", "r", "--trail", postgres, code=6)["verify"]["damage"]
    assert [(each["seq"], each["intact"]) for each in found] == [(3, 2), (6, 2)]


@pytest.mark.parametrize("deed", ["goes on", "is pruned", "is dropped"])
@pytest.mark.parametrize("place", ["trail/", "trail.db"])
def test_what_becomes_of_a_run_meanwhile_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, deed: str
) -> None:
    """Promise 9."""
    url = filled(str(tmp_path / place))
    with everstep.open(url) as other, everstep.open(url) as trail:
        live = other.fork("r", 8)
        deeds: dict[str, Callable[[], object]] = {
            "goes on": lambda: live.checkpoint("meanwhile"),
            "is pruned": lambda: other.prune("r", keep=2),
            "is dropped": lambda: other.drop("r"),
        }
        look = trail.store.keyframe

        def after_the_deed(run_id: str, at: int) -> Keyframe | None:
            deeds.pop(deed, lambda: None)()
            return look(run_id, at)

        monkeypatch.setattr(trail.store, "keyframe", after_the_deed)
        report = trail.verify()
    assert (len(deeds), report.damage) == (2, ())
    assert report.runs == (1 if deed == "is dropped" else 2)


@pytest.mark.parametrize("seq", [-1, 5, 7, 99_999])
def test_a_row_that_lies_about_where_it_stands_is_damage(tmp_path: Path, seq: int) -> None:
    """Promise 9: and no point behind it is said to be intact."""
    path = filled(str(tmp_path / "trail.db"))
    with closing(apsw.Connection(path)) as connection:
        connection.execute("update step set seq = ? where name = 's2'", [seq])
    damage = data("verify", "--trail", path, code=6)["verify"]["damage"]
    assert all(each["intact"] is None or each["intact"] < 3 for each in damage), damage


@pytest.mark.parametrize("damaged", [False, True])
def test_the_command_says_what_the_report_says(tmp_path: Path, *, damaged: bool) -> None:
    path = filled(str(tmp_path / "trail.db"))
    with closing(apsw.Connection(path)) as connection:
        connection.execute("update step set name = 'other' where seq = 3" if damaged else "select 1")
    with everstep.open(path) as trail:
        report = trail.verify()
    assert run("verify", "--trail", path).stdout.splitlines()[0] == str(report).splitlines()[0]
    assert data("verify", "--trail", path, code=6 if damaged else 0)["verify"]["entries"] == report.entries


def test_a_file_is_restored_as_one(tmp_path: Path) -> None:
    path = filled(str(tmp_path / "trail.db"))
    with closing(apsw.Connection(path)) as connection:
        connection.execute("update step set name = 'other' where seq = 3")
    said = run("verify", "--trail", path).stderr
    assert said == f"next: everstep fork r --at 2 --trail {path}\n  or: restore the file from a backup.\n"


@pytest.mark.parametrize("place", ["run", "step", "step_failed"])
@pytest.mark.parametrize("words", [[], ["r"]])
def test_a_file_whose_pages_are_damaged_is_reported_and_not_verified_in_a_circle(
    tmp_path: Path, place: str, words: list[str]
) -> None:
    """Promise 9."""
    path = filled(str(tmp_path / "trail.db"))
    overwrite(Path(path), place)
    told = run("verify", *words, "--trail", path)
    assert (told.exit_code, told.stderr) == (6, "next: restore the file from a backup.\n")
    assert "SQLite cannot read" in told.stdout
    assert not data("verify", *words, "--trail", path, code=6)["verify"]["ok"]


def test_the_runs_before_a_damaged_page_are_checked(tmp_path: Path) -> None:
    """Promise 9: damage in one place does not stop the look at the rest."""
    with everstep.open(tmp_path / "trail.db") as trail:
        for number in range(8):
            trail.record(f"r{number}").finish()
        look = trail.store.runs

        def up_to_the_page(query: RunQuery) -> list[RunRow]:
            found = look(query)
            if any(row.id < "r5" for row in found):
                raise DamagedError("a page cannot be read")
            return found

        trail.store.runs = up_to_the_page  # type: ignore[method-assign] # what a damaged page does
        report = trail.verify()
    assert (report.runs, [one.what for one in report.damage]) == (3, ["a page cannot be read"])


def test_a_command_to_type_says_how_to_give_the_password_that_it_leaves_out(postgres: str, tmp_path: Path) -> None:
    """Promise 10: it stands nowhere, and what is printed works with it in its place."""
    url = filled(postgres).replace("postgres@", "postgres:hunter-2@")
    for given in (url, f"{postgres}&password=hunter-2"):
        told = run("show", "r@2", "--trail", given)
        hint, how = told.stderr.splitlines()
        assert "hunter" not in told.output
        assert shlex.split(hint)[-1] == postgres
        assert "PGPASSWORD" in how
    everstep.open(tmp_path / "trail.db").close()
    copied = run("copy", tmp_path / "trail.db", url).stderr.splitlines()
    assert (shlex.split(copied[-2])[-1], copied[-1]) == (postgres, how)
    how, hint = process("record", "--trail", url, "--", sys.executable, "-c", "1").stderr.splitlines()
    assert (shlex.split(hint)[-1], how) == (postgres, copied[-1])
    assert "PGPASSWORD" not in run("show", "r@2", "--trail", postgres).stderr
