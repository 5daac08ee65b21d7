"""What people say to a run that waits, and to one that they want ended."""

from __future__ import annotations

import shlex
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from everstep import actual
from everstep.codec.record import StepRecord
from everstep.codec.shown import brief, cut
from everstep.errors import AnswerError, ErasedError, NotWaitingError, OwnedError, RunCancelledError, RunFinishedError
from everstep.journal import Journal
from everstep.journal.track import OUTPUT, RETRY
from everstep.model import FINISHED, KINDS, STATUSES, Kind, Status, StepError
from everstep.store.base import ALL, RunQuery, RunRow
from everstep.trail import asking
from everstep.trail.beginning import begin
from everstep.trail.leaving import give_up
from everstep.trail.owner import HELD, is_copy, is_gone
from everstep.trail.reading import Reader
from everstep.trail.schemas import described

if TYPE_CHECKING:
    from everstep.trail.trail import Trail

CANCEL, STOP = "cancel", "stop"  # what whoever works on a run can be asked
_NAMED = 5  # open questions that an error names
_WIDE = 60  # characters of an argument that a question shows
_PATH = 40  # and of what is asked for at a host
_LONG = 200  # characters that a prompt, or an option, may take


def name_of(step: StepRecord) -> str:
    """The name of a step; of a call over HTTP with what was asked for there: several go to one host.

    Of a process with its command: most of them are of one program.
    """
    with suppress(ErasedError, ValueError):  # the latter for what is no address
        asked = step.inputs if isinstance(step.inputs, dict) else {}
        url = asked.get("url")
        if isinstance(url, str) and step.name.endswith(f" {urlsplit(url).hostname}"):
            return step.name + cut(urlsplit(url).path, _PATH)
        if step.name.startswith("run ") and asked.get("args"):
            return f"run {cut(_command(asked['args']), _PATH)}"
    return step.name


def _command(args: Any) -> str:
    """What a process was started with, in one line, without the folder of its program."""
    if not isinstance(args, list):
        return " ".join(str(args).split())
    first, *others = map(str, args)
    return shlex.join([first.rsplit("/", 1)[-1].strip("{}"), *others])


def unknown_prompt(step: StepRecord) -> str:
    """What is asked of an external effect whose outcome is not known, with what it was given."""
    given = ""
    with suppress(ErasedError):
        if step.inputs:
            named = (f"{name}={brief(value, _WIDE)}" for name, value in step.inputs.items())
            given = f", given {cut(', '.join(named), 3 * _WIDE)}"
    return (
        f"The run has no outcome of the external step {step.name!r}{given}, and nobody knows whether it took effect. "
        "If it did, say what it returned; if not, have it tried again."
    )


def question_text(step: StepRecord) -> str:
    """What is asked, and what may be answered, in one line."""
    if step.kind is Kind.INTENT:
        return unknown_prompt(step)
    try:
        asked = step.pause
    except ErasedError:
        return "(erased)"
    if not isinstance(asked, dict) or not isinstance(asked.get("prompt"), str):
        return brief(asked, _LONG)
    until = f" until {asked['deadline']}" if asked.get("deadline") else ""
    return f"{cut(asked['prompt'], _LONG)}{allowed(asked.get('options'), asked.get('schema'))}{until}"


def allowed(options: Any, schema: Any) -> str:
    """What may be answered, behind a question; nothing where that is anything."""
    if options:
        return f" ({', '.join(brief(option, _LONG) for option in options)})"
    return "" if schema is None else f" ({cut(described(schema), _LONG)})"


def waiting(trail: Trail, run: RunRow) -> list[StepRecord]:
    """The pauses and announced effects of a run that have no outcome yet, oldest first."""
    reader = Reader(trail.store, as_view=True)
    journal = Journal(reader.entries(run, run.base, run.seq))
    seqs = [step.id or step.seq for step in journal.waiting()]
    return [
        StepRecord(run.id, entry, reader.fetch, reader.decode)
        for seq in sorted(seqs)
        for entry in reader.entries(run, seq, seq)
    ]


def questions(trail: Trail, run: RunRow) -> list[tuple[RunRow, StepRecord]]:
    """The open questions of a run and of those below it, each with the run that asks."""
    asked, runs = list[tuple[RunRow, StepRecord]](), [run]
    for each in runs:
        if STATUSES[each.status] not in FINISHED or STATUSES[each.status] is Status.FAILED:
            asked += [(each, step) for step in waiting(trail, each)]
            runs += reversed(trail.store.runs(RunQuery(parent=each.id, limit=ALL)))  # the oldest first
    return asked


def answered(trail: Trail, run: RunRow) -> int:
    """How many answers a run has had since it was left to wait: they are its newest rows."""
    found, reader = 0, Reader(trail.store, as_view=True)
    for seq in range(run.seq, run.base - 1, -1):
        [entry] = reader.entries(run, seq, seq)
        if KINDS[entry.kind] is not Kind.ANSWER:
            break
        found += 1
    return found


