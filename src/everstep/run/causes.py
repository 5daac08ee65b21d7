"""Why code and record part, in the words of whoever changed the code; the journal speaks of places in lanes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from everstep.errors import FORMS, NOT_RECORDED, DivergenceError
from everstep.journal.track import SEED
from everstep.trail.versions import CAPTURED, CLOCK, CODE, SOURCES, Version, differs, listed

ARGUMENT, SKIPPED = "changed argument", "removed or reordered"  # as the journal says it
CHANGED, ORDER, RETRY = "changed result", "changed order", "changed retry"
MENDED = "the run failed there. If that is mended, resume it: it goes on where it failed"
_MISSING, _EXTRA = "missing step", "extra step"
_LEFT = (  # to the world, where what is said of a run does not name them
    (CLOCK, "the time", "it was recorded without time-machine, or with --no-clock"),
    (SEED, "chance", "it was recorded with --no-entropy"),
)
_CAUSES = {SKIPPED: _MISSING, "removed": _MISSING, "inserted": _EXTRA, "inserted or replaced": _EXTRA}


def cause_of(error: DivergenceError) -> str:
    """Why they part, as far as it can be told here; of a missing step it may turn out that it comes later."""
    return _CAUSES.get(error.cause, error.cause)


def step_of(error: DivergenceError) -> str:
    """The step that it is about: of an extra one that is the one asked for, else the recorded one."""
    names = (error.requested, error.recorded)
    first, second = names if cause_of(error) == _EXTRA else reversed(names)
    return first or second or ""


def said(error: DivergenceError) -> str:
    """What it means where nothing is to be set right."""
    now, was = error.requested, error.recorded
    skipped = f" Not called: {error.passed_over}." if error.skipped else ""
    if error.cause in FORMS:
        return f"{error.parting}."
    if error.cause == ARGUMENT:
        return f"{was!r} was called with different arguments."
    if was is None:
        return f"{now!r} was called, and the record has no further step there."
    if now is None:
        return f"{was!r} is on record, and the code did not call it."
    if now == was:
        return f"a later {now!r} was called, where the record has one with different arguments.{skipped}"
    return f"{now!r} was called where the record has {was!r}.{skipped}"


def hints(
    was: Mapping[str, Any],
    now: Mapping[str, Any],
    versions: Sequence[Version],
    *,
    parted: str | None,
    given: Sequence[str] = (),
) -> Iterator[str]:
    """What else is not as it was when the run began, whether it mattered or not.

    `parted` is why they do, if so; `given` says in what the words differ that a program is called with.
    """
    what = "program" if CAPTURED in was else "workflow"
    if differs(was, now, CODE):
        yield f"the {what}'s code has changed since it was recorded"
    elif parted and differs(was, now, SOURCES):
        yield f"the code around the {what} has changed since it was recorded"
    elif CAPTURED in was and not given and parted in {_MISSING, _EXTRA, ARGUMENT, CHANGED}:
        yield f"if the code is what it was, the program depends on something that {NOT_RECORDED}"
        yield from (f"{what} is not on record: {why}" for name, what, why in _LEFT if not was.get(name))
    if parted and given:
        yield f"the program was called with other words than on record: {'; '.join(given)}"
    if versions:
        yield f"other versions than on record: {listed(versions)}"
