"""Steps that went wrong without saying so: errors that were caught, items that got lost or came twice, slow ones."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from statistics import median
from typing import Any

from everstep.model import Kind, Status
from everstep.trail.why.calls import Call
from everstep.trail.why.oddities import FEW, Group, Oddity, others, shown, sure
from everstep.trail.why.tracing import Trace
from everstep.trail.why.values import Profile, key_of, lists_of, profile, words_of

_ITEMS = 200  # of a list that are compared one by one
_TELLING = 8  # characters of an item, as Python writes it, that come twice by chance only
_SLOW_MS, _TIMES = 50.0, 8.0  # a step is slow when it took longer than both, the latter being of its kind's median


def swallowed(trace: Trace) -> Iterator[Oddity]:
    """Steps that failed, and the run went on; and those that needed more than one attempt."""
    failed = [call for call in trace.calls if call.failed and call not in trace.path]
    inner = [call for call in failed if not any(child.status is Status.FAILED for child in call.node.children)]
    for call in inner:
        error = call.error
        said = (
            "an error"
            if error is None
            else shown_error(f"{error.type}: {error.message}" if error.message else error.type)
        )
        topic = "late" if error is not None and "timeout" in error.type.lower() else "error"
        strength = max(0.4, 0.9 / (1 + 0.12 * (len(inner) - 1)))
        yield Oddity(call, topic, strength, f"failed with {said}, and the run went on", words=set(call.takes.words))
    tried = [call for call in trace.calls if call.completed and call.node.earlier]
    for call in tried if len(tried) <= max(2, len(trace.calls) // 8) else []:
        last = call.node.earlier[-1].error if not call.node.earlier[-1].erased else None
        said = f": {shown_error(str(last))}" if last is not None else ""
        yield Oddity(call, "late", 0.3, f"completed only with attempt {call.node.attempts}{said}")


def shown_error(text: str) -> str:
    """An error in a sentence."""
    first = text.splitlines()[0] if text else ""
    return shown(first)[1:-1] if len(first) < 60 else shown(first[:57])[1:-1] + "..."


def is_slow(took: float, usual: float) -> bool:
    """Whether so many milliseconds are much, where this many are usual."""
    return took >= _SLOW_MS and took >= _TIMES * usual


def slow(trace: Trace) -> Iterator[Oddity]:
    """Steps that took far longer than the others of their name."""
    for calls in trace.of_a_kind:
        if calls[0].node.kind is Kind.PAUSE:
            continue  # a person's time
        times = [call.node.duration_ms or 0.0 for call in calls]
        if len(times) < FEW:
            continue
        usual = median(times)
        for call, took in zip(calls, times, strict=True):
            if is_slow(took, usual):
                text = f"took {took:,.0f} ms where {others(len(calls) - 1)} took about {usual:,.2g} ms"
                yield Oddity(call, "late", 0.5 * sure(len(calls) - 1), text)


# What got lost.


def lost(group: Group) -> Iterator[Oddity]:
    """A step that gave a list with less in it than it took, where others of its name gave all."""
    kept, short = 0, list[tuple[Call, list[Any], int]]()
    for call, given in group.own():
        if not lists_of(given) or not lists_of(call.takes):
            continue
        taken = max(lists_of(call.takes), key=len)
        gone = _gone(taken[:_ITEMS], given.value)
        if gone is None:
            continue
        if gone:
            short.append((call, gone, len(taken)))
        else:
            kept += 1
    if len(short) > max(1, (kept + len(short)) // 8):
        return
    for call, gone, count in short:
        text = f"took {count} items and gave {count - len(gone)}: {shown(gone[0])} is not among them"
        words = {word for item in gone for word in profile(item).words}
        yield Oddity(call, "lost", 0.9 * sure(kept) if kept else 0.5, text, words=words, keys_in=False)


def _gone(taken: list[Any], given: Any) -> list[Any] | None:
    """The items of a list that are not in a value; None where the value is not made of them."""
    if len(taken) < 3:
        return None
    there = _words(given)
    items = [(item, _words(item)) for item in taken]
    counts = Counter(word for _, words in items for word in words)
    marks = [(item, {word for word in words if counts[word] == 1}) for item, words in items]
    marked = [(item, words) for item, words in marks if words]
    gone = [item for item, words in marked if not words & there]
    if len(marked) < 3 or 2 * len(gone) >= len(marked):
        return None
    return gone


def _words(value: Any) -> set[str]:
    """Every word of a value, small numbers too: lists are compared item by item."""
    found: set[str] = set()
    waiting = [value]
    while waiting and len(found) < 20 * _ITEMS:
        part = waiting.pop()
        if isinstance(part, dict):
            waiting += part.values()
        elif isinstance(part, list | tuple | set | frozenset):
            waiting += part
        elif isinstance(part, str):
            found.add(part)
            found.update(words_of(part))
        elif part is not None and not isinstance(part, bool):
            found.add(str(part))
    return found


def unused(trace: Trace, group: Group) -> Iterator[Oddity]:
    """What a step gave and nobody took, where what the others of its name gave was taken."""
    calls = [(call, {word for word in call.new if trace.is_telling(word)}) for call, _ in group.own()]
    telling = [(call, words) for call, words in calls if words]
    if len(telling) < FEW:
        return
    used = [any(trace.taken_after(word, call) for word in words) for call, words in telling]
    count = sum(used)
    if count < FEW - 1 or len(used) - count > max(1, len(used) // 8):
        return
    last = max(place for place, is_used in enumerate(used) if is_used)
    for place, ((call, _), is_used) in enumerate(zip(telling, used, strict=True)):
        if not is_used and place < last:
            text = f"gave what no later step took, unlike {others(count)}: {shown(call.output)}"
            yield Oddity(call, "lost", 0.75 * sure(count), text)


# What came twice.


def twice(group: Group) -> Iterator[Oddity]:
    """The same thing given a second time, where nothing else was."""
    # A number comes twice by chance.
    calls = [(call, given) for call, given in group.own() if given.words and given.kind != "number"]
    yield from _same_output([(call, key_of(given.value)) for call, given in calls])
    yield from _same_item(calls)


def _same_output(calls: list[tuple[Call, str]]) -> Iterator[Oddity]:
    counts = Counter(key for _, key in calls)
    again = len(calls) - len(counts)
    if not again or len(counts) < FEW - 1 or again > max(1, len(calls) // 8):
        return
    first: dict[str, Call] = {}
    for call, key in calls:
        before = first.setdefault(key, call)
        if before is not call:
            asked_again = bool(call.takes.kinds.keys() - {""}) and key_of(call.inputs) == key_of(before.inputs)
            text = f"gave the same as step {before.seq} before, which no other did: {shown(call.output)}"
            if asked_again:
                text = f"was called with the same as step {before.seq} before: {shown(call.inputs)}"
            yield Oddity(call, "twice", (0.5 if asked_again else 0.85) * sure(len(counts)), text)


def _same_item(calls: list[tuple[Call, Profile]]) -> Iterator[Oddity]:
    """An item of a list that an earlier list, or this one, had before."""
    seen: dict[str, Call] = {}
    again: dict[Call, tuple[Call, Any]] = {}
    total = repeats = 0
    for call, given in calls:
        for items in lists_of(given):
            for item in items[:_ITEMS]:
                if not isinstance(item, dict | str) or len(key_of(item)) < _TELLING:
                    continue
                total += 1
                key = key_of(item)
                if key in seen:
                    repeats += 1
                    again.setdefault(call, (seen[key], item))
                else:
                    seen[key] = call
    if total < FEW or repeats > max(1, total // 8):
        return
    for call, (before, item) in again.items():
        where = "in it twice" if before is call else f"in what step {before.seq} gave, too"
        weight = 0.5 if isinstance(item, str) and item.isalpha() else 0.85  # one word is nobody's
        yield Oddity(
            call, "twice", weight * sure(total - repeats), f"gave {shown(item)}, which is {where}",
            words=set(profile(item).words),
        )  # fmt: skip


# What is old.


class _Told:
    """What was said of one field of one thing: the newest, and who said each value last."""

    __slots__ = ("by_value", "caller", "value")

    def __init__(self) -> None:
        self.caller: Call | None = None
        self.value: Any = None
        self.by_value: dict[Any, Call] = {}

    def add(self, call: Call, value: Any) -> None:
        self.caller, self.value = call, value
        self.by_value[value] = call


def stale(trace: Trace) -> Iterator[Oddity]:
    """A value that another step had replaced, and that is given again as it was."""
    history: dict[tuple[str, str], _Told] = defaultdict(_Told)
    found: dict[Call, Oddity] = {}
    for call in trace.calls:
        if not call.completed:
            continue
        told: set[tuple[str, str]] = set()
        for name, about, value in _facts(call):
            known = history[name, about]
            if call not in found and (name, about) not in told:
                odd = _is_back(call, name, value, known)
                if odd is not None:
                    found[call] = odd
            told.add((name, about))
            known.add(call, value)
    if len(found) <= max(2, len(trace.calls) // 12):
        yield from found.values()
    cached = [call for call in trace.calls if call.node.record.cached]
    if len(cached) <= max(2, len(trace.calls) // 8):
        for call in cached:
            yield Oddity(call, "stale", 0.45, f"was not computed but taken from the cache: {shown(call.output)}")


def _facts(call: Call) -> Iterator[tuple[str, str, Any]]:
    """What a call says: the name of a field, whom it is about, and its value."""
    about = sorted({text for text in call.takes.texts.values() if 2 <= len(text) <= 60})[:4] or [""]
    sides: list[Any] = [call.inputs, call.output]
    for side in sides:
        if isinstance(side, dict):
            for name, value in list(side.items())[:12]:
                if isinstance(value, int | float | str) and not isinstance(value, bool) and value not in about:
                    yield from ((str(name), each, value) for each in about)
    given = call.output
    if isinstance(given, int | float | str) and not isinstance(given, bool):
        yield from (("", each, given) for each in about)


def _is_back(call: Call, name: str, value: Any, known: _Told) -> Oddity | None:
    """Whether a step gave what it, or its like, gave before another step changed it."""
    changer, new = known.caller, known.value
    if changer is None or value == new or type(value) is not type(new) or changer.name == call.name:
        return None
    older = known.by_value.get(value)
    if older is None or call.chooses or _in(call, name, value):
        return None  # it is new, or it was told so
    field = f"{name} " if name else ""
    text = (
        f"gave {field}{shown(value)} as step {older.seq} had it, although step {changer.seq} ({changer.name}) "
        f"had made it {shown(new)}"
    )
    return Oddity(call, "stale", 0.85, text, words={str(value), str(new)})


def _in(call: Call, name: str, value: Any) -> bool:
    return isinstance(call.inputs, dict) and name in call.inputs and call.inputs[name] == value


# What was chosen.


def decided(group: Group) -> Iterator[Oddity]:
    """A choice that is unlike those for inputs of the same kind."""
    for field in _choosing(group):
        calls = [(call, str(_part(call.output, field))) for call, _ in group.own()]
        counts = Counter(choice for _, choice in calls)
        best = _unlike(calls, counts)
        for call, (strength, times, mark, usual) in best.items():
            chosen = shown(_part(call.output, field))
            text = f"chose {chosen} where {others(times)} with {mark} chose {shown(usual)}"
            yield Oddity(call, "route", strength, text)
        if not best:
            yield from _first_time([call for call, _ in calls], counts)


def _choosing(group: Group) -> Iterator[str | None]:
    """The fields of an output that are one of a few words; None for the output itself."""
    outputs = [call.output for call, _ in group.own()]
    if len(outputs) <= FEW:
        return
    fields: list[str | None] = [None]
    if all(isinstance(each, dict) for each in outputs):
        fields = [name for name in outputs[0] if all(name in each for each in outputs)]
    for field in fields[:12]:
        parts = [_part(each, field) for each in outputs]
        is_short = all(isinstance(part, str | bool | list) and len(str(part)) <= 60 for part in parts)
        if is_short and 1 < len({str(part) for part in parts}) <= max(2, len(parts) // 3):
            yield field


def _part(value: Any, field: str | None) -> Any:
    return value if field is None else value[field]


def _unlike(calls: list[tuple[Call, str]], counts: Counter[str]) -> dict[Call, tuple[float, int, str, str]]:
    """By call, what stands against its choice: how much, how many others, what they share, what they chose."""
    found: dict[Call, tuple[float, int, str, str]] = {}
    for marks_of in (_fields, _words_in):
        marked: dict[str, list[tuple[Call, str]]] = defaultdict(list)
        for call, choice in calls:
            for mark in marks_of(call):
                marked[mark].append((call, choice))
        tried = {mark: having for mark, having in marked.items() if FEW <= len(having) < len(calls)}
        for mark, having in tried.items():
            (usual, times), *rest = Counter(choice for _, choice in having).most_common()
            if times != len(having) - 1 or not rest:
                continue
            [(call, choice)] = [(call, choice) for call, choice in having if choice != usual]
            # That so many agree may be chance, the more so the more is tried.
            chance = len(tried) * (counts[usual] / len(calls)) ** times
            strength = 0.9 * (1 - chance)
            if counts[choice] > 1 and strength > max(0.2, found.get(call, (0.0,))[0]):
                found[call] = strength, times, mark, usual
    return found


def _words_in(call: Call) -> set[str]:
    return {repr(word) for word in call.takes.words if len(word) <= 30}


def _fields(call: Call) -> set[str]:
    """Short values by name."""
    found: set[str] = set()
    if isinstance(call.inputs, dict):
        for name, value in call.inputs.items():
            parts = value.items() if isinstance(value, dict) else [(name, value)]
            short = [(key, part) for key, part in parts if isinstance(part, str | bool | int) and len(str(part)) <= 30]
            found |= {f"{key} {shown(part)}" for key, part in short}
    return found


def _first_time(calls: list[Call], counts: Counter[str]) -> Iterator[Oddity]:
    """A choice that was made once, after another had been made again and again."""
    for before, call in pairwise(calls):
        if counts[str(call.output)] == 1 and call.chooses:
            times = counts[str(before.output)]
            if times >= FEW - 1:
                text = f"chose {shown(call.output)} for the first time, after {times} times {shown(before.output)}"
                yield Oddity(call, "route", 0.45, text)
