"""The commands that look for trouble: verify and doctor."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import apsw
import click

from everstep.cli import exits, plain
from everstep.cli.output import Cell, Column
from everstep.cli.session import Session, is_interrupted, options, run_ids, session
from everstep.cli.text import count, size
from everstep.errors import EverstepError, RedactionKeyError
from everstep.model import Run
from everstep.policy import key
from everstep.store import schema
from everstep.trail.check import Report
from everstep.trail.naming import without_password
from everstep.trail.trail import Trail

_PAGE = 1_000
_FEW = 10  # interrupted runs that are named
_PACKAGES = ("everstep", "apsw", "ormsgpack", "zstandard", "click", "rich")
_FILES = {"file": "", "wal": "-wal", "search": "-search"}
_WAL = b"\x02\x02"  # at this place of a file's head: how it is read and written
_WAL_AT = slice(18, 20)


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
        here.output.data(verify=_report(report))
    else:
        _print_report(here, report)
    return exits.OK if report.ok else exits.DAMAGED


def _report(report: Report) -> dict[str, Any]:
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


@click.command()
@click.option("--verify", "deep", is_flag=True, help="Check every entry of the trail too.")
@options
def doctor(*, deep: bool) -> int:
    """Tell what is installed, and whether the trail is well."""
    here = session()
    found: dict[str, Any] = {"versions": _versions(), "key": _key(), "trail": None}
    problem: EverstepError | None = None
    try:
        trail = here.open()
        with here.output.busy("looking at the trail"):
            found["trail"] = _served(trail) if here.on_server else _trail(here.path.resolve(), trail)
            if deep:
                found["trail"]["verify"] = _report(trail.verify())
    except EverstepError as error:
        problem = error
        place = without_password(here.url) if here.on_server else str(here.path)
        found["trail"] = {"path": place, "problem": exits.words_of(error)}
    found["warnings"] = list(_warnings(found))
    if here.output.as_json:
        here.output.data(doctor=found)
    else:
        _print(here, found)
    if problem is not None:
        return exits.code_of(problem)
    damaged = deep and not found["trail"]["verify"]["ok"]
    return exits.DAMAGED if damaged else exits.OK


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "sqlite": apsw.sqlite_lib_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def _key() -> dict[str, Any]:
    """How the file of the redaction key stands. It is not made here: the first secret makes it."""
    try:
        path = key._path()  # noqa: SLF001 - to look at the key without making it
        key._read(path)  # noqa: SLF001 - as above
    except RedactionKeyError as error:
        return {"path": error.path, "state": error.reason, "usable": False}
    except FileNotFoundError:
        return {"path": str(path), "state": "not made yet: the first secret makes it", "usable": True}
    except OSError as error:
        return {"path": str(path), "state": error.strerror or type(error).__name__, "usable": False}
    return {"path": str(path), "state": "in order", "usable": True}


def _trail(path: Path, trail: Trail) -> dict[str, Any]:
    kind = schema.file_system(str(path.parent))
    with path.open("rb") as file:
        head = file.read(_WAL_AT.stop)
    return {
        "path": str(path),
        "schema": len(schema.MIGRATIONS),  # any other could not be opened
        "journal_mode": "wal" if head[_WAL_AT] == _WAL else "not wal",
        "sizes": {what: _size(Path(f"{path}{end}")) for what, end in _FILES.items()},
        "file_system": kind,
        "network": bool(schema._NETWORK.fullmatch(kind)),  # noqa: SLF001 - one list of them
        **_runs(trail),
    }  # fmt: skip


def _served(trail: Trail) -> dict[str, Any]:
    """What can be told of a trail on a server without being its administrator."""
    return {"path": trail.store.where, **_runs(trail)}


def _runs(trail: Trail) -> dict[str, Any]:
    runs = list(_all_runs(trail))
    interrupted = [run.id for run in runs if is_interrupted(trail, run)]
    return {
        "runs": dict(Counter(str(run.status) for run in runs)),
        "oldest": plain.run(runs[-1], interrupted=runs[-1].id in interrupted) if runs else None,
        "interrupted": interrupted,
    }


def _all_runs(trail: Trail) -> Iterator[Run]:
    cursor: str | None = None
    while True:
        page = trail.runs(limit=_PAGE, cursor=cursor)
        yield from page
        cursor = page.cursor
        if cursor is None:
            return


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _warnings(found: dict[str, Any]) -> Iterator[str]:
    trail = found["trail"]
    if "problem" in trail:
        yield trail["problem"]
        return
    if trail.get("network"):
        yield f"the trail is on a network file system ({trail['file_system']}): it can be read there, not written."
    if trail.get("journal_mode", "wal") != "wal":
        yield "the trail is not in WAL mode: something other than Everstep changed it."
    if not found["key"]["usable"]:
        yield f"the redaction key {found['key']['path']} cannot be used: {found['key']['state']}."
    if not trail.get("verify", {"ok": True})["ok"]:
        yield "the trail is damaged: `everstep verify` tells where."


def _print(here: Session, found: dict[str, Any]) -> None:
    output, trail = here.output, found["trail"]
    output.fields((name, text) for name, text in found["versions"].items())
    output.line()
    output.fields([("key", found["key"]["path"]), ("key state", found["key"]["state"])])
    output.line()
    if "problem" not in trail:
        output.fields(_facts(trail))
    else:
        output.fields([("trail", trail["path"])])
    for warning in found["warnings"]:
        output.talk(f"warning: {warning}")
    if trail.get("interrupted"):
        output.talk(f"next: {here.command('show', trail['interrupted'][0])}")


def _facts(trail: dict[str, Any]) -> Iterator[tuple[str, Cell | str]]:
    yield "trail", Cell(trail["path"], "bold")
    if "schema" in trail:
        yield "schema", f"{trail['schema']}, the newest known"
        yield "journal", trail["journal_mode"]
        yield "sizes", ", ".join(f"{what} {size(number)}" for what, number in trail["sizes"].items())
        yield "file system", trail["file_system"] or "not known"
    yield "runs", ", ".join(f"{number:,} {status}" for status, number in trail["runs"].items()) or "none"
    if trail["oldest"] is not None:
        yield "oldest run", f"{trail['oldest']['id']}, {trail['oldest']['created_at'][:19]}Z"
    names = trail["interrupted"]
    more = f" and {len(names) - _FEW:,} more" if len(names) > _FEW else ""
    yield "interrupted", Cell(", ".join(names[:_FEW]) + more or "none", "yellow" if names else "")
    if "verify" in trail:
        report = trail["verify"]
        yield (
            "verified",
            (
                Cell(f"intact: {report['runs']:,} runs, {report['entries']:,} entries", "green")
                if report["ok"]
                else Cell(f"{count(len(report['damage']), 'place')} damaged", "red")
            ),
        )
