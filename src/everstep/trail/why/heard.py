"""What a captured call of a program said, without how it travelled; and which calls ask for the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from everstep.codec.record import StepRecord
from everstep.trail.parsing import parsed
from everstep.trail.why.values import key_of, words_of

if TYPE_CHECKING:
    from everstep.trail.why.calls import Call

_BY_HTTP = frozenset({"http", "model"})
_MCP = frozenset({"mcp", "tool"})
_ABOUT = frozenset({  # parts of a model's answer that are about it, and not what it said
    "id", "object", "created", "created_at", "model", "modelVersion", "responseId", "usage", "usageMetadata",
    "system_fingerprint", "service_tier",
})  # fmt: skip
_REFUSED = 400  # the status from which on an answer is none
_SEGMENTS = 12  # of a path that are looked at


def said(row: StepRecord) -> Any:
    """What came of a step; of a captured call, what its answer says."""
    told = row.output
    if not isinstance(told, dict):
        return told
    if row.node_type in _BY_HTTP and type(told.get("status")) is int:
        return _answer(told, is_model=row.node_type == "model")
    if row.node_type == "process" and "exit" in told:
        return _printed(told)
    if row.node_type in _MCP and isinstance(told.get("result"), dict):
        return _result(told["result"])
    return told


def _answer(told: dict[str, Any], *, is_model: bool) -> Any:
    body = parsed(told.get("body"))
    if is_model:
        body = _within(body)
        if isinstance(body, dict):
            body = {name: part for name, part in body.items() if name not in _ABOUT} or body
    return body if 200 <= told["status"] < 300 else {"status": told["status"], "body": body}


def _printed(told: dict[str, Any]) -> Any:
    found = {name: parsed(told[name]) for name in ("stdout", "stderr", "talk") if told.get(name)}
    if told["exit"] == 0 and not found.keys() - {"stdout"}:
        return found.get("stdout", "")
    return {"exit": told["exit"], **found}


def _result(told: dict[str, Any]) -> Any:
    """The answer of a tool: in one piece where it is one text, which may be JSON."""
    content = told.get("content")
    texts = [part["text"] for part in content if _is_text(part)] if isinstance(content, list) else []
    if not texts or len(texts) != len(content or ()):
        return told
    given = parsed(texts[0]) if len(texts) == 1 else [parsed(text) for text in texts]
    return {"error": given} if told.get("isError") else given


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(part.get("text"), str)


def _within(value: Any) -> Any:
    """A model's answer with the JSON in its texts read, too: what it was asked to say, and what it gives to tools."""
    if isinstance(value, dict):
        return {name: _within(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_within(part) for part in value]
    return parsed(value)


# What was asked.


def asked(row: StepRecord, inputs: Any) -> tuple[Any, set[str]]:
    """What a step took, and by which words of an address it is known besides."""
    parts = _address(inputs) if row.node_type in _BY_HTTP else None
    if parts is None:
        return inputs, set()
    pieces = chain(map(unquote, parts.path.split("/")), (value for _, value in parse_qsl(parts.query)))
    # The method is in the step's name.
    return {name: part for name, part in inputs.items() if name != "method"}, {
        word for piece in pieces for word in words_of(piece)
    }


def alike(calls: Iterable[Call]) -> list[list[Call]]:
    """The calls that ask for the same: those of one name, and of HTTP calls those whose paths are of one form."""
    by_name: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        by_name[call.name].append(call)
    found: list[list[Call]] = []
    for some in by_name.values():
        if some[0].node.record.node_type == "http":
            found += _by_form([(call, _path(call)) for call in some], 0)
        else:
            found.append(some)
    return found


def settled(calls: Sequence[Call]) -> list[Call]:
    """Without the answers that were refused where the same was asked again: what came of it then is what counts."""
    later: set[str] = set()
    kept: list[Call] = []
    for call in reversed(calls):
        if call.node.record.node_type in _BY_HTTP:
            asking = f"{call.name} {key_of(call.inputs)}"
            if asking in later and _is_refused(call.output):
                continue
            later.add(asking)
        kept.append(call)
    return kept[::-1]


def _is_refused(given: Any) -> bool:
    return isinstance(given, dict) and given.keys() == {"status", "body"} and given["status"] >= _REFUSED


def _path(call: Call) -> list[str]:
    parts = _address(call.inputs)
    return [] if parts is None else parts.path.strip("/").split("/")[:_SEGMENTS]


def _address(inputs: Any) -> SplitResult | None:
    try:
        return urlsplit(inputs["url"]) if isinstance(inputs, dict) and isinstance(inputs.get("url"), str) else None
    except ValueError:
        return None  # it was recorded by hand


def _by_form(calls: list[tuple[Call, list[str]]], depth: int) -> Iterator[list[Call]]:
    """Calls by their paths. Where most have a segment of their own, it is the name of a thing, and any will do."""
    ended = [call for call, path in calls if len(path) == depth]
    if ended:
        yield ended
    further: dict[str, list[tuple[Call, list[str]]]] = defaultdict(list)
    for call, path in calls:
        if len(path) > depth:
            further[path[depth]].append((call, path))
    count = len(calls) - len(ended)
    if 2 * len(further) > count > 0:
        yield from _by_form([each for each in calls if len(each[1]) > depth], depth + 1)
    else:
        for some in further.values():
            yield from _by_form(some, depth + 1)
