"""The code that a run is resumed with. A person names it, here or in pyproject.toml; a trail never does."""

from __future__ import annotations

import tomllib
from pathlib import Path

PROJECT = Path("pyproject.toml")


def configured() -> str | None:
    """The app that `[tool.everstep]` of ./pyproject.toml names; None where there is none, or nothing can be read."""
    try:
        found = tomllib.loads(PROJECT.read_text("utf-8")).get("tool", {}).get("everstep", {}).get("app")
    except (OSError, ValueError, AttributeError):
        return None
    return found if isinstance(found, str) and found else None
