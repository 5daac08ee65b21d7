"""Lives of a run: it is begun, crashes at a row, is resumed, crashes again, and is resumed to its end.

A crash is that nothing more is written: every further append of that life fails with something that no code catches.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import everstep
from everstep.errors import DivergenceError
from everstep.model import KIND_NUMBER, Kind
from everstep.store.base import Append, Settled, Store
from tests.programs.generator import Program
from tests.programs.interpreter import Player, Stumble
from tests.programs.world import Boom, World

PATIENCE = 20.0  # seconds until a life counts as stalled: far more than one takes on a busy machine


_DEAD = -1
_END = KIND_NUMBER[Kind.END]


class Crash(BaseException):
    """The process is gone, as far as the run can tell. Not an Exception: nothing handles a death."""


class Mortal:
    """A store whose writer dies after so many rows. The rows themselves are in the real store beneath."""

    def __init__(
        self, store: Store, rows: int | None, *, last_is_kept: bool = False, before_the_end: bool = False
    ) -> None:
        self.beneath = store
        self.rows = 0  # that were written
        self._left = rows
        self._last_is_kept = last_is_kept  # the last rows are written, and the writer dies before it hears of it
        self._before_the_end = before_the_end  # it also dies when the end of the run is to be written
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.beneath, name)

    @property
    def dead(self) -> bool:
        return self._left == _DEAD

    @property
    def where(self) -> str:
        return self.beneath.where

    def append(self, append: Append) -> bool:
        with self._lock:
            self._live(append)
            return self.beneath.append(append)

    def post(self, append: Append, settled: Settled | None = None) -> Callable[[], bool]:
        with self._lock:
            self._live(append)
            return self.beneath.post(append, settled)

    def submit(
        self, append: Append, loop: asyncio.AbstractEventLoop, settled: Settled | None = None
    ) -> asyncio.Future[bool]:
        with self._lock:
            self._live(append)
            return self.beneath.submit(append, loop, settled)

    def _live(self, append: Append) -> None:
        """Count the rows; raise Crash when they are one too many."""
        size = len(append.entries)
        if self._before_the_end and append.entries[-1].kind == _END:
            self._left = _DEAD
        if self._left is not None and self._left < size:
            if self._last_is_kept and not self.dead:
                self.beneath.append(append)
            self._left = _DEAD
            raise Crash
        if self._left is not None:
            self._left -= size
        self.rows += size


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a life ended: ok, failed, stumbled, crash, diverged, stall or error; with its value or text."""

    how: str
    value: Any = None
    restored: bool = False
    cause: str = ""  # of a divergence


PLAYERS: dict[str, Player] = {}  # by run


@everstep.workflow(name="program")
def plain_workflow(seed: int) -> int:
    """A plain program."""
    player = PLAYERS[everstep.current().run_id]
    return player.ended(player.plain(player.nodes, ((), ()), 1))


@everstep.workflow(name="program")
async def awaited_workflow(seed: int) -> int:
    """An async program."""
    player = PLAYERS[everstep.current().run_id]
    return player.ended(await player.awaited(player.nodes, ((), ()), 1))


def live(
    program: Program,
    run_id: str,
    world: World,
    store: Store,
    chance: Random,
    *,
    on_a_loop: bool | None = None,
    stumbles: int | None = None,
) -> Outcome:
    """One life of a run, on the store it is given, by AsyncRunner or by Runner; which one is left to chance.

    If its code `stumbles` it raises by itself, after so many of its parts.
    """
    PLAYERS[run_id] = Player(program, world, chance, stumbles)
    workflow: Any = awaited_workflow if program.is_async else plain_workflow
    trail = everstep.Trail(store)
    world.new_life(lambda: isinstance(store, Mortal) and store.dead)
    awaited = chance.random() < 0.5 if on_a_loop is None else on_a_loop

    def run() -> everstep.RunResult[Any]:
        if awaited:
            return asyncio.run(everstep.AsyncRunner(trail).run(workflow, program.seed, id=run_id))
        return everstep.Runner(trail).run(workflow, program.seed, id=run_id)

    try:
        return _in_time(run)
    finally:
        del PLAYERS[run_id]


def _in_time(run: Callable[[], everstep.RunResult[Any]]) -> Outcome:
    ended: list[Outcome] = []
    thread = threading.Thread(target=lambda: ended.append(_outcome(run)), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    if ended:
        return ended[0]
    frames = sys._current_frames()
    stacks = ["".join(traceback.format_stack(frames[each.ident or 0])) for each in threading.enumerate()]
    return Outcome("stall", "\n".join(stacks))


def _outcome(run: Callable[[], everstep.RunResult[Any]]) -> Outcome:
    try:
        result = run()
    except DivergenceError as error:
        return Outcome("diverged", str(error), cause=error.cause)
    except Boom as error:
        return Outcome("failed", str(error))
    except Stumble:
        return Outcome("stumbled")
    except BaseException as error:  # noqa: BLE001 - told to whoever looks at this life
        if any(isinstance(each, Crash) for each in members(error)):
            return Outcome("crash")
        text = "".join(traceback.format_exception(error))
        return Outcome("diverged" if any(isinstance(e, DivergenceError) for e in members(error)) else "error", text)
    return Outcome("ok", result.value, restored=result.restored)


def members(error: BaseException) -> list[BaseException]:
    """The exceptions in a group, at any depth; of another one, itself."""
    if isinstance(error, BaseExceptionGroup):
        return [member for each in error.exceptions for member in members(each)]
    return [error]
