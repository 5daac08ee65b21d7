"""The writer's state, cut so that a keyframe costs what changed since the last one.

A keyframe is `[FORMAT, rest, lists]`: the state with every long list cut down to its open end, and for each long list
its path and the references to its closed pieces. A piece is content-addressed and holds either items (level 0) or the
references of other pieces (level 1 and up), so that a list of any length leaves few references in the keyframe.
Lists are cut wherever dicts alone lead to them; a list inside an item of a list stays inside that item.

`fetch` gives the content of a piece or blob by its id, already checked against the id (`blobs.opened`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator
from itertools import accumulate
from typing import Any, NamedTuple

from everstep.codec import blobs, delta, frame
from everstep.codec.values import Fetch, encode, view
from everstep.errors import DamagedError, NewerFormatError

Decode = Callable[[bytes, Fetch], Any]

FORMAT = 1
PIECE_ITEMS = 128
PIECE_BYTES = 64 * 1024
# More than any memory holds, at PIECE_ITEMS per level; a file that claims more was not written here.
MAX_LEVEL = 6
# References can name one piece many times, so a small file can claim a huge state. A piece counts as a page at least.
MAX_BYTES = 1 << 30
PAGE = 1 << 12


class Frozen(NamedTuple):
    """A keyframe's encoding, and the new pieces, framed and by id, that must be stored with it."""

    data: bytes
    blobs: dict[bytes, bytes]


class Ref(NamedTuple):
    """A closed piece: its id, how many list items are under it, its level, and whether its items hold blobs."""

    id: bytes
    size: int
    level: int
    deep: bool


class StateTree:
    """A state that takes operations and gives keyframes. Closed pieces of long lists are held as references only.

    It works on views: class instances stay `Generic`, large leaves stay `BlobRef`. It is not safe to share between
    threads. What `freeze` handed out must be stored before the next operation; if that fails, or if `apply` raises,
    throw the tree away and load the last keyframe again.
    """

    __slots__ = ("_fetch", "_made", "_state")

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._state: dict[str, Any] = {}
        self._made: dict[bytes, bytes] = {}

    @classmethod
    def load(cls, data: bytes, fetch: Fetch) -> StateTree:
        """The tree that gave this keyframe. Fetches nothing yet."""
        tree = cls(fetch)
        tree._state, lists = _parts(view(data))
        for path, refs in lists:
            holder, key = _place(tree._state, path)
            holder[key] = Segments([*refs, holder[key]], fetch, tree._made)
        return tree

    def apply(self, ops: Iterable[delta.Op]) -> None:
        """Fold operations in, as `delta.apply` does. Fetches only the pieces that an index leads into."""
        delta.apply(self._state, ops, lists=_LISTS)

    def lists(self) -> dict[str, bool]:
        """Which top-level names hold a list."""
        return {key: type(value) in _LISTS for key, value in self._state.items()}

    def freeze(self) -> Frozen:
        """A keyframe of the state as it is, with the pieces made since the last one. The tree can go on."""
        lists: list[Any] = []
        data = encode([FORMAT, self._rest(self._state, [], lists), lists])
        # Only now: had anything above failed, the pieces made so far would still be waiting for the next keyframe.
        frozen = Frozen(data, dict(self._made))
        self._made.clear()
        return frozen

    def _rest(self, node: dict[Any, Any], path: list[Any], lists: list[Any]) -> dict[Any, Any]:
        """The dict with its long lists cut down to their open ends; `lists` takes their paths and references."""
        changed: dict[Any, Any] = {}
        for key, value in node.items():
            if type(key) not in delta.PATH_KEYS:
                continue  # no path leads through such a key
            if type(value) is dict:
                rest = self._rest(value, [*path, key], lists)
                if rest is not value:
                    changed[key] = rest
            elif type(value) is Segments or (type(value) is list and not _is_small(value)):
                long = value if type(value) is Segments else Segments([value], self._fetch, self._made)
                node[key] = long
                *found, changed[key] = long.close()
                if found:
                    lists.append([[*path, key], [list(ref) for ref in found]])
        return {**node, **changed} if changed else node


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
        content = _content(ref, self._fetch)
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
                whole = [*self._last_of(closed, level), *run] if closed and _is_small(run) else run
                closed += [self._piece(part, level) for part in _halves(whole)]
        start = 0
        while not _fits(end[start : start + PIECE_ITEMS + 1]):
            stop = start + _full(end[start : start + PIECE_ITEMS])
            closed.append(self._piece(end[start:stop], level))
            start = stop
        end = end[start:]
        if level == 0 and not _is_small(end):
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
        return _content(ref, self._fetch)

    def _piece(self, run: list[Any], level: int) -> Ref:
        data = encode(_plain(run))
        framed = frame.pack(data)
        name = blobs.blob_id(framed)
        if name not in self._stored:
            self._made[name] = framed
        if level:
            return Ref(name, sum(ref.size for ref in run), level, deep=False)
        return Ref(name, len(run), level, bool(blobs.held(data)))


