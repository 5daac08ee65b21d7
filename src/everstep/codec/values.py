"""Values to bytes and back, with their types: what you put in is what you get out, and the rest is refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ormsgpack import unpackb

from everstep.codec import extensions as ext
from everstep.codec.encoding import LIMIT, PAYLOADS_MAX, BlobRef, Generic, Kept, encode, plain, scan_encode
from everstep.codec.registry import check_content, restore
from everstep.errors import DamagedError, EverstepError, NewerFormatError

__all__ = ["LIMIT", "BlobRef", "Fetch", "Generic", "Kept", "decode", "encode", "plain", "scan_encode", "view"]

_BLOB_MIN = 1 << 12  # what a fetch counts at least, so that tiny blobs cannot multiply without end
# ormsgpack ignores what follows a value. So the bytes are read as the first item of a pair whose second item is
# a number nobody can know beforehand: anything left over after the first item would stand in its place.
_PAIR = b"\x92"
_END = int.from_bytes(os.urandom(8), "big")
_END_BYTES = b"\xcf" + _END.to_bytes(8, "big")

Fetch = Callable[[bytes], bytes]


def decode(data: bytes, fetch: Fetch | None = None) -> Any:
    """The value that was encoded. `fetch` gives the encoding behind a BlobRef; without it the reference stays.

    Raises UnknownClassError or ChangedClassError if a class is not there as it was, DamagedError if the bytes are
    not an encoding.
    """
    unpacked = _unpack(data)
    return unpacked[0][0] if unpacked[1] else _Reader(fetch, viewing=False).read(unpacked, 1)


def view(data: bytes, fetch: Fetch | None = None) -> Any:
    """The value that was encoded, with a Generic for each instance of a class: no class is needed."""
    unpacked = _unpack(data)
    return unpacked[0][0] if unpacked[1] else _Reader(fetch, viewing=True).read(unpacked, 1)


class _Reader:
    """One pass that turns bytes into a value."""

    __slots__ = ("fetch", "taken", "viewing")

    def __init__(self, fetch: Fetch | None, *, viewing: bool) -> None:
        self.fetch, self.viewing = fetch, viewing
        self.taken = 0

    def read(self, unpacked: tuple[list[Any], bool], depth: int) -> Any:
        """The value that was unpacked, with its extensions put in place."""
        pair, plain = unpacked
        if plain:
            return pair[0]
        boxes: list[tuple[Any, int]] = [(pair, depth)]
        for box, level in boxes:
            for key, item in enumerate(box) if type(box) is list else box.items():
                kind = type(item)
                if kind is slice:
                    box[key] = self.build(item.start, item.stop, level)
                elif kind is dict or kind is list:
                    boxes.append((item, level + 1))
        return pair[0]

    def build(self, tag: int, payload: bytes, depth: int) -> Any:
        """The value of one extension."""
        if depth > LIMIT:
            raise DamagedError(f"a value is nested deeper than {LIMIT} levels")
        self._take(len(payload))
        content = self.read(_unpack(payload), depth + 1)
        try:
            if tag in ext.KINDS:
                return self._instance(ext.KINDS[tag], content)
            if tag == ext.BLOB:
                return self._blob(content, depth)
            return self._known(tag, content)
        except EverstepError:
            raise
        except Exception as error:  # hostile content can fail in any way; none of them is what was written
            raise DamagedError(f"an extension (tag {tag}) cannot hold its content ({type(error).__name__})") from error

    def _instance(self, kind: str, content: Any) -> Any:
        if self.viewing:
            name, version, fields, others = check_content(content)
            return Generic(kind, name, version, fields, tuple(others))
        return restore(kind, content)

    def _known(self, tag: int, content: Any) -> Any:
        if tag not in ext.LOADERS:
            raise NewerFormatError(tag)
        name, wanted, load = ext.LOADERS[tag]
        if not isinstance(content, wanted):
            raise DamagedError(f"a stored {name} is not made of a {wanted.__name__}")
        try:
            return load(content)
        except ext.UnbuildableError as unbuildable:
            if self.viewing:
                return Generic(name, name, 0, {"content": content})
            raise unbuildable.error from None

    def _blob(self, content: Any, depth: int) -> Any:
        match content:
            case [bytes(id_), int(size)]:
                ref = BlobRef(id_, size)
            case _:
                raise DamagedError("a reference to a blob does not have the parts of one")
        if self.fetch is None:
            return ref
        data = self.fetch(ref.id)
        self._take(max(len(data), _BLOB_MIN))
        return self.read(_unpack(data), depth + 1)

    def _take(self, size: int) -> None:
        self.taken += size
        if self.taken > PAYLOADS_MAX:
            raise DamagedError(f"the extensions of one value take more than {PAYLOADS_MAX:,} bytes")


def _unpack(data: bytes) -> tuple[list[Any], bool]:
    """A pair whose first item is the unpacked value, and whether it is plain. Extensions come as slice(tag, bytes).

    `slice` because it is a built-in that takes two arguments: no Python code runs that could be interrupted.
    """
    pair = b"".join((_PAIR, data, _END_BYTES))
    plain = True
    try:
        value = unpackb(pair)
    except ValueError:  # not valid, or not plain
        plain = False
        try:
            value = unpackb(pair, ext_hook=slice)
        except ValueError as error:
            raise DamagedError(f"the bytes are not an encoded value ({error})") from error
    if value[1] != _END:
        raise DamagedError("there are bytes after the end of an encoded value")
    return value, plain
