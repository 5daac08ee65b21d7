"""Long lists in pieces, so that a keyframe costs what changed since the last one.

A piece is content-addressed and holds either items (level 0) or the references of other pieces (level 1 and up), so
that a list of any length leaves few references. `fetch` gives the content of a piece or blob by its id, already checked
against the id (`blobs.opened`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, NamedTuple

from ormsgpack import Fragment

from everstep.codec import blobs, frame
from everstep.codec.encoding import encode_around, pack
from everstep.codec.values import Fetch, view
from everstep.errors import DamagedError

PIECE_ITEMS = 128
PIECE_BYTES = 64 * 1024
# More than any memory holds, at PIECE_ITEMS per level; a file that claims more was not written here.
MAX_LEVEL = 6


class Ref(NamedTuple):
    """A closed piece: its id, how many list items are under it, its level, and whether its items hold blobs."""

    id: bytes
    size: int
    level: int
    deep: bool


class Segments:
    """A long list: references to closed pieces between open runs of items. The last part is always open."""

    __slots__ = ("_fetch", "_made", "_stored", "parts")

    def __init__(self, parts: list[Any], fetch: Fetch, made: dict[bytes, bytes]) -> None:
        self.parts = parts
        self._fetch = fetch
        self._made = made
        self._stored: set[bytes] = set()  # pieces that were opened: closing them unchanged makes nothing new

    def __len__(self) -> int:
        return sum(map(_count, self.parts))

    def __getitem__(self, index: int) -> Any:
        run, _, offset = self._open(index)
        run[offset] = looked_into(run[offset])
        return run[offset]

    def __setitem__(self, at: slice, items: list[Any]) -> None:
        run, number, offset = self._open(at.start)
        following = number + 1
        left = max(0, at.stop - at.start - (len(run) - offset))
        run[offset : offset + at.stop - at.start] = items
        while left:
            part = self.parts[following]
            if _count(part) <= left:  # goes as a whole, so it need not be read
                left -= _count(part)
                del self.parts[following]
            elif isinstance(part, Ref):
                self.parts[following : following + 1] = self._loaded(part)
            else:
                del part[:left]
                left = 0

    def extend(self, items: list[Any]) -> None:
        """Add items at the end. Reads nothing."""
        self.parts[-1].extend(items)

    def close(self) -> list[Any]:
        """Cut all but the end into pieces, and references into pieces of references. Gives the references and the end.

        The end stays open, so that the next items join it.
        """
        closed, end = self._settle(_runs(self.parts, 0), 0)
        ends: list[Any] = []
        level = 0
        while closed:
            level += 1
            closed, open_refs = self._settle(_runs(closed, level), level)
            ends = [*open_refs, *ends]
        self.parts = [*ends, end]
        # What is not in the list now may be dropped from the store; if it comes back, it must be handed out again.
        self._stored.clear()
        return self.parts

    def _open(self, index: int) -> tuple[list[Any], int, int]:
        """The open run that holds the item, the run's place and the item's in it. The index `len` is in the end."""
        number = 0
        while True:
            part = self.parts[number]
            if index >= _count(part) and number < len(self.parts) - 1:
                index -= _count(part)
                number += 1
            elif isinstance(part, Ref):
                self.parts[number : number + 1] = self._loaded(part)
            else:
                return part, number, index

    def _loaded(self, ref: Ref) -> list[Any]:
        """The parts that take the place of a closed one: the references in it, or its items as one open run."""
        content = content_of(ref, self._fetch)
        self._stored.add(ref.id)
        return content if ref.level else [content]

    def _settle(self, runs: list[Any], level: int) -> tuple[list[Ref], list[Any]]:
        """Close the runs at a level, except for an end that is not worth a piece yet."""
        *runs, end = runs
        closed: list[Ref] = []
        for run in runs:
            if isinstance(run, Ref):
                closed.append(run)
            elif run:
                # Small pieces join the one before, or deletions would leave ever more of them.
                whole = [*self._last_of(closed, level), *run] if closed and is_small(run) else run
                closed += [self._piece(part, level) for part in _halves(whole)]
        start = 0
        while not _fits(end[start : start + PIECE_ITEMS + 1]):
            stop = start + _full(end[start : start + PIECE_ITEMS])
            closed.append(self._piece(end[start:stop], level))
            start = stop
        end = end[start:]
        if level == 0 and not is_small(end):
            # Else it would be written with this keyframe, and once more when it is closed.
            closed.append(self._piece(end, level))
            end = []
        return closed, end

    def _last_of(self, closed: list[Ref], level: int) -> list[Any]:
        """Take the last piece of this level away, and give what it held."""
        ref = closed.pop()
        while ref.level > level:
            *before, ref = self._loaded(ref)
            closed += before
        self._stored.add(ref.id)
        return content_of(ref, self._fetch)

    def _piece(self, run: list[Any], level: int) -> Ref:
        data = encode_around(_plain(run))
        framed = frame.pack(data)
        name = blobs.blob_id(framed)
        if name not in self._stored:
            self._made[name] = framed
        if level:
            return Ref(name, sum(ref.size for ref in run), level, deep=False)
        return Ref(name, len(run), level, bool(blobs.held(data)))


def looked_into(value: Any) -> Any:
    """What a Fragment stands for; anything else as it is."""
    return view(pack(value)) if type(value) is Fragment else value


def content_of(ref: Ref, fetch: Fetch) -> list[Any]:
    """What a piece holds: items, or references one level down."""
    content = view(fetch(ref.id))
    if not ref.level:
        return items_of(ref, content)
    children = read_refs(content)
    if any(child.level != ref.level - 1 for child in children) or sum(child.size for child in children) != ref.size:
        raise DamagedError("a piece of a list does not hold what its reference says")
    return children


def items_of(ref: Ref, content: Any) -> list[Any]:
    """The items that a piece holds."""
    if type(content) is not list or len(content) != ref.size:
        raise DamagedError("a piece of a list does not hold what its reference says")
    return content


def read_refs(raw: Any) -> list[Ref]:
    """References as they are stored. Raises DamagedError if they are none."""
    if type(raw) is not list or not all(type(item) is list and len(item) == 4 for item in raw):
        raise DamagedError("a reference to a piece of a list is malformed")
    for name, count, level, deep in raw:
        sound = type(name) is bytes and type(count) is int and type(level) is int and type(deep) is bool
        if not sound or count < 1 or not 0 <= level <= MAX_LEVEL:
            raise DamagedError("a reference to a piece of a list is malformed")
    return [Ref(*item) for item in raw]


def _count(part: Ref | list[Any]) -> int:
    return part.size if isinstance(part, Ref) else len(part)


def _runs(parts: list[Any], level: int) -> list[Any]:
    """The parts with everything below the level gathered into lists. The last one is a list, though it may be empty."""
    runs: list[Any] = []
    for part in parts:
        if isinstance(part, Ref) and part.level >= level:
            runs.append(part)
            continue
        if not runs or type(runs[-1]) is not list:
            runs.append([])
        runs[-1] += [part] if isinstance(part, Ref) else part
    if not runs or type(runs[-1]) is not list:
        runs.append([])
    return runs


def _plain(run: list[Any]) -> list[Any]:
    return [list(item) if isinstance(item, Ref) else item for item in run]


def _fits(run: list[Any]) -> bool:
    return len(run) <= PIECE_ITEMS and len(encode_around(_plain(run))) <= PIECE_BYTES


def is_small(run: list[Any]) -> bool:
    """Whether items do not fill a third of a piece."""
    return len(run) * 3 < PIECE_ITEMS and len(encode_around(_plain(run))) * 3 < PIECE_BYTES


def _full(run: list[Any]) -> int:
    """How many first items make a full piece: one at least, however large."""
    if _fits(run):
        return len(run)
    sizes = accumulate(len(encode_around(item)) for item in _plain(run))
    return max(1, bisect_right(list(sizes), PIECE_BYTES))


def _halves(run: list[Any]) -> Iterator[list[Any]]:
    """A run in pieces that are at least half full, so that an edit in the middle leaves no crumbs."""
    if len(run) == 1 or _fits(run):
        yield run
        return
    middle = len(run) // 2
    yield from _halves(run[:middle])
    yield from _halves(run[middle:])
