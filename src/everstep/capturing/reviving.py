"""Errors on record that are none of the library that made a call: handlers of signals raise them amid it.

What exits, and Ctrl-C, are Python's own. A timeout by `signal.alarm` has a class of the program's, or of a package that
the program names. It is looked for among what is loaded; nothing is imported for it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

from everstep.codec.homes import home_of
from everstep.errors import RecordedError
from everstep.run import faults

_ENDS: dict[str, type[BaseException]] = {cls.__name__: cls for cls in (KeyboardInterrupt, SystemExit)}
_BUILTINS = "builtins"
_INSTALLED = ("site-packages", "dist-packages")


def exit_on_record(kept: list[Any]) -> BaseException | None:
    """What took the code out of a call, as the record has it; None if that was an Exception."""
    module, args = _origin(kept)
    cls = _ENDS.get(kept[0]) if module == _BUILTINS else None
    return None if cls is None else cls(*args)


def error_on_record(kept: list[Any], revived: BaseException) -> BaseException:
    """What a call raised: as its library revives it, unless it was not the library's, and the program names it."""
    module, _ = _origin(kept)
    if module in {None, _BUILTINS} or _package(module) == _package(home_of(type(revived))):
        return revived
    reach = faults.Reach()
    for each in _of_program():
        reach.add(SimpleNamespace(__globals__=vars(each)))
    found = faults.raised_again(kept, reach)
    return revived if isinstance(found, RecordedError) else found


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
