"""The command that looks for damage: verify."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from everstep.cli import exits
from everstep.cli.output import Cell, Column
from everstep.cli.session import Session, options, run_ids, session
from everstep.cli.text import count
from everstep.errors import DamagedError, DamageWarning
from everstep.trail.check import Damage, Report
from everstep.trail.naming import folder_of


@click.command()
@click.argument("run", required=False, shell_complete=run_ids)
@options
def verify(run: str | None) -> int:
    """Check every entry of a run, or of the whole trail, against its hash chain. Exits with 6 if one is damaged."""
    here = session()
    with heard() as said:
        try:
            trail = here.open()
            with here.output.busy(f"checking {'the trail' if run is None else run}"):
                report = trail.verify(run)
        except DamagedError as error:  # it cannot even be opened: to run verify is no way out here
            report = Report(0, 0, (Damage(error.what, error.run_id, error.seq, error.intact),))
    if here.output.as_json:
        here.output.data(verify=report_of(report))
    else:
        _print_report(here, report)
    for text in said:
        if text not in {one.what for one in report.damage}:
            here.output.talk(f"warning: {text}")
    return exits.OK if report.ok else exits.DAMAGED


@contextmanager
def heard() -> Iterator[list[str]]:
    """The damage that is warned of in a block, each once, for a command that tells it in a place of its own."""
    said: list[str] = []
    tell = warnings.showwarning

    def hear(message: Warning | str, category: type[Warning], *rest: Any) -> None:
        if not issubclass(category, DamageWarning):
            tell(message, category, *rest)
        elif str(message) not in said:
            said.append(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("always", DamageWarning)
        warnings.showwarning = hear  # type: ignore[assignment]  # hands on the rest as it comes
        try:
            yield said
        except BaseException:  # nobody comes to tell it
            for text in said:
                tell(text, DamageWarning, __file__, 0)
            raise


def report_of(report: Report) -> dict[str, Any]:
    """What was found, with --json."""
    damage = [{"what": one.what, "run": one.run_id, "seq": one.seq, "intact": one.intact} for one in report.damage]
    return {"ok": report.ok, "runs": report.runs, "entries": report.entries, "damage": damage}


def _print_report(here: Session, report: Report) -> None:
    checked = f"{count(report.runs, 'run')}, {count(report.entries, 'entry')}"
    if report.ok:
        here.output.line(Cell(f"{checked}: intact", "green"))
        return
    here.output.line(Cell(f"{checked}: {count(len(report.damage), 'place')} damaged", "red"))
    here.output.table(
        [Column("where"), Column("intact up to"), Column("what")],
        [
            [
                Cell(_place(one), whole=True),
                "-" if one.intact is None else str(one.intact),
                Cell(one.what, "red", whole=True),
            ]
            for one in report.damage
        ],
    )
    forks = [one for one in report.damage if one.run_id is not None and one.intact is not None]
    back = f"{'  or' if forks else 'next'}: {_way_back(here)}"
    for one in forks[:1]:
        here.output.talk(f"next: {here.command('fork', one.run_id, '--at', one.intact)}")
    here.output.talk(back)


def _place(damage: Damage) -> str:
    if damage.run_id is None:
        return "-"
    return damage.run_id if damage.seq is None else f"{damage.run_id}@{damage.seq}"


def _way_back(here: Session) -> str:
    if here.on_server:
        return "restore the database from its backup."
    if folder_of(here.url) is not None:
        return "restore the folder from a backup, or with git, if it is kept there."
    return "restore the file from a backup."
