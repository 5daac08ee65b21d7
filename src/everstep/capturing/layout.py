"""Whether a library is laid out as a seam knows it: one that is not would be missed in silence."""

from __future__ import annotations

import inspect
from functools import reduce
from importlib import import_module
from types import ModuleType
from typing import Any

from everstep.errors import UnknownLayoutError


def checked(module: ModuleType, name: str, parameters: list[str] | None) -> Any:
    """What stands under a dotted name. Raises UnknownLayoutError if it is not there, or does not begin with these."""
    try:
        found: Any = reduce(getattr, name.split("."), module)
    except AttributeError:
        raise UnknownLayoutError(module.__name__, _version(module), f"it has no {name}") from None
    if parameters is not None:
        known = list(inspect.signature(found).parameters)
        if known[: len(parameters)] != parameters:
            raise UnknownLayoutError(module.__name__, _version(module), f"{name} takes {', '.join(known)}")
    return found


def _version(module: ModuleType) -> str:
    metadata = import_module("importlib.metadata")  # needed for an error alone
    try:
        return str(metadata.version(module.__name__.partition(".")[0]))
    except metadata.PackageNotFoundError:
        return str(getattr(module, "__version__", "?"))
