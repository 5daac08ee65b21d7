"""How a program is taken out of a run that cannot go on.

A whole program exits, with its threads and its event loops. Where a stretch of one task is captured, others share the
loop, and an exit out of any task would end it for all of them. There tasks, threads and callbacks end by it as by any
exception, which reaches the stretch where they are awaited. Where they are not, its task is cancelled, as that of a
task group would be.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from everstep.capturing import loops
from everstep.run.lanes import outside
from everstep.run.stopping import Suspended
from everstep.trail.late import asyncio, running_loop

if TYPE_CHECKING:
    from everstep.run.execution import Execution

_STATUS = 3  # of a program that nobody asks for one: whoever captures it tells of the cause
_MOMENT = 0.05  # seconds for it to reach the stretch by itself


class Halted(BaseException):
    """Takes the program out. No Exception: nobody retries it."""

    def __init__(self, cause: BaseException | None) -> None:
        super().__init__(_STATUS)
        self.__cause__ = cause


class _Exit(Halted, SystemExit):
    """The same, and threads leave quietly."""


def is_halt(error: BaseException) -> bool:
    """Whether the run took code out by this."""
    return isinstance(error, Halted | Suspended)


def halted_in(raised: BaseException) -> BaseException | None:
    """What took a task out whose group (anyio's) hands it on among others."""
    while isinstance(raised, BaseExceptionGroup):
        found = raised.subgroup(Halted)
        if found is None:
            return None
        raised = found.exceptions[0]
    return raised if isinstance(raised, Halted) else None


class Host:
    """Whose stretch is captured: a whole program's, that of a task, or of other code."""

    def __init__(self, run: Execution, *, is_whole: bool) -> None:
        self._run, self._is_whole = run, is_whole
        self._loop = running_loop()
        self._task = None if self._loop is None else asyncio.current_task()
        self._error: Halted | None = None
        self._is_over = False

    @property
    def is_task(self) -> bool:
        """Whether it is a task's, on a loop that others share."""
        return self._task is not None

    def halted(self, cause: BaseException | None = None) -> Halted:
        """What is to take out the code that calls. Without a cause the run waits for somebody to say what became of it.

        One that exits, unless others share the loop: then the stretch is over, whether that reaches it or not.
        """
        here = running_loop()
        if self._is_whole or (self._task is None and (here is None or loops.run_by(here) is self._run)):
            return _Exit(cause)
        error, loop = Halted(cause), self._loop or here
        if loop is not None and not self._is_over and not (here is self._loop and asyncio.current_task() is self._task):
            with suppress(RuntimeError):  # it was closed: nobody is left on it
                loop.call_soon_threadsafe(loop.call_later, _MOMENT, self._leave, error, loop, context=outside())
        return error

    def _leave(self, error: Halted, loop: asyncio.AbstractEventLoop) -> None:
        """Have the stretch left; where it is no task, its tasks on the loop are, for which it waits."""
        if self._is_over or self._error is not None:
            return
        if self._task is not None:
            self._error = error
            self._task.cancel()
            return
        for task in tuple(self._run.turnstile.tasks):
            if task.get_loop() is loop:
                task.cancel()

    @contextmanager
    def left(self) -> Iterator[None]:
        """Around the stretch: it is left by what took one of its tasks out, and not by being cancelled for that."""
        try:
            yield
        except BaseException as raised:  # a cancellation is no Exception
            if self._error is None or not isinstance(raised, asyncio.CancelledError):
                raise
            raise self._error from self._error.__cause__
        finally:
            self._is_over = True
            if self._error is not None and self._task is not None:
                self._task.uncancel()
