"""What a run's outcome may depend on beside its inputs: the text of the program around it, and the packages it imports.

Both are found from what the modules of the workflow refer to at their top: modules, functions, classes, instances. What
is installed counts by its version. What is not is the program itself: its text counts, and what it imports in turn.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from everstep.run.steps import body_of
from everstep.trail.versions import PACKAGES, SOURCES

_INSTALLED = frozenset({"site-packages", "dist-packages"})
_OURS = "everstep"
_RECORDS = ("everstep-", "everstep.egg")  # what is said of it where it is installed
_MOST = 250  # modules of a program that are looked at: it takes some tens of microseconds for each, once
_Names = dict[str, Any]  # what stands in a module
_known: dict[tuple[tuple[str, int, int], ...], dict[str, Any]] = {}


def surroundings(functions: Iterable[Callable[..., Any]]) -> dict[str, Any]:
    """A digest of the program's text, and the packages as `name version`: looked for once, while no module grows."""
    roots = {id(names): names for names in map(_names_of, functions) if names is not None}
    key = tuple((str(names.get("__name__")), at, len(names)) for at, names in roots.items())
    found = _known.get(key)
    if found is None:
        if len(_known) > _MOST:
            _known.clear()
        found = _known[key] = _looked_for(list(roots.values()))
    return found


def _names_of(function: Any) -> _Names | None:
    """What a function can name, below whatever it was decorated with."""
    names = getattr(inspect.unwrap(body_of(function)), "__globals__", None)
    return None if names is None or _is_known(names.get("__name__")) else names


def _looked_for(waiting: list[_Names]) -> dict[str, Any]:
    own = {_top(str(names.get("__name__"))) for names in waiting}
    texts, met = set[bytes | None](), {_OURS}
    packages = {_OURS, *filter(_is_installed, own)}
    for names in waiting:  # it grows on the way
        if "__path__" not in names or names.get("__file__"):  # else a folder, without a text of its own
            texts.add(_text(str(names.get("__file__"))))
        for name in _referred_to(names):
            if _is_known(name) or name in met:
                continue
            met.add(name)
            if _top(name) not in own and _is_installed(name):
                packages.add(name if _is_shared(_top(name)) else _top(name))
            elif name in sys.modules and len(waiting) < _MOST:
                waiting.append(vars(sys.modules[name]))
    known = sorted(filter(None, texts))  # by content: a file that was moved is what it was
    digest = blake2b(b"".join(known), digest_size=8).hexdigest() if known and None not in texts else None
    return {SOURCES: digest, PACKAGES: sorted(said for said in map(_version, packages) if said)}


def _referred_to(names: _Names) -> Iterator[str]:
    """The modules that what stands in a module comes from."""
    for value in list(names.values()):
        kind = type(value)
        try:  # past whatever it does when it is asked: it may be loaded late, or stand for something else
            yield kind.__module__
            if issubclass(kind, ModuleType):
                yield ModuleType.__getattribute__(value, "__name__")
            elif issubclass(kind, type):
                yield type.__getattribute__(value, "__module__")
            elif kind is FunctionType:
                yield value.__module__
            else:  # a step, or another wrapper, says where its function is from
                yield object.__getattribute__(value, "__dict__").get("__module__")
        except Exception:  # noqa: BLE001, S112 - a stranger's object: that it cannot be looked at says nothing of the run
            continue


def _is_known(name: Any) -> bool:
    """Whether there is nothing to find there: Python itself, or Everstep."""
    if type(name) is not str:
        return True
    top = _top(name)
    return top == _OURS or top in sys.stdlib_module_names


def _top(name: str) -> str:
    return name.partition(".")[0]


def _is_installed(name: str) -> bool:
    file = getattr(sys.modules.get(name), "__file__", None)
    return isinstance(file, str) and not _INSTALLED.isdisjoint(Path(file).parts)


def _is_shared(top: str) -> bool:
    """Whether several packages lie below a name, as below `google`."""
    return getattr(sys.modules.get(top), "__file__", None) is None


@lru_cache(maxsize=1_000)
def _version(module: str) -> str | None:
    """The package that a module is from, with its version; None where that cannot be told."""
    if module == _OURS and (own := _own_version()) is not None:
        return f"{module} {own}"
    metadata = import_module("importlib.metadata")  # 10 ms that no program pays which records nothing
    parts = module.split(".")
    for end in range(len(parts), 0, -1):
        name = "-".join(parts[:end])
        try:
            return f"{name} {metadata.version(name)}"
        except (metadata.PackageNotFoundError, OSError, ValueError):
            pass
    said = getattr(sys.modules.get(module), "__dict__", {}).get("__version__")  # `yaml` is of PyYAML, and says so
    return f"{module} {said}" if isinstance(said, str) else None


def _own_version() -> str | None:
    """Our version as it was installed; None where only importlib.metadata can tell, at ten times the cost."""
    for folder in sys.path:
        try:
            names = [name for name in os.listdir(folder or os.curdir) if name.lower().startswith(_RECORDS)]  # noqa: PTH208 - as short as it goes
        except OSError:
            names = [folder] if os.path.exists(folder) else []  # noqa: PTH110 - an archive, or nothing
        if names:
            return _said_in(Path(folder, names[0])) if len(names) == 1 else None
    return None


def _said_in(record: Path) -> str | None:
    try:
        head = record.joinpath("METADATA").read_text("utf-8").partition("\n\n")[0]
    except (OSError, ValueError):
        return None
    return next((line[9:].strip() for line in head.splitlines() if line.startswith("Version: ")), None)


@lru_cache(maxsize=1_000)
def _text(file: str) -> bytes | None:
    """A digest of a module's text as it is when it is first asked for: the file may change while its code stays."""
    try:
        return blake2b(Path(file).read_bytes(), digest_size=16).digest()
    except (OSError, ValueError):  # typed in, or in an archive
        return None
