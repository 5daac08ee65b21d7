"""Values on one line, as people read them. What is stored is data: no control character of it gets out raw."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import PurePath
from typing import Any
from uuid import UUID

from everstep.codec.encoding import Generic
from everstep.model import Redacted

# What moves a cursor, changes the order of what is read, cannot be seen, or is half a character.
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202f\u2060-\u206f\u3164\ufeff\uffa0"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
_SHOWN_AS_TEXT = (datetime, date, time, Decimal, UUID, PurePath)
_BRACKETS = {tuple: "()", set: "{}", frozenset: "{}"}


def safe(text: str) -> str:
    """The text with everything spelled out that a terminal would act on, or that nobody could see."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def brief(value: Any, width: int) -> str:
    """A value on one line, cut after `width` characters. Costs no more than what is shown of it."""
    found, size = [], 0
    for piece in _pieces(value, width):
        found.append(piece)
        size += len(piece)
        if size > width:
            break
    return cut("".join(found), width)


def cut(text: str, width: int) -> str:
    """The text, or its beginning and three dots."""
    return text if len(text) <= width else text[: max(0, width - 3)] + "..."


def whole(value: Any) -> str:
    """A value on one line, all of it."""
    return "".join(_pieces(value, None))


def _pieces(value: Any, width: int | None) -> Iterator[str]:
    """The text of a value, piece by piece, so that whoever has seen enough can stop."""
    if isinstance(value, Redacted):
        yield safe(str(value)[:width])
    elif isinstance(value, str | bytes | bytearray):
        yield repr(value if width is None else value[: width + 1])  # spells out what must not get out raw
    elif isinstance(value, dict):
        yield from _joined("{}", ((f"{whole(key)}: ", item) for key, item in value.items()), width)
    elif isinstance(value, Generic):
        yield from _instance(value, width)
    elif isinstance(value, list):
        yield from _joined("[]", (("", item) for item in value), width)
    elif isinstance(value, tuple | set | frozenset):
        kind = next(kind for kind in _BRACKETS if isinstance(value, kind))
        yield from _joined(_BRACKETS[kind], (("", item) for item in value), width)
    elif isinstance(value, _SHOWN_AS_TEXT):
        yield safe(str(value))
    else:
        yield safe(" ".join(repr(value).split()))


def _instance(value: Generic, width: int | None) -> Iterator[str]:
    short = safe(value.name.rpartition(":")[2].rpartition(".")[2])
    if value.kind == "enum" and "name" in value.fields:
        yield f"{short}.{safe(str(value.fields['name']))}"
    else:
        yield short
        yield from _joined("()", ((f"{safe(str(name))}=", item) for name, item in value.fields.items()), width)


def _joined(brackets: str, items: Iterator[tuple[str, Any]], width: int | None) -> Iterator[str]:
    yield brackets[0]
    between = ""
    for label, item in items:
        yield between + label
        yield from _pieces(item, width)
        between = ", "
    yield brackets[1]


def parts_of(value: Any) -> list[tuple[Any, Any]]:
    """What a value is made of, each with its key; nothing for a leaf."""
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, list | tuple):
        return list(enumerate(value))
    if isinstance(value, Generic) and value.kind != "enum":
        return list(value.fields.items())
    return []


def label(key: Any) -> str:
    """A key as the next part of a path: `.name`, `[3]`."""
    return f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{whole(key)}]"


def duration(milliseconds: float | None) -> str:
    """How long something took: `12 ms`, `1.2 s`, `3 min 4 s`, `2 h 5 min`, `3 d 4 h`."""
    if milliseconds is None:
        return "-"
    if milliseconds < 1:
        return "0 ms" if milliseconds <= 0 else f"{milliseconds:.1g} ms"
    if milliseconds < 999.5:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"


def count(number: int, what: str) -> str:
    """A number of things: `1 step`, `9,940 steps`, `2 entries`."""
    several = what[:-1] + "ies" if what.endswith("ry") else what + "s"
    return f"{number:,} {what if number == 1 else several}"
