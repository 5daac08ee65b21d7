"""Where the files of a trail lie, and how one gets there whole.

trail.json                        what this folder is, and what is counted in it
runs/NAME/run.json                how a run stands: what it points at is written
runs/NAME/begin.json              the same when it began, should that file be lost
runs/NAME/steps/000000.json       a step each
runs/NAME/keyframes/000010.json   the state after a step, as a cache
runs/_KEY/...                     a run that was dropped, as long as forks share its steps
pieces/ID                         large values, by the digest of their bytes
making/...                        what is not there yet, or not any more
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from everstep import actual
from everstep.errors import (
    DamagedError,
    DiskFullError,
    NetworkFileSystemError,
    NewerSchemaError,
    NotATrailError,
    StoreError,
    UnreadableError,
)
from everstep.store import schema
from everstep.store.files_pages import Facts, read, sealed, unsealed
from everstep.store.health import NETWORK

FORMAT: Final = 1
MARKER: Final = "trail.json"
RUN, BEGIN = "run.json", "begin.json"
_READABLE: Final = 40  # characters of a run's id in the name of its folder
NEW: Final = ".new"
_DROPPED: Final = "_"  # with which no name of a run begins
# What may lie in a folder that a trail is to be made in: git needs some file to keep a folder.
_ATTRIBUTES: Final = ".gitattributes"
_NOTHING: Final = frozenset({".gitkeep", ".gitignore", _ATTRIBUTES, _ATTRIBUTES + NEW, MARKER + NEW})
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Place:
    """The folder of a trail."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.marker = root / MARKER
        self.runs = root / "runs"
        self.pieces = root / "pieces"
        self.making = root / "making"

    def make_folders(self) -> None:
        """See that the folders which others write into are on disk, and what git is told. It leaves empty ones out."""
        for folder in (self.runs, self.pieces):
            folder.mkdir(exist_ok=True)
        if not (self.root / _ATTRIBUTES).exists():
            replace(self.root / _ATTRIBUTES, "* -text\n")  # git changes the ends of lines in nothing here
        sync(self.root)  # always: whoever made them may have been killed before

    def run(self, run_id: str) -> Path:
        """The folder of the run with this id, if there is one."""
        return self.runs / folder_name(run_id)

    def run_dropped(self, key: int | None) -> Path:
        """The folder of a run that was dropped. In the same place: a power cut cannot come in the midst of the move."""
        return self.runs / f"{_DROPPED}{key}"

    def live(self) -> list[Path]:
        """The folders of runs."""
        return [folder for folder in folders(self.runs) if not is_dropped(folder)]

    def dropped(self) -> list[Path]:
        """The folders of runs that were dropped."""
        return [folder for folder in folders(self.runs) if is_dropped(folder)]

    def name(self, path: Path) -> str:
        """A file as messages name it."""
        return path.relative_to(self.root).as_posix()

    def facts(self) -> Facts:
        """What is counted. Raises DamagedError."""
        said = unsealed(self.marker)
        found = Facts._make(said.get(name) for name in Facts._fields)
        if not all(type(number) is int for number in found):
            raise DamagedError("it does not say what was counted")
        return found

    def write_facts(self, facts: Facts) -> None:
        """Count on from here. Durable on return."""
        replace(self.marker, facts_page(facts))
        sync(self.root)


def facts_page(facts: Facts) -> str:
    """What stands in the first file of a trail."""
    return sealed({"everstep": "trail", "format": FORMAT, **facts._asdict()})


def folder_name(run_id: str) -> str:
    """A name that every file system takes, the same for no two ids."""
    readable = re.sub(r"[^a-z0-9]+", "-", run_id.lower())[:_READABLE].strip("-")
    digest = sha256(run_id.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{readable or 'run'}-{digest}"


def is_dropped(folder: Path) -> bool:
    """Whether the folder is one of a run that was dropped."""
    return folder.name.startswith(_DROPPED)


def step_file(folder: Path, seq: int) -> Path:
    """The file of a step."""
    return folder / "steps" / f"{seq:06}.json"


def frame_file(folder: Path, seq: int) -> Path:
    """The file of a keyframe."""
    return folder / "keyframes" / f"{seq:06}.json"


def numbers(folder: Path) -> list[int]:
    """The numbers of the files in a folder, in order; none where it is missing, as git leaves empty ones out."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names alone are wanted, many times over
    except FileNotFoundError:
        return []
    return sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdecimal())


def leftovers(folder: Path) -> list[Path]:
    """Files that a writer was killed over, before they had their names."""
    return [path for path in folder.glob(f"*{NEW}") if path.is_file()]


def is_piece(name: str) -> bool:
    """Whether a file of this name is a piece; others may lie there, as systems leave them in folders."""
    return len(name) == 32 and all(sign in "0123456789abcdef" for sign in name)


def folders(place: Path) -> list[Path]:
    """The folders in a folder, in order; none where it is missing."""
    try:
        return sorted(path for path in place.iterdir() if path.is_dir())
    except FileNotFoundError:
        return []


# Writing.


def write(path: Path, text: str | bytes) -> None:
    """Write a file that nothing refers to yet. It is on disk after `sync`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)


