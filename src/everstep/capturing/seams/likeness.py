"""Exceptions that hold what has no place in a record, as connections and answers: what is recorded in their place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_PLAIN = (str, bytes, int, float, type(None))


def recordable(error: Exception) -> Exception:
    """What is recorded of an exception: itself, or its likeness where it holds what has no place in a record."""
    held = [*error.args, *vars(error).values()]
    if all(isinstance(each, _PLAIN) for each in held):
        return error
    number = getattr(error, "errno", None)
    return likeness(type(error), str(error) if number is None else f"[Errno {number}] {error}")


def likeness(kind: type[Exception], message: str) -> Exception:
    """What passes for an exception that cannot be made from its text alone."""

    def init(self: Exception) -> None:
        self.args = (message,)

    made = type(kind.__name__, (kind,), {"__init__": init, "__str__": lambda _: message, "__module__": kind.__module__})
    found: Exception = made()
    return found


class Stage:
    """Round a call: what it fails with is recorded by its likeness, and raised as it was."""

    def __init__(self) -> None:
        self._failure: Exception | None = None
        self._recorded: Exception | None = None

    @contextmanager
    def live(self) -> Iterator[None]:
        """Round what makes the call."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - raised on, in a form that can be recorded
            self._failure, self._recorded = error, recordable(error)
            raise self._recorded from error.__cause__  # not from what it stands for: that would be recorded with it

    @contextmanager
    def asked(self) -> Iterator[None]:
        """Round whatever asks for it."""
        try:
            yield
        except Exception as error:  # only its likeness is exchanged for it
            failure = self._failure
            if failure is None or error is not self._recorded:
                raise
            vars(failure).update({name: value for name, value in vars(error).items() if name not in vars(failure)})
            raise failure from failure.__cause__  # with the marks by which it is known as the failure of this call
