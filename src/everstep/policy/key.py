"""The key behind redaction placeholders: a file of its own, outside every trail.

Placeholders carry a keyed digest, so that equal secrets are seen to be equal. Whoever holds a trail and not this key
cannot test guesses against them.
"""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from everstep import actual
from everstep.errors import RedactionKeyError

_SIZE = 32

_loaded: dict[str, bytes] = {}


def load_key() -> bytes:
    """The key of this user: 32 bytes, made at the first use and read once per process.

    It is kept in the file named by EVERSTEP_KEY_FILE, else in `everstep/redaction.key` under XDG_CONFIG_HOME
    (`~/.config`). Raises RedactionKeyError where it cannot be made, or others could read it.
    """
    path = key_path()
    key = _loaded.get(str(path))
    if key is None:
        try:
            key = _loaded[str(path)] = _read_or_make(path)
        except OSError as error:
            raise RedactionKeyError(str(path), error.strerror or type(error).__name__) from error
    return key


def key_path() -> Path:
    """Where the key of this user is kept, whether it is there or not. Raises RedactionKeyError."""
    named = os.environ.get("EVERSTEP_KEY_FILE")
    config = os.environ.get("XDG_CONFIG_HOME", "")
    folder = config if os.path.isabs(config) else "~/.config"  # noqa: PTH117 - a relative one is to be ignored
    path = Path(named) if named else Path(folder, "everstep", "redaction.key")
    try:
        return path.expanduser().absolute()
    except RuntimeError:
        raise RedactionKeyError(str(path), "this user has no home directory") from None


def _read_or_make(path: Path) -> bytes:
    try:
        return read_key(path)
    except FileNotFoundError:
        _make(path)
        return read_key(path)


def read_key(path: Path) -> bytes:
    """The key in a file. Raises RedactionKeyError where it cannot be one, or others could read it, and OSError."""
    # Not blocking: opening a pipe must not hang.
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            raise RedactionKeyError(str(path), "it is not a file")
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise RedactionKeyError(str(path), f"others may use it (mode {stat.S_IMODE(mode):03o})")
        key = os.read(handle, _SIZE + 1)
    finally:
        os.close(handle)
    if len(key) != _SIZE:
        found = f"more than {_SIZE}" if len(key) > _SIZE else str(len(key))
        raise RedactionKeyError(str(path), f"it holds {found} bytes, and a key has {_SIZE}")
    return key


def _make(path: Path) -> None:
    """Put a new key there, whole or not at all. If another process is first, its key stays."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".redaction-")  # made with mode 600
    whole = Path(name)
    try:
        with open(handle, "wb") as file:  # noqa: PTH123 - it is open already
            file.write(actual.urandom(_SIZE))
            file.flush()
            os.fsync(handle)
        # A link, unlike a rename, never replaces what is there.
        with suppress(FileExistsError):
            os.link(whole, path)
    finally:
        whole.unlink()
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
