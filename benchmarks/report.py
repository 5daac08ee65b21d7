"""Run cases side by side and say what was measured: a table for people, JSON for machines.

Cases of one comparison run in one process, interleaved, each in a directory of its own. Ratios are taken within a
repeat and given with their range: on a machine that others use too, only those mean something.
"""

from __future__ import annotations

import gc
import importlib.metadata
import os
import platform
import shutil
import sqlite3
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

PACKAGES = ("everstep", "apsw", "ormsgpack", "zstandard", "langgraph", "langgraph-checkpoint-sqlite", "aiosqlite")


@dataclass(frozen=True)
class Case:
    """Something to measure. `run(directory, steps)` gives the seconds of each step, and leaves its files closed."""

    name: str
    run: Callable[[Path, int], list[float]]
    durability: str


@dataclass(frozen=True)
class Result:
    """One repeat of one case. Times are microseconds per step, but for `seconds`, the sum of all steps."""

    case: str
    durability: str
    repeat: int
    steps: int
    seconds: float
    mean: float
    median: float
    p99: float
    max: float
    first_tenth: float
    last_tenth: float
    bytes: int
    load: float


@dataclass(frozen=True)
class Figure:
    """One thing measured, with the range over the repeats, and what it should be, if that was said."""

    what: str
    values: list[float]
    target: float | None
    at_most: bool = True
    unit: str = ""

    @property
    def value(self) -> float:
        return statistics.median(self.values)

    @property
    def met(self) -> bool:
        if self.target is None:
            return True
        return self.value <= self.target if self.at_most else self.value >= self.target

    def __str__(self) -> str:
        sign = "<=" if self.at_most else ">="
        text = f"{self.value:,.2f}{self.unit} ({min(self.values):,.2f}-{max(self.values):,.2f})"
        if self.target is None:
            return f"{self.what:<58}{text}"
        return f"{self.what:<58}{text:<34}{sign} {self.target:,g}{self.unit:<6}{'ok' if self.met else 'MISSED'}"


def summarise(case: Case, repeat: int, seconds: Sequence[float], size: int) -> Result:
    """The figures of one repeat. The first and last tenth show what grows with the length of a run."""
    micros = [second * 1e6 for second in seconds]
    tenth = max(1, len(micros) // 10)
    return Result(
        case=case.name,
        durability=case.durability,
        repeat=repeat,
        steps=len(micros),
        seconds=sum(seconds),
        mean=statistics.fmean(micros),
        median=statistics.median(micros),
        p99=sorted(micros)[int(len(micros) * 0.99)],
        max=max(micros),
        first_tenth=statistics.fmean(micros[:tenth]),
        last_tenth=statistics.fmean(micros[-tenth:]),
        bytes=size,
        load=os.getloadavg()[0],
    )


def set_apart() -> None:
    """Keep the garbage collector from looking through the modules of all the peers: that is nobody's step."""
    gc.collect()
    gc.freeze()


def stored_bytes(directory: Path) -> int:
    """The size of everything in a directory: databases, logs and whatever lies beside them."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def measure(cases: Sequence[Case], steps: int, *, repeats: int, where: Path) -> list[Result]:
    """Run the cases in turn, as often as asked. Bytes are counted after close; each case's files are removed then.

    One short round comes first and is not reported: imports and caches are not what is measured.
    """
    results = []
    for repeat in range(repeats + 1):
        for case in cases:
            directory = Path(tempfile.mkdtemp(prefix="bench-", dir=where))
            set_apart()
            try:
                seconds = case.run(directory, steps if repeat else max(1, steps // 20))
                if repeat:
                    results.append(summarise(case, repeat, seconds, stored_bytes(directory)))
            finally:
                shutil.rmtree(directory)
    return results


def ratios(results: Sequence[Result], of: str, to: str, figure: str = "mean") -> list[float]:
    """How many times the figure of one case is that of another, repeat by repeat."""
    values = {(result.case, result.repeat): getattr(result, figure) for result in results}
    return [values[of, repeat] / values[to, repeat] for repeat in sorted({result.repeat for result in results})]


def in_words(values: Sequence[float]) -> str:
    """A list of ratios as its median and its range."""
    return f"{statistics.median(values):.2f}x ({min(values):.2f}-{max(values):.2f})"


def environment(where: Path, packages: Sequence[str] = PACKAGES) -> dict[str, Any]:
    """What a reader must know to judge the figures."""
    versions = {}
    for name in packages:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "file system": file_system(where),
        "SQLite of apsw": apsw.sqlite_lib_version(),
        "SQLite of Python": sqlite3.sqlite_version,
        "load average": [round(load, 2) for load in os.getloadavg()],
        "versions": versions,
    }


def file_system(where: Path) -> str:
    """The kind of file system a directory is on, where the system says so."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return "unknown"
    place = where.resolve()
    points = [line.split()[1:3] for line in mounts.read_text("utf-8").splitlines()]
    around = [(len(point), kind) for point, kind in points if place.is_relative_to(point)]
    return max(around, default=(0, "unknown"))[1]


def table(results: Sequence[Result], floor: str | None = None) -> str:
    """The results as text: a row per repeat, then each case as a multiple of the floor, repeat by repeat."""
    head = f"{'case':<32}{'#':>2}{'steps':>8}{'mean':>9}{'median':>9}{'p99':>9}{'max':>10}"
    lines = [f"{head}{'first10%':>10}{'last10%':>10}{'MB':>9}{'load':>6}"]
    lines.extend(
        f"{r.case:<32}{r.repeat:>2}{r.steps:>8}{r.mean:>9.1f}{r.median:>9.1f}{r.p99:>9.1f}{r.max:>10.1f}"
        f"{r.first_tenth:>10.1f}{r.last_tenth:>10.1f}{r.bytes / 1e6:>9.3f}{r.load:>6.1f}"
        for r in sorted(results, key=lambda r: (r.case, r.repeat))
    )
    durability = {r.case: r.durability for r in results}
    lines += ["", "us per step; bytes after close", *(f"{name}: {text}" for name, text in durability.items())]
    if floor is not None:
        lines += ["", f"times the {floor}, in the same repeat: median (range)"]
        lines += [f"{name:<32}{in_words(ratios(results, name, floor))}" for name in durability if name != floor]
    return "\n".join(lines)


def describe(where: Path) -> str:
    """The environment as text."""
    facts = environment(where)
    versions = ", ".join(f"{name} {version}" for name, version in facts.pop("versions").items())
    return "\n".join([*(f"{name}: {fact}" for name, fact in facts.items()), versions])
