"""What failed and why: the chain from a failure back to its steps, and recorded exceptions raised again.

A failed step leaves a mark on its exception. When the exception, or one raised because of it, ends the step around or
the run, the marks tell which steps it came from: those are asked for again when the failed run is taken up.
"""

from __future__ import annotations

import builtins
import inspect
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from types import MemberDescriptorType, ModuleType
from typing import Any

from everstep import errors
from everstep.codec import record
from everstep.codec.chain import Entry
from everstep.codec.homes import home_of, imported_as
from everstep.codec.registry import register
from everstep.codec.values import decode, encode, view
from everstep.errors import (
    ChangedClassError,
    JournalError,
    RecordedError,
    RedactedValueWarning,
    UnknownClassError,
)
from everstep.model import StepError
from everstep.run.lanes import Scope
from everstep.trail.failure import ERRORS, VALIDATION, str_of
from everstep.trail.late import asyncio

_numbers = count(1)
_MARKS = "__everstep_marks__"
_NOT_THERE = (UnknownClassError, ChangedClassError)
_CANCELLED = "asyncio.exceptions", "CancelledError"  # no Exception, and yet what a step may end with


class _Marks(dict[Scope, int]):
    """The step that failed with an exception, by scope; the last one, where the same object is raised repeatedly."""

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """Nothing of it leaves the process with a copy of the exception."""
        return dict, ()


def mark(error: BaseException, scope: Scope, seq: int) -> None:
    """Note on an exception that a step of this scope failed with it."""
    with suppress(AttributeError):  # an exception without room for it ends the chain there
        error.__dict__.setdefault(_MARKS, _Marks())[scope] = seq


def is_marked(error: BaseException, scope: Scope) -> bool:
    """Whether a step of this scope failed with this very exception."""
    return scope in getattr(error, _MARKS, {})


def is_by_signal(error: BaseException) -> bool:
    """Whether a handler of a signal raised it: then the program is told to end, whatever it was about."""
    handlers = filter(callable, map(signal.getsignal, signal.valid_signals()))
    plain = [getattr(handler, "func", handler) for handler in handlers]  # behind a partial
    codes = {getattr(each, "__code__", None) or getattr(type(each).__call__, "__code__", None) for each in plain}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))


def chain(error: BaseException, scope: Scope) -> list[int]:
    """The failed steps of a scope that an exception came from: its own, else its members', else those of its cause."""
    return sorted(_came_from(error, scope, set()))


def _came_from(error: BaseException | None, scope: Scope, seen: set[int]) -> set[int]:
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        marks = getattr(error, _MARKS, {})
        if scope in marks:
            return {marks[scope]}
        members = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
        found = {seq for member in members for seq in _came_from(member, scope, seen)}
        if found:
            return found
        error = error.__cause__ or error.__context__  # also behind `from None`: that is about what is shown
    return set()


def levels(error: BaseException) -> Iterator[list[BaseException]]:
    """The exception with the members of its groups, then what caused it, and so on."""
    level: BaseException | None = error
    seen: set[int] = set()
    while level is not None and id(level) not in seen:
        seen.add(id(level))
        yield list(_members(level))
        level = level.__cause__ or (None if level.__suppress_context__ else level.__context__)


def _members(error: BaseException) -> Iterator[BaseException]:
    waiting = [error]
    while waiting:
        each = waiting.pop()
        yield each
        if isinstance(each, BaseExceptionGroup):
            waiting.extend(each.exceptions)


def raised_again(kept: list[Any], reach: Reach) -> BaseException:
    """A recorded exception: of its own class where the code can name it, else a RecordedError with the same text.

    That is of those classes too that its own is made of, as far as the code can name them: who caught it by one of
    them must catch it again.
    """
    error = _again(kept, reach)
    cause = cause_of(kept)
    if cause is not None:
        error.__cause__ = raised_again(cause, reach)
    return error


def cause_of(kept: list[Any]) -> list[Any] | None:
    """What is kept of the one that a recorded exception was raised from."""
    found: list[Any] | None = kept[3][5] if len(kept) > 3 and len(kept[3] or ()) > 5 else None
    return found


def _again(kept: list[Any], reach: Reach) -> BaseException:
    kind, message = kept[0], kept[1] if len(kept) > 1 else ""
    origin = kept[3] if len(kept) > 3 else None
    if origin is not None:
        module, args, attributes, members, bases = [*origin, None, None, None][:5]
        if (module, kind) == _CANCELLED:
            return asyncio.CancelledError(*args)
        with suppress(Exception):  # whatever its own code does, there is a stand-in
            cls = _found(module, kind, reach) or _standing_in(kind, message, module, bases or [], reach)
            if cls is not None:
                if members is not None:
                    args = [*args, [raised_again(each, reach) for each in members]]
                if hasattr(cls, VALIDATION):
                    return _invalid(cls, message, (attributes or {}).get(ERRORS), reach)
                error = _made(cls, args, attributes)
                more = {} if _says_what_it_lacks(error) else {"__getattr__": _lacks}
                if str_of(error) == message and not more:
                    return error
                return _made(_saying(cls, message, **more), args, attributes)
    return RecordedError(kind, message)


