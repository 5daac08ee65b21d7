"""From a URL to a store. What cannot be understood is refused: nothing falls back to memory in silence."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote

from everstep.errors import OpenError, ReadOnlyError, UnknownSchemeError, UnreadableError
from everstep.store.base import Store
from everstep.store.sqlite import SqliteStore
from everstep.trail.late import Late
from everstep.trail.naming import MEMORY, POSTGRES, SQLITE, folder_of, is_url, without_password

_MEMORY, _FILES, _POSTGRES = (Late(f"everstep.store.{name}") for name in ("memory", "files", "postgres"))


def open_store(url: str | os.PathLike[str], *, read_only: bool) -> Store:
    """A path, `sqlite:///path` (four slashes for an absolute one), `file:///path`, `postgresql://...`, `:memory:`."""
    text = os.fspath(url)
    if not isinstance(text, str) or not text.strip():
        raise OpenError(
            "the trail's URL is empty. Give a path, 'sqlite:///path/to/trail.db', 'file:///path/to/folder' or "
            "'postgresql://host/name'."
        )
    if text in {MEMORY, SQLITE + MEMORY}:
        if read_only:
            raise ReadOnlyError(MEMORY)
        memory: Store = _MEMORY.MemoryStore()
        return memory
    if text.startswith(SQLITE):
        return _in_file(unquote(text.removeprefix(SQLITE)), read_only=read_only)
    if text.startswith(POSTGRES):
        store: Store = _POSTGRES.PostgresStore(text, read_only=read_only)
        return store
    folder = folder_of(text)
    if folder is not None:
        files: Store = _FILES.FilesStore(str(folder), read_only=read_only)
        return files
    if "://" not in text and "password=" in text:
        raise OpenError("that looks like libpq's own words. Name a server by a URL: postgresql://user@host/database.")
    if "://" in text or (isinstance(url, str) and is_url(text)):
        raise UnknownSchemeError(without_password(text))
    return _in_file(str(Path(text).expanduser()), read_only=read_only)


def _in_file(path: str, *, read_only: bool) -> SqliteStore:
    try:
        return SqliteStore(path, read_only=read_only)
    except PermissionError as error:
        way_out = "Ask the owner of the folders above it for the right to enter them."
        raise UnreadableError(path, f"you may not look for {error.filename!r}", way_out) from error
