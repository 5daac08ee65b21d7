"""The seal of a replay: whatever reaches out and is not on record is refused, at the line that does it.

An audit hook sees what Python itself does: sockets, names looked up, processes, databases, files opened for writing.
It does not see what native code does on its own (grpc, pycurl, a Rust client, ctypes): it finds mistakes, and keeps
nobody in who wants out. `hard` adds a network without any other machine, which holds for native code as well.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import shlex
import stat
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from everstep.errors import CaptureError, SealedError

_NETWORK = {
    "socket.connect": 1, "socket.sendto": 1, "socket.sendmsg": 1, "socket.getaddrinfo": 0, "socket.gethostbyname": 0,
    "socket.gethostbyaddr": 0, "socket.getnameinfo": 0,
}  # fmt: skip
_PROCESSES = {
    "subprocess.Popen": 1, "os.system": 0, "os.exec": 0, "os.posix_spawn": 0, "os.spawn": 1, "os.fork": None,
    "os.forkpty": None, "pty.spawn": 0,
}  # fmt: skip
_ADDRESS = re.compile(r"\d+(\.\d+){3}|[\da-fA-F.:]*:[\da-fA-F.:]*(%\w+)?")
_MEMORY = re.compile(r"file:(:memory:(\?.*)?|[^?]*\?(.*&)?mode=memory(&.*)?)")
_DATABASES = {"sqlite3.connect": 0}
_OUTSIDE = {**_NETWORK, **_PROCESSES, **_DATABASES}  # which argument says where to
_CHANGES = {
    "os.remove": 0, "os.rename": 1, "os.rmdir": 0, "os.mkdir": 0, "os.link": 1, "os.symlink": 1, "os.truncate": 0,
    "os.chmod": 0, "os.chown": 0, "os.utime": 0, "os.setxattr": 0, "os.removexattr": 0, "shutil.rmtree": 0,
    "shutil.move": 1, "shutil.copyfile": 1,
}  # fmt: skip
_LOOKED_AT = frozenset({"open", *_OUTSIDE, *_CHANGES})
# Which argument is the open folder that a path is relative to, if one is.
_FOLDERS = {
    "os.remove": 1, "os.rename": 3, "os.rmdir": 1, "os.mkdir": 2, "os.link": 3, "os.symlink": 2, "os.chmod": 2,
    "os.chown": 3, "os.utime": 3, "shutil.rmtree": 1,
}  # fmt: skip
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_DEVICES = frozenset({"/dev/null", "/dev/tty", "/dev/stdout", "/dev/stderr"})
_NEW_NET, _NEW_USER = 0x40000000, 0x10000000
_OURS = str(Path(__file__).parents[1])
_LIBRARY = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


class Hit(NamedTuple):
    """Something that was refused."""

    what: str
    where: str  # the line of the program's code
    folder: str | None  # that would have to be allowed

    @property
    def told(self) -> str:
        """What it was, and the way out: the program may have swallowed the error that says so."""
        return f"{self.where} would {self.what}. {SealedError(*self).way_out}"


class Seal:
    """What a replay may not do, and what it tried."""

    def __init__(self, allowed: Iterable[str], *, files: bool) -> None:
        self.hits: list[Hit] = []
        self._files = files  # whether it is about those, too
        self._allowed = tuple(os.path.realpath(each) for each in (*allowed, tempfile.gettempdir()))

    def look(self, event: str, args: tuple[Any, ...]) -> None:
        """Raise SealedError if an effect is refused."""
        if event == "open":
            if self._files and _is_write(args) and not self._is_allowed(args[0]):
                self.refuse(f"write {shown(args[0])}", args[0])
        elif event in _OUTSIDE:
            at = _OUTSIDE[event]
            target = None if at is None or at >= len(args) else args[at]
            if event == "sqlite3.connect" and (_is_in_memory(target) or self._is_allowed(_file_of(target))):
                return
            if event == "socket.getaddrinfo" and not target:
                return  # somebody listens: addresses of this machine are not looked up
            if event == "socket.getaddrinfo" and is_address("getaddrinfo", target):
                event, target = "socket.connect", args[:2]  # which is what comes next: nothing is looked up
            file = _file_of(target) if event in _DATABASES else None
            self.refuse(f"{event.replace('socket.', '').replace('subprocess.', '')} {shown(target)}".rstrip(), file)
        elif self._files and event in _CHANGES:
            path, folder = args[_CHANGES[event]], _FOLDERS.get(event, len(args))
            path = placed(path, args[folder] if folder < len(args) else None)
            if not self._is_allowed(path) and not _changes_nothing(event, path, args):
                inside = os.path.join(os.fsdecode(path), "") if event == "os.mkdir" else path  # noqa: PTH118 - the slash says folder
                self.refuse(f"{event.partition('.')[2]} {shown(path)}", inside)

    def _is_allowed(self, path: Any) -> bool:
        if isinstance(path, int):
            return True  # whoever opened it was asked
        return _is_in(path, self._allowed)

    def refuse(self, what: str, file: Any = None) -> None:
        """Raise SealedError, and note that it was; with the way to allow it, if it is about a file."""
        hit = Hit(what, line(), _folder_of(file) if isinstance(file, str | bytes | os.PathLike) else None)
        is_known = any(other.where == hit.where for other in self.hits)
        self.hits.append(hit)
        if not is_known:
            _tell(hit)
        raise SealedError(*hit)


def _tell(hit: Hit) -> None:
    """Say at once what a program is refused: a library may swallow it, and then wait for ever."""
    if _is_ours is None and sys.__stderr__ is not None:  # else whoever captures some code gets the exception
        with suppress(OSError, ValueError):
            sys.__stderr__.write(f"everstep: {hit.where} would {hit.what}, which the seal of this replay refuses.\n")
            sys.__stderr__.flush()


def _folder_of(file: str | bytes | os.PathLike[Any]) -> str:
    """The folder of a file, or that itself, as it is typed. With a slash at its end it is one, though not made yet."""
    name, here = os.fsdecode(file), Path.cwd()
    path = Path(os.path.realpath(name))
    folder = path if path.is_dir() or name.endswith(os.sep) else path.parent
    while not folder.parent.is_dir():
        folder = folder.parent  # the first that is to be made
    return shlex.quote(str(folder.relative_to(here) if folder.is_relative_to(here) else folder))


def placed(path: Any, folder: int | None) -> Any:
    """A path that is relative to an open folder, whole; if that is not open, as it is: the call itself will fail."""
    if folder in {None, -1} or isinstance(path, int):
        return path
    try:
        where = str(Path(f"/proc/self/fd/{folder}").readlink())
    except OSError:
        if not hasattr(fcntl, "F_GETPATH"):
            return path
        where = fcntl.fcntl(folder, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0").decode()
    return os.path.join(where, os.fsdecode(path))  # noqa: PTH118 - of what the program gave


def _open(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
    """`os.open`, of whose folder Python's audit hooks are not told."""
    whole = placed(path, dir_fd)
    return _os_open(whole, flags, mode, dir_fd=dir_fd if whole is path else None)


