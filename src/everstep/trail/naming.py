"""How a trail is named. It stands alone: a command that hands a name on loads nothing of trails."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote

MEMORY = ":memory:"
SQLITE = "sqlite:///"
POSTGRES = ("postgresql://", "postgres://")
FILES = "file://"  # and an absolute path
_PASSWORD = re.compile(r"(?<=://)([^/?#@:]*):.*@|([?&](?:ssl)?password=)[^&]*")


def without_password(url: str) -> str:
    """A URL as it may be shown."""
    return _PASSWORD.sub(lambda found: f"{found[1]}@" if found[1] is not None else found[2], url)


def folder_of(url: str) -> Path | None:
    """The folder of a trail of JSON files: `file:///path`, a path that ends in a slash, a folder that is there."""
    if url.startswith(FILES + os.sep):
        return Path(unquote(url.removeprefix(FILES)))
    path = Path(url).expanduser()
    is_folder = "://" not in url and (url.endswith(os.sep) or os.path.isdir(path))  # noqa: PTH112 - raises nothing
    return path if is_folder else None
