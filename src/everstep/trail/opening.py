"""From a URL to a store. What cannot be understood is refused: nothing falls back to memory in silence."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote

from everstep.errors import OpenError, ReadOnlyError, UnknownSchemeError
from everstep.store.base import Store
from everstep.store.memory import MemoryStore
from everstep.store.sqlite import SqliteStore
from everstep.trail.late import Late

MEMORY = ":memory:"
_SQLITE = "sqlite:///"
POSTGRES = ("postgresql://", "postgres://")
_POSTGRES = Late("everstep.store.postgres")
_PASSWORD = re.compile(r"(?<=://)([^/?#@:]*):.*@|([?&](?:ssl)?password=)[^&]*")


def open_store(url: str | os.PathLike[str], *, read_only: bool) -> Store:
    """A path, `sqlite:///path` (four slashes for an absolute one), `postgresql://...` or `:memory:`."""
    text = os.fspath(url)
    if not isinstance(text, str) or not text.strip():
        raise OpenError(
            "the trail's URL is empty. Give a path, 'sqlite:///path/to/trail.db' or 'postgresql://host/name'."
        )
    if text in {MEMORY, _SQLITE + MEMORY}:
        if read_only:
            raise ReadOnlyError(MEMORY)
        return MemoryStore()
    if text.startswith(_SQLITE):
        return SqliteStore(unquote(text.removeprefix(_SQLITE)), read_only=read_only)
    if text.startswith(POSTGRES):
        store: Store = _POSTGRES.PostgresStore(text, read_only=read_only)
        return store
    if "://" in text or (isinstance(url, str) and text.startswith("sqlite:")):
        raise UnknownSchemeError(without_password(text))
    return SqliteStore(str(Path(text).expanduser()), read_only=read_only)


def without_password(url: str) -> str:
    """A URL as it may be shown."""
    return _PASSWORD.sub(lambda found: f"{found[1]}@" if found[1] is not None else found[2], url)
