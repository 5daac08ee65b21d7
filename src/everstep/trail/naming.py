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
_SCHEMES = ("sqlite:", "file:", "postgresql:", "postgres:")  # also where slashes are missing
_PASSWORD = re.compile(r"^((?:postgres(?:ql)?:/?|.*?://)[^/?#@:]*):.*@")
_OPTION = re.compile(r"([?&])(?:ssl)?password=[^&]*(&|$)")  # none at all: an empty one would count


def without_password(url: str) -> str:
    """A URL as it may be shown."""
    url = _PASSWORD.sub(r"\1@", url)
    while found := _OPTION.search(url):
        url = url[: found.start()] + (found[1] if found[2] else "") + url[found.end() :]
    return url


def is_url(text: str) -> bool:
    """Whether a name is meant as a URL; a file with such a name is `./file:...`."""
    return "://" in text or text.startswith(_SCHEMES)


def folder_of(url: str) -> Path | None:
    """The folder of a trail of JSON files: `file:///path`, a path that ends in a slash, a folder that is there."""
    if url.startswith(FILES + os.sep):
        return Path(unquote(url.removeprefix(FILES)))
    path = Path(url).expanduser()
    is_folder = not is_url(url) and (url.endswith(os.sep) or os.path.isdir(path))  # noqa: PTH112 - raises nothing
    return path if is_folder else None
