"""How a trail is named. It stands alone: a command that hands a name on loads nothing of trails."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from urllib.parse import unquote

TRAIL, DEFAULT = "EVERSTEP_TRAIL", ".everstep/trail.db"  # where commands look for the name, and else for the trail
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


def command_for(where: str, *words: str) -> str | None:
    """A command line of ours for the trail at a place: it is named unless commands look there. None for memory."""
    meant = os.environ.get(TRAIL) or DEFAULT
    if where.startswith(POSTGRES):
        named = [] if without_password(meant) == where else ["--trail", where]
    elif os.path.isabs(where):  # noqa: PTH117 - a place may be of any form
        path = os.path.realpath(folder_of(meant) or meant.removeprefix(SQLITE))
        named = [] if path == where else ["--trail", _near(where)]
    else:
        return None
    return shlex.join(["everstep", *words, *named])


def _near(path: str) -> str:
    """A path as one would type it here: relative where it is below."""
    try:
        near = os.path.relpath(path)
    except OSError:  # the folder that we are in is gone
        return path
    return path if near.startswith(os.pardir) else near
