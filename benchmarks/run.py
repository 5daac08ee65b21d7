"""`make bench`: everstep, the raw floor and its peer side by side, on memory and on disk; a table and JSON.

Targets stand beside the figures. They are ratios wherever a machine's mood would decide, and none of them fails the
run: a figure that misses is said to miss.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import TypeVar

import everstep
from benchmarks import floor, graphs, ours, peers, report, runners
from benchmarks.report import Case, Figure, Result

T = TypeVar("T")
RESULTS = Path("bench-results")
GIGABYTE = 1 << 30


def main() -> None:
    """Run what was asked for, print the figures, keep them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="leave out the long runs: 100,000 steps, 100 x 200, 1 GB")
    options = parser.parse_args()
    figures: list[Figure] = []
    results: list[Result] = []
    for place, where in places():
        print(f"== {place}: {report.file_system(where)}\n{report.describe(where)}\n", flush=True)
        parts = (one_run, whole_states, many_runs, processes, looking_back, workflows, many_workflows, long_graphs)
        for measure in parts:
            figures += show(measure(place, where, options.repeats, results, quick=options.quick))
        if place == "tmpfs":
            figures += show(long_runs(where, results, quick=options.quick))
            figures += show(around_runs(where, options.repeats))
    if not options.quick:
        figures += show(large_file(Path.cwd()))
    missed = [figure for figure in figures if not figure.met]
    print(f"\n{len(figures) - len(missed)} of {len(figures)} targets met")
    save(figures, results)


def places() -> Iterator[tuple[str, Path]]:
    """Memory, where only the code counts, and a disk, where the fsync does."""
    if Path("/dev/shm").is_dir():  # noqa: S108 - the point is that it is memory
        yield "tmpfs", Path("/dev/shm")  # noqa: S108 - as above
    yield "disk", Path.cwd()


def compare(
    cases: Sequence[Case], steps: int, repeats: int, where: Path, results: list[Result], base: str
) -> list[Result]:
    """Measure cases in turn, and print the table."""
    found = report.measure(cases, steps, repeats=repeats, where=where)
    results += found
    print(report.table(found, base), flush=True)
    return found


def one_run(place: str, where: Path, repeats: int, results: list[Result], *, quick: bool) -> list[Figure]:  # noqa: ARG001 - one signature for all
    """W1 by one sync and one awaited writer, against the floor and the savers."""
    cases = [floor.W1, ours.SYNC, ours.ASYNC, peers.SQLITE_SAVER, peers.ASYNC_SQLITE_SAVER]
    found = compare(cases, 1_000, repeats, where, results, floor.W1.name)
    sync, awaited = (4.0, 12.0) if place == "tmpfs" else (2.0, 2.0)
    size = [result.bytes / 1e6 for result in found if result.case == ours.SYNC.name]
    return [
        Figure(
            f"{place}: one sync writer / floor", report.ratios(found, ours.SYNC.name, floor.W1.name), sync, unit="x"
        ),
        Figure(
            f"{place}: one awaited writer / floor",
            report.ratios(found, ours.ASYNC.name, floor.W1.name),
            awaited,
            unit="x",
        ),
        Figure(f"{place}: W1 file after close, 1,000 steps", size, 1.3, unit=" MB"),
    ]


def whole_states(place: str, where: Path, repeats: int, results: list[Result], *, quick: bool) -> list[Figure]:  # noqa: ARG001 - one signature for all
    """Whole-state saves against the saver, which is handed whole states too."""
    found = compare([ours.WHOLE, peers.SQLITE_SAVER], 1_000, repeats, where, results, ours.WHOLE.name)
    faster = report.ratios(found, peers.SQLITE_SAVER.name, ours.WHOLE.name)
    return [Figure(f"{place}: whole-state saves, times as fast as SqliteSaver", faster, 4.0, at_most=False, unit="x")]


def many_runs(place: str, where: Path, repeats: int, results: list[Result], *, quick: bool) -> list[Figure]:
    """100 writers at once on one event loop."""
    figures = []
    for steps in (20,) if quick else (20, 200):
        cases = [ours.FLEET, peers.ASYNC_SQLITE_SAVER_FLEET]
        found = compare(cases, steps, repeats if steps == 20 else 3, where, results, ours.FLEET.name)
        faster = report.ratios(found, cases[1].name, cases[0].name)
        target = 7.0 if place == "tmpfs" else 10.0
        what = f"{place}: 100 x {steps}, times as fast as AsyncSqliteSaver"
        figures.append(Figure(what, faster, target, at_most=False, unit="x"))
    return figures


