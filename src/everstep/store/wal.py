"""Commits that a damaged log hides.

SQLite reads its write-ahead log up to the first frame that does not fit and takes it for the end: what stands behind
is gone without a word. A killed or refused write leaves such frames too, so not every one is damage. It is damage for
certain if the frame would fit but for one word, or if two commits stand behind it that follow one another: the later
one was begun only after the earlier one had been acknowledged.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import apsw

_HEADER, _FRAME = 32, 24
_ORDERS = {0x377F0682: "<", 0x377F0683: ">"}
_WORD = 0xFFFFFFFF
_LOOKS = 3

Sum = tuple[int, int]


class _Frame(NamedTuple):
    commits: bool
    salts: bytes
    stored: Sum
    words: bytes  # what the checksum is taken over


def lost_commits(connection: apsw.Connection, path: str) -> str | None:
    """Tell of commits in the log of the trail at `path` that can no longer be read; None if there are none."""
    for _ in range(_LOOKS):  # again if somebody wrote meanwhile: what was seen may have been half of a write
        try:
            usable = _usable(connection)
            with open(path + "-wal", "rb") as file:  # noqa: PTH123 - a path with a suffix is text here
                found = _Log(file, int(connection.pragma("page_size"))).damaged(usable)
        except (FileNotFoundError, apsw.ReadOnlyError):  # SQLite tells it only those who may write
            return None
        if found is None:
            return None
        if _usable(connection) == usable:
            return f"the log {path + '-wal'!r} is damaged in frame {found}: commits behind it can no longer be read"
    return None


def _usable(connection: apsw.Connection) -> int:
    """How many frames of the log SQLite can use."""
    frames: Any = connection.execute("pragma wal_checkpoint(noop)").fetchall()[0][1]
    return max(int(frames), 0)


class _Log:
    """The frames of a log, told apart with as little reading as can be."""

    def __init__(self, file: BinaryIO, page: int) -> None:
        self._file = file
        self._page = page
        self._count = (os.fstat(file.fileno()).st_size - _HEADER) // (_FRAME + page)
        self._order = "<"
        self._salts = b""

    def damaged(self, usable: int) -> int | None:
        """The first frame that commits were lost with, counted from 1; 0 for the log's head. None if none were."""
        if self._count <= usable:
            return None
        self._file.seek(0)
        head = self._file.read(_HEADER)
        self._order, self._salts = _ORDERS.get(_u32(head, 0), ""), head[16:24]
        begin = (_u32(head, 24), _u32(head, 28))
        if not self._order or _add((0, 0), head[:24], self._order) != begin:
            return self._behind_head(head, begin)
        if usable:
            begin = self._frame(usable).stored
        at = usable + 1
        while at <= self._count and self._fits(begin, frame := self._frame(at)):
            begin, at = frame.stored, at + 1
        return at if at <= self._count and self._lost(begin, at) else None

    def _behind_head(self, head: bytes, begin: Sum) -> int | None:
        """Whether commits follow on a damaged head: its sum, as it stands or as it should, begins their chain."""
        first = self._frame(1)
        self._salts = first.salts
        for self._order in ("<", ">"):
            for start in (begin, _add((0, 0), head[:24], self._order)):
                if self._fits(start, first) and (first.commits or any(self._chain(first.stored, 2))):
                    return 0
        return None

    def _lost(self, begin: Sum, at: int) -> bool:
        """Whether the frame that does not fit is a damaged one with a commit in or behind it."""
        frame = self._frame(at)
        made = _add(begin, frame.words, self._order)
        word = _one_word(made, frame.stored, len(frame.words) // 4)
        sound = made == frame.stored  # then it is the salts that are damaged
        near = sum((a ^ b).bit_count() for a, b in zip(made, frame.stored, strict=True)) == 1
        behind = sum(self._chain(made, at + 1))
        if sound or near or (word is not None and frame.salts == self._salts):
            return behind > 0 or frame.commits or word == 1 or any(self._chain(frame.stored, at + 1))
        # One commit alone may be that of a writer who was killed before it was told to others, if the next was killed
        # between the head of its first frame and the page.
        if frame.commits + behind > 1:
            return True
        return any(self._two_commits(place) for place in range(at, self._count) if self._salts_at(place) == self._salts)

    def _two_commits(self, at: int) -> bool:
        """Whether two commits follow frame `at`, one upon the other."""
        return sum(self._chain(self._frame(at).stored, at + 1)) > 1

    def _chain(self, begin: Sum, at: int) -> Iterator[bool]:
        """For each frame that follows on `begin`, whether it is a commit."""
        while at <= self._count and self._fits(begin, frame := self._frame(at)):
            yield frame.commits
            begin, at = frame.stored, at + 1

    def _fits(self, begin: Sum, frame: _Frame) -> bool:
        return frame.salts == self._salts and _add(begin, frame.words, self._order) == frame.stored

    def _frame(self, number: int) -> _Frame:
        self._file.seek(_HEADER + (number - 1) * (_FRAME + self._page))
        data = self._file.read(_FRAME + self._page).ljust(_FRAME + self._page, b"\0")
        return _Frame(_u32(data, 4) != 0, data[8:16], (_u32(data, 16), _u32(data, 20)), data[:8] + data[_FRAME:])

    def _salts_at(self, number: int) -> bytes:
        self._file.seek(_HEADER + (number - 1) * (_FRAME + self._page) + 8)
        return self._file.read(8)


def _u32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "big")


def _add(begin: Sum, data: bytes, order: str) -> Sum:
    """SQLite's checksum of the log, carried on over `data`."""
    one, two = begin
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for first, second in zip(words, words, strict=True):
        one = (one + first + two) & _WORD
        two = (two + second + one) & _WORD
    return one, two


def _one_word(made: Sum, stored: Sum, words: int) -> int | None:
    """The place of the one word that, other than it is, would give the stored sum; None if it takes more.

    The sum is linear: what a word adds to the difference is carried on the same way, and can be traced back.
    """
    one, two = ((b - a) & _WORD for a, b in zip(made, stored, strict=True))
    if (one, two) == (0, 0):
        return None
    for pair in range(words // 2 - 1, -1, -1):
        if one == 0:
            return 2 * pair + 1
        if one == two:
            return 2 * pair
        two = (two - one) & _WORD
        one = (one - two) & _WORD
    return None
