"""The tools, each as its own page says it is used: how a program is recorded with it, replayed, and what it stored."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from time import perf_counter

import apsw

from everstep.codec import frame
from everstep.errors import EverstepError

PROGRAMS = Path(__file__).parent / "programs"
STATE = "stored"  # the folder that holds what a tool stores, and nothing else


@dataclass(frozen=True)
class Ran:
    """What came of a program."""

    status: int
    stdout: str
    stderr: str
    seconds: float


@dataclass(frozen=True)
class Tool:
    """No tool: the program alone, which is what the others are measured against."""

    name: str
    package: str = ""

    @property
    def missing(self) -> str:
        """Why it cannot be used here; empty if it can."""
        try:
            if self.package:
                metadata.version(self.package)
        except metadata.PackageNotFoundError:
            return f"{self.package} is not installed"
        return ""

    def record(self, folder: Path, program: Sequence[str], environment: dict[str, str]) -> Ran:
        """Run a program, and store what it gets."""
        return self.run(folder, [sys.executable, *program], environment)

    def replay(self, folder: Path, program: Sequence[str], environment: dict[str, str]) -> Ran:
        """Run it again, by what was stored."""
        return self.run(folder, [sys.executable, *program], environment)

    def run(self, folder: Path, command: Sequence[str], environment: dict[str, str]) -> Ran:
        """Run a command in a folder. One that hangs has failed."""
        (folder / STATE).mkdir(exist_ok=True)
        start = perf_counter()
        try:
            done = subprocess.run(  # noqa: S603 - our own words
                command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
            )
        except subprocess.TimeoutExpired:
            return Ran(-1, "", "it was still running after a minute", perf_counter() - start)
        return Ran(done.returncode, done.stdout, done.stderr, perf_counter() - start)

    def plain(self, folder: Path) -> Iterator[bytes]:
        """What it stored, piece by piece, as whoever has the files can read it."""
        yield from (path.read_bytes() for path in (folder / STATE).rglob("*") if path.is_file())


@dataclass(frozen=True)
class Floor(Tool):
    """The program alone, with one commit of SQLite after each call: what is durable then cannot take less."""

    def record(self, folder: Path, program: Sequence[str], environment: dict[str, str]) -> Ran:  # noqa: D102 - as above
        return super().record(folder, program, {**environment, "BENCH_COMMITS": str(folder / STATE / "floor.db")})


@dataclass(frozen=True)
class Everstep(Tool):
    """`everstep record`, `everstep replay`."""

    durability: str = ""

    def record(self, folder: Path, program: Sequence[str], environment: dict[str, str]) -> Ran:  # noqa: D102 - as above
        how = ["--durability", self.durability] if self.durability else []
        return self.run(
            folder, [*self._words(folder, "record"), "--id", "r", *how, "--", sys.executable, *program], environment
        )

    def replay(self, folder: Path, program: Sequence[str], environment: dict[str, str]) -> Ran:  # noqa: D102 - as above
        return self.run(folder, [*self._words(folder, "replay"), "r", "--", sys.executable, *program], environment)

    def plain(self, folder: Path) -> Iterator[bytes]:
        """Its files, and each value in them out of its frame, which may be compressed."""
        yield from super().plain(folder)
        connection = apsw.Connection(str(folder / STATE / "trail.db"), flags=apsw.SQLITE_OPEN_READONLY)
        tables = [str(row[0]) for row in connection.execute("select name from sqlite_schema where type = 'table'")]
        for table in tables:
            for row in connection.execute(f'select * from "{table}"'):  # noqa: S608 - a name out of the file itself
                for value in row:
                    if isinstance(value, bytes):
                        with suppress(EverstepError):  # not all that is stored is framed; it was read above
                            yield frame.unpack(value)
        connection.close()

    @staticmethod
    def _words(folder: Path, verb: str) -> list[str]:
        return [_script("everstep"), verb, "--trail", str(folder / STATE / "trail.db")]


@dataclass(frozen=True)
class Vcrpy(Tool):
    """`use_cassette` around the program, once to record and once to replay."""

    matching: str = "default"

    def record(self, folder: Path, program: Sequence[str], environment: dict[str, str]) -> Ran:  # noqa: D102 - as above
        around = [sys.executable, str(PROGRAMS / "under_vcr.py"), str(folder / STATE / "cassette.yaml"), self.matching]
        return self.run(folder, [*around, *program], environment)

    replay = record


@dataclass(frozen=True)
class Reeltime(Tool):
    """`tape run`, `tape replay`."""

    def record(self, folder: Path, program: Sequence[str], environment: dict[str, str]) -> Ran:  # noqa: D102 - as above
        command = [_script("tape"), "--tape-dir", str(folder / STATE), "run", sys.executable, *program]
        return self.run(folder, command, environment)

    def replay(self, folder: Path, program: Sequence[str], environment: dict[str, str]) -> Ran:  # noqa: ARG002, D102 - it knows what it recorded; as above
        return self.run(folder, [_script("tape"), "--tape-dir", str(folder / STATE), "replay", "last"], environment)


def _script(name: str) -> str:
    """A command that is installed beside this Python."""
    return str(Path(sys.executable).parent / name)


def environment(url: str, key: str, compiled: Path, **more: str) -> dict[str, str]:
    """The environment of a program: ours, without proxies and without what tells Python how to run.

    `compiled` is where it keeps compiled modules: whether those of a package are there already depends on how it was
    installed, and a package that is compiled at each start would seem slow.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.lower().endswith("_proxy") and not name.startswith("PYTHON")
    }
    return {**kept, "PYTHONPYCACHEPREFIX": str(compiled), "MODEL_URL": url, "BENCH_KEY": key, **more}


BARE = Tool("bare")
FLOOR = Floor("bare, with a commit after each call")
EVERSTEP = Everstep("everstep", "everstep")
EVERSTEP_ASYNC = Everstep("everstep, async", "everstep", durability="async")
EVERSTEP_SYNC = Everstep("everstep, sync", "everstep", durability="sync")
VCRPY = Vcrpy("vcrpy", "vcrpy")
VCRPY_BODY = Vcrpy("vcrpy, body matched", "vcrpy", matching="body")
REELTIME = Reeltime("reeltime", "reeltime")
TOOLS: tuple[Tool, ...] = (EVERSTEP, VCRPY, VCRPY_BODY, REELTIME)
