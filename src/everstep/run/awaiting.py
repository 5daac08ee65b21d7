"""What `pause` and `sleep` give on an event loop: something to await, which nobody can take for an answer."""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Iterable
from typing import Any

from everstep.errors import NotAwaitedError
from everstep.run.lanes import Lane
from everstep.run.steps import called_at
from everstep.trail.late import asyncio, running_loop


class ToAwait(Coroutine[Any, Any, Any]):
    """A coroutine that says so where it is tested for truth. Its run knows of it until somebody awaits it."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], name: str, lane: Lane | None) -> None:
        self._coroutine, self._name = coroutine, name
        self._place = "{}:{}".format(*called_at())
        self._known_to: dict[ToAwait, None] = {} if lane is None else lane.run.unawaited
        self._known_to[self] = None

    def __await__(self) -> Generator[Any, Any, Any]:
        self._known_to.pop(self, None)
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        """Go on with it, as a task does."""
        self._known_to.pop(self, None)
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise in it, as a task does that is cancelled."""
        self._known_to.pop(self, None)
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """Give it up: it need not be awaited any more."""
        self._known_to.pop(self, None)
        self._coroutine.close()

    def __bool__(self) -> bool:
        raise self.error()

    def error(self) -> NotAwaitedError:
        """What is wrong where it is not awaited."""
        return NotAwaitedError(self._name, self._place)

    def __getattr__(self, name: str) -> Any:
        """What else a coroutine has: its name, after which the lane of its task is called, its frame, its state."""
        return getattr(self._coroutine, name)

    def __repr__(self) -> str:
        return f"<{self._name} of {self._place}, to be awaited>"


def forgotten(unawaited: Iterable[ToAwait]) -> NotAwaitedError | None:
    """The error for what was made in a run that is over, and neither awaited nor handed to a task."""
    if not unawaited:
        return None
    taken = set() if running_loop() is None else {task.get_coro() for task in asyncio.all_tasks()}
    left = [each for each in unawaited if each not in taken]
    for each in left:
        each.close()  # Python need not warn as well
    return left[0].error() if left else None