_LISTS: frozenset[type] = frozenset({list, Segments})


def thaw(data: bytes, fetch: Fetch, *, decode: Decode) -> dict[str, Any]:
    """The whole state that a keyframe stands for. `decode` is `values.decode`, or `values.view` to need no classes."""
    fetch = _bounded(fetch)
    state, lists = _parts(decode(data, fetch))
    for path, found in lists:
        holder, key = _place(state, path)
        leaves = (leaf for ref in found for leaf in _leaves(ref, fetch))
        items = [item for leaf in leaves for item in _items(leaf, decode(fetch(leaf.id), fetch))]
        holder[key] = items + holder[key]
    return state


def refs(data: bytes, fetch: Fetch, known: Container[bytes] = ()) -> list[bytes]:
    """The ids of all pieces and blobs that a keyframe needs. Fetches pieces that hold references or blobs only.

    Pieces that are `known` are left out, with all that they refer to.
    """
    needed = dict.fromkeys(blobs.held(data))
    _, lists = _parts(view(data))
    waiting = [ref for _, found in lists for ref in reversed(found)]
    while waiting:
        ref = waiting.pop()
        if ref.id in needed or ref.id in known:
            continue
        needed[ref.id] = None
        if ref.level:
            waiting += reversed(_content(ref, fetch))
        elif ref.deep:
            needed.update(dict.fromkeys(blobs.held(fetch(ref.id))))
    return list(needed)


def _bounded(fetch: Fetch) -> Fetch:
    size = 0

    def bounded(name: bytes) -> bytes:
        nonlocal size
        content = fetch(name)
        size += max(len(content), PAGE)
        if size > MAX_BYTES:
            raise DamagedError(f"a keyframe claims a state of more than {MAX_BYTES:,} bytes")
        return content

    return bounded


def _leaves(ref: Ref, fetch: Fetch) -> Iterator[Ref]:
    if not ref.level:
        yield ref
        return
    for child in _content(ref, fetch):
        yield from _leaves(child, fetch)


def _content(ref: Ref, fetch: Fetch) -> list[Any]:
    """What a piece holds: items, or references one level down."""
    content = view(fetch(ref.id))
    if not ref.level:
        return _items(ref, content)
    children = _read_refs(content)
    if any(child.level != ref.level - 1 for child in children) or sum(child.size for child in children) != ref.size:
        raise DamagedError("a piece of a list does not hold what its reference says")
    return children


def _items(ref: Ref, content: Any) -> list[Any]:
    if type(content) is not list or len(content) != ref.size:
        raise DamagedError("a piece of a list does not hold what its reference says")
    return content


def _parts(frame: Any) -> tuple[dict[str, Any], list[tuple[list[Any], list[Ref]]]]:
    """The rest and the long lists of a decoded keyframe."""
    if type(frame) is not list or not frame or type(frame[0]) is not int:
        raise DamagedError("a keyframe does not have the shape of one")
    if frame[0] != FORMAT:
        raise NewerFormatError(frame[0])
    if len(frame) != 3 or type(frame[1]) is not dict or type(frame[2]) is not list:
        raise DamagedError("a keyframe does not have the shape of one")
    if not all(type(pair) is list and len(pair) == 2 for pair in frame[2]):
        raise DamagedError("a keyframe does not have the shape of one")
    return frame[1], [(path, _read_refs(found)) for path, found in frame[2]]


def _place(state: dict[str, Any], path: Any) -> tuple[dict[Any, Any], Any]:
    """The dict and key where a long list's open end is."""
    node: Any = state
    if type(path) is list and path and all(type(key) in delta.PATH_KEYS for key in path):
        for key in path[:-1]:
            node = node.get(key) if type(node) is dict else None
        if type(node) is dict and type(node.get(path[-1])) is list:
            return node, path[-1]
    raise DamagedError("a keyframe names a list that is not in it")


def _read_refs(raw: Any) -> list[Ref]:
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
    return len(run) <= PIECE_ITEMS and len(encode(_plain(run))) <= PIECE_BYTES


def _is_small(run: list[Any]) -> bool:
    return len(run) * 3 < PIECE_ITEMS and len(encode(_plain(run))) * 3 < PIECE_BYTES


def _full(run: list[Any]) -> int:
    """How many first items make a full piece: one at least, however large."""
    if _fits(run):
        return len(run)
    sizes = accumulate(len(encode(item)) for item in _plain(run))
    return max(1, bisect_right(list(sizes), PIECE_BYTES))


def _halves(run: list[Any]) -> Iterator[list[Any]]:
    """A run in pieces that are at least half full, so that an edit in the middle leaves no crumbs."""
    if len(run) == 1 or _fits(run):
        yield run
        return
    middle = len(run) // 2
    yield from _halves(run[:middle])
    yield from _halves(run[middle:])
