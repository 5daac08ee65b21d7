"""Where classes and functions stand, by the names that other processes find them under."""

from __future__ import annotations

import sys
from pathlib import PurePath
from typing import Any

_SCRIPT = frozenset({"__main__", "__mp_main__"})  # the second: in the processes that it spawns


def home_of(thing: Any) -> str:
    """The module that a class or a function stands in."""
    return imported_as(getattr(thing, "__module__", None) or "")


def imported_as(module: str) -> str:
    """The name of a module; that of a script, as it is when others import it: `agent` for what is in `agent.py`.

    What a script stores is so the same for who imports it, as `everstep resume RUN --app agent` does.
    """
    if module not in _SCRIPT:
        return module
    main = sys.modules.get("__main__")
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:  # python -m
        return str(spec.name)
    return module if file is None else PurePath(file).stem
