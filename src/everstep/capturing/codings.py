"""Content codings: bodies are stored as what they say, and squeezed again for a program that expects them so.

Piece by piece: whoever reads a squeezed stream gets from each of its chunks what was in it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import zstandard

_GZIP, _ZLIB, _BARE = 31, 15, -15  # how zlib is told which it is


class _Zlib:
    """gzip, which may come in several members, and deflate, of which there are two kinds."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._at = zlib.decompressobj(window)
        self._began = False

    def __call__(self, chunk: bytes) -> bytes:
        try:
            piece = self._at.decompress(chunk)
        except zlib.error:
            if self._began or self._window != _ZLIB:
                raise
            self._at = zlib.decompressobj(_BARE)
            piece = self._at.decompress(chunk)
        self._began = True
        while self._window == _GZIP and self._at.unused_data:
            rest, self._at = self._at.unused_data, zlib.decompressobj(_GZIP)
            piece += self._at.decompress(rest)
        return piece

    @property
    def ended(self) -> bool:
        return self._at.eof


class _Zstandard:
    """It may come in several frames."""

    def __init__(self) -> None:
        self._at = zstandard.ZstdDecompressor().decompressobj()

    def __call__(self, chunk: bytes) -> bytes:
        piece = b""
        while chunk:
            if self._at.eof:
                self._at = zstandard.ZstdDecompressor().decompressobj()
            piece += self._at.decompress(chunk)
            chunk = self._at.unused_data
        return piece

    @property
    def ended(self) -> bool:
        return bool(self._at.eof)


class _Brotli:
    """Only with the library of the program: it would not have asked for this coding without one."""

    def __init__(self) -> None:
        self._at = _brotli().Decompressor()

    def __call__(self, chunk: bytes) -> bytes:
        return bytes(self._at.process(chunk))

    @property
    def ended(self) -> bool:
        return bool(self._at.is_finished())


def _brotli() -> Any:
    try:
        return import_module("brotli")
    except ImportError:
        return import_module("brotlicffi")


_READERS: dict[str, Callable[[], Any]] = {
    "gzip": lambda: _Zlib(_GZIP),
    "x-gzip": lambda: _Zlib(_GZIP),
    "deflate": lambda: _Zlib(_ZLIB),
    "zstd": _Zstandard,
    "br": _Brotli,
}


def decoded(chunks: Sequence[bytes], coding: str) -> tuple[list[bytes], bool] | None:
    """What each chunk says, and whether that was all; None if its coding is not known, or it is not in it."""
    if coding in {"", "identity"}:
        return list(chunks), True
    if coding not in _READERS:
        return None
    try:
        reader = _READERS[coding]()
        return [reader(chunk) for chunk in chunks], reader.ended
    except Exception:  # noqa: BLE001 - each library has errors of its own, and all say the same
        return None


def encoded(pieces: Sequence[bytes], coding: str, *, ended: bool) -> list[bytes]:
    """Chunks that say the same, piece by piece. One that says nothing is empty, but for the last if that is the end."""
    if coding in {"", "identity"}:
        return list(pieces)
    squeeze, flush, finish = _writer(coding)
    chunks = [squeeze(piece) + flush() if piece else b"" for piece in pieces] or [b""]
    if ended:
        chunks[-1] += finish()
    return chunks


def _writer(coding: str) -> tuple[Callable[[bytes], bytes], Callable[[], bytes], Callable[[], bytes]]:
    if coding == "br":
        brotli = _brotli().Compressor()
        return brotli.process, brotli.flush, brotli.finish
    if coding == "zstd":
        zstd = zstandard.ZstdCompressor().compressobj()
        return zstd.compress, lambda: zstd.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK), zstd.flush
    writer = zlib.compressobj(wbits=_ZLIB if coding == "deflate" else _GZIP)
    return writer.compress, lambda: writer.flush(zlib.Z_SYNC_FLUSH), writer.flush
