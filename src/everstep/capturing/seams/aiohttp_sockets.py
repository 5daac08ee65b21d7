"""aiohttp's websockets."""

from __future__ import annotations

from types import ModuleType


def patch(aio: ModuleType) -> None:
    """Wrap them. Raises UnknownLayoutError."""
    del aio