def _changes_nothing(event: str, path: Any, args: tuple[Any, ...]) -> bool:
    """Whether a file is as a program would make it: a folder that is there, the rights that it has."""
    if event not in {"os.mkdir", "os.chmod"}:
        return False
    try:
        found = os.stat(path)  # noqa: PTH116 - of what the program gave
    except OSError:
        return False
    if event == "os.mkdir":
        return stat.S_ISDIR(found.st_mode)  # whatever Python says to it
    return bool(stat.S_IMODE(found.st_mode) == args[1])


def _is_in(path: Any, folders: tuple[str, ...]) -> bool:
    try:
        name = os.fsdecode(path)
    except TypeError:
        return False
    if name in _DEVICES or name.startswith("/dev/fd/") or "__pycache__" in name:
        return True
    real = os.path.realpath(name)
    return any(real == folder or real.startswith(folder + os.sep) for folder in folders)


def _is_in_memory(database: Any) -> bool:
    """Whether a database of SQLite has no file; also by the kind of address that SQLAlchemy and tests use."""
    if database in {":memory:", ""}:
        return True
    return isinstance(database, str) and _MEMORY.fullmatch(database) is not None


def _file_of(database: Any) -> Any:
    """The file of a database, of an address too."""
    if isinstance(database, str) and database.startswith("file:"):
        return database.removeprefix("file:").partition("?")[0]
    return database


def _is_write(args: tuple[Any, ...]) -> bool:
    mode, flags = args[1] if len(args) > 1 else None, args[2] if len(args) > 2 else 0
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and bool(flags & _WRITES)  # os.open has no mode


def is_address(function: str, host: Any) -> bool:
    """Whether such a function has nothing to look up: it is given an address, or none."""
    if function not in {"getaddrinfo", "gethostbyname", "gethostbyname_ex"}:
        return False
    name = host.decode("latin-1") if isinstance(host, bytes) else host
    return not name or _ADDRESS.fullmatch(str(name)) is not None


def shown(target: Any) -> str:
    """Where something leads to, in short."""
    if isinstance(target, tuple):
        return ":".join(map(str, target[:2]))
    if isinstance(target, list):
        return " ".join(map(str, target))[:120]
    return "" if target is None else os.fsdecode(target)[:120] if isinstance(target, bytes) else str(target)[:120]


def line() -> str:
    """The line of the program that led here: not Python's own, not a library's."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - who does it is to be seen nowhere else
    first = None
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(("<frozen", _OURS)):
            place = f"{_from_here(file)}:{frame.f_lineno}"
            first = first or place
            if "site-packages" not in file and not file.startswith(_LIBRARY):
                return place
        frame = frame.f_back
    return first or "code that Python does not show"


def _from_here(file: str) -> str:
    """A file as one would type it."""
    with suppress(OSError):  # the folder may be gone
        return file.removeprefix(f"{os.getcwd()}{os.sep}")  # noqa: PTH109 - a text, as the other
    return file


# One hook for the process, because it cannot be taken out again.
_os_open = os.open
_sealed: Seal | None = None
_is_ours: Callable[[], bool] | None = None
_hooked = False


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if event in _LOOKED_AT:  # few are, and a library causes many: `id` is one
        seal = _sealed
        if seal is not None and _applies():
            seal.look(event, args)


def _applies() -> bool:
    return _is_ours is None or _is_ours()


@contextmanager
def sealed(seal: Seal, applies: Callable[[], bool] | None = None) -> Iterator[Seal]:
    """Refuse effects while this lasts; with `applies`, where that says so."""
    global _hooked, _sealed, _is_ours  # noqa: PLW0603 - one hook for the process
    if not _hooked:
        sys.addaudithook(_hook)
        _hooked = True
    before = _sealed, _is_ours, os.open
    _sealed, _is_ours, os.open = seal, applies, _open
    try:
        yield seal
    finally:
        _sealed, _is_ours, os.open = before


def leave_network() -> None:
    """Put this process into a network of its own, where there is nobody. Raises CaptureError where that cannot be."""
    libc = ctypes.CDLL(None, use_errno=True)
    unshare = getattr(libc, "unshare", None)
    if sys.platform != "linux" or unshare is None:
        raise CaptureError("a network of its own is to be had on Linux only; use --sealed.")
    if unshare(_NEW_NET) != 0 and unshare(_NEW_USER | _NEW_NET) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise CaptureError(f"this process cannot be given a network of its own ({reason}); use --sealed.")
