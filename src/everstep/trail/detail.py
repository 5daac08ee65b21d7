"""What can be said of a step, and the operations that follow from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypedDict

from everstep.codec.delta import APPEND, DELETE, SET, SPLICE
from everstep.errors import StateError, UnstorableError
from everstep.model import Kind, Status, StepError, to_micros
from everstep.policy.redaction import Gate

Path = str | tuple[Any, ...]

_LONGEST = 1e12  # milliseconds: thirty years
_LATEST = 250_000_000_000_000_000  # microseconds since 1970: the year 9892, which any duration may follow
_DEEPEST = 64  # parts of a path: far below what can be encoded


class About(TypedDict, total=False):
    """Everything that can be said of a step beside its name and how it changes the state."""

    inputs: Any
    output: Any
    status: Status | str
    error: BaseException | StepError | None
    started: datetime | None
    duration_ms: float
    id: int | None
    parent: int | None
    lane: str | None
    index: int | None
    attempt: int
    external: bool
    cached: bool
    partial: bool
    input_digest: bytes | None
    superstep: int | None
    decision: Any
    usage: Mapping[str, Any] | None
    child_run_id: str | None
    input_versions: Mapping[str, int] | None
    fingerprint: str | None
    node_type: str | None
    attempt_series_id: str | None
    metadata: Mapping[str, Any] | None
    pause: Any


class Detail(About, total=False):
    """All of that, and the changes. A path is a name at the top of the state, or a tuple that begins with one."""

    output_to: str | None
    append_to: str | None
    set: Mapping[Path, Any] | None
    append: Mapping[Path, list[Any]] | None
    delete: Iterable[Path]
    splice: Mapping[Path, tuple[int, int, list[Any]]] | None
    kind: Kind


def operations(
    output: Any,
    output_to: str | None,
    append_to: str | None,
    values: Mapping[Path, Any] | None,
    items: Mapping[Path, list[Any]] | None,
    gone: Iterable[Path],
    cuts: Mapping[Path, tuple[int, int, list[Any]]] | None,
) -> list[Any]:
    """The operations that a step asks for, in the order of the arguments. One without a value carries the output."""
    found: list[Any] = []
    if output_to is not None:
        found.append([SET, _stored(output_to)])
    if append_to is not None:
        # An output that goes to two places is written twice: shared, a change to one would be a change to both.
        found.append([APPEND, _stored(append_to)] if output_to is None else [APPEND, _stored(append_to), [output]])
    # Loops, not comprehensions: each would cost a frame, and this runs for every step.
    if values:
        for path in values:
            found.append([SET, path if type(path) is str else _stored(path), values[path]])  # noqa: PERF401 - as above
    if items:
        for path in items:
            found.append([APPEND, path if type(path) is str else _stored(path), items[path]])  # noqa: PERF401 - as above
    if gone:
        found += [[DELETE, _stored(path)] for path in gone]
    if cuts:
        found += [[SPLICE, _stored(path), *_cut(path, cut)] for path, cut in cuts.items()]
    return found


def _stored(path: Any) -> str | list[Any]:
    if type(path) is str:
        return path
    if type(path) is not tuple or not path or type(path[0]) is not str:
        raise StateError(f"{path!r:.80}", "it is no path", "A path is a name, or a tuple that begins with one.")
    if len(path) > _DEEPEST:
        raise StateError(f"{path[0]!r:.80}", f"the path has {len(path)} parts", f"Nest less deeply than {_DEEPEST}.")
    return list(path)


def _cut(path: Any, cut: Any) -> tuple[int, int, list[Any]]:
    if type(cut) is not tuple or len(cut) != 3:
        raise StateError(f"{path!r:.80}", "it is no splice", "A splice is (index, how many go, the list that comes).")
    return cut


def text(gate: Gate, what: str, value: Any) -> str:
    """Text as it is stored. Raises UnstorableError for what is no text, or half a character."""
    if type(value) is not str:
        if not isinstance(value, str):
            raise UnstorableError(what, f"it is of type {type(value).__name__}", "Give text.")
        value = str.__str__(value)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UnstorableError(what, "it holds half a character", "Repair the text, or replace it.") from None
    if "\0" in value:
        raise UnstorableError(what, "it holds a NUL character", "Take it out.")
    return gate.text(value)


def micros(milliseconds: Any) -> int:
    """A duration as it is stored."""
    if not isinstance(milliseconds, int | float) or not 0 <= milliseconds < _LONGEST:
        raise UnstorableError("duration_ms", f"it is {milliseconds!r:.40}", "Give milliseconds, from 0 up.")
    return int(milliseconds * 1000)


def moment(started: Any) -> int:
    """A time as it is stored."""
    if not isinstance(started, datetime):
        raise UnstorableError("started", f"it is of type {type(started).__name__}", "Give a datetime.")
    when = to_micros(started)
    if when > _LATEST:
        raise UnstorableError("started", "it is too far in the future", "Give the time at which the step began.")
    return when


def number_of(what: str, value: Any) -> int:
    """A whole number as it is stored."""
    if type(value) is not int or not -(1 << 63) <= value < 1 << 64:
        raise UnstorableError(what, f"it is {value!r:.40}", "Give a whole number of 64 bits.")
    return value
