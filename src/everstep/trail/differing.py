"""What there is to compare in a step, and what differs between two.

Where and when a step ran is no part of it: not its seq, its id, its lane, its run, its times. Nor is how the answer of
a captured call travelled: not its headers, not the id of a process. Of a model it is what was said that counts, in one
piece or in many, and not the ids that come with it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from everstep.codec import delta
from everstep.codec.record import DECISION, METADATA, StepRecord, places
from everstep.codec.values import encode
from everstep.errors import ErasedError
from everstep.journal.track import AT, CHAIN, CUT, STEERS, STEPS
from everstep.model import Kind
from everstep.trail import providers
from everstep.trail.compare import Change, changes
from everstep.trail.forking import REPLACED
from everstep.trail.outline import Node
from everstep.trail.parsing import parsed
from everstep.trail.wording import IN_A_OR_B, shown

# In the metadata: the journal's notes, and what is told elsewhere.
_OURS = STEERS | {AT, CHAIN, CUT, REPLACED, STEPS, "reason"}
_TIMES = ("_ms", "_s", "_seconds", "latency", "duration")  # ends of names in the usage: time is no difference
_OUTPUT = "(the output)"
_BY_HTTP = frozenset({"headers", "jar", "sizes", "offsets"})
_MODEL = "model"
_GIVEN_IDS = frozenset({"tool_call_id", "call_id", "tool_use_id", "previous_response_id"})  # by answers to what follows
_HAVE_IDS = frozenset({"type", "role", "function"})  # one of these is in the parts of a message that have such an id
_CARRIED = {  # by the type of a captured call: what only tells how its answer travelled, and is another each time
    "http": _BY_HTTP, _MODEL: _BY_HTTP, "process": frozenset({"pid", "waits", "reads"}),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Difference:
    """A part of a step that differs: which, and how."""

    part: str  # inputs, output, state, decision, error, status, superstep, usage, attempts, metadata, question, ...
    changes: tuple[Change, ...]

    def lines(self, width: int | None = None) -> list[str]:
        """One line for each change."""
        by_verb = self.part == "state"  # there a path begins with what was done, and where: `set plan`
        return [
            shown(Change(change.path[1:], change.old, change.new), str(change.path[0]), width, IN_A_OR_B)
            if by_verb and change.path
            else shown(change, self.part, width, IN_A_OR_B)
            for change in self.changes
        ]

    def __str__(self) -> str:
        return "\n".join(self.lines())


def light(node: Node) -> dict[str, Any]:
    """What a step's rows say without their payloads."""
    return {
        "name": node.name, "kind": str(node.kind), "status": f"{node.status}{', superseded' * node.superseded}",
        "attempts": node.attempts, "partial": node.record.partial, **_rare(node.record),
    }  # fmt: skip


def _rare(row: StepRecord) -> dict[str, Any]:
    """What most rows say nothing of."""
    found: dict[str, Any] = {}
    decision, usage, _, versions, _, _, _, metadata = places(row, DECISION, METADATA)
    if metadata and row.kind is not Kind.START:
        said = {name: value for name, value in metadata.items() if name not in _OURS}
        found |= {"metadata": said} if said else {}
    if decision is not None:
        found["decision"] = {"target": decision, "reason": row.metadata.get("reason")}
    if usage:
        found["usage"] = _lasting(usage)
    if versions is not None:
        found["takes"] = dict.fromkeys(name for name in sorted(versions) if name[:1] != "_")  # no decisions
    return found


def heavy(node: Node) -> dict[str, Any]:
    """What its payloads say. What was erased is not known, and said to be so."""
    row, begun = node.record, node.begun
    try:
        inputs, error = begun.inputs if row.inputs is None else row.inputs, node.error
        is_told = row.input_versions is not None or (row.kind is Kind.SAVE and row.ops)  # by its versions, or changes
        if inputs is None and row.input_digest is not None and not is_told:
            inputs = f"(known by {row.input_digest.hex()})"
        return {
            "inputs": _asked(inputs) if row.node_type == _MODEL else inputs,
            "output": _told(row), "state": _operations(row),
            "error": None if error is None else str(error),
            "question": begun.pause,
        }  # fmt: skip
    except ErasedError:
        return {"erased": row.hash}


