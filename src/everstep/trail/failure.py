"""What is kept of an exception: what people read, and what it takes to raise it again."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from types import MemberDescriptorType
from typing import Any

from everstep.codec.homes import home_of
from everstep.codec.record import trimmed
from everstep.codec.values import encode
from everstep.errors import EverstepError, RecordedError, UnstorableError
from everstep.model import StepError

VALIDATION = "from_exception_data"  # what a ValidationError of pydantic is known by
ERRORS = "errors"  # in what is kept of it: those
_NOTES = "__notes__"  # what `add_note` added
_CAUSES = 10  # one behind the other, that are kept


def described(error: BaseException | StepError) -> list[Any]:
    """Its type, text and traceback; then its origin.

    That is its module, arguments, attributes, members if it is a group, the classes that its own is made of, and what
    it was raised from.
    """
    if isinstance(error, StepError):
        return trimmed([error.type, error.message, error.traceback])
    if not isinstance(error, BaseException):
        raise UnstorableError("error", f"it is of type {type(error).__name__}", "Give the exception, or a StepError.")
    try:
        trace = "".join(traceback.format_exception(error)) if error.__traceback__ is not None else None
    except Exception:  # noqa: BLE001 - whatever an exception's own code does, its step is recorded
        trace = None
    return trimmed([*_said(error), None if trace is None else _whole(trace), _origin(error)])


def str_of(error: BaseException) -> str:
    """The text of an exception, whatever its own code does."""
    try:
        return str(error)
    except Exception as another:  # noqa: BLE001 - as above
        return f"(its text could not be had: {type(another).__name__})"


def _said(error: BaseException) -> tuple[str, str]:
    return type(error).__qualname__, _whole(str_of(error))


def _origin(error: BaseException, before: tuple[BaseException, ...] = ()) -> list[Any]:
    args, members, cause, path = error.args, None, error.__cause__, (*before, error)
    if isinstance(error, BaseExceptionGroup):
        args = (error.message,)
        members = [_inside(each, path) for each in error.exceptions]
    if len(path) > _CAUSES or any(cause is each for each in path):
        cause = None
    if not _storable(list(args)):
        args = (_said(error)[1],)
    attributes = {
        name: value
        for name, value in [*getattr(error, "__dict__", {}).items(), *_fields(error), *_found_invalid(error)]
        if (name == _NOTES or not name.startswith("__")) and _storable({name: value})
    }
    return trimmed([
        home_of(type(error)), list(args), attributes or None, members, _bases(type(error)) or None,
        None if cause is None else _inside(cause, path),
    ])  # fmt: skip


def _inside(error: BaseException, path: tuple[BaseException, ...]) -> list[Any]:
    """One that another has to do with: of what people read, the traceback of that one tells."""
    return [*_said(error), None, _origin(error, path)]


def _bases(cls: type[BaseException]) -> list[list[str]]:
    """What else a handler may know it by, if its class cannot be named where it is raised again."""
    bases = [] if cls.__module__ == "builtins" else cls.__mro__[1:]
    known_by = [each for each in bases if issubclass(each, Exception) and not issubclass(RecordedError, each)]
    return [[home_of(each), each.__qualname__] for each in known_by]


def _fields(error: BaseException) -> Iterator[tuple[str, Any]]:
    """What it has beside its `__dict__`: the file of an OSError, the name in a NameError, `__slots__`."""
    for cls in type(error).__mro__:
        for name, field in vars(cls).items():
            # The object of an AttributeError may be anything, as large as it likes, and is no news to who caught it.
            if isinstance(field, MemberDescriptorType) and (cls, name) != (AttributeError, "obj"):
                value = getattr(error, name, None)
                if value is not None and not any(value is each for each in error.args):
                    yield name, value


def _found_invalid(error: BaseException) -> list[tuple[str, Any]]:
    """What a ValidationError of pydantic is made of: it has no attributes that tell. Errors among it as all others."""
    if not hasattr(type(error), VALIDATION):
        return []
    try:
        found = error.errors()  # type: ignore[attr-defined] # one that is made of them has them
        for each in found:
            if isinstance(raised := each.get("ctx", {}).get("error"), BaseException):
                each["ctx"] = each["ctx"] | {"error": _inside(raised, ())}
    except Exception:  # noqa: BLE001 - as above
        return []
    return [(ERRORS, found)]


def _storable(value: Any) -> bool:
    try:
        encode(value)
    except (EverstepError, RecursionError):
        return False
    return True


def _whole(text: str) -> str:
    """The text with half characters spelled out, which cannot be stored as they are."""
    return text.encode("utf-8", "backslashreplace").decode()