def processes(place: str, where: Path, repeats: int, results: list[Result], *, quick: bool) -> list[Figure]:  # noqa: ARG001 - one signature for all
    """Four processes on one file."""
    rounds = [_in_folder(where, lambda folder: ours.four_processes(folder, 500)) for _ in range(min(repeats, 3))]
    print("\n".join(str({name: round(value, 2) for name, value in found.items()}) for found in rounds), flush=True)
    return [
        Figure(f"{place}: four processes, p99", [found["p99 ms"] for found in rounds], 50.0, unit=" ms"),
        Figure(
            f"{place}: four processes, least/most share",
            [found["least/most share"] for found in rounds],
            0.5,
            at_most=False,
        ),
    ]


def looking_back(place: str, where: Path, repeats: int, results: list[Result], *, quick: bool) -> list[Figure]:  # noqa: ARG001 - one signature for all
    """States, lists and verification of a run of 1,000 steps."""
    rounds = [_in_folder(where, lambda folder: ours.reads(folder, 1_000)) for _ in range(repeats)]
    targets = {
        "newest state ms": (2.5, True),
        "state at step 500 ms": (2.5, True),
        "list 1000 steps ms": (8.0, True),
        "verify steps/s": (200_000.0, False),
    }
    for name in rounds[0]:
        print(f"{place}: {name:<40}{statistics.median(found[name] for found in rounds):,.3f}", flush=True)
    return [
        Figure(f"{place}: {name}", [found[name] for found in rounds], target, at_most=at_most)
        for name, (target, at_most) in targets.items()
    ]


def workflows(place: str, where: Path, repeats: int, results: list[Result], *, quick: bool) -> list[Figure]:  # noqa: ARG001 - one signature for all
    """W1 as a workflow, with the whole runner in the path."""
    cases = [floor.W1, runners.SYNC, runners.ASYNC, peers.SQLITE_SAVER, peers.ASYNC_SQLITE_SAVER]
    found = compare(cases, 1_000, repeats, where, results, floor.W1.name)
    sync, awaited = (5.0, 14.0) if place == "tmpfs" else (2.5, 2.5)
    figures = [
        Figure(f"{place}: a sync run / floor", report.ratios(found, runners.SYNC.name, floor.W1.name), sync, unit="x"),
        Figure(
            f"{place}: an async run / floor", report.ratios(found, runners.ASYNC.name, floor.W1.name), awaited, unit="x"
        ),
    ]
    if place == "tmpfs":
        for ours_, peer, target in ((runners.SYNC, cases[3], 12.0), (runners.ASYNC, cases[4], 7.0)):
            faster = report.ratios(found, peer.name, ours_.name)
            what = f"{place}: {ours_.name}, times as fast as {peer.name}"
            figures.append(Figure(what, faster, target, at_most=False, unit="x"))
    return figures


def many_workflows(place: str, where: Path, repeats: int, results: list[Result], *, quick: bool) -> list[Figure]:  # noqa: ARG001 - one signature for all
    """100 workflows at once, against the saver driven alone and by the peer's own loop."""
    cases = [runners.FLEET, peers.ASYNC_SQLITE_SAVER_FLEET, peers.GRAPH_FLEET]
    found = compare(cases, 20, min(repeats, 3), where, results, runners.FLEET.name)
    figures = [
        Figure(
            f"{place}: 100 workflows x 20, times as fast as {peer.name}",
            report.ratios(found, peer.name, runners.FLEET.name),
            target,
            at_most=False,
            unit="x",
        )
        for peer, target in ((cases[1], 10.0), (cases[2], 20.0))
        if place == "disk"
    ]
    lag = [_in_folder(where, lambda folder: runners.ticker_lag(folder, 20)) for _ in range(min(repeats, 3))]
    return [*figures, Figure(f"{place}: ticker lag with 100 agents, p99", lag, 5.0, unit=" ms")]


def long_graphs(place: str, where: Path, repeats: int, results: list[Result], *, quick: bool) -> list[Figure]:  # noqa: ARG001 - one signature for all
    """A chain of 1,000 nodes and a loop of 1,000 rounds, against the same by the peer's own loop."""
    figures = []
    for case, peer in ((graphs.LOOP, graphs.PEER_LOOP), (graphs.CHAIN, graphs.PEER_CHAIN)):
        found = compare([case, peer], 1_000, min(repeats, 3), where, results, case.name)
        faster = report.ratios(found, peer.name, case.name)
        smaller = [
            other.bytes / own.bytes for own, other in zip(_of(found, case.name), _of(found, peer.name), strict=True)
        ]
        figures += [
            Figure(f"{place}: {case.name}, times as fast as {peer.name}", faster, 5.0, at_most=False, unit="x"),
            Figure(f"{place}: {case.name}, times as small", smaller, 200.0, at_most=False, unit="x"),
        ]
    return figures


