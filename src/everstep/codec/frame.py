"""A body of bytes to its stored frame and back: one format byte, then the body, compressed when that pays."""

from __future__ import annotations

import threading

import zstandard

from everstep.codec.dictionary import DICTIONARY
from everstep.errors import DamagedError, NewerFormatError, UnstorableError

MAX_BODY = 1 << 30
"""No body is larger than this, so no frame that claims more is unpacked."""

_RAW, _ZSTD, SHORT_FORMAT = 0, 1, 2  # as they are, compressed, compressed against the dictionary
_SMALLEST = 128  # below this the zstd header eats what compression saves
_SHORT = 4096  # below this the dictionary saves bytes and time
_WORTH = 0.94
# A frame of a few KB may not claim a GB. Above _FREE bytes a body must not be more than _RATIO times its frame:
# `pack` stores what compresses better than that raw, so that `unpack` may refuse it before it allocates anything.
_FREE = 1 << 24
_RATIO = 1000


class _Engines(threading.local):
    """The zstd engines of one thread: sharing one between threads crashes the interpreter."""

    def __init__(self) -> None:
        # Level 1: higher ones take longer and make prose and JSON no smaller.
        self.pack = zstandard.ZstdCompressor(level=1).compress
        self.unpacker = zstandard.ZstdDecompressor()
        known = zstandard.ZstdCompressionDict(DICTIONARY)
        # Its table takes 32 KB by itself, all of the nearest cache; with 8 KB rows are a 250th longer.
        few = zstandard.ZstdCompressionParameters.from_level(1, source_size=_SHORT, hash_log=11, write_dict_id=False)
        known.precompute_compress(compression_params=few)
        self.pack_short = zstandard.ZstdCompressor(compression_params=few, dict_data=known).compress
        self.short_unpacker = zstandard.ZstdDecompressor(dict_data=known)


_engines = _Engines()


def pack(body: bytes) -> bytes:
    """The stored form of `body`: compressed if it is long enough and that saves at least 6 %."""
    size = len(body)
    if size > MAX_BODY:
        reason = f"it takes {size:,} bytes, more than the {MAX_BODY:,} that one record may have"
        raise UnstorableError("value", reason, "Split it, or keep it in a file and record the path.")
    if _SMALLEST <= size < _SHORT:
        packed = _engines.pack_short(body)
        if len(packed) <= size * _WORTH:
            return b"\x02" + packed
    elif size >= _SHORT:
        packed = _engines.pack(body)
        if len(packed) <= size * _WORTH and (size <= _FREE or not _too_dense(size, len(packed))):
            return b"\x01" + packed
    return b"\x00" + body


def unpack(data: bytes) -> bytes:
    """The body inside a stored frame. DamagedError if it is none, NewerFormatError if its format is unknown."""
    if not data:
        raise DamagedError("a stored frame is empty")
    if data[0] == _RAW:
        return data[1:]
    if data[0] == SHORT_FORMAT:
        return _decompress(data[1:], _engines.short_unpacker)
    if data[0] == _ZSTD:
        return _decompress(data[1:], _engines.unpacker)
    raise NewerFormatError(data[0])


def _decompress(packed: bytes, unpacker: zstandard.ZstdDecompressor) -> bytes:
    try:
        # zstd believes the size a frame declares, whatever limit it is given, so it is read and judged first.
        size = zstandard.frame_content_size(packed)
        if not 0 < size <= _FREE and (size < 1 or size > MAX_BODY or _too_dense(size, len(packed))):
            raise DamagedError(f"a compressed frame of {len(packed)} bytes declares an impossible size ({size})")
        body = unpacker.decompress(packed, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise DamagedError(f"a compressed frame cannot be read ({error})") from error
    if len(body) != size:
        raise DamagedError(f"a compressed frame declares {size} bytes and holds {len(body)}")
    return body


def _too_dense(size: int, packed: int) -> bool:
    return size > max(_FREE, packed * _RATIO)
