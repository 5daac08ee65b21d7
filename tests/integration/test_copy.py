"""Runs copied from one trail to another: nothing is lost, nothing is there twice, and nothing is written over."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from everstep import AsyncTrail, Runner, Trail
from everstep.codec import chain, record
from everstep.codec.values import encode
from everstep.errors import HistoryDiffersError, OwnedError, UnstorableError
from everstep.model import STATUS_NUMBER, Status
from everstep.store.base import Retains
from everstep.store.commit import Job
from everstep.store.postgres import PostgresStore
from everstep.testing.rows import begin
from everstep.trail import copying, transferring
from everstep.trail.copying import Copying
from tests.integration.copying import PAIRS, Places, keyframes, names, noise, notes, rows, same, same_run, told
from tests.integration.moved import KINDS, approval
from tests.integration.support import rich_trail

pytestmark = pytest.mark.usefixtures("small_pages")


@pytest.mark.parametrize(("kind", "other"), [*PAIRS, ("sqlite", "memory")])
def test_all_is_there_as_it_was(places: Places, kind: str, other: str) -> None:
    """Promises 5, 7 and 9: rows, states, checkpoints, keyframes, lineage, pruned histories, large values, questions."""
    url = places.url(kind)
    rich_trail(url)  # type: ignore[arg-type] # a URL as well
    source, to = places.opened(url), places.open(other)
    for make, _ in (KINDS[each] for each in ("failed", "paused", "children", "large", "graph", "cut off")):
        make(source)
    notes(source, "noise", *noise(80))
    erase(source, "noise", 79)
    copied = source.copy(to)
    assert copied.ok
    same(source, to)
    assert len(keyframes(to.store, "noise")) > 1
    assert (copied.runs, copied.same, copied.ahead) == (len(source.runs()), 0, [])
    assert copied.blobs > 2
    again = source.copy(to)
    assert (again.runs, again.entries, again.blobs, again.bytes) == (0, 0, 0, 0)
    assert (again.same, again.ok) == (copied.runs, True)
    assert Runner(to).run(approval, id="paused", answer="yes").value == "IT: YES"
    assert source.run("paused").status == "paused"


def erase(trail: Trail, run_id: str, seq: int) -> None:
    [entry] = trail.store.entries(run_id, seq, seq)
    assert isinstance(trail.store, Retains)
    trail.store.erase(run_id, [chain.erased(entry, encode(record.read_meta(entry)[:1]))])


def test_a_copy_that_was_interrupted_goes_on_where_it_stopped(pair: tuple[Trail, Trail]) -> None:
    """Promise 2: nobody goes on with a run of which steps are missing that were completed."""
    source, to = pair
    notes(source, "first", "a", "b")
    notes(source, "long", *noise(120))
    notes(source, "last", "c")

    def stop(done: int, _: int) -> None:
        if done > 60:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Copying(source.store, to.store, (), stop).once()
    reached = to.store.run("long").seq
    assert 50 < reached < 120
    with pytest.raises(OwnedError, match="Copy it again"):
        to.record("long")
    copied = source.copy(to)
    assert (copied.runs, copied.same, copied.ok) == (2, 1, True)
    assert copied.entries == 120 - reached + 2
    same(source, to)


def test_a_copy_that_was_interrupted_at_its_very_end_is_given_up_by_the_next(
    two: tuple[Trail, Trail], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, to = two
    notes(source, "run", *map(str, range(70)))

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(to.store, "renew", stop)
        with pytest.raises(KeyboardInterrupt):
            source.copy(to)
    assert to.store.run("run").hash == source.store.run("run").hash
    with pytest.raises(OwnedError):
        to.record("run")
    assert source.copy(to).same == 1
    to.record("run")


def test_a_run_that_has_grown_gets_what_is_new(apart: tuple[Trail, Trail]) -> None:
    source, to = apart
    notes(source, "run", "a", "b")
    notes(source, "other", "c")
    source.copy(to)
    with source.record("run") as run:
        run.step("d", output="x" * 70_000, output_to="large")
    copied = source.copy(to)
    assert (copied.runs, copied.entries, copied.same) == (1, 2, 1)
    same(source, to)
    assert to.run("run").status == "completed"


def test_a_run_that_is_reopened_is_reopened_there(two: tuple[Trail, Trail]) -> None:
    source, to = two
    with pytest.raises(ValueError, match="no"), source.record("run"):
        raise ValueError("no")
    source.copy(to)
    assert (to.run("run").status, to.run("run").ended_at) == ("failed", source.run("run").ended_at)
    notes(source, "run", "again")
    source.copy(to)
    assert (to.run("run").status, to.run("run").ended_at) == ("active", None)
    same(source, to)


def test_a_run_at_work_is_copied_up_to_its_head_and_is_nobodys_there(apart: tuple[Trail, Trail]) -> None:
    source, to = apart
    run = source.record("run")
    run.step("a", output=1)
    source.copy(to)
    assert (source.run("run").owner is None, to.run("run").owner) == (False, None)
    notes(to, "run", "b")
    run.step("c", output=2)
    assert (list(names(source, "run")), list(names(to, "run"))) == (["start", "a", "c"], ["start", "a", "b"])


def test_a_run_that_has_gone_on_there_is_left_alone(apart: tuple[Trail, Trail]) -> None:
    """Promise 5."""
    source, to = apart
    notes(source, "run", "a")
    source.copy(to)
    notes(to, "run", "b")
    before = rows(to.store, "run")
    copied = source.copy(to)
    assert (copied.ahead, copied.ok, copied.entries) == (["run"], True, 0)
    assert "run has gone on there" in str(copied)
    assert rows(to.store, "run") == before
    to.prune("run", keep=1)
    assert source.copy(to).ahead == ["run"]


@pytest.mark.parametrize("further", [0, 1, 2])
def test_another_history_is_refused_with_both_heads_and_the_others_are_copied(
    apart: tuple[Trail, Trail], further: int
) -> None:
    """Promise 5: shorter, as long, and longer than the one that is there."""
    source, to = apart
    notes(to, "run", "x", "y")
    notes(source, "run", *"abc"[: further + 1])
    notes(source, "other", "d")
    before = rows(to.store, "run")
    copied = source.copy(to)
    assert (copied.runs, copied.ok) == (1, False)
    [(run_id, error)] = copied.refused
    assert run_id == "run"
    assert isinstance(error, HistoryDiffersError)
    here, there = source.store.run("run"), to.store.run("run")
    assert (error.here, error.there) == ((here.seq, here.hash), (there.seq, there.hash))
    for part in (here.hash.hex()[:12], there.hash.hex()[:12], "another trail", "another id"):
        assert part in str(error)
    assert rows(to.store, "run") == before
    same_run(source, to, "other")


def test_pages_of_any_size_give_the_same(two: tuple[Trail, Trail], monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs, rows, large values and pieces that are not held at once."""
    source, to = two
    for name in "abcdefg":
        notes(source, name, "x")
    source.fork("b", 1, id="fork").release()
    notes(source, "noise", *noise(80))
    KINDS["large"][0](source)
    for module, name, value in (
        (copying, "_PAGE", 2), (copying, "_NEW", 2), (transferring, "_ROWS", 7), (transferring, "_BYTES", 1),
        (transferring, "_SENT", 0),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)
    running = Copying(source.store, to.store)
    running.once()
    same(source, to)
    for name in "hijkl":
        notes(source, name, "y")
    assert running.again().ok
    same(source, to)


