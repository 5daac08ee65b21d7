"""Run the comparison, print it, keep it as JSON, and write the tables into the page.

Targets stand beside the figures; as with `make bench`, none of them fails the run: a figure that misses is said to.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.capture import cost, fidelity, page
from benchmarks.capture.tools import EVERSTEP_ASYNC, EVERSTEP_SYNC, TOOLS, Tool

RESULTS = Path("bench-results")
PACKAGES = (
    "everstep", "vcrpy", "reeltime", "openai", "anthropic", "httpx2", "requests", "urllib3", "langgraph",
    "langchain-openai", "time-machine",
)  # fmt: skip


def main() -> None:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="recordings of each case, and rounds of the costs")
    parser.add_argument("--calls", type=int, default=60)
    parser.add_argument("--streams", type=int, default=10)
    parser.add_argument("--case", action="append", default=[], help="only this case, or `changed` or `secret`; no page")
    parser.add_argument("--only", choices=["fidelity", "cost"], help="only this half; the page stays as it is")
    parser.add_argument("--no-page", action="store_true", help="leave the page as it is")
    options = parser.parse_args()
    facts = report.environment(Path.cwd(), PACKAGES)
    print("\n".join(f"{name}: {fact}" for name, fact in facts.items()), flush=True)
    missing = {tool.name: tool.missing for tool in TOOLS if tool.missing}
    print("".join(f"left out: {name}: {why}\n" for name, why in missing.items()))
    tools = [tool for tool in TOOLS if tool.name not in missing]
    with _folder() as folder:
        cells = [] if options.only == "cost" else faithful(folder, options.repeats, tools, options.case)
        costly = options.only == "cost" or not (options.only or options.case)
        timed, commit = costing(folder, options, tools) if costly else ([], [])
        figures = cost.figures(timed, cost.counted(folder)) if timed else []
    tables = written(cells, timed, commit, figures, missing, facts, options.repeats)
    save(facts, cells, timed, commit, figures)
    if cells and timed and not options.no_page:
        page.PAGE.write_text(page.rewritten(page.PAGE.read_text("utf-8"), tables), "utf-8")
        print(f"written to {page.PAGE}")


def faithful(folder: Path, repeats: int, tools: list[Tool], cases: list[str]) -> list[fidelity.Cell]:
    """The first half: what is the same in a replay."""
    cells = []
    for each in fidelity.measured(folder, repeats, tools, cases):
        cells.append(each)
        print(f"{each.row:<76}{each.tool:<22}{each.text}", flush=True)
    return cells


def costing(folder: Path, options: Any, tools: list[Tool]) -> tuple[list[cost.Timed], list[float]]:
    """The other half: what it costs."""
    commit = cost.one_commit(folder)
    others = [tool for tool in tools if tool.package != "everstep"]
    timed = cost.measured(
        folder, options.repeats, [EVERSTEP_ASYNC, EVERSTEP_SYNC, *others], options.calls, options.streams
    )
    timed += cost.taken(folder, options.repeats, options.calls)
    return timed, commit + cost.one_commit(folder)


def written(
    cells: list[fidelity.Cell],
    timed: list[cost.Timed],
    commit: list[float],
    figures: list[report.Figure],
    missing: dict[str, str],
    facts: dict[str, Any],
    repeats: int,
) -> str:
    """Print the tables; the same in Markdown."""
    made = [f"Python {facts['python']}, {facts['system']}; {repeats} recordings of each case. "
            + ", ".join(f"{name} {version}" for name, version in facts["versions"].items()) + "."]  # fmt: skip
    if cells:
        rows = page.grid(cells, [tool.name for tool in TOOLS], missing)
        print(f"\n{page.text(rows)}\n")
        made += ["### What is the same in a replay", page.markdown(rows)]
    if timed:
        rows = page.costs(timed, missing)
        usual = statistics.median(commit)
        one = (
            f"One commit of SQLite alone, synced, in a loop of nothing else: {min(commit):.2f} ms at least, "
            f"{usual:.2f} ms median."
        )
        print(f"\n{page.text(rows)}\n\n{one}\n\n" + "\n".join(map(str, figures)))
        aimed = [each.met for each in figures if each.target is not None]
        print(f"\n{sum(aimed)} of {len(aimed)} targets met")
        asked = [["figure", "median (range)", "target", ""], *(_cells(each) for each in figures)]
        made += ["### What it costs", page.markdown(rows), one, page.markdown(asked)]
    return "\n\n".join(made)


def _cells(figure: report.Figure) -> list[str]:
    low, high = min(figure.values), max(figure.values)
    return [
        figure.what,
        f"{figure.value:,.2f}{figure.unit} ({low:,.2f} to {high:,.2f})",
        "" if figure.target is None else f"at most {figure.target:g}{figure.unit}",
        "" if figure.target is None else "ok" if figure.met else "missed",
    ]


def save(
    facts: dict[str, Any],
    cells: list[fidelity.Cell],
    timed: list[cost.Timed],
    commit: list[float],
    figures: list[report.Figure],
) -> None:
    """Keep everything as JSON, every call of it."""
    RESULTS.mkdir(exist_ok=True)
    content = {
        "format": 1,
        "environment": facts,
        "fidelity": fidelity.as_json(cells),
        "cost": cost.as_json(timed),
        "commit ms": commit,
        "figures": [{**asdict(figure), "met": figure.met} for figure in figures],
    }
    (RESULTS / "bench-capture.json").write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    print(f"kept in {RESULTS / 'bench-capture.json'}")


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
