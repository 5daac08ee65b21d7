"""What the code that failed had just been given, and was not content with: where too few are there to compare with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from everstep.codec.encoding import Generic
from everstep.trail.providers import said
from everstep.trail.why.calls import Call
from everstep.trail.why.clues import Clues
from everstep.trail.why.heard import alike, settled
from everstep.trail.why.oddities import FEW, Group, Oddity, last_of, named, others, shown
from everstep.trail.why.shapes import word
from everstep.trail.why.texts import fault_of
from everstep.trail.why.tracing import Trace
from everstep.trail.why.values import Profile, kind_of, same
from everstep.trail.why.where import frames

_UNLIKE, _ALONE = 0.5, 0.3  # how much a key says, with another beside it that has what this one lacks, and without
_OTHER, _ONLY, _SOME = 0.7, 0.62, 0.45  # the same of a value; and of one that is a part of what came alone
_PARTS = 5_000  # of a value in which a key is looked for


def missed(trace: Trace, clues: Clues, groups: list[Group]) -> Iterator[Oddity]:
    """The step without the key, the item or the value that the error is about."""
    had = _had(trace, clues)
    if not had or trace.error is None:
        return
    last = had[-1]
    known = {call: group.foreign for group in groups for call, _ in group.own()}
    for calls in alike(settled(had)):
        if len(calls) < FEW:
            foreign = known.get(calls[0], [])
            is_last = calls[-1] is last
            yield from _keyless(calls, foreign, clues, is_last=is_last and _is_plain(trace))
            yield from _unfit(calls, foreign, clues, is_last=is_last)
            if is_last:
                before = [call.gives for call in calls[:-1]]
                yield from _useless(last, [*before, *foreign], clues, trace.error.type)
                yield from _prose(last, before, foreign) if trace.error.type.endswith("JSONDecodeError") else ()


def _had(trace: Trace, clues: Clues) -> list[Call]:
    """The calls whose outcomes the code had that failed: those around it, or inside it, or what it was given."""
    failed = trace.path[-1] if trace.path else None
    if failed is None:
        story = trace.last_story
        return [call for call in story.calls if call.completed and call.parent is None]
    inside = [call for child in failed.node.children if (call := trace.of(child)) is not None and call.completed]
    if inside or failed.feeds:
        return inside or [call for call in trace.calls if call in failed.feeds.values()]
    taken = list(_parts(failed.inputs))
    before = [call for call in trace.calls if call.completed and call.place < failed.place]
    had = {call for call in before if call.output and any(same(call.output, part) for part in taken)}
    # Nothing may come from anywhere. Where the error is about it, it came from the like of what else was taken.
    names = {call.name for call in had} if "none" in clues.kinds and None in taken else set()
    return [call for call in before if call in had or (call.output is None and call.name in names)]


def _parts(inputs: Any) -> Iterator[Any]:
    """What a call was given, and the items of the lists in it."""
    for value in inputs.values() if isinstance(inputs, dict) else [inputs]:
        yield value
        if isinstance(value, list | tuple):
            yield from value


def _is_plain(trace: Trace) -> bool:
    """Whether the program's own line failed: what fails in a library is about what that looked into."""
    seen = frames(trace.error)
    return not seen or seen[-1].is_own


# A key that is not there.


def _keyless(calls: list[Call], foreign: list[Profile], clues: Clues, *, is_last: bool) -> Iterator[Oddity]:
    for key in sorted(clues.keys) if clues.is_about_a_key else ():
        without = [call for call in calls if _lacks(call.output, key)]
        having = len(calls) - len(without)
        # A run that completed did without it.
        if len(without) != 1 or not (having or is_last) or any(_lacks(each.value, key) for each in foreign):
            continue
        unlike = f", unlike {others(having)}" if having else ""
        text = f"gave no {shown(key)}, which the error names{unlike}: {shown(without[0].output)}"
        yield Oddity(without[0], "lost", _UNLIKE if having else _ALONE, text, keys={key}, explains=True)


def _lacks(value: Any, key: str) -> bool:
    """Whether a value could have a key and has it nowhere."""
    waiting, seen, could = [value], 0, False
    while waiting:
        part = waiting.pop()
        seen += 1
        if seen > _PARTS:
            return False  # nobody looked everywhere
        if isinstance(part, dict | Generic):
            fields = part if isinstance(part, dict) else part.fields
            if any(str(each) == key for each in fields):
                return False
            could = True
            waiting += fields.values()
        elif isinstance(part, list | tuple):
            waiting += part
    return could


# A value that is none, an empty list, a text that is no JSON.


def _unfit(calls: list[Call], foreign: list[Profile], clues: Clues, *, is_last: bool) -> Iterator[Oddity]:
    for call in calls if clues.unfit else ():
        beside = [*(other.gives for other in calls if other is not call), *foreign]
        for path in call.gives.kinds:
            known = {kind for each in foreign for kind in each.kinds_at(path)}
            unfit = clues.unfit - known  # what runs that completed have there does no harm
            odd = unfit.intersection(call.gives.kinds_at(path))
            there = [set(each.kinds_at(path)) for each in beside if path in each.kinds]
            unlike = [kinds for kinds in there if not odd & kinds]
            if not odd or any(unfit & kinds - odd for kinds in unlike):
                continue  # of two that the error names, nobody knows which is wrong
            if clues.wanted and unlike and not any(clues.wanted & kinds for kinds in unlike):
                continue  # this is not the place that it is about
            if ("none" in odd and (unlike or is_last)) or (unlike and path):
                said = f", unlike {others(len(unlike))}" if unlike else ""
                text = f"gave {word(min(odd))}{named(path)}{said}: {shown(call.output)}"
                strength = (
                    (_OTHER if is_last else _SOME) if unlike else _ONLY if not path and len(calls) == 1 else _SOME
                )
                yield Oddity(call, "kind", strength, text, kinds=odd, keys={last_of(path)}, explains=True)


def _useless(last: Call, before: list[Profile], clues: Clues, error: str) -> Iterator[Oddity]:
    strength = _OTHER if before else _ONLY
    if "empty" in clues.topics and error.endswith(("IndexError", "StopIteration")):
        for path, size in last.gives.sizes.items():
            if not size and not any(each.sizes.get(path) == 0 for each in before):
                text = f"gave an empty list{named(path)}: {shown(last.output)}"
                yield Oddity(last, "empty", strength, text, explains=True)
    if error.endswith("JSONDecodeError") and kind_of(last.output) == "text" and not fault_of(last.output):
        yield Oddity(last, "text", strength, f"gave no JSON: {shown(last.output)}", kinds={"text"}, explains=True)


def _prose(last: Call, before: list[Profile], foreign: list[Profile]) -> Iterator[Oddity]:
    """A model that was to answer in JSON, and did not. What it says to completed runs so does no harm."""
    row = last.node.record
    words = said(row.output) if row.node_type == "model" else None
    path = next((path for path, text in last.gives.texts.items() if text == words), None)
    if path is None or fault_of(last.gives.texts[path]) is not None or _speaks(foreign, path):
        return
    strength = _SOME if _speaks(before, path) else _OTHER if before else _ONLY
    yield Oddity(last, "text", strength, f"gave no JSON: {shown(words)}", kinds={"text"}, explains=True)


def _speaks(others: list[Profile], path: str) -> bool:
    """Whether one of them is a text there that does not begin as JSON does."""
    return any(path in each.texts and fault_of(each.texts[path]) is None for each in others)
