"""What others do meanwhile in a trail that runs are copied to, and what is said of it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import warnings
from typing import Any

import pytest

from everstep import DamageWarning, Trail
from everstep.errors import CopyAtWorkError, OwnedError
from everstep.store.base import Claim
from everstep.trail import following, transferring
from everstep.trail.copying import Copying
from everstep.trail.owner import COPY, HELD, is_copy
from tests.integration.copying import halfway, interrupt, keyframes, names, noise, notes, same, same_run
from tests.integration.support import environment, output

pytestmark = pytest.mark.usefixtures("small_pages")


def test_who_works_on_a_run_there_is_not_disturbed(two: tuple[Trail, Trail]) -> None:
    """Promise 4."""
    source, to = two
    notes(source, "run", "a")
    source.copy(to)
    worker = to.record("run")
    notes(source, "run", "b")
    copied = source.copy(to)
    assert isinstance(copied.refused[0].error, OwnedError)
    worker.step("c")
    assert list(names(to, "run")) == ["start", "a", "c"]


def test_who_worked_on_a_run_there_and_died_is_not_waited_for(two: tuple[Trail, Trail]) -> None:
    source, to = two
    notes(source, "run", "a")
    source.copy(to)
    output("import everstep, os, sys; everstep.open(sys.argv[1]).record('run'); os._exit(0)", to.store.where)
    assert to.run("run").owner is not None
    notes(source, "run", "b")
    assert source.copy(to).ok
    same(source, to)


def test_pieces_that_are_removed_there_meanwhile_are_sent_again(two: tuple[Trail, Trail]) -> None:
    """Promise 9: no keyframe refers to what is gone."""
    source, to = two
    notes(source, "run", *noise(200))
    waiting: list[Any] = []

    def let_go(done: int, _: int) -> None:
        if done > 50 and not waiting:
            waiting.append(done)
            notes(to, "short", "x", "y")
            to.prune("short", keep=1)

    with warnings.catch_warnings():
        warnings.simplefilter("error", DamageWarning)
        Copying(source.store, to.store, (), let_go).once()
        assert waiting
        assert to.verify("run").ok
    assert keyframes(to.store, "run").keys() < keyframes(source.store, "run").keys()
    assert to.state("run") == source.state("run")


def test_pieces_that_went_with_a_run_there_are_sent_again(two: tuple[Trail, Trail]) -> None:
    """Promise 9: another run that has the same needs them."""
    source, to = two
    notes(source, "one", *noise(80))
    notes(source, "two")
    running = Copying(source.store, to.store)
    running.once()
    to.drop("one")
    notes(source, "two", *noise(80))
    assert running.again().ok
    assert len(keyframes(to.store, "two")) > 1
    assert to.verify("two").ok
    assert to.state("two") == source.state("two")


def test_of_two_copies_at_once_one_says_that_the_other_is_at_work(pair: tuple[Trail, Trail]) -> None:
    """Promise 4: it copies the other runs, and later goes on with what the other left."""
    source, to = pair
    for run in "abc":
        notes(source, run, *map(str, range(70)))
    second = Copying(source.store, to.store)
    first = halfway(source, to, second.once)
    assert first.once().ok
    assert (first.done.runs, first.done.same, second.done.runs) == (1, 2, 2)
    [refusal] = second.done.refused
    assert isinstance(refusal.error, CopyAtWorkError)
    said = str(refusal.error)
    assert f"another copy is at work on run 'a' in {to.store.where}: {socket.gethostname()}:{os.getpid()}:" in said
    assert "it goes on where that stopped" in said
    assert (second.again().ok, second.done.same) == (True, 1)
    same(source, to)


COPIER = """
import sys, everstep
from everstep.trail import following, transferring
from everstep.trail.copying import Copying
transferring._ROWS = 50
source, to = map(everstep.open, sys.argv[1:])
Copying(source.store, to.store, (), lambda *_: (print("half", flush=True), sys.stdin.read())).once()
"""


def test_a_copy_in_another_process_is_named_and_gone_on_with_when_it_is_gone(two: tuple[Trail, Trail]) -> None:
    """Promises 2 and 4."""
    source, to = two
    notes(source, "a", *map(str, range(70)))
    command = [sys.executable, "-c", COPIER, source.store.where, to.store.where]
    with subprocess.Popen(command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as copier:
        assert copier.stdout is not None
        assert copier.stdout.readline() == b"half\n"
        [refusal] = source.copy(to).refused
        assert isinstance(refusal.error, CopyAtWorkError)
        assert f":{copier.pid}:" in refusal.error.owner
        copier.kill()
        copier.wait()
        assert source.copy(to).entries == 71 - 50
    same(source, to)


def test_a_copy_on_another_machine_is_waited_for_as_long_as_an_owner_is(
    two: tuple[Trail, Trail], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, to = two
    notes(source, "a", *map(str, range(70)))
    with pytest.raises(KeyboardInterrupt):
        halfway(source, to, interrupt).once()
    run = to.store.run("a")
    to.store.renew(Claim("a", COPY + "far:1:0", run.epoch, run.seq, run.hash, run.key, run.generation), HELD)
    [refusal] = source.copy(to).refused
    assert isinstance(refusal.error, CopyAtWorkError)
    assert 100 < refusal.error.seconds_left <= 120
    monkeypatch.setattr(transferring, "LEASE_SECONDS", 0)
    assert source.copy(to).ok
    same(source, to)


@pytest.mark.parametrize("steps", [1, 70])
def test_a_run_that_another_copy_made_just_now_is_there(
    pair: tuple[Trail, Trail], monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """As is one whose making was sent again, because the answer to it was lost."""
    source, to = pair
    for run in "ab":
        notes(source, run, *map(str, range(steps)))
    source.record("a").finish("well")
    entries = source.store.entries

    def meanwhile(run_id: str, first: int, last: int) -> Any:
        monkeypatch.undo()
        assert Copying(source.store, to.store).once().runs == 2
        return entries(run_id, first, last)

    monkeypatch.setattr(source.store, "entries", meanwhile)
    copied = source.copy(to)
    assert (copied.ok, copied.runs, copied.same) == (True, 0, 2)
    same(source, to)


def test_a_run_that_is_dropped_meanwhile_is_not_missed_but_half_of_it_is_told(two: tuple[Trail, Trail]) -> None:
    """Promise 13. Dropped there, it is copied anew."""
    source, to = two
    for run in "abcd":
        notes(source, run, *map(str, range(70 if run in "ad" else 1)))

    def drop() -> None:
        for run in "ab":
            source.drop(run)

    copied = halfway(source, to, drop).once()
    assert [(run_id, "was dropped here" in str(error)) for run_id, error in copied.refused] == [("a", True)]
    assert {run.id for run in to.runs()} == {"a", "c", "d"}
    to.drop("a")
    notes(source, "a", *map(str, range(70)))
    assert halfway(source, to, lambda: to.drop("a")).once().ok
    same_run(source, to, "a")


def test_a_run_that_is_pruned_meanwhile_is_copied_as_it_is_then(apart: tuple[Trail, Trail]) -> None:
    source, to = apart
    for run in "ab":
        notes(source, run, *map(str, range(70)))
    assert halfway(source, to, lambda: source.prune("b", keep=3)).once().ok
    same_run(source, to, "b")


def test_a_run_that_is_all_there_is_not_called_half_of_one_though_the_copy_was_cut_off(
    two: tuple[Trail, Trail], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, to = two
    notes(source, "run", "a")
    monkeypatch.setattr(transferring.Transfer, "_finish", lambda *_: interrupt())
    with pytest.raises(KeyboardInterrupt):
        source.copy(to)
    assert not is_copy(to.store.run("run").owner)
    to.record("run").release()


def test_half_of_a_run_cannot_be_cancelled_or_stopped(pair: tuple[Trail, Trail]) -> None:
    """Promises 2 and 13: nobody would hear it; and what is not there yet may say that the run has ended."""
    source, to = pair
    notes(source, "a", *map(str, range(70)))

    def ask() -> None:
        for word in (to.cancel, to.stop):
            with pytest.raises(OwnedError, match=r"not all there.*Copy it again"):
                word("a")

    assert halfway(source, to, ask).once().ok
    assert to.store.run("a").request is None
    to.cancel("a")
    assert to.run("a").status == "cancelled"


def test_a_cancel_here_is_copied_as_all_that_happens_is(apart: tuple[Trail, Trail]) -> None:
    source, to = apart
    notes(source, "a", *map(str, range(70)))
    notes(source, "b", "x")
    source.cancel("b")
    halfway(source, to, lambda: source.cancel("a")).once()
    assert (to.run("a").status, to.run("b").status) == ("active", "cancelled")
    assert source.copy(to).entries == 1
    same(source, to)


def test_a_run_at_work_that_is_followed_is_nobody_elses_there(pair: tuple[Trail, Trail]) -> None:
    """Promise 4: whoever went on with it there would do once more what is being done here."""
    source, to = pair
    notes(source, "idle", "x")
    worker = source.record("run")
    follower = Copying(source.store, to.store, follows=True)

    def is_free(run_id: str = "run") -> bool:
        try:
            to.record(run_id).release()
        except OwnedError:
            return False
        return True

    follower.once()
    assert (is_free(), is_free("idle")) == (False, True)
    worker.step("a")
    follower.again()
    assert (list(names(to, "run")), is_free()) == (["start", "a"], False)
    worker.release()
    follower.again()
    assert is_free()
    worker = source.record("run")
    worker.step("b")
    follower.again()
    assert not is_free()
    follower.end()
    assert is_free()
    follower.again()
    worker.finish()
    follower.again()
    same(source, to)


def test_a_followed_run_is_held_anew_before_its_lease_ends_and_goes_when_it_did(
    two: tuple[Trail, Trail], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise 4."""
    source, to = two
    source.record("run").step("a")
    copying = Copying(source.store, to.store, follows=True)
    copying.once()
    first = to.store.run("run").lease
    copying.again()
    assert to.store.run("run").lease == first
    monkeypatch.setattr(following, "LEASE_SECONDS", 0.0)
    copying.again()
    assert to.store.run("run").lease != first
    to.record("run").step("gone on there")  # its lease has ended: whoever followed it may be gone
    copying.again()
    assert list(names(to, "run")) == ["start", "a", "gone on there"]
