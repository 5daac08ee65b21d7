"""What is known of why a run failed, for people and programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from textwrap import wrap
from typing import Any, Literal
from unicodedata import east_asian_width

from everstep.codec.shown import cut, safe
from everstep.model import Status

Confidence = Literal["high", "likely", "weak"]
_WIDTH = 100
_NAME = 24
_INDENT = 6
_NARROW, _LEAST = 72, 20  # columns, from which on there is room for two of text; and those that every window has


@dataclass(frozen=True, slots=True)
class Failure:
    """How a run ended, or why it does not go on."""

    run_id: str  # of the run that failed first: a child's, where one did
    seq: int  # of the row that says so
    step: str | None  # that failed; None where the code around the steps did
    error: str | None
    where: str | None  # the line of code, as the traceback has it
    status: str  # of the run that was asked about


@dataclass(frozen=True, slots=True)
class Link:
    """One step on the way from the failure back to where it came from."""

    run_id: str
    seq: int
    name: str
    how: str


@dataclass(frozen=True, slots=True)
class Suspect:
    """A step that the failure may have come from."""

    run_id: str
    seq: int
    name: str
    evidence: str  # what is odd about it, in a sentence that goes on after its name
    confidence: Confidence
    link: str  # how it got to the failure
    score: float  # from 0 to 1; what they are ordered by

    @property
    def id(self) -> str:
        """Its address, `run@seq`."""
        return f"{self.run_id}@{self.seq}"


@dataclass(frozen=True, slots=True)
class Point:
    """A place of a run before anything looked odd."""

    run_id: str
    seq: int
    name: str
    is_checkpoint: bool

    @property
    def id(self) -> str:
        """Its address, `run@seq`."""
        return f"{self.run_id}@{self.seq}"


@dataclass(frozen=True, slots=True)
class Repeated:
    """A step that was asked for the same again and again."""

    name: str
    count: int
    first: int
    last: int
    inputs: str


@dataclass(frozen=True, slots=True)
class Slow:
    """A step that took long."""

    run_id: str
    seq: int
    name: str
    duration_ms: float
    usual_ms: float | None  # of others of its name; None where there are too few


@dataclass(frozen=True, slots=True)
class FailedItem:
    """An item of a map that failed; or what has failed so far of a run that has not ended."""

    run_id: str
    label: str  # what an item was given, or the step that failed
    error: str | None
    seq: int  # of the row that says so


@dataclass(frozen=True, slots=True)
class Question:
    """What a run waits for, or one inside it: a pause, or an external step whose outcome is not known."""

    run_id: str
    seq: int
    name: str
    text: str  # with what may be answered


@dataclass(frozen=True, slots=True)
class Why:
    """Why a run stands as it does, as far as its record tells. Printed, it is a page for people."""

    run_id: str
    workflow: str
    status: Status
    failure: Failure | None  # None for a run that completed, or is at work
    chain: tuple[Link, ...]  # from the failure back to the first suspect
    suspects: tuple[Suspect, ...]  # the likeliest first
    last_good: Point | None  # before the first suspect; None where nothing came before it
    repeated: tuple[Repeated, ...]
    slow: tuple[Slow, ...]
    next: tuple[str, ...]  # commands to try
    items: tuple[FailedItem, ...] = ()  # of a map, the first that failed; else what has failed beside a question
    failed: int = 0  # how many there are of these
    is_map: bool = False
    interrupted: bool = False  # it is active, and at work nowhere
    at_work: bool = False  # it is active, and a process works on it
    last_done: Point | None = None  # the last step that completed, where none is open
    questions: tuple[Question, ...] = ()  # the first that are open
    waiting: int = 0  # how many there are of these
    answered: int = 0  # and how many more were answered, since the run was left to wait
    inside: tuple[str, ...] = ()  # of a run that has not ended, the innermost runs inside that have not, either

    def summary(self) -> str:
        """One line: how it ended, and the likeliest reason."""
        parts = [f"{self.run_id} {self._ended()}".rstrip(".")]
        if self.suspects:
            first = self.suspects[0]
            place = f"step {first.seq} ({first.name})" if first.seq else f"its {first.name}"
            parts.append(f"{_CERTAINTY[first.confidence]} because of {place}")
            if self.failure is None:
                parts[-1] = f"step {first.seq} ({first.name}) looks odd"
        elif self.failure is not None and self.failure.error is not None and not self.questions:
            parts.append("nothing before it looks odd")
        if self.questions:
            parts.append(f"it waits for: {self.questions[0].text}")
        return cut(safe("; ".join(parts)), 2 * _WIDTH)

    def _ended(self) -> str:
        """How it stands, as what follows its id: a few words, or some sentences."""
        if self.status is Status.ACTIVE:
            return " ".join(self._went())
        failure = self.failure
        if failure is None or failure.error is None:
            return f"is {self.status}{self._place()}" if self.status is not Status.COMPLETED else "completed"
        verb = _VERBS.get(self.status, f"is {self.status}")
        if failure.step is None:
            between = "between two steps" if failure.seq > 1 else "before its first step"
            inside = f" of {failure.run_id}" if failure.run_id != self.run_id else ""
            return f"{verb} {between}{inside}, with {failure.error}"
        return f"{verb} with {failure.error}{self._place()}"

    def _place(self) -> str:
        """The step that it failed in, or is in."""
        if self.failure is None or self.failure.step is None:
            return ""
        inside = f" of {self.failure.run_id}" if self.failure.run_id != self.run_id else ""
        return f" in step {self.failure.seq} ({self.failure.step}){inside}"

    def _went(self) -> Iterator[str]:
        """How a run stands that has not ended: whether somebody works on it, and how far it came."""
        failure = self.failure
        if self.at_work:
            yield "is at work: a process is working on it."
        elif self.answered and not self.waiting:
            yield "is answered, and to be resumed: no process is working on it."
            return
        elif self.answered:
            asked = self.answered + self.waiting
            yield f"waits: {self.answered:,} of {asked:,} questions {'is' if self.answered == 1 else 'are'} answered."
        elif failure is not None and failure.error is not None:
            yield "was interrupted: no process is working on it."
            at = self._place().removeprefix(" in ")
            yield f"An attempt at {at} had failed with {failure.error.rstrip('.')}."
        else:
            yield f"was interrupted{self._place()}: no process is working on it."
        if self.last_done is not None:
            lost = "" if self.at_work or self.inside else " What came after it is not on record."
            yield f"The last that completed is step {self.last_done.seq} ({self.last_done.name}).{lost}"
        if self.inside:
            yield f"What it {'does' if self.at_work else 'did last'} is on record in {', '.join(self.inside)}."

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON can hold it."""
        found = asdict(self)
        found["status"] = str(self.status)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}

    def __str__(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines())

    def lines(self, *, commands: bool = True, width: int = _WIDTH) -> Iterator[str]:
        """The page, line by line, the commands last. No character in it is one that a terminal would act on."""
        page = _Page(width)
        yield from page.wrapped(f"{self.run_id} {self._ended()}", 0)
        if self.failure is not None and self.failure.where is not None:
            yield from page.wrapped(self.failure.where, 2)
        yield from self._questions(page)
        yield from self._items(page)
        if self.chain:
            yield from ("", "how it got there, backwards" if not self.at_work else "where it is, from the outside in")
            for link in self.chain:
                yield from page.row(link.seq, _of(link.name, link.run_id, self.run_id), link.how)
        yield from self._suspects(page)
        if self.last_good is not None:
            what = "checkpoint" if self.last_good.is_checkpoint else "step"
            yield from ("", *page.wrapped(f"last good: {self.last_good.id} ({what} {self.last_good.name})", 0))
        yield from self._notes(page)
        if self.next and commands:
            yield from ("", "next", *(f"  {safe(line)}" for line in self.next))

    def _questions(self, page: _Page) -> Iterator[str]:
        if self.questions:
            yield from ("", "it waits for")
        for each in self.questions:
            yield from page.row(each.seq, _of(each.name, each.run_id, self.run_id), each.text)
        if self.waiting > len(self.questions):
            yield f"{'':{_INDENT}}  ... and {self.waiting - len(self.questions):,} more"

    def _items(self, page: _Page) -> Iterator[str]:
        if not self.items:
            return
        yield from ("", f"{self.failed:,} of its items failed" if self.is_map else "failed so far")
        for each in self.items:
            yield from page.row(
                "" if self.is_map else each.seq, each.label, f"{each.error or 'erased'} ({each.run_id})"
            )
        if self.failed > len(self.items):
            yield f"{'':{_INDENT}}  ... and {self.failed - len(self.items):,} more"

    def _suspects(self, page: _Page) -> Iterator[str]:
        if not self.suspects:
            if self.items or self.questions:
                return  # each of them is to be asked about, or answered
            if self.failure is not None and self.failure.step is None and self.failure.seq == 1:
                return  # nothing was recorded before it
            if self.failure is not None and self.failure.error is not None:
                yield from ("", *page.wrapped(_NOTHING, 0))
            elif self.status is Status.COMPLETED:
                yield from ("", "nothing in it looks odd")
            return
        yield from ("", "suspects, the likeliest first" if self.failure is not None else "what looks odd")
        for each in self.suspects:
            name = _of(each.name, each.run_id, self.run_id)
            # Where nothing failed there is nothing to be the reason of.
            certain = f"{each.confidence}: " if self.failure is not None else ""
            yield from page.row(each.seq, name, f"{certain}it {each.evidence}")
            if each.link:
                yield from page.row("", "", each.link)

    def _notes(self, page: _Page) -> Iterator[str]:
        if self.repeated:
            yield from ("", "repeated")
            for each in self.repeated:
                said = f"{each.count} times with {each.inputs}, up to step {each.last}"
                yield from page.row(each.first, each.name, said)
        if self.slow:
            yield from ("", "slow")
            for one in self.slow:
                usual = f", {one.usual_ms:,.3g} ms are usual" if one.usual_ms is not None else ""
                yield from page.row(
                    one.seq, _of(one.name, one.run_id, self.run_id), f"{one.duration_ms:,.0f} ms{usual}"
                )


