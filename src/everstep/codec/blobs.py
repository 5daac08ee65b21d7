"""Large leaves out of line: kept once, under the hash of their content, however many values hold them."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from everstep.codec import frame
from everstep.codec.values import BlobRef, encode, view
from everstep.errors import DamagedError

BLOB_SIZE = 64 * 1024

_NONE = encode(None)
# How every reference begins, behind its length: where this is not, there is none, and nothing needs decoding.
_MARK = encode(BlobRef(bytes(16), 0))[2:6]
# A str takes at most four bytes for a character, and a head of five.
_LONG = (BLOB_SIZE - 5) // 4


def blob_id(framed: bytes) -> bytes:
    """The 16 bytes that name a stored piece. They are of the frame, so that a check need not unpack it."""
    return sha256(framed).digest()[:16]


def opened(name: bytes, framed: bytes) -> bytes:
    """The encoding in the piece read under a name. Raises DamagedError if it is not what was stored there."""
    if blob_id(framed) != name:
        raise DamagedError(f"the piece stored as {name.hex()} is not what was written")
    return frame.unpack(framed)


def outline(data: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    """An encoding with its large leaves replaced by references, and those leaves by id, framed.

    A leaf is anything but an exact dict or list, so a blob never refers to another. No class is needed.
    """
    if len(data) < BLOB_SIZE:
        return data, {}
    made: dict[bytes, bytes] = {}
    value = _outlined(view(data), made)
    return (encode(value), made) if made else (data, made)


def held(data: bytes) -> list[bytes]:
    """The ids of the blobs that an encoding refers to, each once."""
    if _MARK not in data:
        return []
    found: dict[bytes, None] = {}

    def note(name: bytes) -> bytes:
        found[name] = None
        return _NONE

    view(data, note)
    return list(found)


def _outlined(value: Any, made: dict[bytes, bytes]) -> Any:
    if type(value) is dict:
        for key, item in value.items():
            value[key] = _outlined(item, made)
        return value
    if type(value) is list:
        value[:] = [_outlined(item, made) for item in value]
        return value
    if value is None or (type(value) in (str, bytes) and len(value) < _LONG):
        return value
    data = encode(value)
    if len(data) < BLOB_SIZE:
        return value
    framed = frame.pack(data)
    name = blob_id(framed)
    made[name] = framed
    return BlobRef(name, len(data))