def _found(module: str, kind: str, reach: Reach) -> type[BaseException] | None:
    cls = getattr(builtins, kind, None) if module == "builtins" else reach.exception(module, kind)
    return cls if isinstance(cls, type) and issubclass(cls, Exception | SystemExit) else None


def _standing_in(kind: str, message: str, module: str, bases: list[Any], reach: Reach) -> type[BaseException] | None:
    """The class for an exception whose own cannot be named, if it is made of some that can."""
    known: list[type[BaseException]] = []
    for home, name in bases:
        cls = _found(home, name, reach)
        if cls is not None and not any(issubclass(each, cls) for each in known):
            known.append(cls)
    said = {"type": kind, "message": message, "__module__": module, "__qualname__": kind}
    as_sent = {"__reduce__": lambda _: (RecordedError, (kind, message))}  # no other process has this class
    return type(kind, (RecordedError, *known), said | as_sent) if known else None


def _made(cls: type[BaseException], args: list[Any], attributes: dict[str, Any] | None) -> BaseException:
    error = cls.__new__(cls, *args)
    builtin: Any = next(each for each in cls.__mro__ if each.__module__ == "builtins")
    with suppress(TypeError):  # a class may have other arguments than the one of Python's that it is made of
        builtin.__init__(error, *args)  # the fields of Python's own, like errno and start: no code of the class
    BaseException.__setattr__(error, "args", tuple(args))  # also where the class lets nobody change it
    for name, value in (attributes or {}).items():
        field = inspect.getattr_static(cls, name, None)
        if isinstance(field, MemberDescriptorType):
            with suppress(AttributeError, TypeError):  # one that is made of the arguments
                field.__set__(error, value)
        else:
            error.__dict__[name] = value
    return error


def _saying(cls: type[BaseException], message: str, **more: Any) -> type[BaseException]:
    """The class for an exception whose text is made of more than its arguments: who catches it must get it still."""
    said = {"__str__": lambda _: message, "__module__": cls.__module__, "__qualname__": cls.__qualname__}
    return type(cls.__name__, (cls,), said | more)


def _says_what_it_lacks(error: BaseException) -> bool:
    """Whether it is an AttributeError to ask it for what it has not: a class may look in what only its making gives."""
    try:
        hasattr(error, "what no exception has")
    except Exception:  # noqa: BLE001 - as the KeyError of urllib.error.HTTPError
        return False
    return True


def _lacks(error: BaseException, name: str) -> Any:
    raise AttributeError(
        f"this recorded {type(error).__name__} has no {name!r}: kept are its arguments, its text and those of its "
        "attributes that can be stored. Let the step catch it and return what the code needs.",
        name=name, obj=error,
    )  # fmt: skip


def _invalid(cls: type[BaseException], message: str, kept: list[dict[str, Any]] | None, reach: Reach) -> BaseException:
    """A ValidationError of pydantic. Made of its errors it would say them anew; it says what it said."""
    for each in kept or ():
        if isinstance(raised := each.get("ctx", {}).get("error"), list):
            each["ctx"]["error"] = raised_again(raised, reach)

    def errors(_: Any, *, include_url: bool = True, include_context: bool = True, include_input: bool = True) -> Any:
        if kept is None:
            raise JournalError(
                f"what this recorded {cls.__name__} is made of could not be stored, only its text: use str(error) in "
                "the code that catches it, or let the step that validates catch it and return what the code needs"
            )
        asked = {"url": include_url, "ctx": include_context, "input": include_input}
        return [{name: value for name, value in each.items() if asked.get(name, True)} for each in kept]

    def json(self: Any, *, indent: int | None = None, **included: bool) -> str:
        to_json = sys.modules["pydantic_core"].to_json
        return str(to_json(errors(self, **included), indent=indent, fallback=str), "utf-8")

    said = _saying(
        cls, message, __repr__=lambda _: message, errors=errors, json=json,
        error_count=lambda self: len(errors(self)),
    )  # fmt: skip
    title = message.partition("\n")[0].partition(" for ")[2]
    return said.__new__(said, title, [])


