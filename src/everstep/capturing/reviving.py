"""Errors on record that are none of the library that made a call: handlers of signals raise them amid it.

What exits, and Ctrl-C, are Python's own. A timeout by `signal.alarm` has a class of the program's, or of a package that
the program names. It is looked for among what is loaded; nothing is imported for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

from everstep.capturing.calls import Call
from everstep.codec.homes import home_of
from everstep.errors import RecordedError, UnfitOutcomeError
from everstep.model import STATUS_NUMBER, Status
from everstep.run import faults
from everstep.run.lanes import Lane

FAILED = STATUS_NUMBER[Status.FAILED]
_ENDS: dict[str, type[BaseException]] = {cls.__name__: cls for cls in (KeyboardInterrupt, SystemExit)}
_BUILTINS = "builtins"
_INSTALLED = ("site-packages", "dist-packages")


def unpacked(
    call: Call, stored: Any, row: tuple[str, int], lane: Lane, halted: Callable[[Lane, BaseException], BaseException]
) -> tuple[Any, list[Any]]:
    """Head and chunks of an answer on record. What a fork has put there may be none: then the run cannot go on."""
    is_fit = call.is_fit is None or call.is_fit(stored)
    try:
        head, chunks = call.form.unpack(stored)
        if is_fit:
            return head, list(chunks)
        unfit = UnfitOutcomeError(*row, call.name, in_events=True)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        unfit = UnfitOutcomeError(*row, call.name, in_events=not is_fit)
        unfit.__cause__ = error
    raise halted(lane, unfit) from unfit


def exit_on_record(kept: list[Any]) -> BaseException | None:
    """What took the code out of a call, as the record has it; None if that was an Exception."""
    module, args = _origin(kept)
    cls = _ENDS.get(kept[0]) if module == _BUILTINS else None
    return None if cls is None else cls(*args)


def error_on_record(kept: list[Any], revived: BaseException) -> BaseException:
    """What a call raised: as its library revives it, unless it was not the library's, and the program names it.

    With what it was raised from, where a program may look for the reason.
    """
    module, _ = _origin(kept)
    is_of_library = module in {None, _BUILTINS} or _package(module) == _package(home_of(type(revived)))
    cause = faults.cause_of(kept)
    if is_of_library and cause is None:
        return revived
    reach = faults.Reach()
    for each in _of_program():
        reach.add(SimpleNamespace(__globals__=vars(each)))
    found = revived if is_of_library else faults.raised_again(kept, reach)
    if isinstance(found, RecordedError):
        found = revived
    if cause is not None and found.__cause__ is None:
        found.__cause__ = faults.raised_again(cause, reach)
    return found


def _origin(kept: list[Any]) -> tuple[Any, list[Any]]:
    """The module and the arguments of a stored exception."""
    origin = kept[3] if len(kept) > 3 else None
    return (None, []) if not origin else (origin[0], list(origin[1]) if len(origin) > 1 else [])


def _package(module: str) -> str:
    return module.partition(".")[0]


def _of_program() -> Iterator[ModuleType]:
    """The modules that the program is made of, but for what was installed for it."""
    for name, module in list(sys.modules.items()):
        first, file = _package(name), getattr(module, "__file__", None) or ""
        is_installed = any(folder in file for folder in _INSTALLED) or first in sys.stdlib_module_names
        if (
            isinstance(module, ModuleType)
            and (name == "__main__" or (file and not is_installed))
            and first != "everstep"
        ):
            yield module
