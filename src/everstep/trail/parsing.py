"""Texts that hold data: what an answer says, read from its body, or put together from its events."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from everstep.codec.shown import label
from everstep.trail.schemas import nests

_LONG = 2_000_000  # characters of a text that is still parsed
_DEEP = 60  # values inside values: JSON of a thousand brackets is nothing that people read


def parsed(text: Any) -> Any:
    """What a text holds where it is JSON, or events of it; else the text."""
    if not isinstance(text, str) or len(text) > _LONG:
        return text
    begin = text.lstrip()[:6]
    found: Any = text
    try:
        if begin.startswith(("{", "[")):
            found = json.loads(text)
        elif begin.startswith(("data:", "event:")):
            found = _joined(text)
    except (ValueError, RecursionError):
        pass  # then it is a text, and what is wrong with it will be looked at
    return found if nests(found) <= _DEEP else text


def _joined(text: str) -> Any:
    """Events as one value: what is the same in all of them once, and the pieces of a text together."""
    found: dict[str, list[Any]] = defaultdict(list)
    for line in text.splitlines():
        data = line.removeprefix("data:").strip()
        if line.startswith("data:") and data.startswith("{"):
            for path, part in _leaves(json.loads(data)):
                found[path].append(part)
    made: dict[str, Any] = {}
    for path, parts in found.items():
        name = path.rpartition(".")[2]
        made[path if name in made else name] = _one(parts)
    return made or text


def _leaves(value: Any) -> Iterator[tuple[str, Any]]:
    waiting = [("", value)]
    while waiting:
        path, part = waiting.pop()
        if isinstance(part, dict):
            waiting += [(path + label(key), inner) for key, inner in part.items()]
        elif isinstance(part, list):
            waiting += [(path + label(at), inner) for at, inner in enumerate(part)]
        elif part is not None:
            yield path.removeprefix("."), part


def _one(parts: list[Any]) -> Any:
    if all(isinstance(part, str) for part in parts) and len(set(parts)) > 1:
        return parsed("".join(parts))
    return parts[-1]
