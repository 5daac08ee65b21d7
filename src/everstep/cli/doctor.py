"""The command that tells what is installed, and how the trail fares: doctor."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import apsw
import click

from everstep.cli import exits, plain
from everstep.cli.checking import heard, report_of
from everstep.cli.output import Cell, Column
from everstep.cli.session import Session, is_interrupted, options, session
from everstep.cli.text import count, duration, size
from everstep.errors import EverstepError, RedactionKeyError
from everstep.model import STATUS_NUMBER, STATUSES, Status
from everstep.policy.key import key_path, read_key
from everstep.store.base import Measures, RunQuery
from everstep.store.health import Health
from everstep.trail.naming import without_password
from everstep.trail.owner import is_at_work, is_copy
from everstep.trail.trail import Trail

_AT_WORK = 1_000  # runs that have not ended, the newest: whether each is at work somewhere is looked at
_FEW = 10  # interrupted runs that are named to a person
_DAY = 86_400.0
_PACKAGES = ("everstep", "apsw", "ormsgpack", "zstandard", "click", "rich", "psycopg", "time-machine")


@click.command()
@click.option("--verify", "deep", is_flag=True, help="Check every entry of the trail too.")
@options
def doctor(*, deep: bool) -> int:
    """Tell what is installed, and whether the trail is sound."""
    here = session()
    found: dict[str, Any] = {"versions": _versions(), "key": _key(), "trail": None}
    problem: EverstepError | None = None
    health: Health | None = None
    with heard() as said:
        try:
            trail = here.open()
            with here.output.busy("looking at the trail"):
                health = trail.store.health() if isinstance(trail.store, Measures) else None
                found["trail"] = _trail(trail, health)
                if deep:
                    found["trail"]["verify"] = report_of(trail.verify())
        except EverstepError as error:
            problem, health = error, None
            place = without_password(here.url) if here.on_server else str(here.path)
            found["trail"] = {"path": place, "problem": exits.words_of(error)}
    found["warnings"] = [*said, *_warnings(found, health)]
    if here.output.as_json:
        here.output.data(doctor=found)
    else:
        _print(here, found, health)
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
        path = key_path()
        read_key(path)
    except RedactionKeyError as error:
        return {"path": error.path, "state": error.reason, "usable": False}
    except FileNotFoundError:
        return {"path": str(path), "state": "not made yet: the first secret makes it", "usable": True}
    except OSError as error:
        return {"path": str(path), "state": error.strerror or type(error).__name__, "usable": False}
    return {"path": str(path), "state": "in order", "usable": True}


def _trail(trail: Trail, health: Health | None) -> dict[str, Any]:
    active = trail.store.runs(RunQuery(status=STATUS_NUMBER[Status.ACTIVE], limit=_AT_WORK))
    found: dict[str, Any] = {
        "path": trail.store.where, "interrupted": [run.id for run in active if not is_at_work(run.owner, run.lease)],
        "half_copied": [run.id for run in active if is_copy(run.owner)],
    }  # fmt: skip
    if health is None:
        return found
    oldest = None if health.oldest is None else trail.run(health.oldest)
    total = sum(health.sizes.values())
    return found | {
        "store": health.store, **health.facts,
        "bytes": total, "sizes": dict(health.sizes), "dead_bytes": health.dead,
        "runs": {str(STATUSES[status]): number for status, number in sorted(health.runs.items())},
        "entries": health.rows, "growth": _growth(health, total),
        "oldest": oldest and plain.run(oldest, interrupted=is_interrupted(trail, oldest)),
        "largest": [{"run": run.run_id, "entries": run.rows, "bytes": run.bytes} for run in health.largest],
    }  # fmt: skip


def _growth(health: Health, total: int) -> dict[str, Any] | None:
    """By how much the trail grew, if entries take what they take on average."""
    if health.growth is None or not health.rows or not health.growth.seconds:
        return None
    seconds, rows = health.growth
    grown = round((total - (health.dead or 0)) * rows / health.rows)
    daily = {"entries_a_day": round(rows * _DAY / seconds), "bytes_a_day": round(grown * _DAY / seconds)}
    return {"seconds": seconds, "entries": rows, "bytes": grown, **(daily if seconds >= _DAY else {})}


def _warnings(found: dict[str, Any], health: Health | None) -> Iterator[str]:
    trail = found["trail"]
    if "problem" in trail:
        yield trail["problem"]
        return
    if health is not None:
        yield from health.weaknesses
    if not found["key"]["usable"]:
        yield f"the redaction key {found['key']['path']} cannot be used: {found['key']['state']}."
    if not trail.get("verify", {"ok": True})["ok"]:
        yield "the trail is damaged: `everstep verify` tells where."


def _print(here: Session, found: dict[str, Any], health: Health | None) -> None:
    output, trail = here.output, found["trail"]
    output.fields((name, text) for name, text in found["versions"].items())
    output.line()
    output.fields([("key", found["key"]["path"]), ("key state", found["key"]["state"])])
    output.line()
    output.fields([("trail", Cell(trail["path"], "bold")), *_facts(trail, health)])
    if trail.get("largest"):
        output.line()
        output.table(
            [Column("largest runs"), Column("entries", right=True), Column("size", right=True)],
            [[Cell(run["run"], whole=True), f"{run['entries']:,}", size(run["bytes"])] for run in trail["largest"]],
        )
    for warning in found["warnings"]:
        output.talk(f"warning: {warning}")
    if trail.get("interrupted"):
        output.talk(f"next: {here.command('show', trail['interrupted'][0])}")
    elif trail.get("half_copied"):
        output.talk(f"next: {here.command('show', trail['half_copied'][0])}")


def _facts(trail: dict[str, Any], health: Health | None) -> Iterator[tuple[str, Cell | str]]:
    if health is not None:
        yield from ((name, _shown(value)) for name, value in health.facts.items())
        parts = ", ".join(f"{what} {size(number)}" for what, number in health.sizes.items() if number)
        yield "size", f"{size(trail['bytes'])}: {parts}"
        yield "dead space", "not known" if health.dead is None else size(health.dead)
        yield "growth", _in_words(trail["growth"])
        yield "runs", ", ".join(f"{number:,} {status}" for status, number in _by_standing(trail).items()) or "none"
        yield "entries", f"{health.rows:,}"
    if trail.get("oldest"):
        yield "oldest run", f"{trail['oldest']['id']}, {trail['oldest']['created_at'][:19]}Z"
    if "interrupted" in trail:
        yield "interrupted", _named(trail["interrupted"])
    if trail.get("half_copied"):
        yield "half copied", _named(trail["half_copied"])
    if "verify" in trail:
        yield "verified", _verified(trail["verify"])


def _by_standing(trail: dict[str, Any]) -> dict[str, int]:
    """How many runs stand how: active ones that no process works on are interrupted, if all of them were looked at."""
    found, active = dict(trail["runs"]), str(Status.ACTIVE)
    lost = len(trail["interrupted"])
    if lost and found.get(active, 0) <= _AT_WORK:
        found = {active: found.pop(active) - lost, "interrupted": lost, **found}
    return {status: number for status, number in found.items() if number}


def _named(runs: list[str]) -> Cell:
    more = f" and {len(runs) - _FEW:,} more" if len(runs) > _FEW else ""
    return Cell(", ".join(runs[:_FEW]) + more or "none", "yellow" if runs else "")


def _shown(value: object) -> str:
    if value is None:
        return "not known"
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _in_words(growth: dict[str, Any] | None) -> str:
    if growth is None:
        return "none"
    if "bytes_a_day" not in growth:
        return f"{size(growth['bytes'])} in {duration(growth['seconds'] * 1e3)}, since the first run"
    days = count(round(growth["seconds"] / _DAY), "day")
    return f"{size(growth['bytes_a_day'])} a day over the last {days}, {growth['entries_a_day']:,} entries a day"


def _verified(report: dict[str, Any]) -> Cell:
    if report["ok"]:
        return Cell(f"intact: {count(report['runs'], 'run')}, {count(report['entries'], 'entry')}", "green")
    return Cell(f"{count(len(report['damage']), 'place')} damaged", "red")
