"""The step: a function whose outcomes are kept."""

from __future__ import annotations

import contextvars
import inspect
import sys
import threading
import warnings
from collections.abc import Callable, Coroutine, Sequence
from functools import partial, update_wrapper
from types import MethodType
from typing import Any, Generic, Literal, ParamSpec, TypeVar, overload

from everstep.codec.homes import home_of
from everstep.errors import EscapedStepWarning, StepTimeoutError
from everstep.run.arguments import Parameters
from everstep.run.driving import call_step, drive_awaited, known_loop
from everstep.run.flow import step_flow
from everstep.run.given import check_seconds, check_word
from everstep.run.heart import live_runs
from everstep.run.lanes import CURRENT, OUTSIDE, Lane, here
from everstep.run.retry import ONCE, Retry
from everstep.run.streams import stream, stream_awaited
from everstep.trail.late import asyncio

P = ParamSpec("P")
R = TypeVar("R")
Unknown = Literal["ask", "retry", "fail"]
_OWN_NAME = "\0"


class Step(Generic[P, R]):
    """A function that a run asks for once: its outcome is recorded, and returned from the record ever after.

    Called outside of a run it is the plain function.
    """

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None,
        output: str | None,
        append: bool,
        external: bool,
        unknown: Unknown,
        retry: Retry | None,
        timeout: float | None,
        ignore: Sequence[str],
    ) -> None:
        if not callable(function) or isinstance(function, staticmethod):
            above = "@staticmethod, @classmethod, @property and the like go above @step"
            raise TypeError(f"{function!r:.60} is no function; {above}")
        check_word("unknown", unknown, Unknown)
        if unknown != "ask" and not external:
            raise ValueError(f"unknown={unknown!r} is for external effects: say external=True as well")
        if retry is not None and not isinstance(retry, Retry):
            raise TypeError(f"retry={retry!r:.60}: give everstep.Retry(attempts=...)")
        if timeout is not None:
            check_seconds("timeout", timeout)
        for argument, given in (("name", name), ("output", output)):
            if given is not None and not isinstance(given, str):
                raise TypeError(f"{argument}={given!r:.60}: give a text, or leave it out")
        if append and output is None:
            raise ValueError("append=True adds to a list in the state, and output=None keeps it out: say one of them")
        update_wrapper(self, function)
        self.function = function
        self.name = name or short_name(function)
        if not hasattr(self, "__name__"):  # of a partial, or an object that can be called
            self.__name__ = self.__qualname__ = self.name
        self.output = self.name.rpartition(".")[2] if output == _OWN_NAME else output
        self.append = append
        self.external = external
        self.unknown = unknown
        self.retry = retry or ONCE
        self.timeout = timeout
        plain, self.bound_to, self.bound_by_name = unbound(function)
        self.parameters = Parameters(plain, ignore, f"step {self.name!r}")
        self.reached = 0  # the number of the reach that was last told what it can name
        self._escapes: set[tuple[str, int]] = set()
        self._call: Callable[..., Any] = self._calling()

    def _calling(self) -> Callable[..., Any]:
        body = body_of(self.function)
        is_stream, is_awaited_stream = inspect.isgeneratorfunction(body), inspect.isasyncgenfunction(body)
        if (is_stream or is_awaited_stream) and (self.retry is not ONCE or self.timeout is not None or self.external):
            raise TypeError(f"{self.name!r} is a stream: retry, timeout and external are for steps that return")
        if is_stream:
            return self._stream
        if is_awaited_stream:
            return self._stream_awaited
        if inspect.iscoroutinefunction(body):
            if sys.version_info >= (3, 12):
                inspect.markcoroutinefunction(self)
            else:  # there, inspect believes what has the code of a coroutine
                self.__code__, self.__defaults__, self.__kwdefaults__ = Step._await.__code__, None, None
            self._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined] # noqa: SLF001 - how asyncio asks
            return self._awaited
        return self._plain

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """What the function gives, or gave."""
        return self._call(args, kwargs)  # type: ignore[no-any-return] # what the function gives

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """The step of an object: `self` is its first argument, as with any method."""
        return self if instance is None else MethodType(self, instance)

    def _plain(self, args: Any, kwargs: Any) -> Any:
        lane = here()
        if lane is None:
            self.escaped()
            return self.function(*args, **kwargs)
        return call_step(lane, self, args, kwargs)

    def timed(self, call: Callable[[], Any]) -> Callable[[], Any]:
        """The call, given up when it takes longer than it may."""
        return call if self.timeout is None else partial(_in_time, self.name, self.timeout, call)

    def _awaited(self, args: Any, kwargs: Any) -> Coroutine[Any, Any, Any]:
        coroutine: Any = self._await(args, kwargs)
        coroutine.__qualname__ = self.name  # the lane of a task is named after it
        return coroutine  # type: ignore[no-any-return] # Any, to be able to name it

    async def _await(self, args: Any, kwargs: Any) -> Any:
        lane = here()
        function: Any = self.function
        if lane is None:
            self.escaped()
            return await function(*args, **kwargs)
        call = self.timed_awaited(partial(function, *args, **kwargs))
        return await drive_awaited(step_flow(lane, self, args, kwargs, known_loop(self.name)), lane, call)

    def timed_awaited(self, call: Callable[[], Any]) -> Callable[[], Any]:
        """`timed`, for what is awaited."""
        return call if self.timeout is None else partial(_await_in_time, self.name, self.timeout, call)

    def _stream(self, args: Any, kwargs: Any) -> Any:
        lane = here()
        if lane is None:
            self.escaped()
            return self.function(*args, **kwargs)
        return stream(lane, self, args, kwargs)

    def _stream_awaited(self, args: Any, kwargs: Any) -> Any:
        lane = here()
        if lane is None:
            self.escaped()
            return self.function(*args, **kwargs)
        return stream_awaited(lane, self, args, kwargs)

    def escaped(self) -> None:
        """Say once for each place that a step was called outside of the run that is live."""
        if not live_runs() or CURRENT.get() is OUTSIDE:
            return
        place = called_at()
        if place not in self._escapes:
            self._escapes.add(place)
            warnings.warn(
                f"step {self.name!r} was called at {place[0]}:{place[1]} outside of the run that is live in this "
                "process, so it was not recorded. If it belongs to the run, start its thread with "
                "everstep.submit(pool, fn, ...) and its task after the run began.",
                EscapedStepWarning,
                stacklevel=3,
            )

    def __everstep_digest__(self) -> str:
        """What stands for it as an argument, like for any function: its name."""
        return f"{home_of(self.function)}:{self.name}"

    def __repr__(self) -> str:
        return f"<step {self.name!r}>"


