"""What a stored value is, as JSON for people who review it. Made of the bytes alone: no value is built.

Part of the format of exported runs: the same bytes give the same text on every machine, with every version. What is
long is cut. Nothing is read back from here.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

import ormsgpack

from everstep.codec import extensions as ext
from everstep.errors import DamagedError

ROOM: Final = 2_000  # characters that one line has for values, about
_LONG: Final = 400  # characters of one text
_DEEP: Final = 8
_BYTES: Final = 32
_LARGE: Final = 1 << 20  # bytes of an encoding; what is larger is told by its size
_NAMES: Final = {
    1: "int", 2: "tuple", 3: "set", 4: "frozenset", 5: "pairs", 6: "bytearray", 7: "datetime", 8: "date", 9: "time",
    10: "timedelta", 11: "Decimal", 12: "UUID", 13: "complex", 14: "range", 15: "path", 16: "OrderedDict",
    17: "defaultdict", 18: "Counter", 19: "deque", 20: "ndarray", 21: "number", 22: "redacted", 23: "secret",
    24: "piece",
}  # fmt: skip
# What changes the order of what is read, cannot be seen, or is half a character; JSON itself spells out the rest.
_UNSEEN: Final = re.compile(
    "[\x7f-\x9f\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202f\u2060-\u206f\u3164\ufeff\uffa0"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)


def json_line(fields: dict[str, Any], indent: int | None = None) -> str:
    """One line of JSON, in which nothing hides from whoever looks at it; several with an indent."""
    text = json.dumps(fields, ensure_ascii=False, allow_nan=False, indent=indent)
    return _UNSEEN.sub(lambda found: json.dumps(found[0])[1:-1], text) + "\n"


def raw(data: bytes) -> Any:
    """An encoding taken apart: plain data, and slice(tag, bytes) for everything else. Raises DamagedError."""
    try:
        return ormsgpack.unpackb(data, ext_hook=slice)
    except ValueError as error:
        raise DamagedError(f"the bytes are not an encoded value ({error})") from None


class Readable:
    """Shows the values of one line, until there is no more room."""

    def __init__(self) -> None:
        self._room = ROOM

    def show(self, value: Any, depth: int = 0) -> Any:
        """A value that was taken apart, as JSON has it."""
        self._room -= 8
        match value:
            case str():
                return self._text(value)
            case bytes():
                return self._bytes(value)
            case float() if not math.isfinite(value):
                return str(value)
            case list() | dict() | slice():
                return self._parts(value, depth) if depth < _DEEP and self._room > 0 else "…"
        return value

    def _parts(self, value: Any, depth: int) -> Any:
        if isinstance(value, slice):
            return self._extension(value.start, value.stop, depth)
        return self._list(value, depth) if isinstance(value, list) else self._dict(value, depth)

    def _text(self, text: str) -> str:
        kept = text[: max(0, min(_LONG, self._room))]
        self._room -= len(kept)
        return text if len(kept) == len(text) else f"{kept}… {len(text):,} characters"

    def _bytes(self, data: bytes) -> dict[str, Any]:
        self._room -= 2 * min(len(data), _BYTES)
        cut = "" if len(data) <= _BYTES else f"… {len(data):,} bytes"
        return {"$bytes": data[:_BYTES].hex() + cut}

    def _list(self, items: list[Any], depth: int) -> list[Any]:
        shown: list[Any] = []
        for item in items:
            if self._room <= 0:
                shown.append(f"… {len(items) - len(shown):,} more")
                break
            shown.append(self.show(item, depth + 1))
        return shown

    def _dict(self, items: dict[str, Any], depth: int) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for number, (key, item) in enumerate(items.items()):
            if self._room <= 0:
                shown["…"] = f"{len(items) - number:,} more"
                break
            shown[self._text(key)] = self.show(item, depth + 1)
        return shown

    def _extension(self, tag: int, payload: bytes, depth: int) -> Any:
        content = raw(payload)
        if tag in ext.KINDS and type(content) is list and len(content) > 2:  # a class: its name, version and fields
            name = content[0] if type(content[0]) is str else "?"
            return {f"${self._text(name)}": self.show(content[2], depth + 1)}
        if tag == ext.REDACTED and type(content) is str:
            return {"$redacted": self._text(content)}
        return {f"${_NAMES.get(tag, tag)}": self.show(content, depth + 1)}


def parts(data: bytes) -> list[Any] | None:
    """An encoded list, taken apart; None for a large one, which nobody reads line by line. Raises DamagedError."""
    if len(data) > _LARGE:
        return None
    found = raw(data)
    if type(found) is not list:
        raise DamagedError("what a row carries is not a list")
    return found
