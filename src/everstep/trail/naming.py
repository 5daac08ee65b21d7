"""How a trail is named. It stands alone: a command that hands a name on loads nothing of trails."""

from __future__ import annotations

import re

MEMORY = ":memory:"
SQLITE = "sqlite:///"
POSTGRES = ("postgresql://", "postgres://")
_PASSWORD = re.compile(r"(?<=://)([^/?#@:]*):.*@|([?&](?:ssl)?password=)[^&]*")


def without_password(url: str) -> str:
    """A URL as it may be shown."""
    return _PASSWORD.sub(lambda found: f"{found[1]}@" if found[1] is not None else found[2], url)
