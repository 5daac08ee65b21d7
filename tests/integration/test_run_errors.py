"""Exceptions after a resume: the code sees what it saw before, as far as it can be told, and decides the same."""

from __future__ import annotations

import copy
import json
import pickle
import queue
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

import everstep
from everstep import Retry, Runner, Status, Trail, step, workflow
from everstep.errors import RecordedError
from tests.integration.failing import WORLD, Wrapped, act, seen_twice, times_out
from tests.integration.running import crashed


class Refused(Exception):  # noqa: N818 - as in failing.py
    """Its text is made of its fields, not of its arguments."""

    def __init__(self, code: int, *, hint: str = "later") -> None:
        super().__init__(code)
        self.code, self.hint = code, hint

    def __str__(self) -> str:
        return f"refused with {self.code}, try {self.hint}"


class Client:
    """Something with an exception class of its own."""

    class Offline(ConnectionError):  # noqa: N818 - as above
        """It is known by the name of the class it stands in."""


class Stubborn(Exception):  # noqa: N818 - as above
    """It cannot be made without what it was made of."""

    def __new__(cls, *_: Any, reason: str) -> Self:
        return super().__new__(cls, reason)

    def __init__(self, *, reason: str) -> None:
        super().__init__(reason)


class Mute(Exception):  # noqa: N818 - as above
    def __str__(self) -> str:
        raise RuntimeError("no words")


def offline() -> None:
    raise Client.Offline("no route")


def local_class() -> None:
    class Private(Exception):  # noqa: N818 - as above
        pass

    raise Private("nobody can name it")


def called_process() -> None:
    raise subprocess.CalledProcessError(3, "ls")


KINDS: dict[str, Callable[[], object]] = {
    "builtin": lambda: int("x"),
    "key": lambda: dict[str, int]()["k"],
    "with a file name": lambda: Path("no such file").read_text("utf-8"),
    "with fields in C": lambda: b"\xff".decode("utf-8"),
    "of a module": lambda: json.loads("{"),
    "handed on by a module": lambda: queue.SimpleQueue[int]().get_nowait(),
    "with a text of its own": called_process,
    "imported": lambda: _raise(Wrapped("a", 1)),
    "of this module": lambda: _raise(Refused(503)),
    "of a class": offline,
    "own group": lambda: _raise(Wrapped(("a", {"b": 1}))),
}
OTHERS: dict[str, Callable[[], object]] = {
    "without words": lambda: _raise(Mute("x")),
    "not storable": lambda: _raise(Wrapped(object)),
    "group": lambda: _raise(ExceptionGroup("two", [ValueError(1), Refused(2)])),
}
STAND_INS: dict[str, Callable[[], object]] = {
    "local": local_class,
    "hard to make": lambda: _raise(Stubborn(reason="only so")),
}
CLASSES = (ValueError, LookupError, OSError, ConnectionError, Wrapped, Refused, subprocess.SubprocessError)


def _raise(error: Exception) -> None:
    raise error


@step(output=None)
def boom(kind: str) -> None:
    WORLD(kind)
    (KINDS | STAND_INS | OTHERS)[kind]()


@pytest.fixture
def trail() -> Any:
    with everstep.open(":memory:") as opened:
        yield opened


@pytest.mark.parametrize("kind", KINDS)
def test_a_recorded_exception_is_caught_by_whoever_caught_it(trail: Trail, kind: str) -> None:
    """Promise 6: the same handler, hence the same steps, and the same text."""
    live, served = seen_twice(trail, boom, kind)
    assert type(served).__qualname__ == type(live).__qualname__
    assert [cls for cls in CLASSES if isinstance(served, cls)] == [cls for cls in CLASSES if isinstance(live, cls)]
    assert isinstance(served, type(live))
    assert (str(served), served.args) == (str(live), live.args)