_CERTAINTY = {"high": "most likely", "likely": "likely", "weak": "perhaps"}
_VERBS = {Status.FAILED: "failed", Status.PARTIAL: "completed in part,"}
_NOTHING = (
    "nothing that was recorded before it looks odd: what failed is the first place to look. "
    "A wrong value that looks like all others cannot be told from a right one."
)


def _of(name: str, run_id: str, asked: str) -> str:
    return name if run_id == asked else f"{name} in {run_id}"


class _Page:
    """Lines that are no longer than a window is wide: what is long goes on below."""

    def __init__(self, width: int) -> None:
        self._width = min(max(width, _LEAST), _WIDTH)  # longer lines are hard to read

    def row(self, seq: int | str, name: str, text: str) -> Iterator[str]:
        """A step, and what is said of it: in a column beside it, or below it where there is no room for one."""
        begin = _INDENT + 2
        column = begin + _NAME + 2
        if self._width >= _NARROW:
            first, *rest = self._lines(text, column) or [""]
            yield f"{seq:>{_INDENT}}  {cut(safe(name), _NAME):<{_NAME}}  {first}"
            yield from (" " * column + line for line in rest)
            return
        if seq != "" or name:
            yield f"{seq:>{_INDENT}}  {cut(safe(name), self._width - begin)}"
        yield from self.wrapped(text, begin)

    def wrapped(self, text: str, indent: int) -> list[str]:
        """A sentence."""
        return [" " * indent + line for line in self._lines(text, indent)] or [""]

    def _lines(self, text: str, indent: int) -> list[str]:
        room = self._width - indent
        is_wide = any(east_asian_width(sign) in "WF" for sign in text)  # such a sign takes two columns
        return wrap(safe(text), room // 2 if is_wide else room, break_on_hyphens=False)
