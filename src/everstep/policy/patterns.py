"""Regular expressions that are compiled when they are first used: most programs meet few of the shapes of secrets."""

from __future__ import annotations

import re
from typing import Any


class Pattern:
    """Stands for a compiled pattern. What was once asked of it is an attribute: no call pays for the delay."""

    def __init__(self, pattern: str | bytes, flags: int = 0) -> None:
        self._made_of: tuple[Any, int] = pattern, flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # somebody copies it
            raise AttributeError(name)
        value = getattr(re.compile(*self._made_of), name)
        setattr(self, name, value)
        return value