@pytest.mark.parametrize("kind", STAND_INS)
def test_what_cannot_be_made_again_has_a_stand_in_with_the_same_text(trail: Trail, kind: str) -> None:
    live, served = seen_twice(trail, boom, kind)
    assert type(served) is RecordedError
    assert served.type == type(live).__qualname__
    assert str(served) == str(live)


def test_an_exception_has_its_fields(trail: Trail) -> None:
    _, served = seen_twice(trail, boom, "of this module")
    assert isinstance(served, Refused)
    assert (served.code, served.hint) == (503, "later")


def test_a_group_has_its_members(trail: Trail) -> None:
    """A handler with `except*` takes the same ones."""
    live, served = seen_twice(trail, boom, "group")
    assert isinstance(live, ExceptionGroup)
    assert isinstance(served, ExceptionGroup)
    assert [(type(each), str(each)) for each in served.exceptions] == [(type(e), str(e)) for e in live.exceptions]


def test_an_exception_whose_arguments_cannot_be_stored_keeps_its_text(trail: Trail) -> None:
    live, served = seen_twice(trail, boom, "not storable")
    assert str(served) == str(live)


def test_an_exception_without_words_is_recorded_all_the_same(trail: Trail) -> None:
    live, served = seen_twice(trail, boom, "without words")
    assert type(served) is type(live) is Mute


def test_a_timeout_is_a_timeout_after_a_resume(trail: Trail) -> None:
    """Errors of ours are known, whether the code names them or not."""
    WORLD.crash = {"after"}
    crashed(trail, times_out, id="r")
    Runner(trail).run(times_out, id="r")
    assert WORLD.taken() == ["slow", "after", "after"]


def test_a_stand_in_is_retried_as_the_exception_was(trail: Trail) -> None:
    """The attempt failed with a class that nobody can name, and the crash came before that was recorded."""

    @step(output=None, retry=Retry(attempts=2, backoff=0))
    def around() -> str:
        try:
            boom("local")
        except Exception:
            act("seen")
            raise
        return "never"

    @workflow
    def retries() -> str:
        return around()

    WORLD.crash = {"seen"}
    crashed(trail, retries, id="r")
    with pytest.raises(Exception, match="nobody can name it"):
        Runner(trail).run(retries, id="r")
    assert WORLD.taken() == ["local", "seen", "seen", "local", "seen"]


def test_an_exception_that_left_a_run_can_be_copied_and_sent_elsewhere(trail: Trail) -> None:
    @workflow
    def fails() -> None:
        boom("imported")

    with pytest.raises(Wrapped) as raised:
        Runner(trail).run(fails, id="r")
    for other in (copy.deepcopy(raised.value), pickle.loads(pickle.dumps(raised.value))):
        assert (type(other), other.args) == (Wrapped, ("a", 1))


def test_an_output_that_cannot_be_stored_is_a_failed_step(trail: Trail) -> None:
    """Promise 7: refused at once, naming the path to it; and the run can be healed."""
    good: list[int] = []

    @step
    def gives() -> Any:
        WORLD("gives")
        return {"inner": [1, object() if not good else 2]}

    @workflow
    def stores() -> Any:
        return gives()

    with pytest.raises(everstep.EverstepError, match=r"inner.*1"):
        Runner(trail).run(stores, id="r")
    assert [(row.name, row.status) for row in trail.steps("r")][1:] == [
        ("gives", Status.FAILED), ("end", Status.FAILED),
    ]  # fmt: skip
    good.append(1)
    assert Runner(trail).run(stores, id="r").value == {"inner": [1, 2]}
    assert WORLD.taken() == ["gives", "gives"]


def test_a_result_that_cannot_be_stored_fails_the_run(trail: Trail) -> None:
    good: list[int] = []

    @workflow
    def returns() -> Any:
        act("a")
        return 1 if good else object()

    with pytest.raises(everstep.EverstepError, match="cannot store"):
        Runner(trail).run(returns, id="r")
    assert trail.run("r").status is Status.FAILED
    good.append(1)
    assert Runner(trail).run(returns, id="r").value == 1
    assert WORLD.taken() == ["a"]
