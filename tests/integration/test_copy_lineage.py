"""Which runs are copied, and where each came from."""

from __future__ import annotations

from pathlib import Path

import pytest

from everstep import Trail
from everstep.errors import OwnedError, PrunedError, RunNotFoundError
from everstep.trail.copying import Copying
from tests.integration.copying import Places, notes, same, same_run, told
from tests.integration.moved import KINDS


def test_forks_share_their_rows_there_too(apart: tuple[Trail, Trail]) -> None:
    """Promise 5."""
    source, to = apart
    notes(source, "run", *map(str, range(50)))
    notes(source, "later", "x")
    source.fork("run", 30, id="fork").release()
    source.fork("run", 30, id="untouched").release()
    notes(source, "fork", "y")
    source.fork("fork", 31, id="deep").release()
    copied = source.copy(to)
    assert copied.entries == 51 + 2 + 1
    same(source, to)


def test_forks_of_what_is_gone_or_pruned_have_their_whole_history(pair: tuple[Trail, Trail]) -> None:
    source, to = pair
    for parent in ("dropped", "pruned", "changed"):
        notes(source, parent, *"abcdef")
        source.fork(parent, 4, id=f"of {parent}").release()
        notes(source, f"of {parent}", "g")
    source.fork("of pruned", 5, id="deep").release()
    source.drop("dropped")
    source.prune("pruned", keep=2)
    source.prune("of changed", keep=1)
    source.prune("deep", keep=3)
    assert source.copy(to).ok
    same(source, to)
    assert to.run("of dropped").forked_from == "dropped"
    assert to.run("of changed").oldest == 5
    assert [run.id for run in to.lineage("of pruned")] == ["pruned", "of pruned", "deep"]


def test_a_fork_of_a_run_whose_id_is_anothers_now_does_not_share_with_that(two: tuple[Trail, Trail]) -> None:
    source, to = two
    notes(source, "run", "a", "b")
    source.fork("run", 1, id="fork").release()
    source.drop("run")
    notes(source, "run", "c", "d")
    source.copy(to)
    same(source, to)


def test_a_fork_has_its_whole_history_where_its_parent_has_another_or_too_little(two: tuple[Trail, Trail]) -> None:
    """Promise 5: what is there under the name of the parent is not taken for it."""
    source, to = two
    for parent in ("other", "short"):
        notes(source, parent, "a")
    source.copy(to, "short")
    notes(to, "other", "x", "y", "z")
    worker = to.record("short")
    for parent in ("other", "short"):
        notes(source, parent, "b", "c")
        source.fork(parent, 2, id=f"of {parent}").release()
    assert {refusal.run_id for refusal in source.copy(to).refused} == {"other", "short"}
    worker.step("mine")
    for parent in ("other", "short"):
        same_run(source, to, f"of {parent}")
    assert to.verify().ok


def test_what_was_pruned_since_cannot_follow_what_is_there(two: tuple[Trail, Trail]) -> None:
    source, to = two
    notes(source, "run", "a")
    notes(source, "edge", "a")
    source.copy(to)
    for grown in ("run", "edge"):
        notes(source, grown, "b", "c", "d")
    source.prune("run", keep=1)
    source.prune("edge", keep=3)
    copied = source.copy(to)
    [(run_id, error)] = copied.refused
    assert (run_id, type(error)) == ("run", PrunedError)
    assert "drop it there" in str(error)
    assert told(to.store.run("edge"))._replace(base=2) == told(source.store.run("edge"))


# Some runs.


def test_a_run_takes_along_what_is_inside_it_and_what_it_came_from(apart: tuple[Trail, Trail]) -> None:
    source, to = apart
    KINDS["fork"][0](source)
    notes(source, "else", "a")
    copied = source.copy(to, "fork")
    assert copied.ok
    ids = {run.id for run in to.runs()}
    assert ids == {run.id for run in source.runs()} - {"else"}
    for run_id in ids:
        same_run(source, to, run_id)


def test_runs_that_rows_alone_name_come_along(two: tuple[Trail, Trail]) -> None:
    source, to = two
    notes(source, "helper", "a")
    run = source.record("run")
    run.step("call", child_run_id="helper")
    run.step("call", child_run_id="dropped")
    source.copy(to, "run")
    assert {found.id for found in to.runs()} == {"run", "helper"}


def test_a_name_that_is_not_there_is_an_error_before_anything_is_written(two: tuple[Trail, Trail]) -> None:
    source, to = two
    notes(source, "run", "a")
    with pytest.raises(RunNotFoundError):
        source.copy(to, "run", "ruin")
    assert to.runs() == []


def parts(source: Trail) -> None:
    """A run with one inside it, and others that were made between them."""
    notes(source, "dad", "asks")
    for number in range(3):
        notes(source, f"other {number}", "x")
    child = source.record("dad/kid", parent="dad")
    child.step("pays")
    child.release()


def test_nobody_goes_on_with_a_run_before_those_inside_it_are_there(pair: tuple[Trail, Trail]) -> None:
    """Promise 2: it would do again what they have done."""
    source, to = pair
    parts(source)

    def stop(done: int, _: int) -> None:
        if done > 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Copying(source.store, to.store, (), stop).once()
    with pytest.raises(OwnedError, match="Copy it again"):
        to.record("dad")
    assert source.copy(to).ok
    same(source, to)
    to.record("dad").release()


def test_a_run_is_not_there_as_long_as_a_part_of_it_cannot_be(two: tuple[Trail, Trail]) -> None:
    """Promise 2."""
    source, to = two
    parts(source)
    notes(to, "dad/kid", "something else")
    refused = {refusal.run_id: str(refusal.error) for refusal in source.copy(to).refused}
    assert list(refused) == ["dad/kid", "dad"]
    assert "'dad/kid', which is a part of it" in refused["dad"]
    with pytest.raises(OwnedError, match="Copy it again"):
        to.record("dad")


def test_a_run_is_finished_when_the_part_that_somebody_held_there_is_free(two: tuple[Trail, Trail]) -> None:
    source, to = two
    parts(source)
    copying = Copying(source.store, to.store)
    copying.once()
    worker = to.record("dad/kid")
    for run_id in ("dad", "dad/kid"):
        notes(source, run_id, "more")
    assert {refusal.run_id for refusal in copying.again().refused} == {"dad", "dad/kid"}
    worker.release()
    assert copying.again().ok
    same(source, to)


def test_half_of_a_run_goes_nowhere_else(two: tuple[Trail, Trail], places: Places, tmp_path: Path) -> None:
    """Promise 2."""
    source, to = two
    parts(source)
    notes(to, "dad/kid", "something else")
    source.copy(to)
    [refusal] = [each for each in to.copy(places.open("sqlite")).refused if each.run_id == "dad"]
    assert isinstance(refusal.error, OwnedError)
    with pytest.raises(OwnedError, match="not all there"):
        to.export("dad", tmp_path / "dad.everstep")


def test_what_somebody_worked_on_there_is_copied_when_it_is_free(two: tuple[Trail, Trail]) -> None:
    source, to = two
    notes(source, "run", "a")
    copying = Copying(source.store, to.store)
    copying.once()
    worker = to.record("run")
    notes(source, "run", "b")
    assert [refusal.run_id for refusal in copying.again().refused] == ["run"]
    worker.release()
    assert copying.again().ok
    same(source, to)
