"""Modules that are patched when the program imports them: whatever it does not use costs nothing."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Patch = Callable[[ModuleType], None]


class _After:  # none of importlib.abc: that is loaded for nobody else
    """Loads a module as it would be loaded, then patches it. Else it is as its own loader: a program may ask it."""

    def __init__(self, loader: Any, patches: dict[str, Patch], name: str) -> None:
        self._loader, self._patches, self._name = loader, patches, name

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_loader"), name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """The module, made by its own loader."""
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Run its code, then the patch."""
        self._loader.exec_module(module)
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self._loader
        patch = self._patches.pop(self._name, None)  # now: who looks for a module, or fails, has not imported it
        if patch is not None:
            patch(module)


class _Finder:
    def __init__(self, patches: dict[str, Patch]) -> None:
        self._patches = patches
        self._looking: set[tuple[int, str]] = set()  # threads, and what they look for

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        look = threading.get_ident(), fullname
        if fullname not in self._patches or look in self._looking:
            return None
        self._looking.add(look)  # the finders below may ask for it again
        try:
            others = (each for each in sys.meta_path if each is not self)
            asked = (each.find_spec(fullname, path, target) for each in others if hasattr(each, "find_spec"))
            spec = next(filter(None, asked), None)
        finally:
            self._looking.discard(look)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _After(spec.loader, self._patches, fullname)  # type: ignore[assignment] # it does what one does
        return spec


def when_imported(patches: dict[str, Patch]) -> None:
    """Patch modules: those that are there now, the others when they are imported."""
    waiting = {}
    for name, patch in patches.items():
        module = sys.modules.get(name)
        if module is None:
            waiting[name] = patch
        else:
            patch(module)
    sys.meta_path.insert(0, _Finder(waiting))