def told(error: BaseException) -> StepError:
    """An exception as people read it in a log."""
    return StepError(type(error).__qualname__, str_of(error))


def warn_of_redaction(run_id: str, entry: Entry) -> None:
    """Say that the code goes on with a placeholder."""
    warn(
        f"step {entry.seq} ({entry.name!r}) of run {run_id!r} gave a secret, which was not stored: the resumed run "
        "goes on with a placeholder in its place. Read a secret in the step that uses it, not in one that returns it.",
        RedactedValueWarning,
    )


def warn(text: str, category: type[Warning]) -> None:
    """Warn at the line of the user's code that led here."""
    level, frame = 2, sys._getframe(1)  # noqa: SLF001 - whose line it is
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("everstep.", "contextlib")):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)


class Reach:
    """What the functions of a program can name: their globals, and what stands in the modules among these."""

    def __init__(self) -> None:
        self.number = next(_numbers)  # what a step keeps of it: that can be copied with the step, and holds nothing
        self._modules: dict[str, dict[str, Any]] = {errors.__name__: vars(errors)}
        self._classes: dict[tuple[str, str], type] = {}
        self._known: set[int] = set()

    def add(self, function: Any) -> None:
        """Let what this function can name be found."""
        names = getattr(function, "__globals__", None)
        if names is None or id(names) in self._known:
            return
        self._known.add(id(names))
        self._modules[imported_as(names.get("__name__", ""))] = names
        for value in list(names.values()):
            if isinstance(value, ModuleType):
                self._modules.setdefault(value.__name__, vars(value))
            elif isinstance(value, type):
                self._classes[home_of(value), value.__qualname__] = value

    def __call__(self, module: str, qualname: str) -> Any:
        """What stands there, None if the code cannot name it."""
        if (module, qualname) in self._classes:
            return self._classes[module, qualname]
        first, *rest = qualname.split(".")
        found = self._names_of(module).get(first)
        for name in rest:
            found = getattr(found, name, None)
        return found

    def _names_of(self, module: str) -> dict[str, Any]:
        """What stands in a module: one of those, or a part of one, which `import a.b` lets the code name as a.b."""
        if module in self._modules:
            return self._modules[module]
        above, _, below = module.rpartition(".")
        part = self._names_of(above).get(below) if above else None
        return vars(part) if isinstance(part, ModuleType) and part.__name__ == module else {}

    def exception(self, module: str, qualname: str) -> Any:
        """The class of an exception: what stands there, or what a module hands on that stands elsewhere."""
        found = self(module, qualname)
        if found is not None:
            return found
        for names in self._modules.values():
            handed_on = names.get(qualname)
            if handed_on is not None and home_of(handed_on) == module:
                return handed_on
        # A module may name it and fetch it when it is asked for. It is not asked: that could load code.
        if any(qualname in (names.get("__all__") or ()) for names in self._modules.values()):
            return vars(sys.modules.get(module, errors)).get(qualname)
        return None

    def decode(self, data: bytes, fetch: Callable[[bytes], bytes]) -> Any:
        """A stored value, its classes registered as they are met if the code can name them."""
        for _ in range(100):
            try:
                return decode(data, fetch)
            except UnknownClassError as unknown:
                module, _, qualname = unknown.name.partition(":")
                cls = self(module, qualname)
                if not isinstance(cls, type):
                    raise
                register(cls)
        return decode(data, fetch)

    def payload(self, data: bytes, fetch: Callable[[bytes], bytes]) -> list[Any]:
        """What a row carries. Of an exception without what it held of classes that the code cannot name.

        Nobody chose to store that, as a step's values are chosen: it must not keep the rest from being read.
        """
        found: list[Any]
        try:
            found = self.decode(data, fetch)
        except _NOT_THERE:
            found = view(data, fetch)
            if len(found) <= record.ERROR or not found[record.ERROR]:
                raise
            found = [*found[: record.ERROR], self._legible(found[record.ERROR]), *found[record.ERROR + 1 :]]
            found = self.decode(encode(found), fetch)
        return found

    def _legible(self, kept: list[Any]) -> list[Any]:
        if len(kept) < 4 or not kept[3]:
            return kept
        home, args, attributes, members, bases, cause = [*kept[3], *[None] * 5][:6]
        args = args if self._is_legible(args) else [kept[1]]
        attributes = {name: value for name, value in (attributes or {}).items() if self._is_legible(value)}
        members = members and [self._legible(each) for each in members]
        return [*kept[:3], [home, args, attributes, members, bases, cause and self._legible(cause)]]

    def _is_legible(self, viewed: Any) -> bool:
        try:
            self.decode(encode(viewed), bytes)
        except _NOT_THERE:
            return False
        return True
