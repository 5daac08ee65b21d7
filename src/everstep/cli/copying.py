"""The command that takes runs from one trail to another."""

from __future__ import annotations

import signal
import time
from typing import Any

import click

from everstep.cli import exits
from everstep.cli.session import Session, json_option, session
from everstep.cli.text import count
from everstep.errors import DamagedError, DamageWarning
from everstep.trail.copying import Copied, Copying, Refusal
from everstep.trail.naming import MEMORY, SQLITE, without_password
from everstep.trail.trail import Trail
from everstep.trail.trail import open as open_trail

_PAUSE = 0.5  # seconds between two looks at a trail that is followed


@click.command()
@click.argument("source", metavar="FROM")
@click.argument("to", metavar="TO")
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@click.option("--follow", is_flag=True, help="Go on with what is new, until Ctrl-C.")
@json_option
def copy(source: str, to: str, runs: tuple[str, ...], *, follow: bool) -> int:
    """Copy runs from one trail to another, which is made if it is not there: to look at them and to resume them there.

    All runs, or those that are named, with those inside them and those that they were forked from. What is there
    already is not copied again: after an interrupt, or when there is more, type the same command.
    """
    here = session()
    if here.named is not None:
        raise click.UsageError("say both trails without --trail: everstep copy FROM TO.")
    origin = _opened(source, read_only=True)
    for run in runs:
        origin.run(run)  # before anything is made
    target = _opened(to, read_only=False)
    shown, where = without_password(source), without_password(to)
    with here.output.progress(f"copying to {where}") as tell:
        try:
            copying = Copying(origin.store, target.store, runs, tell, follows=follow)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        if follow:
            _stop_with_signals(copying)
        try:
            copying.once()
        except KeyboardInterrupt:
            here.output.talk("interrupted: the same command goes on where it stopped.")
            raise
    if follow:
        try:
            _follow(here, copying, shown)
        finally:
            copying.end()
    _tell(here, copying.done, shown, to)
    return _code(copying.done)


def _opened(url: str, *, read_only: bool) -> Trail:
    if url in {MEMORY, SQLITE + MEMORY}:
        raise click.UsageError("a trail in memory is gone when its program ends; name one that stays.")
    trail = open_trail(url, read_only=read_only)
    click.get_current_context().call_on_close(trail.close)
    return trail


def _stop_with_signals(copying: Copying) -> None:
    """Have the copy end when the run at work is there. Who asks a second time does not wait for that."""

    def stop(number: int, _: object) -> None:
        copying.stopped = True
        signal.signal(number, signal.default_int_handler)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)


def _follow(here: Session, copying: Copying, shown: str) -> None:
    text = f"following {shown}; Ctrl-C ends it"
    if not here.output.person:
        here.output.talk(text)
    with here.output.busy(text) as sign:
        told: set[str] = set()
        while not copying.stopped:
            done = copying.again()
            for words in [_refused(each) for each in done.refused]:
                if words not in told:  # at once: the end may be days away
                    told.add(words)
                    here.output.talk(words)
            if sign is not None:
                sign.update(f"{text}. {_sums(done)} so far")
            time.sleep(_PAUSE)


def _refused(refusal: Refusal) -> str:
    return f"not copied: {refusal.whose}{exits.words_of(refusal.error)}"


def _sums(done: Copied) -> str:
    return f"{count(done.runs, 'run')}, {count(done.entries, 'entry')}"


def _tell(here: Session, done: Copied, source: str, to: str) -> None:
    where = without_password(to)
    if here.output.as_json:
        here.output.data(copy=_data(done, source, where))
        return
    there = f"{count(done.same, 'run')} {'was' if done.same == 1 else 'were'} there already"
    if done.runs:
        here.output.talk(f"copied to {where}: {_sums(done)}." + (f" {there.capitalize()}." if done.same else ""))
    elif done.same or not (done.refused or done.ahead):
        here.output.talk(f"nothing to copy: {there}.")
    for run_id in done.ahead:
        here.output.talk(f"{run_id} has gone on there, and was left alone.")
    for refusal in done.refused:
        here.output.talk(_refused(refusal))
    here.output.talk(f"next: {Session({'trail': to}).command('runs')}")


def _data(done: Copied, source: str, to: str) -> dict[str, Any]:
    refused = [
        {"run": refusal.run_id, "type": type(refusal.error).__name__, "reason": exits.words_of(refusal.error)}
        for refusal in done.refused
    ]
    sums = {"runs": done.runs, "entries": done.entries, "blobs": done.blobs, "bytes": done.bytes}
    return {"from": source, "to": to, **sums, "same": done.same, "ahead": done.ahead, "refused": refused}


def _code(done: Copied) -> int:
    if done.ok:
        return exits.OK
    damaged = any(isinstance(refusal.error, DamagedError | DamageWarning) for refusal in done.refused)
    return exits.DAMAGED if damaged else exits.CONFLICT
