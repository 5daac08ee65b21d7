"""What the tests of copies share: pairs of places, and what must be the same in both."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import everstep
from everstep import Trail
from everstep.store.base import RunRow, Store
from everstep.trail.copying import Copying
from tests.integration.support import everything
from tests.postgres import place

PAIRS = [("sqlite", "postgres"), ("postgres", "sqlite"), ("sqlite", "files"), ("files", "sqlite")]


class Places:
    """Trails that are not there yet, of every kind."""

    def __init__(self, server: str, folder: Path, stack: ExitStack) -> None:
        self._server, self._folder, self._stack, self._made = server, folder, stack, 0

    def url(self, kind: str) -> str:
        """The URL of one."""
        self._made += 1
        if kind == "postgres":
            return self._stack.enter_context(place(self._server))
        path = self._folder / f"trail-{self._made}"
        return f"file://{path}" if kind == "files" else f"{path}.db"

    def open(self, kind: str, **given: Any) -> Trail:
        """One, opened until the test ends."""
        return self.opened(":memory:" if kind == "memory" else self.url(kind), **given)

    def opened(self, url: str, **given: Any) -> Trail:
        """The one at a URL, opened until the test ends."""
        return self._stack.enter_context(everstep.open(url, **given))


def rows(store: Store, run_id: str) -> list[Any]:
    run = store.run(run_id)
    return store.entries(run_id, run.base, run.seq)


def keyframes(store: Store, run_id: str) -> dict[int, tuple[bytes, bytes]]:
    """The keyframes of a run's history, by the step that they stand at."""
    found: dict[int, tuple[bytes, bytes]] = {}
    run = store.run(run_id)
    at = run.seq
    while (kept := store.keyframe(run_id, at)) is not None:
        found[kept.seq] = kept.hash, kept.data
        at = kept.seq - 1
    return found


def told(run: RunRow) -> RunRow:
    """A run without what belongs to the place that it is in."""
    return run._replace(key=0, owner=None, lease=0.0, epoch=0, generation=0, request=None)


def same(source: Trail, to: Trail) -> None:
    """See that a trail is a copy of another: every byte, every answer, every way to look at it."""
    ids = [run.id for run in source.runs(limit=10_000)]
    assert [run.id for run in to.runs(limit=10_000)] == ids
    for run_id in ids:
        same_run(source, to, run_id)
    here, there = everything(source), everything(to)
    for found in (here, there):
        found["runs"] = [replace(run, owner=None, epoch=0) for run in found["runs"]]
        found["checkpoints"].sort(key=str)  # those of one run are in order; among runs it is that of the copy
    assert there == here
    assert to.verify().ok


def same_run(source: Trail, to: Trail, run_id: str) -> None:
    there = to.store.run(run_id)
    assert told(there) == told(source.store.run(run_id))
    assert there.owner is None or there.lease <= time.time()  # nobody holds it
    assert rows(to.store, run_id) == rows(source.store, run_id)
    assert keyframes(to.store, run_id) == keyframes(source.store, run_id)


def notes(trail: Trail, run_id: str, *texts: str) -> None:
    """Steps of a run, which is made if it is not there; it stays open, and nobody's."""
    run = trail.record(run_id)
    for text in texts:
        run.step(text, output=text, append_to="texts")
    run.release()


def noise(count: int) -> list[str]:
    """Texts that stay long when they are compressed: a few dozen are worth a keyframe."""
    chance = random.Random(1)
    return [chance.randbytes(4_000).hex() for _ in range(count)]


def names(trail: Trail, run_id: str) -> Iterator[str]:
    return (step.name for step in trail.steps(run_id))


def halfway(source: Trail, to: Trail, then: Callable[[], object]) -> Copying:
    """A copy that does something once, when there is half of its run "a"."""
    done: list[object] = []

    def tell(*_: object) -> None:
        if not done and any(run.id == "a" and run.owner is not None for run in to.runs()):
            done.append(None)
            then()

    return Copying(source.store, to.store, (), tell)


def interrupt() -> None:
    raise KeyboardInterrupt