def sync(path: Path) -> None:
    """See that a file, or the names in a folder, are on disk."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def prepare(path: Path, text: str | bytes) -> Path:
    """Write what will take the place of a file. It is on disk on return, beside it."""
    beside = path.with_name(path.name + NEW)
    write(beside, text)
    sync(beside)
    return beside


def replace(path: Path, text: str | bytes) -> None:
    """Put a file there, whole or not at all. To be on disk its folder has to be synced."""
    beside = prepare(path, text)
    beside.replace(path)


def remove(paths: list[Path]) -> None:
    """Remove files, if they are there."""
    for path in paths:
        with suppress(FileNotFoundError):
            path.unlink()


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Give what the system says as errors of ours."""
    try:
        yield
    except OSError as error:
        raise translate(error, where) from error


def translate(error: OSError, where: str) -> StoreError:
    """The typed error for what the system said."""
    if error.errno in _FULL:
        return DiskFullError(where)
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return StoreError(
            f"a file of {where!r} may not be used ({error}). Nothing of this was acknowledged; give everybody who "
            "works on the trail the right to its files."
        )
    return StoreError(
        f"the file system failed under {where!r} ({error}). Nothing of this was acknowledged; check the disk, "
        "and that nobody moves files of the trail, then try again."
    )


# Opening.


def identify(place: Place) -> bool:
    """Whether there is a trail in the folder; False where one can be made. Raises NotATrailError, NewerSchemaError."""
    where = str(place.root)
    said: dict[str, object] = {}
    with suppress(DamagedError):
        said = read(place.marker)  # whatever its seal: a later version may have another
    form = said.get("format")
    if said.get("everstep") != "trail" or not isinstance(form, int):
        return _lost_its_marker(place, where)
    if form > FORMAT:
        raise NewerSchemaError(where, form, FORMAT)
    return True


def _lost_its_marker(place: Place, where: str) -> bool:
    """Whether what lies there is a trail that lost its first file."""
    if any((folder / name).exists() for folder in place.live() for name in (RUN, BEGIN)):
        return True
    there = {path.name for path in place.root.iterdir()}
    if there - _NOTHING:
        raise NotATrailError(where, "a folder with other files in it")
    return False


def check_access(place: Place, *, read_only: bool) -> None:
    """See that the folder can be used as it is meant to be. Raises an OpenError."""
    where = str(place.root)
    if not _is_there(place.root):
        if read_only:
            raise UnreadableError(where, "it does not exist", "Check the path; opening for reading makes no new trail.")
        _make(place.root, where)
    if not place.root.is_dir():
        raise NotATrailError(where, "a file")
    if not os.access(place.root, os.R_OK | os.X_OK):
        raise UnreadableError(where, "you may not read it", "Ask its owner for read permission.")
    if read_only:
        return
    if not os.access(place.root, os.W_OK):
        raise UnreadableError(where, "you may not write to it", "Open it with read_only=True to read it.")
    kind = schema.file_system(where)
    if NETWORK.fullmatch(kind):
        raise NetworkFileSystemError(where, kind)


def _is_there(path: Path) -> bool:
    """Whether something has this name. Raises PermissionError where that cannot be seen."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _make(folder: Path, where: str) -> None:
    missing = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in missing:
            sync(path.parent)
    except OSError as error:
        reason = f"it does not exist and cannot be made ({error.strerror})"
        raise UnreadableError(where, reason, f"Make it: mkdir -p {where!r}.") from error


def after(number: int) -> int:
    """The next number, larger than all that were given out: by the clock.

    Not by counting: an older trail.json may have been put back, or two trails have been merged.
    """
    return max(number + 1, actual.time_ns() // 1000)


def leap() -> Facts:
    """Numbers in the place of those that are lost."""
    return Facts(after(0), after(0), after(0))
