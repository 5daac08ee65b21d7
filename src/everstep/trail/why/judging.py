"""Why a run failed: what is odd about its steps, weighed by whether it got to the failure and would explain it.

Reads the record and nothing else. No code of the run's workflow is called, imported or needed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from statistics import median
from typing import TYPE_CHECKING

from everstep.codec.record import StepRecord
from everstep.codec.shown import brief
from everstep.model import Kind, Run, Status
from everstep.trail.inside import Failed
from everstep.trail.owner import is_at_work
from everstep.trail.why import flows, missed, shapes, sources, texts
from everstep.trail.why.calls import Call, others
from everstep.trail.why.clues import Clues, clues_of
from everstep.trail.why.given import INPUTS, odd_inputs
from everstep.trail.why.heard import alike
from everstep.trail.why.items import (
    answers,
    brief_text,
    command,
    failed_parts,
    is_unknown,
    open_questions,
    questions_of,
    told,
)
from everstep.trail.why.oddities import FEW, Group, Oddity, Sample
from everstep.trail.why.report import Confidence, Failure, Link, Point, Repeated, Slow, Suspect, Why
from everstep.trail.why.tracing import Trace
from everstep.trail.why.values import key_of
from everstep.trail.why.where import where

if TYPE_CHECKING:
    from everstep.trail.trail import Trail

_SUSPECTS = 5
_ITEMS, _TRIED = 10, 3  # failed items that are told, and those that are worth a look
_RUNS, _ROWS = 3, 2_000  # other runs that are looked at, and how long they may be
_HIGH, _LIKELY, _WEAK = 0.75, 0.5, 0.2
_ODD, _REACHES, _EXPLAINS = 0.3, 0.35, 0.35  # what each part is worth
_SEEN = 0.5  # from which on something is known to have got to the failure
_PASSED_ON = 0.55  # what is left of an oddity that came with what the step took
_PASSES_ON = frozenset({"kind", "text", "empty", "scale", "error", "stale", "twice"})  # with the value
_AT_THE_END = 0.6  # of one that gave nothing as the last of its name: loops end so
_OF_ITS_KIND = 0.85  # how surely a step reached the failure, if others of its name did
_AGAIN = 3  # how often a step may be asked the same without being told of


def explain(trail: Trail, run_id: str) -> Why:
    """Find out why a run stands as it does."""
    trace = Trace(trail, run_id)
    run = trace.story.run
    failure = _failure(trace)
    suspects = _judged(trail, trace)
    failed = list(failed_parts(trail, trace))
    at_work = run.status is Status.ACTIVE and is_at_work(run.owner, trail.store.run(run.id).lease)
    asked = open_questions(trail, run, at_work=at_work)
    return Why(
        run_id=run.id, workflow=run.workflow, status=run.status, failure=failure,
        chain=tuple(_chain(trace, suspects[:1])), suspects=tuple(suspect for _, suspect in suspects),
        last_good=_last_good(trace, suspects[0][0] if suspects else None) if failure is not None else None,
        repeated=tuple(_repeated(trace)), slow=tuple(_slow(trace)),
        next=tuple(_next(trace, failure, suspects, failed, asked)),
        items=tuple(told(trail, trace, each) for each in failed[:_ITEMS]), failed=len(failed), is_map=trace.is_map,
        interrupted=run.status is Status.ACTIVE and not at_work,
        questions=tuple(questions_of(asked)), waiting=len(asked),
    )  # fmt: skip


# How it ended.


def _failure(trace: Trace) -> Failure | None:
    run, error = trace.story.run, trace.error
    if run.status is Status.COMPLETED:
        return None
    if not trace.path and not trace.ends:
        return None
    last = trace.path[-1] if trace.path else None
    row = last.node.record if last is not None else trace.ends[-1]
    said = None if error is None else " ".join(str(error).split())
    return Failure(row.run_id, row.seq, None if last is None else last.name, said, where(trace.errors), str(run.status))


# What is odd.


def _judged(trail: Trail, trace: Trace) -> list[tuple[Call, Suspect]]:
    found: dict[Call, list[Oddity]] = defaultdict(list)
    clues = clues_of(trace.error)
    for odd in _oddities(trail, trace, clues):
        if odd.call not in trace.path:
            found[odd.call].append(odd)
    victims = _victims(trace, found)
    reach = _reaches(trace, found)
    last = {calls[-1] for calls in trace.of_a_kind}
    judged = []
    for call, odds in found.items():
        weight = _PASSED_ON if call in victims else 1.0
        if call in last and call.gives.empty and not any(odd.explains or odd.keys & clues.keys for odd in odds):
            weight *= _AT_THE_END
        if clues.is_about_code:
            weight *= _PASSED_ON
        scored = sorted(((_score(trace, odd, reach[call], clues) * weight, odd) for odd in odds), key=_by_score)
        score, best = scored[0]
        for more, _ in scored[1:]:
            score += (1 - score) * more * 0.2
        if reach[call] < _SEEN or not _match(trace, best, clues):
            score = min(score, _HIGH - 0.01)  # what is only odd is no proof
        judged.append((score, call, best))
    judged.sort(key=lambda each: (-each[0], each[1].place))
    is_done = trace.error is None
    return [
        (call, _suspect(trace, call, best, score))
        for score, call, best in judged[:_SUSPECTS]
        if score >= (_LIKELY if is_done else _WEAK)
    ]


def _by_score(scored: tuple[float, Oddity]) -> float:
    return -scored[0]


def _oddities(trail: Trail, trace: Trace, clues: Clues) -> Iterator[Oddity]:
    groups = _groups(trail, trace, clues)
    for group in groups:
        yield from shapes.odd_shapes(group)
        yield from shapes.odd_emptiness(group)
        yield from shapes.odd_numbers(group)
        yield from texts.odd_texts(group)
        yield from texts.odd_errors(group)
        yield from flows.lost(group)
        yield from flows.unused(trace, group)
        yield from flows.twice(group)
        yield from flows.decided(group)
        yield from sources.made_up(group)
    yield from flows.swallowed(trace)
    yield from flows.slow(trace)
    yield from flows.stale(trace)
    yield from sources.brought(trace, clues)
    yield from missed.missed(trace, clues, groups)
    if trace.error is not None:
        yield from odd_inputs(trail, trace, clues)


def _groups(trail: Trail, trace: Trace, clues: Clues) -> list[Group]:
    # Where the error is about a kind of value, all of this run's may be of that kind.
    few = {calls[0].name for calls in trace.of_a_kind if len(calls) < FEW or clues.wrong}
    own = [call for calls in trace.of_a_kind for call in calls]
    foreign = list(others(trail, trace.story.run, few, _RUNS, _ROWS))
    strange = set(foreign)
    return [
        Group(
            calls[0].name, [Sample(None if call in strange else call, call.gives) for call in calls],
            asked=clues.keys, wrong=clues.wrong, wanted=clues.wanted,
        )
        for calls in alike([*own, *foreign])
        if not strange.issuperset(calls)
    ]  # fmt: skip


def _victims(trace: Trace, found: dict[Call, list[Oddity]]) -> set[Call]:
    """Calls that were given something odd: what is odd about them came with it."""
    victims: set[Call] = set()
    for calls in trace.of_a_kind:
        if found.keys().isdisjoint(calls):
            continue
        group = Group(calls[0].name, [Sample(call, call.takes) for call in calls], "took")
        for detector in (shapes.odd_shapes, shapes.odd_emptiness, shapes.odd_numbers, texts.odd_texts):
            victims.update(odd.call for odd in detector(group) if odd.strength >= 0.5)
    strong = {
        call: max((odd.strength for odd in odds if odd.topic in _PASSES_ON), default=0.0)
        for call, odds in found.items()
    }
    for call, odds in found.items():
        enough = 0.6 * max(odd.strength for odd in odds)
        words = {word for word in call.takes.words if trace.is_telling(word)}
        givers = {giver for word in words for giver in trace.given[word] if giver.place < call.place}
        givers.update(giver for giver in call.feeds.values() if giver is not None)
        first = trace.given_first
        if first is not None and (call.takes.words & first.gives.words or None in call.feeds.values()):
            givers.add(first)
        givers.update(inner for child in call.node.children if (inner := trace.of(child)) is not None)
        if any(strong.get(giver, 0) >= enough for giver in givers if giver is not call):
            victims.add(call)
    return victims


def _reaches(trace: Trace, found: Iterable[Call]) -> dict[Call, float]:
    """How surely each got to the failure: by itself, or as one of a name that did. Nothing can be followed."""
    by_name: dict[str, float] = defaultdict(float)
    for call, reach in trace.reach.items():
        if call not in trace.path:
            by_name[call.name] = max(by_name[call.name], reach.strength)
    return {
        call: max(trace.reach[call].strength if call in trace.reach else 0.0, _OF_ITS_KIND * by_name[call.name])
        for call in found
    }


def _score(trace: Trace, odd: Oddity, reach: float, clues: Clues) -> float:
    # What lacks the very key that the error names is doubted half as much.
    strength = 1 - (1 - odd.strength) / 2 if odd.keys & clues.keys else odd.strength
    return strength * (_ODD + _REACHES * reach + _EXPLAINS * _match(trace, odd, clues))


def _match(trace: Trace, odd: Oddity, clues: Clues) -> float:
    """How well an oddity would explain the error."""
    words = odd.words | (odd.call.gives.words if odd.keys_in else set())
    telling = {
        word for word in clues.words & (words | odd.call.takes.words) if trace.is_telling(word) or word in odd.words
    }
    if odd.explains or odd.keys & clues.keys or telling & words or (odd.kinds & clues.kinds and odd.kinds != {"dict"}):
        return 1.0
    if odd.topic in clues.topics:
        return 0.8
    return 0.6 if telling else 0.0


def _suspect(trace: Trace, call: Call, odd: Oddity, score: float) -> Suspect:
    confidence: Confidence = "high" if score >= _HIGH else "likely" if score >= _LIKELY else "weak"
    return Suspect(call.run_id, call.seq, call.name, odd.text, confidence, _link(trace, call), round(score, 3))


def _link(trace: Trace, call: Call) -> str:
    """How what a call gave got to the failure."""
    if trace.story.run.status is Status.COMPLETED:
        return ""
    way = trace.way(call)
    steps = [(step, reach) for step, reach in way if reach.via is not None]
    if not steps:
        return (
            "it came before the failure; none of what it gave was found again"
            if not way
            else _by_code(way[0][1].strength)
        )
    (_, reach), end = steps[0], way[-1][0]
    taker = reach.via
    assert taker is not None  # noqa: S101 - those without one were left out
    said = f"step {taker.seq} ({taker.name}) took {_what(taker, call, reach.word)}"
    if len(steps) > 1:
        said += f", and {len(steps) - 1} more step{'s' if len(steps) > 2 else ''} on step {end.seq} ({end.name})"
    return said


def _by_code(strength: float) -> str:
    return (
        "the code that failed had what it gave" if strength >= 0.5 else "it came before the failure, in the same code"
    )


def _what(taker: Call, giver: Call, word: str | None) -> str:
    if taker.feeds:
        source = giver if giver.name != INPUTS else None  # what the run was given is nobody's
        name = next((name for name, each in taker.feeds.items() if each is source), None)
        if name is not None:
            return "its decision" if name.startswith("_") else f"{name} from it"
    return f"{brief(word, 40)} from it" if word is not None else "what it gave"


# The way, the place before it, and what to try.


def _chain(trace: Trace, first: list[tuple[Call, Suspect]]) -> Iterator[Link]:
    if trace.story.run.status is Status.COMPLETED:
        return
    for end in trace.ends[:1]:
        error = trace.error
        said = f"the run ended with {' '.join(str(error).split())}" if error is not None else f"the run is {end.status}"
        yield Link(end.run_id, end.seq, end.name, brief_text(said))
    for place, call in enumerate(trace.path):
        inner = place + 1 < len(trace.path)
        how = "it came through here" if inner else "it failed here" if call.failed else f"it is {call.node.status}"
        yield Link(call.run_id, call.seq, call.name, how)
    for call, _ in first:
        way = [(step, reach) for step, reach in trace.way(call) if step not in trace.path]
        for step, reach in reversed(way):
            if reach.via is not None:
                yield Link(
                    step.run_id, step.seq, step.name, f"step {reach.via.seq} took {_what(reach.via, step, reach.word)}"
                )
            else:
                yield Link(step.run_id, step.seq, step.name, _by_code(reach.strength))
        if not way:
            yield Link(call.run_id, call.seq, call.name, "came before it")


def _last_good(trace: Trace, suspect: Call | None) -> Point | None:
    """The newest checkpoint before the first suspect, or before the failure; else the step before it."""
    bad = suspect or (trace.path[-1] if trace.path else None)
    run_id = bad.run_id if bad is not None else trace.story.run.id
    begun = bad.begun if bad is not None else trace.ends[-1].seq
    story = trace.story_of(run_id)
    marks = [node for node in story.marks if node.seq < begun and node.kind is Kind.CHECKPOINT]
    before = [call for call in story.calls if call.seq < begun and call.completed]
    if bad is not None and bad.superstep is not None:
        before = [call for call in before if call.superstep is None or call.superstep < bad.superstep]
    if marks:
        return Point(run_id, marks[-1].seq, marks[-1].name, is_checkpoint=True)
    return Point(run_id, before[-1].seq, before[-1].name, is_checkpoint=False) if before else None


def _repeated(trace: Trace) -> Iterator[Repeated]:
    asked: dict[tuple[str, str], list[Call]] = defaultdict(list)
    for calls in trace.of_a_kind:
        if len(calls) > _AGAIN:
            for call in calls:
                if not call.feeds and call.inputs:
                    asked[call.name, key_of(call.inputs)].append(call)
    often = sorted((calls for calls in asked.values() if len(calls) > _AGAIN), key=len, reverse=True)
    for calls in often[:3]:
        first = calls[0]
        yield Repeated(first.name, len(calls), first.seq, calls[-1].seq, brief(first.inputs, 40))


def _slow(trace: Trace) -> Iterator[Slow]:
    found: list[Slow] = []
    for calls in trace.of_a_kind:
        if calls[0].node.kind is Kind.PAUSE:
            continue  # that is how long a person took to answer
        times = [call.node.duration_ms or 0.0 for call in calls]
        usual = median(times) if len(times) >= FEW else None
        for call, took in zip(calls, times, strict=True):
            if took >= 1_000 if usual is None else flows.is_slow(took, usual):
                found.append(Slow(call.run_id, call.seq, call.name, took, usual))
    yield from sorted(found, key=lambda each: -each.duration_ms)[:3]


def _next(
    trace: Trace,
    failure: Failure | None,
    suspects: list[tuple[Call, Suspect]],
    failed: list[Run | Failed],
    asked: list[StepRecord],
) -> Iterator[str]:
    run = trace.story.run
    for each in failed[:_TRIED]:
        yield command("show", f"{each.run_id}@{each.seq}") if isinstance(each, Failed) else command("why", each.id)
    if suspects:
        yield command("show", suspects[0][1].id)
        child = suspects[0][0].node.record.child_run_id
        if child is not None:
            yield command("why", child)
    if failure is not None and (not suspects or failure.seq != suspects[0][1].seq):
        yield command("show", f"{failure.run_id}@{failure.seq}")
    good = _last_good(trace, suspects[0][0]) if suspects and failure is not None else None
    if good is not None and not trace.story_of(good.run_id).is_of_a_program:
        yield command("state", good.id)
        yield command("diff", good.id, suspects[0][1].id)
    if run.status is Status.PAUSED or is_unknown(asked):
        yield from answers(run, asked)
    elif trace.is_map:
        yield from (command("resume", each.id) for each in failed[:1] if isinstance(each, Run))
    elif run.status is not Status.COMPLETED and trace.story.is_of_a_workflow:
        if good is not None and good.run_id == run.id:
            yield command("fork", run.id, "--at", good.seq)
        yield command("resume", run.id)