def is_carried(node: Node) -> bool:
    """Whether a step may be that of a captured call: two that say the same are stored in other bytes."""
    return node.record.node_type in _CARRIED


def _told(row: StepRecord) -> Any:
    """What a step gave; of a captured call, without what tells only of its transport."""
    carried = _CARRIED.get(row.node_type or "")
    if carried is None or not isinstance(row.output, dict) or not row.output.keys() & {"status", "exit"}:
        return row.output
    told = {name: value for name, value in row.output.items() if name not in carried}
    if carried is _BY_HTTP and "body" in told:
        words = providers.said(told) if row.node_type == _MODEL else None
        body = told.pop("body")
        told |= {"body": parsed(body)} if words is None else {"said": words}
    return told


def _asked(value: Any) -> Any:
    """What a model is asked, without the ids that it gave to its answers and calls of tools: new ones each time."""
    if isinstance(value, list):
        return [_asked(part) for part in value]
    if not isinstance(value, dict):
        return value
    left_out = {*_GIVEN_IDS, "id"} if _HAVE_IDS & value.keys() else _GIVEN_IDS
    return {name: _asked(part) for name, part in value.items() if name not in left_out}


def said(node: Node) -> tuple[Hashable, ...]:
    """What a step's rows say without their payloads, as something to look up."""
    row, about = node.record, _rare(node.record)
    digest = row.input_digest if "takes" not in about else None  # else it tells which versions, and not of what
    # Which words these are, and not the words: looking one up by its hash takes as long as all of the rest.
    return (
        id(node.kind), id(node.status), node.name, node.superseded, node.attempts, row.partial, digest,
        encode(about) if about else b"",
    )  # fmt: skip


def differences(a: Node, b: Node, *, alike: bool = False) -> tuple[Difference, ...]:
    """How two steps differ, as seen from `a`. If they are alike, only in their payloads."""
    one, other = heavy(a), heavy(b)
    if not alike:
        one, other = light(a) | one, light(b) | other
        if a.status is not b.status:  # one did not get as far as to change the state
            one["state"] = other["state"] = None
    found: list[Difference] = []
    for part in one if one.keys() == other.keys() else one | other:
        differ = changes(one.get(part), other.get(part))
        if differ:
            found.append(Difference(part, tuple(differ)))
    return tuple(found)


def _lasting(used: dict[str, Any]) -> dict[str, Any]:
    """What a step used, but for time."""
    times = _times(*used)
    return {name: value for name, value in used.items() if name not in times} if times else used


@lru_cache(1_000)
def _times(*names: str) -> frozenset[str]:
    return frozenset(name for name in names if str(name).endswith(_TIMES))


def _operations(row: StepRecord) -> dict[str, Any] | None:
    """How a step changed the state, by what it did and where. What went there as its output is told as that."""
    output, found = row.output, dict[str, Any]()
    for op in row.ops:
        code, path, *rest = op
        where = path if type(path) is str else delta.path_text(path).removeprefix("state.")
        verb = f"{delta.VERBS.get(code, code)} {where}"
        while verb in found:
            verb += "'"
        found[verb] = _OUTPUT if _is_output(rest, output) else rest[0] if len(rest) == 1 else rest
    return found or None


def _is_output(rest: list[Any], output: Any) -> bool:
    if len(rest) != 1 or output is None:
        return False
    return rest[0] is output or (type(rest[0]) is list and len(rest[0]) == 1 and rest[0][0] is output)


def tokens_of(used: Mapping[str, Any]) -> int:
    """How many tokens a usage tells of."""
    total = used.get("total_tokens")
    if type(total) is int:
        return total
    names = ("input_tokens", "output_tokens", "prompt_tokens", "completion_tokens")
    return sum([used[name] for name in names if type(used.get(name)) is int])


def cost_of(used: Mapping[str, Any]) -> float | None:
    """What a usage says it cost; None if it does not."""
    cost = used.get("cost")
    return float(cost) if isinstance(cost, int | float) else None