def test_short_runs_are_made_together(apart: tuple[Trail, Trail], monkeypatch: pytest.MonkeyPatch) -> None:
    source, to = apart
    for number in range(60):
        source.record(f"run {number}").finish(number)
    assert isinstance(to.store, PostgresStore)
    commit, batches = to.store._group._commit, list[int]()

    def counted(jobs: Sequence[Job]) -> None:
        batches.append(len(jobs))
        commit(jobs)

    monkeypatch.setattr(to.store._group, "_commit", counted)
    assert source.copy(to).runs == 60
    assert batches == [60]
    same(source, to)


def test_a_run_that_said_more_after_its_end_ended_when_it_did(two: tuple[Trail, Trail]) -> None:
    """Promise 14."""
    source, to = two
    writer = begin(source.store, "run", lease=0.0)
    source.store.append(writer.draft(writer.rows(2), status=STATUS_NUMBER[Status.FAILED]))
    writer.write(2)
    assert source.copy(to).ok
    assert told(to.store.run("run")) == told(source.store.run("run"))


# What cannot be copied.


def test_a_text_that_the_place_cannot_hold_is_refused_by_name(places: Places) -> None:
    """Promise 13."""
    source, to = places.open("sqlite"), places.open("postgres")
    notes(source, "fine", "a")
    begin(source.store, "odd", lease=0.0).write(name="a\0b")
    notes(source, "well", "c")
    copied = source.copy(to)
    assert [(run_id, type(error)) for run_id, error in copied.refused] == [("odd", UnstorableError)]
    assert {run.id for run in to.runs()} == {"fine", "well"}


def test_a_trail_is_not_copied_to_itself(places: Places) -> None:
    url = places.url("sqlite")
    trail = places.opened(url)
    for same_one in (trail, places.opened(f"sqlite:///{url}")):
        with pytest.raises(ValueError, match="itself"):
            trail.copy(same_one)
    memory = places.open("memory")
    notes(memory, "run", "a")
    assert memory.copy(places.open("memory")).runs == 1


def test_event_loops_await_it(two: tuple[Trail, Trail]) -> None:
    source, to = map(AsyncTrail, two)
    notes(source.trail, "run", "a")

    async def copies() -> tuple[int, int]:
        return (await source.copy(to)).runs, (await source.copy(to.trail, "run")).same

    assert asyncio.run(copies()) == (1, 1)
