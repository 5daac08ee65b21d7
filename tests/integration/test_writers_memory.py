"""What a writer keeps in memory of its run follows what became of its rows: retention, failures, forks, interrupts."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import everstep
from everstep.errors import EverstepError, LockedError, StoreError
from everstep.store.base import NewRun
from everstep.trail import scribe
from tests.integration.support import python

PIECES = 1_000  # items of a list that are several pieces, and more than a keyframe is worth


def items() -> list[bytes]:
    chance = random.Random(1)
    return [chance.randbytes(300) for _ in range(PIECES)]


def shortened(run: everstep.Recorder) -> None:
    """Write a list, and cut pieces out of it that its keyframe has, and a later one has not."""
    run.step("fill", append={"log": items()})
    run.step("cut", splice={"log": (130, 124, [])})
    run.step("small", set={"x": 1})
    run.step("small", set={"x": 2})


def test_a_writer_goes_on_beside_retention_that_takes_away_what_it_has_read(tmp_path: Path) -> None:
    """Promise 12: pieces that it still refers to are gone. That is no damage."""
    path = tmp_path / "trail.db"
    with everstep.open(path) as trail, everstep.open(path) as other:
        run = trail.record("steps")
        shortened(run)
        other.prune("steps", keep=1)
        run.step("edit", set={("log", 5): b"edited"})
        saved, whole = trail.record("saves"), items()
        saved.save({"log": whole})
        saved.save({"log": whole[:130] + whole[254:]})
        saved.save({"log": whole[:130] + whole[254:], "x": 1})
        other.prune("saves", keep=1)
        saved.save({"log": [b"edited", *whole[1:130], *whole[254:]], "x": 1})
        assert trail.state("steps")["log"][5] == b"edited"
        assert trail.state("saves")["log"][0] == b"edited"
        assert len(trail.state("saves")["log"]) == len(trail.state("steps")["log"]) == PIECES - 124
        assert trail.verify().ok


def test_a_fork_that_is_made_while_retention_takes_pieces_away_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise 9: no keyframe of it refers to what is gone."""
    path = tmp_path / "trail.db"
    with everstep.open(path) as trail, everstep.open(path) as other:
        shortened(trail.record("r"))
        create = trail.store.create

        def meanwhile(new: NewRun) -> Any:
            other.prune("r", keep=2)
            return create(new)

        with monkeypatch.context() as patch:
            patch.setattr(trail.store, "create", meanwhile)
            fork = trail.fork("r", 3, id="f", set={("log", 130): b"changed"})
        fork.step("more", append={"other": [random.randbytes(20_000) for _ in range(8)]})
        kept = trail.store.keyframe("f", trail.run("f").head)
        assert kept is not None
        assert kept.seq == 5
        assert trail.state("f")["log"][130] == b"changed"
        assert trail.verify().ok


@pytest.mark.parametrize("fault", [LockedError("trail.db", 1.0), KeyboardInterrupt()])
def test_a_run_that_was_taken_up_again_is_active_though_its_first_write_failed(
    tmp_path: Path, fault: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused by the store, or cut off when it was drafted."""
    with everstep.open(tmp_path / "trail.db") as trail:
        trail.record("r").finish(status="failed")
        run = trail.record("r")
        with monkeypatch.context() as patch, pytest.raises(type(fault)):
            refused = isinstance(fault, EverstepError)
            patch.setattr(
                trail.store if refused else scribe, "append" if refused else "Append", Mock(side_effect=fault)
            )
            run.step("again")
        assert run.seq == trail.run("r").head
        run.step("again")
        assert trail.run("r").status == "active"
        assert [step.name for step in trail.steps("r")] == ["start", "end", "again"]


def test_so_it_is_where_an_event_loop_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with await everstep.AsyncTrail.open(tmp_path / "trail.db") as trail:
            run = await trail.record("r")
            await run.finish(status="failed")
            run = await trail.record("r")
            store: Any = trail.trail.store
            with monkeypatch.context() as patch, pytest.raises(StoreError):
                patch.setattr(store._group, "_commit", Mock(side_effect=StoreError("the disk is full")))
                await run.step("again")
            await run.step("again")
            assert (await trail.run("r")).status == "active"

    asyncio.run(main())


FORKED = """
import os, sys
import everstep

trail = everstep.open(sys.argv[1])
with trail.record("r") as run:
    run.step("a")
    child = os.fork()
    if child == 0:
        sys.exit(0)  # leaves the block, as its parent's Ctrl-C would
    os.waitpid(child, 0)
    assert trail.store.run("r").owner is not None
    run.step("b")
"""


def test_a_forked_process_that_leaves_the_block_does_not_give_the_run_up(tmp_path: Path) -> None:
    """Promise 4: the run is still at work in its parent."""
    done = python(FORKED, tmp_path / "trail.db")
    assert done.returncode == 0, done.stderr
    with everstep.open(tmp_path / "trail.db") as trail:
        assert [step.name for step in trail.steps("r")] == ["start", "a", "b", "end"]


def test_an_interrupt_while_a_loop_is_told_of_its_rows_leaves_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise 1: what is durable is acknowledged, to each who waits for it."""
    heard = 0

    def settled(self: scribe.Scribe, *given: Any, **named: Any) -> None:
        nonlocal heard
        heard += 1
        if heard == 2:
            raise KeyboardInterrupt
        told(self, *given, **named)

    told, loop = scribe.Scribe.settled, asyncio.new_event_loop()
    trail = everstep.open(tmp_path / "trail.db")
    try:
        run = loop.run_until_complete(everstep.AsyncTrail(trail).record("r"))
        trail.store._group._takes = 1.0  # type: ignore[attr-defined] # as where a commit takes long: a thread makes it
        monkeypatch.setattr(scribe.Scribe, "settled", settled)
        steps = [loop.create_task(run.step("s", append={"log": [number]})) for number in range(4)]
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(asyncio.gather(*steps))
        done, waiting = loop.run_until_complete(asyncio.wait(steps, timeout=5))
        assert (len(done), len(waiting)) == (4, 0)
        loop.run_until_complete(run.finish())
        assert trail.state("r") == {"log": [0, 1, 2, 3]}
    finally:
        loop.close()
        trail.close()
