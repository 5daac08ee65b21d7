"""The command that looks for damage: verify."""

from __future__ import annotations

from typing import Any

import click

from everstep.cli import exits
from everstep.cli.output import Cell, Column
from everstep.cli.session import Session, options, run_ids, session
from everstep.cli.text import count
from everstep.trail.check import Report


@click.command()
@click.argument("run", required=False, shell_complete=run_ids)
@options
def verify(run: str | None) -> int:
    """Check every entry of a run, or of the whole trail, against its hash chain. Exits with 6 if one is damaged."""
    here = session()
    trail = here.open()
    with here.output.busy(f"checking {'the trail' if run is None else run}"):
        report = trail.verify(run)
    if here.output.as_json:
        here.output.data(verify=report_of(report))
    else:
        _print_report(here, report)
    return exits.OK if report.ok else exits.DAMAGED


def report_of(report: Report) -> dict[str, Any]:
    """What was found, with --json."""
    damage = [{"what": one.what, "run": one.run_id, "seq": one.seq, "intact": one.intact} for one in report.damage]
    return {"ok": report.ok, "runs": report.runs, "entries": report.steps, "damage": damage}


def _print_report(here: Session, report: Report) -> None:
    checked = f"{count(report.runs, 'run')}, {report.steps:,} entries"
    if report.ok:
        here.output.line(Cell(f"{checked}: intact", "green"))
        return
    here.output.line(Cell(f"{checked}: {count(len(report.damage), 'place')} damaged", "red"))
    here.output.table(
        [Column("where"), Column("intact up to"), Column("what")],
        [
            [
                "-" if one.run_id is None else one.run_id if one.seq is None else f"{one.run_id}@{one.seq}",
                "-" if one.intact is None else str(one.intact),
                Cell(one.what, "red"),
            ]
            for one in report.damage
        ],
    )
    forks = [one for one in report.damage if one.run_id is not None and one.intact is not None]
    if forks:
        here.output.talk(f"next: fork {forks[0].run_id} at step {forks[0].intact}, or restore the trail from a backup.")
