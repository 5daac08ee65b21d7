"""Whether a library is laid out as a seam knows it: one that is not would be missed in silence."""

from __future__ import annotations

import inspect
from functools import reduce
from importlib import import_module
from types import ModuleType
from typing import Any

from everstep.errors import UnknownLayoutError

_REPLACED = {"urllib3": ("urllib3-future", "niquests")}  # what installs itself in the place of a library, and for whom


def checked(module: ModuleType, name: str, parameters: list[str] | None) -> Any:
    """What stands under a dotted name. Raises UnknownLayoutError if it is not there, or does not begin with these."""
    try:
        found: Any = reduce(getattr, name.split("."), module)
    except AttributeError:
        raise _unknown(module, f"it has no {name}") from None
    if parameters is not None:
        known = list(inspect.signature(found).parameters)
        if known[: len(parameters)] != parameters:
            raise _unknown(module, f"{name} takes {', '.join(known)}")
    return found


def _unknown(module: ModuleType, reason: str) -> UnknownLayoutError:
    """What is to be raised, with the name of what is really there."""
    package, said = module.__name__.partition(".")[0], str(getattr(module, "__version__", "?"))
    replaced = _REPLACED.get(package)
    if replaced is not None and _version(replaced[0]) == said:
        return UnknownLayoutError(module.__name__, said, reason, replaced)
    return UnknownLayoutError(module.__name__, _version(package) or said, reason)


def _version(distribution: str) -> str | None:
    metadata = import_module("importlib.metadata")  # needed for an error alone
    try:
        return str(metadata.version(distribution))
    except metadata.PackageNotFoundError:
        return None