def who_waits(trail: Trail, run: RunRow) -> RunRow:
    """The run itself, or the one below it that has the only open question. Raises NotWaitingError if there are more."""
    asked = questions(trail, run)
    holders = {each.id: each for each, _ in asked}
    if len(holders) > 1:
        places = "; ".join(f"{each.id!r}, pause={step.seq}" for each, step in asked[:_NAMED])
        raise NotWaitingError(run.id, f"there are {len(asked)} open questions; say which, by its run: {places}")
    return next(iter(holders.values()), run)


def answer(trail: Trail, run: RunRow, value: Any, pause: int | None, *, retry: bool) -> None:
    """Record an answer, once: whoever comes second is told so. Raises NotWaitingError and AnswerError."""
    status = STATUSES[run.status]
    if status in FINISHED and not (status is Status.FAILED and waiting(trail, run)):
        raise NotWaitingError(run.id, f"it is {status}")
    scribe = begin(trail.store, trail.gate, run.id)  # the claim keeps all others out until this is written
    try:
        run = trail.store.run(run.id)
        step = _waiting_at(run, waiting(trail, run), pause)
        if step.kind is Kind.PAUSE:
            if retry:
                raise NotWaitingError(run.id, "a question is answered, not tried again")
            asking.check(step.pause, value)
            if asking.expired(step.pause, actual.now()):
                raise NotWaitingError(run.id, f"the time to answer {step.pause['prompt']!r} is over")
        name, append = (None, False) if retry else step.metadata.get(OUTPUT, (None, False))
        values = _by_name(step, name, value) if isinstance(name, list) else None
        trail.store.append(
            scribe.row(
                "answer", Status.ACTIVE, kind=Kind.ANSWER, id=step.id, output=value if values is None else None,
                metadata={RETRY: True} if retry else None, parent=step.parent, lane=step.lane or None,
                superstep=step.superstep, set=values,
                **{"append_to" if append else "output_to": name if values is None else None},
            )
        )  # fmt: skip
    finally:
        give_up(scribe)


def _by_name(step: StepRecord, names: list[str], value: Any) -> dict[str, Any]:
    """What a node with several outputs gave, as somebody says. Raises AnswerError."""
    if isinstance(value, dict) and set(value) == set(names):
        return {name: value[name] for name in names}
    if isinstance(value, list | tuple) and len(value) == len(names):
        return dict(zip(names, value, strict=True))
    raise AnswerError(
        unknown_prompt(step), "it is not one value for each output",
        f"a list with those of {', '.join(names)}, or an object with these names",
    )  # fmt: skip


def _waiting_at(run: RunRow, found: list[StepRecord], pause: int | None) -> StepRecord:
    if pause is not None:
        found = [step for step in found if pause in {step.seq, step.id}]
        if not found:
            raise NotWaitingError(
                run.id, f"step {pause} is no open question; it was answered, or it is another kind of step"
            )
    if not found:
        raise NotWaitingError(run.id, "it has no open question")
    if len(found) > 1:
        raise NotWaitingError(
            run.id, f"it has {len(found)} open questions; say which: pause={[step.seq for step in found]}"
        )
    return found[0]


def _check_stoppable(run: RunRow) -> None:
    if is_copy(run.owner):  # a copy hears no requests; and what it has not brought may say that the run has ended
        raise OwnedError(run.id, run.owner, HELD)
    status = STATUSES[run.status]
    if status in FINISHED:
        raise RunFinishedError(run.id, status)


def stop(trail: Trail, run: RunRow) -> bool:
    """Ask who works on a run to stop. Whether somebody does. Raises RunFinishedError, OwnedError."""
    _check_stoppable(run)
    if run.owner is None or is_gone(run.owner):
        return False
    trail.store.request(run.id, STOP)
    return True


def cancel(trail: Trail, run: RunRow) -> None:
    """End a run that nobody works on; ask its owner to, where there is one. Raises RunFinishedError, OwnedError."""
    _check_stoppable(run)
    if run.owner is not None and not is_gone(run.owner):
        trail.store.request(run.id, CANCEL)
        return
    try:
        scribe = begin(trail.store, trail.gate, run.id)
    except OwnedError:  # somebody took it up just now
        trail.store.request(run.id, CANCEL)
        return
    try:
        # Those inside first: where this is cut off, the run has not ended yet, and can be cancelled again.
        for child in trail.store.runs(RunQuery(parent=run.id, limit=ALL)):
            if STATUSES[child.status] not in FINISHED:
                with suppress(RunFinishedError):  # by itself, just now
                    cancel(trail, child)
        error = StepError("RunCancelledError", str(RunCancelledError(run.id)))
        trail.store.append(scribe.row("end", Status.CANCELLED, kind=Kind.END, status=Status.CANCELLED, error=error))
    except BaseException:  # an interrupt too: nobody else would give the run up
        give_up(scribe)
        raise
