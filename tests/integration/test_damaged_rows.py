"""Rows changed behind the trail's back, each in the way that would hurt most."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

import everstep
from everstep.errors import DamagedError, EverstepError


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, chance = tmp_path_factory.mktemp("made") / "trail.db", random.Random(1)
    with everstep.open(path) as trail, trail.record("r", workflow="w") as run:
        for number in range(300):
            run.step("s", append={"log": [{"n": number, "noise": chance.randbytes(700)}]}, set={"last": number})
    return path


@pytest.fixture
def path(tmp_path: Path, made: Path) -> Path:
    return Path(shutil.copy(made, tmp_path))


def change(path: Path, sql: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(sql)
    connection.close()


@pytest.mark.parametrize(
    "sql",
    [
        "update run set seq = 1 << 40",
        "update run set seq = seq - 1",
        "update run set head = head - 1",
        "update run set head = 1 << 40",
        "update run set hash = zeroblob(32)",
        "update run set status = 2",
        "update run set workflow = 'v'",
        "update step set prev = id where seq = 200",
        "update step set prev = prev - 1 where seq = 200",
        "update step set prev = null where seq = 200",
        "update step set seq = 201 where seq = 200",
        "update step set name = 't' where seq = 200",
        "update step set status = 2 where seq = 200",
        "update step set started = started + 1 where seq = 200",
        "update step set meta = zeroblob(20) where seq = 200",
        "update step set data = zeroblob(100) where seq = 200",
        "delete from step where seq = 200",
        "delete from step where seq = 0",
        "delete from run",
        "update dictionary set data = zeroblob(9)",
    ],
)
def test_a_changed_row_is_reported_and_nothing_hangs(path: Path, sql: str) -> None:
    """Promise 9."""
    change(path, sql)
    with everstep.open(path) as trail:
        report = trail.verify()
        assert not report.ok
        assert "damaged" in str(report)


@pytest.mark.parametrize(
    "ask",
    [lambda trail: trail.steps("r"), lambda trail: trail.steps("r", 150, 250), lambda trail: trail.step("r", 200)],
)
def test_a_missing_row_is_told_with_its_place(path: Path, ask: Callable[[everstep.Trail], object]) -> None:
    """Promise 9."""
    change(path, "delete from step where seq = 200")
    with everstep.open(path) as trail, pytest.raises(DamagedError) as told:
        ask(trail)
    assert told.value.run_id == "r"
    assert told.value.seq == 200


def test_a_damaged_row_offers_the_newest_intact_point_and_a_fork_there_goes_on(path: Path) -> None:
    """Promise 9."""
    change(path, "update step set data = zeroblob(100) where seq = 200")
    with everstep.open(path) as trail:
        with pytest.raises(DamagedError) as told:
            trail.steps("r")
        assert told.value.intact == 199
        with trail.fork("r", 199, id="again") as run:
            run.step("s", set={"last": "on"})
        assert trail.state("again")["last"] == "on"
        assert len(trail.state("again")["log"]) == 199
        assert trail.verify("again").ok


def test_a_damaged_keyframe_is_passed_over_with_a_warning_and_the_state_is_right(path: Path) -> None:
    """Promise 9: a keyframe is a cache; the rows tell the same."""
    with everstep.open(path) as trail:
        right = trail.state("r")
    change(path, "update keyframe set data = zeroblob(50)")
    with everstep.open(path) as trail:
        with pytest.warns(everstep.DamageWarning, match="keyframe"):
            assert trail.state("r") == right
        assert not trail.verify().ok


def test_a_damaged_piece_is_passed_over_with_a_warning_and_the_state_is_right(path: Path) -> None:
    """Promise 9."""
    with everstep.open(path) as trail:
        right = trail.state("r")
    change(path, "update blob set data = zeroblob(50)")
    with everstep.open(path) as trail:
        with pytest.warns(everstep.DamageWarning, match="was not used"):
            assert trail.state("r") == right
        assert not trail.verify().ok


def test_damage_in_one_run_does_not_hide_the_others(path: Path) -> None:
    """Promise 9."""
    with everstep.open(path) as trail, trail.record("other") as run:
        run.step("s", output=1, output_to="x")
    change(path, "update step set data = zeroblob(100) where seq = 200")
    with everstep.open(path) as trail:
        report = trail.verify()
        assert {damage.run_id for damage in report.damage} == {"r"}
        assert trail.state("other") == {"x": 1}
        assert trail.verify("other").ok


def test_a_run_whose_own_row_is_damaged_is_left_out_with_a_warning(path: Path) -> None:
    """Promise 9."""
    with everstep.open(path) as trail, trail.record("other"):
        pass
    change(path, "update run set workflow = 'v' where id = 'r'")
    with everstep.open(path) as trail:
        with pytest.warns(everstep.DamageWarning, match="'r'"):
            assert [run.id for run in trail.runs()] == ["other"]
        with pytest.raises(EverstepError):
            trail.run("r")


def test_every_keyframe_that_needs_a_damaged_piece_is_told_of(tmp_path: Path) -> None:
    """Promise 8: those that share a piece are all damaged with it, whichever is looked at first."""
    path, chance = tmp_path / "trail.db", random.Random(2)
    with everstep.open(path) as trail, trail.record("r") as run:
        for _ in range(300):
            run.step("s", append={"log": [chance.randbytes(2_000)]})
    with apsw.Connection(str(path)) as connection:
        frames = len(connection.execute("select 1 from keyframe").fetchall())
    change(path, "update blob set data = zeroblob(9)")
    with everstep.open(path) as trail:
        told = [one for one in trail.verify("r").damage if "keyframe cannot be used" in one.what]
    assert len(told) == frames > 2