def called_at() -> tuple[str, int]:
    """The file and the line of the user's code that led here."""
    frame = sys._getframe(1)  # noqa: SLF001 - whose call it was
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("everstep."):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def body_of(function: Any) -> Any:
    """The function behind a partial or an object that can be called: what tells how it is to be called."""
    while isinstance(function, partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def unbound(function: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The function behind a partial, a method of an object or an object that can be called, and what it is bound to.

    That is part of what is asked, as the arguments are: a question to another model is another question.
    """
    args: tuple[Any, ...] = ()
    named: dict[str, Any] = {}
    while True:
        if isinstance(function, partial):
            args, named, function = (*function.args, *args), {**function.keywords, **named}, function.func
        elif inspect.ismethod(function):
            args, function = (function.__self__, *args), function.__func__
        elif inspect.isroutine(function) or isinstance(function, type):
            return function, args, named
        else:
            args, function = (function, *args), type(function).__call__


def short_name(function: Any) -> str:
    """The qualified name without module and without the function it was defined in: it survives moving the code."""
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__qualname__", type(function).__qualname__)).rpartition("<locals>.")[2]


def _in_time(name: str, seconds: float, call: Callable[[], Any]) -> Any:
    """Call in a thread, and leave it there when it takes too long: a thread cannot be ended."""
    context, outcome = contextvars.copy_context(), list[Any]()

    def run() -> None:
        try:
            outcome.append((True, context.run(call)))
        except BaseException as error:  # noqa: BLE001 - raised again where it was called
            outcome.append((False, error))

    run.__module__ = __name__  # one of ours: it has no lane of its own
    thread = threading.Thread(target=run, name=f"everstep-{name}", daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise StepTimeoutError(name, seconds)
    good, value = outcome[0]
    if good:
        return value
    raise value


async def _await_in_time(name: str, seconds: float, call: Callable[[], Any]) -> Any:
    try:
        async with asyncio.timeout(seconds) as limit:
            return await call()
    except TimeoutError:
        if limit.expired():
            raise StepTimeoutError(name, seconds) from None
        raise


@overload
def step(function: Callable[P, R], /) -> Step[P, R]: ...
@overload
def step(
    *,
    name: str | None = None,
    output: str | None = _OWN_NAME,
    append: bool = False,
    external: bool = False,
    unknown: Unknown = "ask",
    retry: Retry | None = None,
    timeout: float | None = None,
    ignore: Sequence[str] = (),
) -> Callable[[Callable[P, R]], Step[P, R]]: ...
def step(
    function: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    output: str | None = _OWN_NAME,
    append: bool = False,
    external: bool = False,
    unknown: Unknown = "ask",
    retry: Retry | None = None,
    timeout: float | None = None,
    ignore: Sequence[str] = (),
) -> Step[P, R] | Callable[[Callable[P, R]], Step[P, R]]:
    """Make a function a step: plain, async, or a generator of either kind.

    What it returns becomes the state's value under its name, or under `output` (None keeps it out of the state); with
    `append` it is added to a list there. `external` effects are announced before they happen, and are never repeated
    without being asked for: `unknown` says what becomes of one that a crash cut off. `ignore` names parameters that are
    not part of what is asked, like clients.
    """
    make = partial(
        Step, name=name, output=output, append=append, external=external, unknown=unknown, retry=retry,
        timeout=timeout, ignore=ignore,
    )  # fmt: skip
    return make if function is None else make(function)


__all__ = ["Lane", "Step", "body_of", "called_at", "short_name", "step"]
