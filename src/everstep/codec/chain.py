"""The log's row, and the hash chain that makes damage visible and survives pruning and erasure.

Each row is sealed with a random key of its own: a keyed digest of what it carries goes into the chain, not the
bytes. Erasing a row drops key and payload and keeps the digest, so the chain still verifies and nothing of what
was erased can be guessed from it. Pruning keeps the hash of the last row removed, where the chain goes on.
"""

from __future__ import annotations

import os
from hashlib import blake2b, sha256
from typing import NamedTuple

import ormsgpack

KEY_SIZE = 16
DIGEST_SIZE = 16
_ERASED_SIZE = 2 * DIGEST_SIZE
_pack = ormsgpack.packb


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


def genesis(run_id: str) -> bytes:
    """What a run's first entry is chained to. Rows moved to another run do not fit there."""
    return sha256(b"everstep" + run_id.encode()).digest()


def seal(  # noqa: PLR0913, PLR0917 - a row's columns, in order; the hot path builds no objects to carry them
    before: bytes, seq: int, kind: int, status: int, name: str, started: int, duration: int, meta: bytes, body: bytes
) -> Entry:
    """Make the row that follows the one whose hash is `before`."""
    key = os.urandom(KEY_SIZE)
    digest = blake2b(b"%d:%b%b" % (len(meta), meta, body), key=key, digest_size=DIGEST_SIZE).digest()
    head = _pack([seq, kind, status, name, started, duration])
    link = sha256(before + head + digest).digest()
    return Entry(seq, kind, status, name, started, duration, link, meta, key + body)


def verified(before: bytes, entry: Entry) -> bool:
    """Whether the row is what was written, and follows the row whose hash is `before`."""
    seq, kind, status, name, started, duration, link, meta, data = entry
    digest = blake2b(b"%d:%b%b" % (len(meta), meta, data[KEY_SIZE:]), key=data[:KEY_SIZE], digest_size=DIGEST_SIZE)
    head = _pack([seq, kind, status, name, started, duration])
    if sha256(before + head + digest.digest()).digest() == link:
        return True
    if len(data) != _ERASED_SIZE:
        return False
    kept = data[:DIGEST_SIZE]
    return sha256(before + head + kept).digest() == link and _tie(kept, meta) == data[DIGEST_SIZE:]


def erased(entry: Entry, meta: bytes) -> Entry:
    """The row with its payload gone and `meta` (what may stay) in place of what it carried."""
    if is_erased(entry):
        return entry._replace(meta=meta, data=entry.data[:DIGEST_SIZE] + _tie(entry.data[:DIGEST_SIZE], meta))
    key, body = entry.data[:KEY_SIZE], entry.data[KEY_SIZE:]
    digest = blake2b(b"%d:%b%b" % (len(entry.meta), entry.meta, body), key=key, digest_size=DIGEST_SIZE).digest()
    return entry._replace(meta=meta, data=digest + _tie(digest, meta))


def is_erased(entry: Entry) -> bool:
    """Whether the payload was erased. True only for a row whose digest is tied to its meta."""
    data = entry.data
    return len(data) == _ERASED_SIZE and _tie(data[:DIGEST_SIZE], entry.meta) == data[DIGEST_SIZE:]


def _tie(digest: bytes, meta: bytes) -> bytes:
    """Binds an erased row's digest to the meta it was left with, so that a flipped bit there is seen too."""
    return blake2b(meta, key=digest, digest_size=DIGEST_SIZE, person=b"everstep erased").digest()