def _of(found: list[Result], case: str) -> list[Result]:
    return sorted((result for result in found if result.case == case), key=lambda result: result.repeat)


def around_runs(where: Path, repeats: int) -> list[Figure]:
    """What a run costs beside its writes."""
    return [
        Figure(
            "resume past 10,000 steps, each",
            [_in_folder(where, lambda folder: runners.resume(folder, 10_000)) for _ in range(repeats)],
            25.0,
            unit=" us",
        ),
        Figure(
            "replay of 1,000 steps from the record alone, each",
            [_in_folder(where, lambda folder: runners.replay(folder, 1_000, "recorded")) for _ in range(repeats)],
            200.0,
            unit=" us",
        ),
        Figure(
            "replay of 1,000 steps by their code, each",
            [_in_folder(where, lambda folder: runners.replay(folder, 1_000, "verify")) for _ in range(repeats)],
            50.0,
            unit=" us",
        ),
        Figure("a step without a store", [runners.without_store(10_000) for _ in range(repeats)], 10.0, unit=" us"),
        Figure("a node without a store", [graphs.without_store(1_000) for _ in range(repeats)], 30.0, unit=" us"),
        Figure("the log of an empty node", [graphs.log_cost(20_000) for _ in range(repeats)], 5.0, unit=" us"),
        Figure(
            "compare two runs of 10,000 steps",
            [_in_folder(where, lambda folder: ours.comparison(folder, 10_000))],
            1.0,
            unit=" s",
        ),
        Figure("import everstep, over a bare interpreter", [runners.import_milliseconds()], 60.0, unit=" ms"),
        Figure("everstep runs", [_in_folder(where, runners.runs_command)], 200.0, unit=" ms"),
    ]


def long_runs(where: Path, results: list[Result], *, quick: bool) -> list[Figure]:
    """Whether the cost of a step depends on how long the run is."""
    lengths = (1_000, 10_000) if quick else (1_000, 10_000, 100_000)
    found = {steps: report.measure([ours.SYNC], steps, repeats=1, where=where)[0] for steps in lengths}
    results += found.values()
    print(report.table(list(found.values())), flush=True)
    first, last = found[lengths[0]], found[lengths[-1]]
    figures = [
        Figure(
            f"bytes per step at {steps:,} / at 1,000",
            [found[steps].bytes / steps / (first.bytes / 1_000)],
            1.2,
            unit="x",
        )
        for steps in lengths[1:]
    ]
    return [
        *figures,
        Figure(f"median step at {lengths[-1]:,} / at 1,000", [last.median / first.median], 1.3, unit="x"),
        Figure(f"longest of {lengths[-1]:,} steps", [last.max / 1e3], 50.0, unit=" ms"),
    ]


def large_file(where: Path) -> list[Figure]:
    """Opening a trail of a gigabyte."""

    def build(folder: Path) -> list[float]:
        path = folder / "large.db"
        with everstep.open(path) as trail:
            run = trail.record("large")
            while path.stat().st_size < GIGABYTE:
                run.step("chunk", output=os.urandom(4 << 20))
            run.release()
        seconds = []
        for _ in range(5):
            start = perf_counter()
            trail = everstep.open(path)
            seconds.append((perf_counter() - start) * 1e3)
            trail.close()
        return seconds

    return [Figure("opening a trail of 1 GB", _in_folder(where, build), 5.0, unit=" ms")]


@contextmanager
def _folder(where: Path) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=where))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _in_folder(where: Path, measure: Callable[[Path], T]) -> T:
    with _folder(where) as folder:
        return measure(folder)


def show(figures: list[Figure]) -> list[Figure]:
    """Print figures as they come: a long run should not keep them to itself."""
    print("\n" + "\n".join(map(str, figures)) + "\n", flush=True)
    return figures


def save(figures: list[Figure], results: list[Result]) -> None:
    """Keep everything as JSON, every repeat of it."""
    RESULTS.mkdir(exist_ok=True)
    content = {
        "format": 1,
        "environment": report.environment(Path.cwd()),
        "figures": [{**asdict(figure), "met": figure.met} for figure in figures],
        "results": [asdict(result) for result in results],
    }
    (RESULTS / "bench.json").write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    print(f"kept in {RESULTS / 'bench.json'}")


if __name__ == "__main__":
    main()
