"""The inputs of a run: which there are, and what its forks changed of them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from everstep.codec.record import StepRecord
from everstep.codec.values import view
from everstep.errors import UnknownInputError
from everstep.model import Kind
from everstep.store.base import RunRow
from everstep.trail.compare import MISSING, Change
from everstep.trail.outline import Outline
from everstep.trail.reading import Reader
from everstep.trail.versions import CODE, MAP, NODES


def are_parameters(about: Mapping[str, Any]) -> bool:
    """Whether the inputs of a run, by what was said of it when it began, are all parameters of a function."""
    return CODE in about and NODES not in about and MAP not in about


def check(reader: Reader, source: RunRow, changed: Iterable[str]) -> None:
    """Raise UnknownInputError if a fork is to change what is no input of the run, as far as its record tells.

    All parameters of a function are on record, with their defaults. Of a graph they are not, and it takes what its
    nodes give as well: that is seen when it goes on. What was recorded by hand means what its code makes of it.
    """
    if source.base > 0:
        return
    start = StepRecord(source.id, reader.entries(source, 0, 0)[0], reader.fetch, view)
    about = start.metadata if isinstance(start.metadata, dict) else {}  # a stranger's may be anything
    if MAP in about:
        out = "Nothing was made. Its items are runs with inputs of their own: fork one of them."
        refuse_unknown(source.id, f"map {source.id!r}", changed, (), out)
    elif are_parameters(about) and not start.erased and isinstance(start.inputs, dict):
        out = "Nothing was made. If it is new in the code, give it a default there."
        refuse_unknown(source.id, f"run {source.id!r}", changed, tuple(start.inputs), out)


def refuse_unknown(run_id: str, whose: str, changed: Iterable[str], known: tuple[str, ...], out: str) -> None:
    """Raise UnknownInputError if one is not known, with the one that may have been meant, and the way out."""
    for name in changed:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, 1)
            raise UnknownInputError(run_id, whose, name, known, near[0] if near else None, out)


def run_with(tree: Outline) -> tuple[Any, list[tuple[int, Change]]]:
    """What the code of a run is given now, and what forks changed of what it was given at first, each with its row.

    Raises ErasedError if the first inputs were. A change that was erased is not known.
    """
    inputs = None if tree.start is None else tree.start.inputs
    found: list[tuple[int, Change]] = []
    if not isinstance(inputs, dict):
        return inputs, found
    for row in (node.record for _, node in tree.walk() if node.kind is Kind.FORK):
        changed = {} if row.erased or not isinstance(row.inputs, dict) else row.inputs
        found += [(row.seq, Change((name,), inputs.get(name, MISSING), value)) for name, value in changed.items()]
        inputs = inputs | changed
    return inputs, found
