"""Texts that were cut off or broken, and results that are really errors."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

from everstep.trail.why.calls import Call
from everstep.trail.why.oddities import FEW, Group, Oddity, last_of, named, others, shown, sure
from everstep.trail.why.values import Profile

_LONG = 200_000  # characters of a text that is still parsed
_CLOSED = frozenset(".!?\"')]}>`;|*%\u3002\uff01\uff1f\u201d\u2019")
_DOTS = ("...", "…")
_FENCE = re.compile(r"^```\w*\n(.*?)(?:\n```)?\s*$", re.DOTALL)
_TAIL = 30
_FIRST = 16  # texts that tell whether they have a form
_FORMED = 40  # characters that a text may have to be of a form
_DATED = re.compile(r"[\d.:/T-]{6,}Z?")
_ERROR = re.compile(
    r"\b(?:error|exception|traceback|failed|failure|timed? ?out|refused|unavailable|denied|forbidden|"
    r"rate.?limit\w*|bad gateway|internal server|try again|could not|overloaded|quota)\b|\b[45]\d\d [A-Z]",
    re.IGNORECASE,
)
_HEAD = 160  # characters in which a text says that it is an error
_FLAGS = ("error", "errors", "exception", "err", "fault")
_STATES = ("status", "state", "code", "status_code", "statusCode")
_EXITS = ("exit", "exit_code", "returncode")
_GOOD = ("ok", "success", "successful", "succeeded")


def odd_texts(group: Group) -> Iterator[Oddity]:
    """Texts that are not whole."""
    paths = dict.fromkeys(path for sample in group.samples for path in sample.profile.texts)
    for path in list(paths)[:40]:
        texts = [(sample.call, sample.profile.texts[path]) for sample in group.samples if path in sample.profile.texts]
        yield from _broken(path, texts)
        if len(texts) >= FEW:
            yield from _cut_off(path, texts)
            yield from _other_form(path, texts)
            yield from _short(path, texts)


def _broken(path: str, texts: list[tuple[Call | None, str]]) -> Iterator[Oddity]:
    """JSON that cannot be read, where the others can or none is there to compare with."""
    states = [(call, text, fault_of(text)) for call, text in texts]
    good = sum(fault == "" for _, _, fault in states)
    bad = sum(bool(fault) for _, _, fault in states)
    if not bad or (bad > max(1, len(texts) // 8) and bad > good / 3) or (good == 0 and len(texts) >= FEW):
        return
    for call, text, fault in states:
        if call is None:
            continue
        if fault:
            strength = 0.95 * sure(good + 1) if good else 0.7
            unlike = f", unlike {others(good)}" if good else ""
            said = f"gave JSON{named(path)} that cannot be read{unlike}: {fault}, it ends with {shown(text[-_TAIL:])}"
            yield Oddity(call, "text", strength, said, kinds={"text"}, keys={last_of(path)})
        elif fault is None and good >= FEW - 1:
            said = f"gave no JSON{named(path)}, unlike {others(good)}: {shown(text)}"
            yield Oddity(call, "text", 0.9 * sure(good), said, kinds={"text"}, keys={last_of(path)})


def fault_of(text: str) -> str | None:
    """What is wrong with a text that begins like JSON; empty if nothing is, None if it does not begin so."""
    inner = text.strip()
    fenced = _FENCE.match(inner)
    inner = fenced[1].strip() if fenced else inner
    if not inner.startswith(("{", "[")) or len(inner) > _LONG or len(inner) < 2:
        return None
    try:
        json.loads(inner)
    except (ValueError, RecursionError) as error:
        if inner.startswith("[") and not re.match(r"\[\s*[\[{\"\d\]tfn-]", inner):
            return None  # a mark in brackets, not a list
        return "it breaks off" if _is_open(inner) else str(error).partition(":")[0].lower()
    return ""


def _is_open(text: str) -> bool:
    """Whether brackets or a string are left open at the end."""
    depth, in_text, skip = 0, False, False
    for sign in text:
        if skip:
            skip = False
        elif in_text:
            skip, in_text = sign == "\\", sign != '"'
        elif sign == '"':
            in_text = True
        else:
            depth += (sign in "{[") - (sign in "}]")
    return in_text or depth > 0


def _cut_off(path: str, texts: list[tuple[Call | None, str]]) -> Iterator[Oddity]:
    """Prose that ends in the middle, where the others end with a sentence."""
    prose = [(call, text.rstrip()) for call, text in texts if len(text) >= 25 and text.count(" ") >= 4]
    dotted = [(call, text) for call, text in prose if text.endswith(_DOTS)]
    closed = [text for _, text in prose if text[-1] in _CLOSED and not text.endswith(_DOTS)]
    odd = [(call, text) for call, text in prose if text[-1] not in _CLOSED] + dotted
    if len(closed) < FEW - 1 or len(odd) > max(1, len(prose) // 8):
        return
    for call, text in odd:
        if call is not None:
            unlike = f"unlike {others(len(closed))}: it ends with {shown(text[-_TAIL:])}"
            said = f"gave a text{named(path)} that breaks off, {unlike}"
            yield Oddity(call, "text", 0.85 * sure(len(closed)), said, kinds={"text"}, keys={last_of(path)})


def _short(path: str, texts: list[tuple[Call | None, str]]) -> Iterator[Oddity]:
    """A text that is far shorter than any other."""
    sizes = [len(text) for _, text in texts]
    middle = median(sizes)
    for (call, text), size in zip(texts, sizes, strict=True):
        if call is None or not size or middle < 40 or size > 0.25 * middle:
            continue
        rest = sorted(sizes)[1:]
        if rest[0] >= 0.5 * middle:
            unlike = f"{others(len(rest))} have about {middle:,.0f}: {shown(text)}"
            said = f"gave a text{named(path)} of {size} characters, {unlike}"
            yield Oddity(call, "text", 0.6 * sure(len(rest)), said, kinds={"text"}, keys={last_of(path)})


def _other_form(path: str, texts: list[tuple[Call | None, str]]) -> Iterator[Oddity]:
    """A short text that is built otherwise than the others, like a date, or is another one where all are the same."""
    if any(len(text) > _FORMED for _, text in texts):
        return
    for form_of, weight in ((str, 0.7), (_form, 0.8)):
        if len({form_of(text) for _, text in texts[:_FIRST]}) > _FIRST // 4:
            continue  # no form at all
        forms = Counter(form_of(text) for _, text in texts)
        usual, count = forms.most_common(1)[0]
        if count < max(FEW, len(texts) - max(1, len(texts) // 8)) or (form_of is _form and "9" not in usual):
            continue
        example = next(text for _, text in texts if form_of(text) == usual)
        for call, text in texts:
            if call is not None and text and form_of(text) != usual:
                said = f"gave {shown(text)}{named(path)} where {others(count)} are like {shown(example)}"
                yield Oddity(
                    call, "text", weight * sure(count), said, kinds={"text"}, keys={last_of(path)}, words={text}
                )
        return


def _form(text: str) -> str:
    """How a text is built: `2026-03-04` as `9999-99-99`, `A-17` as `a-9`."""
    digits = re.sub(r"\d", "9", text) if _DATED.fullmatch(text) else re.sub(r"\d+", "9", text)
    return re.sub(r"[^\W\d_]+", "a", digits)


# Errors that came as results.


def odd_errors(group: Group) -> Iterator[Oddity]:
    """A result that says it is an error, where the others do not."""
    told = [(sample, error_in(sample.profile)) for sample in group.samples]
    bad = sum(said is not None for _, said in told)
    if not bad or (len(group) >= FEW and bad > max(1, len(group) // 4)):
        return
    weight = 0.95 * sure(len(group) - bad) if len(group) >= FEW else 0.6
    for sample, said in told:
        if sample.call is not None and said is not None:
            yield Oddity(sample.call, "error", weight, f"completed, but what it gave reads like an error: {said}")


def error_in(profile: Profile) -> str | None:
    """The part of a value that says it is an error."""
    value = profile.value
    if isinstance(value, dict):
        key = next((key for key, is_bad in _SIGNS if key in value and is_bad(value[key])), None)
        return None if key is None else shown({key: value[key], **({} if key in _FLAGS else value)})
    if isinstance(value, str) and (
        _ERROR.search(value[:_HEAD]) or value.lstrip()[:9].lower().startswith(("<!doctyp", "<html"))
    ):
        return shown(value)
    return None


def _is_bad(state: Any) -> bool:
    if isinstance(state, bool):
        return False
    if isinstance(state, int):
        return 400 <= state < 600
    return isinstance(state, str) and state.lower() in {"error", "failed", "failure", "timeout", "timed_out"}


_SIGNS: list[tuple[str, Callable[[Any], bool]]] = [
    *((key, bool) for key in _FLAGS),
    *((key, _is_bad) for key in _STATES),
    *((key, lambda code: type(code) is int and code != 0) for key in _EXITS),
    *((key, lambda good: good is False) for key in _GOOD),
]
