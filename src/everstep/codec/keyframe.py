"""The writer's state, cut so that a keyframe costs what changed since the last one.

A keyframe is `[FORMAT, rest, lists]`: the state with every long list cut down to its open end, and for each long list
its path and the references to its closed pieces (`segments.py`). Lists are cut wherever dicts alone lead to them; one
inside an item of a list stays inside that item.

`fetch` gives the content of a piece or blob by its id, already checked against the id (`blobs.opened`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ormsgpack import Fragment

from everstep.codec import blobs, delta
from everstep.codec.encoding import encode_around, is_list, pack
from everstep.codec.segments import Ref, Segments, content_of, is_small, items_of, looked_into, read_refs
from everstep.codec.values import Fetch, view
from everstep.errors import DamagedError, NewerFormatError

Decode = Callable[[bytes, Fetch], Any]

FORMAT = 1
# References can name one piece many times, so a small file can claim a huge state. A piece counts as a page at least.
MAX_BYTES = 1 << 30
PAGE = 1 << 12


class Frozen(NamedTuple):
    """A keyframe's encoding, and the new pieces, framed and by id, that must be stored with it."""

    data: bytes
    blobs: dict[bytes, bytes]


class StateTree:
    """A state that takes operations and gives keyframes. Closed pieces of long lists are held as references only.

    It works on views: class instances stay `Generic`, large leaves stay `BlobRef`, and what nobody looked into yet is
    a Fragment, its encoding. It is not safe to share between threads. What `freeze` handed out must be stored before
    the next operation; if that fails, or if `apply` raises, throw the tree away and load the last keyframe again.
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

    def apply(self, ops: Sequence[delta.Op]) -> None:
        """Fold operations in, as `delta.apply` does. Fetches only the pieces that an index leads into."""
        for op in ops:
            name = _leads_into(op)
            if type(self._state.get(name)) is Fragment:
                self._state[name] = looked_into(self._state[name])
        delta.apply(self._state, ops, lists=_LISTS)

    def take(self, ops: Iterable[delta.Op], output: bytes) -> None:
        """Fold in operations at the top whose values are Fragments, or else the output.

        Nothing is decoded for it but a list that is added to, once.
        """
        state = self._state
        for op in ops:
            name = op[1]
            if op[0] == delta.SET:
                state[name] = op[2] if len(op) > 2 else Fragment(output)
                continue
            found = state.get(name, [])
            if type(found) is not Segments:
                found = state[name] = Segments([looked_into(found)], self._fetch, self._made)
            found.parts[-1].append(Fragment(output))

    def lists(self) -> dict[str, bool]:
        """Which top-level names hold a list."""
        return {
            key: is_list(pack(value)) if type(value) is Fragment else type(value) in _LISTS
            for key, value in self._state.items()
        }

    def freeze(self) -> Frozen:
        """A keyframe of the state as it is, with the pieces made since the last one. The tree can go on."""
        lists: list[Any] = []
        data = encode_around([FORMAT, self._rest(self._state, [], lists), lists])
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
            if type(value) is Fragment:
                value = node[key] = looked_into(value)  # noqa: PLW2901 - there may be long lists in it
            if type(value) is dict:
                rest = self._rest(value, [*path, key], lists)
                if rest is not value:
                    changed[key] = rest
            elif type(value) is Segments or (type(value) is list and not is_small(value)):
                long = value if type(value) is Segments else Segments([value], self._fetch, self._made)
                node[key] = long
                *found, changed[key] = long.close()
                if found:
                    lists.append([[*path, key], [list(ref) for ref in found]])
        return {**node, **changed} if changed else node


_LISTS: frozenset[type] = frozenset({list, Segments})


def _leads_into(op: Any) -> str:
    """The top-level name that an operation goes to, or through; one that nothing has if it is malformed."""
    path = op[1] if type(op) is list and len(op) > 1 else None
    name = path[0] if type(path) is list and path else path
    return name if type(name) is str else ""


def thaw(data: bytes, fetch: Fetch, *, decode: Decode) -> dict[str, Any]:
    """The whole state that a keyframe stands for. `decode` is `values.decode`, or `values.view` to need no classes."""
    fetch = _bounded(fetch)
    state, lists = _parts(decode(data, fetch))
    for path, found in lists:
        holder, key = _place(state, path)
        leaves = (leaf for ref in found for leaf in _leaves(ref, fetch))
        items = [item for leaf in leaves for item in items_of(leaf, decode(fetch(leaf.id), fetch))]
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
            waiting += reversed(content_of(ref, fetch))
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
    for child in content_of(ref, fetch):
        yield from _leaves(child, fetch)


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
    return frame[1], [(path, read_refs(found)) for path, found in frame[2]]


def _place(state: dict[str, Any], path: Any) -> tuple[dict[Any, Any], Any]:
    """The dict and key where a long list's open end is."""
    node: Any = state
    if type(path) is list and path and all(type(key) in delta.PATH_KEYS for key in path):
        for key in path[:-1]:
            node = node.get(key) if type(node) is dict else None
        if type(node) is dict and type(node.get(path[-1])) is list:
            return node, path[-1]
    raise DamagedError("a keyframe names a list that is not in it")
