"""What ./pyproject.toml says of us, in [tool.everstep]: the app, and what models cost.

A program that is recorded waits for this, so what reads TOML is loaded only where there is something to read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from everstep.errors import CaptureError
from everstep.trail.late import Late

PROJECT = Path("pyproject.toml")
_TOML, _TABLES = Late("tomllib"), Late("everstep.models.prices")


def configured(name: str) -> Any:
    """A setting; None where there is none. Raises OSError and ValueError if that cannot be told."""
    text = PROJECT.read_text("utf-8") if PROJECT.is_file() else ""
    found = _TOML.loads(text) if "everstep" in text else None
    for key in ("tool", "everstep", name):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def prices() -> dict[str, list[float]] | None:
    """For each model what a million tokens cost; None if nothing is said. Raises CaptureError for what is no price."""
    try:
        found: dict[str, list[float]] | None = configured("prices")
        if found is not None:
            _TABLES.PriceTable(found)
    except (OSError, ValueError) as error:
        raise CaptureError(f"the prices in [tool.everstep] of ./{PROJECT} cannot be used: {error}.") from error
    return found
