"""A disk that fails on request, and one whose power is cut: for tests of what must survive it.

    with FaultyDisk() as disk, everstep.open("trail.db") as trail:
        disk.room = 10_000  # bytes until it is full
        ...
        disk.heal()

While it is in use, every file that SQLite opens in this process lies on it; the bytes go to the real file system.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, Self

import apsw

SECTOR = 512
_numbers = itertools.count(1)


class Event(NamedTuple):
    """Something that happened to a file: "write" (at, data), "truncate" (at), "sync", "delete"; or a "mark" (data)."""

    what: str
    file: str
    at: int = 0
    data: Any = b""


class FaultyDisk(apsw.VFS):
    """SQLite's way to the file system, with faults. Each fault is a count: of what still goes well before it comes."""

    def __init__(self) -> None:
        self.beneath = apsw.vfs_names()[0]  # the default as long as there is no other
        self.events: list[Event] | None = None  # what happened, once it is a list
        self.heal()
        super().__init__(f"everstep-faulty-{next(_numbers)}", self.beneath, makedefault=True)

    def heal(self) -> None:
        """No faults any more."""
        self.room: int | None = None  # bytes that can be written until the disk is full
        self.writes: int | None = None  # writes until one is cut in half and fails
        self.syncs: int | None = None  # syncs until they fail
        self.reads: int | None = None  # reads until they fail
        self.failed = 0  # how often something failed since

    def mark(self, data: Any) -> None:
        """Note among the events what the program knows by now, such as an acknowledgement."""
        if self.events is not None:
            self.events.append(Event("mark", "", 0, data))

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - apsw's name
        """Open a file that passes everything through this disk."""
        return _File(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802, FBT001 - apsw's name and argument
        """Delete a file."""
        super().xDelete(filename, syncdir)
        self.note("delete", filename)

    def note(self, what: str, file: str, at: int = 0, data: bytes = b"") -> None:
        """Add an event."""
        if self.events is not None:
            self.events.append(Event(what, os.path.basename(file), at, data))  # noqa: PTH119 - a name, many times over

    def fails(self, fault: str) -> bool:
        """Whether this operation fails. Once one has, the next ones do, until the disk is healed."""
        left: int | None = getattr(self, fault)
        if left is None:
            return False
        setattr(self, fault, left - 1)
        self.failed += left <= 0
        return left <= 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.unregister()


class _File(apsw.VFSFile):
    """A file on the faulty disk."""

    def __init__(self, disk: FaultyDisk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        self._path = name.filename() if isinstance(name, apsw.URIFilename) else name or ""
        super().__init__(disk.beneath, name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802 - apsw's name
        if self._disk.fails("reads"):
            raise _failed(apsw.SQLITE_IOERR_READ)
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - apsw's name
        disk, written = self._disk, bytes(data)
        error: apsw.Error | None = None
        if disk.fails("writes"):
            written, error = written[: len(written) // 2], _failed(apsw.SQLITE_IOERR_WRITE)
        if disk.room is not None:
            if disk.room < len(written):
                written, error = written[: disk.room], apsw.FullError("no room left on the faulty disk")
                disk.failed += 1
            disk.room -= len(written)
        if written:
            super().xWrite(written, offset)
            disk.note("write", self._path, offset, written)
        if error is not None:
            raise error

    def xSync(self, flags: int) -> None:  # noqa: N802 - apsw's name
        if self._disk.fails("syncs"):
            raise _failed(apsw.SQLITE_IOERR_FSYNC)
        super().xSync(flags)
        self._disk.note("sync", self._path)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 - apsw's name
        super().xTruncate(newsize)
        self._disk.note("truncate", self._path, newsize)


def _failed(code: int) -> apsw.IOError:
    error = apsw.IOError("the faulty disk failed")
    setattr(error, "extendedresult", code)  # noqa: B010 - known to apsw at run time only
    return error


def after_power_loss(events: Sequence[Event], chance: Random, folder: Path) -> None:
    """Make the files that are left when the power is cut after these events.

    What was synced is there. Of what was written since, any sector may have reached the disk, or not. With a new file
    SQLite syncs its folder, so that what was deleted before does not come back.
    """
    kept: dict[str, bytearray] = {}
    waiting: dict[str, list[Event]] = {}
    for event in events:
        if event.what == "sync":
            _sync(kept, waiting, event.file)
        elif event.what != "mark":
            waiting.setdefault(event.file, []).append(event)
    for part in (part for pending in waiting.values() for event in pending for part in _sectors(event)):
        if chance.random() < 0.5:
            _apply(kept, part)
    for name, data in kept.items():
        (folder / name).write_bytes(data)


def _sync(kept: dict[str, bytearray], waiting: dict[str, list[Event]], synced: str) -> None:
    deleted = [] if synced in kept else [file for file in waiting if waiting[file][-1].what == "delete"]
    for file in (synced, *deleted):
        for event in waiting.pop(file, []):
            _apply(kept, event)
    kept.setdefault(synced, bytearray())


def _sectors(event: Event) -> list[Event]:
    if event.what != "write":
        return [event]
    first, last = event.at // SECTOR, (event.at + len(event.data) - 1) // SECTOR
    parts = []
    for sector in range(first, last + 1):
        start, end = max(event.at, sector * SECTOR), min(event.at + len(event.data), (sector + 1) * SECTOR)
        parts.append(Event("write", event.file, start, event.data[start - event.at : end - event.at]))
    return parts


def _apply(files: dict[str, bytearray], event: Event) -> None:
    if event.what == "delete":
        files.pop(event.file, None)
        return
    data = files.setdefault(event.file, bytearray())
    if event.what == "truncate":
        del data[event.at :]
        return
    if len(data) < event.at:
        data.extend(bytes(event.at - len(data)))
    data[event.at : event.at + len(event.data)] = event.data
