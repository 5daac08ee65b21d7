"""A program that reaches out in many ways, and says which of them went through: for the tests of the seal.

`REACH` names the ways; without it nothing is tried, which is what is recorded.
"""

import asyncio
import ctypes
import multiprocessing
import os
import pty
import shutil
import socket
import sqlite3
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

PORT = int(os.environ.get("REACH_PORT", "0"))
HERE = "127.0.0.1"


def by_libc() -> None:
    """Connect without Python's knowledge."""
    libc = ctypes.CDLL(None, use_errno=True)
    number = libc.socket(socket.AF_INET, socket.SOCK_STREAM, 0)
    address = struct.pack("=HH4s8x", socket.AF_INET, socket.htons(PORT), socket.inet_aton(HERE))
    if libc.connect(number, address, len(address)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    os.close(number)


def written_by_libc() -> None:
    """Write a file without Python's knowledge."""
    libc = ctypes.CDLL(None)
    os.close(libc.creat(b"by-libc", 0o600))


def in_a_database() -> None:
    """Use a driver that is written in C."""
    import apsw  # noqa: PLC0415 - only who does this needs it

    apsw.Connection("by-apsw").execute("create table t (x)")


def connects() -> None:
    """Connect, in whichever process."""
    socket.create_connection((HERE, PORT)).close()


def spawned() -> None:
    """Connect in a process of multiprocessing."""
    process = multiprocessing.get_context("spawn").Process(target=connects)
    process.start()
    process.join()


def datagram() -> None:
    """Send one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.sendto(b"x", (HERE, PORT))


def listens() -> None:
    """Wait for others to connect."""
    with socket.socket() as server:
        server.bind((HERE, 0))
        server.listen()


async def awaited() -> None:
    """Connect on an event loop."""
    _, writer = await asyncio.open_connection(HERE, PORT)
    writer.close()


def opened() -> None:
    """Write a file by its flags."""
    os.close(os.open("by-flags", os.O_CREAT | os.O_WRONLY))


def temporary() -> None:
    """Write where everybody may."""
    Path(os.environ["TMPDIR"], "temporary").write_text("x", "utf-8")


WAYS: dict[str, Callable[[], Any]] = {
    "socket": connects,
    "name": lambda: socket.getaddrinfo("localhost", 80),
    "datagram": datagram,
    "asyncio": lambda: asyncio.run(awaited()),
    "posix_spawn": lambda: os.posix_spawn("/bin/true", ["true"], {}),
    "exec": lambda: os.execv("/bin/true", ["true"]),
    "fork": lambda: os.fork() or os._exit(0),
    "pty": lambda: pty.spawn(["/bin/true"]),
    "sqlite3": lambda: sqlite3.connect("by-sqlite3").close(),
    "sqlite3 allowed": lambda: sqlite3.connect("allowed/by-sqlite3").close(),
    "sqlite3 in memory": lambda: sqlite3.connect(":memory:").close(),
    "sqlite3 shared memory": lambda: sqlite3.connect("file:kept?mode=memory&cache=shared", uri=True).close(),
    "sqlite3 temporary": lambda: sqlite3.connect(str(Path(tempfile.mkdtemp(), "by-sqlite3"))).close(),
    "sqlite3 by address": lambda: sqlite3.connect("file:by-sqlite3?mode=rwc", uri=True).close(),
    "open": lambda: Path("by-open").write_text("x", "utf-8"),
    "open by flags": opened,
    "append": lambda: Path("kept").open("a").close(),
    "remove": lambda: Path("kept").unlink(),
    "rename": lambda: Path("kept").rename("moved"),
    "copy": lambda: shutil.copyfile("kept", "copied"),
    "mkdir": lambda: Path("made").mkdir(),
    "symlink": lambda: Path("linked").symlink_to("kept"),
    "truncate": lambda: os.truncate("kept", 0),
    "chmod": lambda: Path("kept").chmod(0o600),
    "touch": lambda: Path("kept").touch(),
    "attribute": lambda: os.setxattr("kept", "user.a", b"x"),
    "attribute removed": lambda: os.removexattr("kept", "user.a"),
    "read": lambda: Path("kept").read_text("utf-8"),
    "allowed": lambda: Path("allowed/file").write_text("x", "utf-8"),
    "temporary": temporary,
    "device": lambda: Path("/dev/null").write_text("x", "utf-8"),
    "libc connect": by_libc,
    "libc creat": written_by_libc,
    "apsw": in_a_database,
    "multiprocessing": spawned,
    "listen": listens,
    "chdir": lambda: os.chdir("."),
    "environ": lambda: os.environ.update(OTHER="x"),
    "signal": lambda: os.kill(os.getpid(), 0),
    "open before": lambda: os.write(int(os.environ["REACH_FILE"]), b"x"),
}

if __name__ == "__main__":
    for name in filter(None, os.environ.get("REACH", "").split(",")):
        try:
            WAYS[name]()
            said = "went through"
        except Exception as error:  # noqa: BLE001 - how it ends is the answer
            said = f"{type(error).__name__} {error}"
        print(name, said, flush=True)  # noqa: T201 - it is a program
