"""The log's row, and the hash chain that makes damage visible and survives pruning and erasure.

Each row is sealed with a random key of its own: a keyed digest of what it carries goes into the chain, not the
bytes. Erasing a row drops key and payload and keeps the digest, so the chain still verifies and nothing of what
was erased can be guessed from it. Pruning keeps the hash of the last row removed, where the chain goes on.
"""

from __future__ import annotations

import os
from collections import deque
from hashlib import sha256
from typing import NamedTuple

import ormsgpack

from everstep import actual

KEY_SIZE = 16
DIGEST_SIZE = 16
_ERASED_SIZE = 2 * DIGEST_SIZE
_pack = ormsgpack.packb
_sha256 = sha256().copy  # a copy of an empty one: by its name, OpenSSL looks for it anew for every row
_keys: deque[bytes] = deque()  # fresh random keys: asking the system for each costs as much as hashing the row
os.register_at_fork(after_in_child=_keys.clear)


class Entry(NamedTuple):
    """One row of the log. `meta` is light and readable without the payload; `data` is key + framed payload."""

    seq: int
    kind: int
    status: int
    name: str
    started: int  # microseconds since 1970, UTC
    duration: int  # microseconds
    hash: bytes
    meta: bytes
    data: bytes


def _hashed(data: bytes) -> bytes:
    found = _sha256()
    found.update(data)
    return found.digest()


def genesis(run_id: str) -> bytes:
    """What a run's first entry is chained to. Rows moved to another run do not fit there."""
    return _hashed(b"everstep" + run_id.encode())


def _new_key() -> bytes:
    try:
        return _keys.popleft()
    except IndexError:
        fresh = actual.urandom(256 * KEY_SIZE)
        _keys.extend(fresh[start : start + KEY_SIZE] for start in range(0, len(fresh), KEY_SIZE))
        return actual.urandom(KEY_SIZE)


def _digest(meta: bytes, data: bytes) -> bytes:
    """The digest of what a row carries, the random key in front of its payload included: it tells nothing without."""
    return _hashed(b"%d:%b%b" % (len(meta), meta, data))[:DIGEST_SIZE]


def seal(
    before: bytes, seq: int, kind: int, status: int, name: str, started: int, duration: int, meta: bytes, body: bytes
) -> Entry:
    """Make the row that follows the one whose hash is `before`."""
    data = _new_key() + body
    link = _hashed(before + _pack([seq, kind, status, name, started, duration]) + _digest(meta, data))
    return Entry(seq, kind, status, name, started, duration, link, meta, data)


def verified(before: bytes, entry: Entry) -> bool:
    """Whether the row is what was written, and follows the row whose hash is `before`."""
    seq, kind, status, name, started, duration, link, meta, data = entry
    known = before + _pack([seq, kind, status, name, started, duration])
    if _hashed(known + _digest(meta, data)) == link:
        return True
    if len(data) != _ERASED_SIZE:
        return False
    kept = data[:DIGEST_SIZE]
    return _hashed(known + kept) == link and _tie(kept, meta) == data[DIGEST_SIZE:]


def erased(entry: Entry, meta: bytes) -> Entry:
    """The row with its payload gone and `meta` (what may stay) in place of what it carried."""
    data = entry.data
    kept = data[:DIGEST_SIZE] if is_erased(entry) else _digest(entry.meta, data)
    return entry._replace(meta=meta, data=kept + _tie(kept, meta))


def is_erased(entry: Entry) -> bool:
    """Whether the payload was erased. True only for a row whose digest is tied to its meta."""
    data = entry.data
    return len(data) == _ERASED_SIZE and _tie(data[:DIGEST_SIZE], entry.meta) == data[DIGEST_SIZE:]


def _tie(digest: bytes, meta: bytes) -> bytes:
    """Binds an erased row's digest to the meta it was left with, so that a flipped bit there is seen too."""
    return _hashed(b"erased" + digest + meta)[:DIGEST_SIZE]
