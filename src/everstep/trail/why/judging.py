"""Why a run failed: what is odd about its steps, weighed by whether it got to the failure and would explain it.

Reads the record and nothing else. No code of the run's workflow is called, imported or needed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from statistics import median
from typing import TYPE_CHECKING

from everstep.codec.shown import brief, cut
from everstep.model import Kind, Status
from everstep.trail.answers import answered
from everstep.trail.why import flows, missed, shapes, sources, texts
from everstep.trail.why.calls import Call, others
from everstep.trail.why.clues import Clues, clues_of
from everstep.trail.why.given import INPUTS, odd_inputs
from everstep.trail.why.heard import alike
from everstep.trail.why.items import WIDE, failed_parts, open_questions, questions_of, told
from everstep.trail.why.oddities import FEW, Group, Oddity, Sample
from everstep.trail.why.onward import last_done, last_good, nexts, under_way
from everstep.trail.why.report import Confidence, Failure, Link, Repeated, Slow, Suspect, Why
from everstep.trail.why.tracing import Trace
from everstep.trail.why.values import key_of
from everstep.trail.why.where import where

if TYPE_CHECKING:
    from everstep.trail.trail import Trail

_SUSPECTS = 5
_ITEMS = 10  # failed items that are told
_RUNS, _ROWS = 3, 2_000  # other runs that are looked at, and how long they may be
_HIGH, _LIKELY, _WEAK = 0.75, 0.5, 0.2
_ODD, _REACHES, _EXPLAINS = 0.3, 0.35, 0.35  # what each part is worth
_SEEN = 0.5  # from which on something is known to have got to the failure
_PASSED_ON = 0.55  # what is left of an oddity that came with what the step took
_PASSES_ON = frozenset({"kind", "text", "empty", "scale", "error", "stale", "twice"})  # with the value
_AT_THE_END = 0.6  # of one that gave nothing as the last of its name: loops end so
_OF_ITS_KIND = 0.85  # how surely a step reached the failure, if others of its name did
_STOOD = {
    Status.ACTIVE: "it was under way",
    Status.UNKNOWN: "how it ended is not known",
    Status.PAUSED: "it waits for an answer",
}
_AGAIN = 3  # how often a step may be asked the same without being told of


def explain(trail: Trail, run_id: str) -> Why:
    """Find out why a run stands as it does."""
    trace = Trace(trail, run_id)
    run = trace.story.run
    failure = _failure(trace)
    suspects = _judged(trail, trace)
    failed = list(failed_parts(trail, trace))
    asked = open_questions(trail, run, at_work=trace.at_work)
    interrupted = run.status is Status.ACTIVE and not trace.at_work
    inside = () if trace.is_map else under_way(trail, run)
    return Why(
        run_id=run.id, workflow=run.workflow, status=run.status, failure=failure,
        chain=tuple(_chain(trace, suspects[:1])), suspects=tuple(suspect for _, suspect in suspects),
        last_good=last_good(trace, suspects[0][0] if suspects else None) if failure is not None else None,
        repeated=tuple(_repeated(trace)), slow=tuple(_slow(trace)),
        next=tuple(nexts(trail, trace, failure, suspects, failed, asked, inside)),
        items=tuple(told(trail, trace, each) for each in failed[:_ITEMS]), failed=len(failed), is_map=trace.is_map,
        interrupted=interrupted, at_work=trace.at_work, last_done=last_done(trace) if not trace.path else None,
        questions=tuple(questions_of(asked)), waiting=len(asked),
        answered=answered(trail, trail.store.run(run.id)) if interrupted else 0, inside=inside,
    )  # fmt: skip


# How it ended.


def _failure(trace: Trace) -> Failure | None:
    run, error = trace.story.run, trace.error
    if run.status is Status.COMPLETED or trace.at_work or not (trace.path or trace.ends):
        return None
    last = trace.path[-1] if trace.path else None
    if error is not None and run.status is Status.ACTIVE:  # of what is open, the innermost that had failed before
        last = next((call for call in reversed(trace.path) if call.error is not None), last)
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
        "its result was available to the code that failed"
        if strength >= 0.5
        else "it ran earlier in the function that failed"
    )


def _what(taker: Call, giver: Call, word: str | None) -> str:
    if taker.feeds:
        source = giver if giver.name != INPUTS else None  # what the run was given is nobody's
        name = next((name for name, each in taker.feeds.items() if each is source), None)
        if name is not None:
            return "its decision" if name.startswith("_") else f"{name} from it"
    return f"{brief(word, 40)} from it" if word is not None else "what it gave"


# The way.


def _chain(trace: Trace, first: list[tuple[Call, Suspect]]) -> Iterator[Link]:
    if trace.story.run.status is Status.COMPLETED:
        return
    for end in trace.ends[:1]:
        error = trace.error
        said = f"the run ended with {' '.join(str(error).split())}" if error is not None else f"the run is {end.status}"
        yield Link(end.run_id, end.seq, end.name, cut(said, WIDE))
    for place, call in enumerate(trace.path):
        yield Link(call.run_id, call.seq, call.name, _stood(trace, call, inner=place + 1 < len(trace.path)))
    for call, _ in first if not trace.at_work else ():
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


def _stood(trace: Trace, call: Call, *, inner: bool) -> str:
    """How a step stood that a failure came through, or that is open."""
    if call.node.status not in _STOOD:
        return "it came through here" if inner else "it failed here"
    said = _STOOD[call.node.status]
    if trace.at_work:
        return "it is under way" if call.node.status is not Status.PAUSED else said
    tried = len(call.node.earlier) if call.node.status is Status.ACTIVE else 0
    return f"{said}, after {tried} failed attempt{'s' if tried > 1 else ''}" if tried else said


# What else is worth telling.


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
