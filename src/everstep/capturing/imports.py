"""Modules that are patched when the program imports them: whatever it does not use costs nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Patch = Callable[[ModuleType], None]


class _After:  # none of importlib.abc: that is loaded for nobody else
    """Loads a module as it would be loaded, then patches it."""

    def __init__(self, loader: Any, patch: Patch) -> None:
        self._loader, self._patch = loader, patch

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """The module, made by its own loader."""
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Run its code, then the patch."""
        self._loader.exec_module(module)
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self._loader
        self._patch(module)


class _Finder:
    def __init__(self, patches: dict[str, Patch]) -> None:
        self._patches = patches

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        patch = self._patches.pop(fullname, None)  # popped first: the finders below may ask for it again
        if patch is None:
            return None
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(fullname, path, target)) is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _After(spec.loader, patch)  # type: ignore[assignment] # it does what one does
                return spec
        self._patches[fullname] = patch  # it is not there; perhaps it will be
        return None


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
