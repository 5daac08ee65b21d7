"""Values that are not like the others of the same step: another type, a key less, nothing, another scale."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import log10
from statistics import median
from typing import Any

from everstep.trail.why.calls import Call
from everstep.trail.why.oddities import FEW, Group, Oddity, last_of, named, others, place, shown, sure
from everstep.trail.why.values import Profile, first_at, holder, kind_of, lacking

_WORDS = {
    "none": "nothing", "text": "text", "number": "a number", "list": "a list", "dict": "a dict", "bool": "yes or no",
}  # fmt: skip
_FACTOR = 1.3  # powers of ten, from which on a number is of another scale
_APART = 0.7  # powers of ten, from which on a number stands alone
_PATHS = 60


def odd_shapes(group: Group) -> Iterator[Oddity]:
    """Types and keys."""
    if len(group) < FEW:
        return
    kinds = Counter(profile.kind for profile in group.usual)
    usual, count = kinds.most_common(1)[0]
    if not group.rule(count):
        return
    alike = [profile for profile in group.usual if profile.kind == usual]
    always = _always(group, alike)
    among = {id(profile) for profile in alike}
    for call, profile in group.own():
        if profile.kind != usual:
            if not group.clears({profile.kind}, {usual}):
                yield _other_kind(group, call, profile, usual, alike, always)
        else:
            yield from _other_parts(group, call, profile, always, len(alike) - (id(profile) in among))


def _other_kind(
    group: Group, call: Call, profile: Profile, usual: str, alike: list[Profile], always: dict[str, set[str]]
) -> Oddity:
    weight = 0.45 if usual == "none" else 0.9 if profile.kind == "none" else 0.97
    topic = _topic(profile.kind)
    value = "" if profile.kind == "none" else f": {shown(profile.value)}"
    text = f"{group.verb} {word(profile.kind)} where {others(len(alike))} {group.verb} {word(usual)}{value}"
    keys = {last_of(path) for path in always if path}
    return Oddity(call, topic, weight * sure(len(alike)), text, keys=keys, kinds={profile.kind})


def _always(group: Group, alike: list[Profile]) -> dict[str, set[str]]:
    """The paths that nearly all have, with the kinds that stand there."""
    counts: Counter[str] = Counter(path for profile in alike for path in list(profile.kinds)[:_PATHS])
    found: dict[str, set[str]] = {}
    for path, count in counts.items():
        # What stands below a list or an optional part is there as often as that is.
        there = sum(path in profile.kinds or lacking(profile, path) for profile in alike)
        if count >= max(3, there - group.few_enough):
            kinds = Counter(kind for profile in alike for kind in profile.kinds_at(path))
            found[path] = {kind for kind, times in kinds.items() if times > group.few_enough}
    return found


def _other_parts(
    group: Group, call: Call, profile: Profile, always: dict[str, set[str]], count: int
) -> Iterator[Oddity]:
    gone = [path for path in always if path and lacking(profile, path)]
    if gone:
        keys = {last_of(path) for path in gone}
        first = next((path for path in gone if last_of(path) in group.asked), gone[0])
        text = f"{group.verb} no {place(first)}, which {others(count)} have: {shown(holder(profile, first))}"
        yield Oddity(call, "lost", 0.92 * sure(count), text, keys=keys)
    for path, usual in always.items():
        odd = set(profile.kinds_at(path)) - usual
        if path and odd and usual and not group.clears(odd, usual):
            kind = min(odd)
            weight, topic = 0.8 if kind == "none" else 0.95, _topic(kind)
            wanted = word(min(usual))
            said = f"{group.verb} {word(kind)}{named(path)} where it is {wanted} in {others(count)}"
            text = f"{said}: {shown(_around(profile, path, kind))}"
            yield Oddity(call, topic, weight * sure(count), text, kinds={kind}, keys={last_of(path)})


def _around(profile: Profile, path: str, kind: str) -> Any:
    """What to show of a value with an odd part: all of it, or the part, where that is far inside."""
    is_near = path.count(".") + path.count("[") <= 1
    return profile.value if is_near else first_at(profile, path, lambda _, part: kind_of(part) == kind)


def _topic(kind: str) -> str:
    return "empty" if kind == "none" else "text" if kind == "text" else "kind"


def odd_emptiness(group: Group) -> Iterator[Oddity]:
    """Nothing in a list, text or dict where the others have something."""
    full = [profile for profile in group.usual if not profile.empty]
    if not group.rule(len(full)):
        return
    for call, profile in group.own():
        if profile.empty and profile.value is not None:
            text = f"{group.verb} an empty {profile.kind} where {others(len(full))} have something in it"
            yield Oddity(call, "empty", 0.75 * sure(len(full)), text, kinds={profile.kind})
    paths = dict.fromkeys(path for profile in full for path in profile.sizes if path)
    for path in paths:
        filled = [profile for profile in group.usual if profile.sizes.get(path)]
        if not group.rule(len(filled)):
            continue
        for call, profile in group.own():
            if profile.sizes.get(path) == 0:
                text = f"{group.verb} an empty list{named(path)} where {others(len(filled))} have something in it"
                yield Oddity(call, "empty", 0.75 * sure(len(filled)), text, keys={last_of(path)})


def word(kind: str) -> str:
    """A kind, in a sentence."""
    return _WORDS.get(kind, f"a {kind}")


# Numbers.


def odd_numbers(group: Group) -> Iterator[Oddity]:
    """A number of another scale, or of another sign, than the others at its place."""
    paths = dict.fromkeys(path for sample in group.samples for path in sample.profile.numbers)
    for path in paths:
        values = [
            (sample.call, sample.profile.numbers[path]) for sample in group.samples if path in sample.profile.numbers
        ]
        if len(values) >= 4:
            firsts = [numbers[0] for _, numbers in values]
            if not _is_counting(firsts):
                yield from _other_scale(path, values)
                yield from _other_sign(path, values)
        elif len(group.samples) == 1 and values:
            yield from _inside(path, values[0])


def _inside(path: str, one: tuple[Call | None, tuple[float, ...]]) -> Iterator[Oddity]:
    """Of one list alone: an item of another scale than the rest."""
    call, numbers = one
    if call is not None and len(numbers) >= 5 and not _is_counting(numbers):
        yield from _other_scale(path, [(call, (number,)) for number in numbers])


def _other_scale(path: str, values: list[tuple[Call | None, tuple[float, ...]]]) -> Iterator[Oddity]:
    scales = [[log10(abs(number)) for number in numbers if number] for _, numbers in values]
    middles = [median(scale) for scale in scales if scale]
    if len(middles) < 4:
        return
    middle = median(middles)
    ordered = sorted(set(middles))
    away = sorted(abs(each - middle) for each in middles)
    spread = away[max(0, len(away) - 1 - max(1, len(away) // 8))]  # without those that may be odd
    for (call, numbers), scale in zip(values, scales, strict=True):
        if call is None or not scale:
            continue
        furthest = max(scale, key=lambda each: abs(each - middle))
        distance = abs(furthest - middle)
        if distance < max(_FACTOR, 1.6 * spread + 0.4) and (distance < 1 or _neighbour(ordered, furthest) < _APART):
            continue
        number = next(n for n in numbers if n and log10(abs(n)) == furthest)
        times = f"{10**distance:,.0f} times {'as much' if furthest > middle else 'less'}"
        text = f"gave {number:,.6g}{named(path)}, about {times} as {others(len(values) - 1)} ({10**middle:,.4g})"
        strength = min(0.95, 0.6 + 0.12 * distance) * sure(len(middles) - 1)
        yield Oddity(call, "scale", strength, text.replace("less as", "less than"), keys={last_of(path)})


def _neighbour(ordered: list[float], number: float) -> float:
    """How far the next of some numbers is from one."""
    at = bisect_left(ordered, number)
    near = [each for each in ordered[max(0, at - 1) : at + 2] if each != number]
    return min((abs(each - number) for each in near), default=0.0)


def _other_sign(path: str, values: list[tuple[Call | None, tuple[float, ...]]]) -> Iterator[Oddity]:
    below = [(call, numbers) for call, numbers in values if min(numbers) < 0]
    above = [numbers for _, numbers in values if min(numbers) > 0]
    for call, numbers in below if len(below) == 1 and len(above) == len(values) - 1 else ():
        if call is None:
            continue
        text = f"gave {min(numbers):,.6g}{named(path)}, below zero, unlike {others(len(values) - 1)}"
        yield Oddity(call, "scale", 0.6 * sure(len(values) - 1), text, keys={last_of(path)})


def _is_counting(numbers: Sequence[float]) -> bool:
    """Whether numbers go up, or down, all the way: a counter, a time, a balance."""
    pairs = list(pairwise(numbers))
    return all(a <= b for a, b in pairs) or all(a >= b for a, b in pairs)
