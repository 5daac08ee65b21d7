"""What changed between two states, as operations, and the fold of operations into a state.

A state is a dict with str keys. An operation is a list, so that it is stored as it stands:

    [SET, path, value]      [DELETE, path]      [APPEND, path, items]      [SPLICE, path, index, count, items]

A path is a top-level key, or the list of dict keys and list indexes that leads there. Only exact dicts and lists
are entered; everything else (tuples, sets, class instances) is replaced whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from everstep.codec.encoding import UNWATCHED, pack
from everstep.codec.values import encode, scan_encode, view
from everstep.errors import StateError, UnstorableError

SET, DELETE, APPEND, SPLICE = 0, 1, 2, 3
VERBS = {SET: "set", DELETE: "delete", APPEND: "append", SPLICE: "splice"}

Op = list[Any]
Path = str | list[Any]

_LENGTHS = {SET: 3, DELETE: 2, APPEND: 3, SPLICE: 5}

# Keys that are equal and of one of these types have one encoding, so a path through them finds the same place in a
# dict that was read back. 1 and True, or two NaNs, do not; a dict with other keys is set whole.
PATH_KEYS = frozenset({str, int, bool, bytes})

_PLAIN_LISTS: frozenset[type] = frozenset({list})
_TEXT = frozenset({str, int, float, bool, type(None)})
_UNREAD: Any = object()
_MUTABLE: Any = object()


def apply(state: dict[str, Any], ops: Iterable[Op], *, lists: frozenset[type] = _PLAIN_LISTS) -> None:
    """Fold operations into a state, in place and in order. The values become part of the state as they are.

    Raises StateError, naming the path, at the first operation that does not fit; those before it stay applied, so a
    state that may not be lost is copied first. `lists` names the types that stand for lists.
    """
    for op in ops:
        if type(op) is not list or not op or _LENGTHS.get(op[0]) != len(op):
            well_formed(op)
        code, path = op[0], op[1]
        if type(path) is str:
            # Most operations name a top-level key, and most of these need no more than this.
            if code == SET:
                state[path] = op[2]
                continue
            if code == APPEND and type(op[2]) is list and type(state.get(path)) in lists:
                state[path].extend(op[2])
                continue
            holder, key = state, path
        else:
            holder, key = _holder(state, path, lists)
        if code == SET:
            _set(holder, key, op[2], path, lists)
        elif code == DELETE:
            _delete(holder, key, path, lists)
        elif code == APPEND:
            _append(holder, key, op[2], path, lists)
        else:
            _splice(_child(holder, key, path, lists), op, lists)


def well_formed(op: Any) -> Op:
    """The operation as a list. Raises StateError if it has no known code, or not the parts that its code asks for."""
    parts = list(op) if isinstance(op, list | tuple) else []
    if not parts or type(parts[0]) is not int or _LENGTHS.get(parts[0]) != len(parts):
        raise StateError("state", f"an operation is malformed ({op!r:.80})")
    return parts


def path_text(path: Any) -> str:
    """A path as people write it: `state.messages[3]`."""
    parts = path if type(path) is list else [path]
    return "state" + "".join(
        f".{part}" if type(part) is str and part.isidentifier() else f"[{part!r:.60}]" for part in parts
    )


def _holder(state: dict[str, Any], path: Any, lists: frozenset[type]) -> tuple[Any, Any]:
    if type(path) is not list or not path or type(path[0]) is not str:
        raise StateError("state", "a path does not begin with a top-level key", "Begin it with one.")
    node: Any = state
    for part in path[:-1]:
        node = _child(node, part, path, lists)
    return node, path[-1]


def _child(node: Any, key: Any, path: Any, lists: frozenset[type]) -> Any:
    if type(node) is dict:
        if _in_dict(key, node, path):
            return node[key]
    elif _in_list(key, node, path, lists):
        return node[key]
    raise StateError(path_text(path), f"there is no {key!r:.60}")


def _in_dict(key: Any, node: dict[Any, Any], path: Any) -> bool:
    try:
        return key in node
    except TypeError:
        raise StateError(path_text(path), "a part of the path cannot be a dict key") from None


def _in_list(key: Any, node: Any, path: Any, lists: frozenset[type]) -> bool:
    if type(node) not in lists:
        raise StateError(path_text(path), f"the path goes through a {type(node).__name__}, which is replaced whole")
    return type(key) is int and 0 <= key < len(node)


def _set(holder: Any, key: Any, value: Any, path: Any, lists: frozenset[type]) -> None:
    if type(holder) is dict:
        _in_dict(key, holder, path)
        holder[key] = value
    elif _in_list(key, holder, path, lists):
        holder[key : key + 1] = [value]
    else:
        raise StateError(path_text(path), f"the list has no item {key!r:.60}")


def _delete(holder: Any, key: Any, path: Any, lists: frozenset[type]) -> None:
    _child(holder, key, path, lists)
    if type(holder) is dict:
        del holder[key]
    else:
        holder[key : key + 1] = []


def _append(holder: Any, key: Any, items: Any, path: Any, lists: frozenset[type]) -> None:
    _check_items(items, path)
    if type(holder) is dict and not _in_dict(key, holder, path):
        holder[key] = list(items)
        return
    target = _child(holder, key, path, lists)
    if type(target) not in lists:
        raise StateError(path_text(path), f"a {type(target).__name__} takes no items")
    target.extend(items)


def _splice(target: Any, op: Op, lists: frozenset[type]) -> None:
    _, path, index, count, items = op
    _check_items(items, path)
    if type(target) not in lists:
        raise StateError(path_text(path), f"a {type(target).__name__} takes no items")
    if type(index) is not int or type(count) is not int or not 0 <= index <= index + count <= len(target):
        raise StateError(path_text(path), f"the list of {len(target)} has no {count!r:.30} items at {index!r:.30}")
    target[index : index + count] = items


def _check_items(items: Any, path: Any) -> None:
    if type(items) is not list:
        raise StateError(path_text(path), f"the items are a {type(items).__name__}", "Give them as a list.")


def diff(old: dict[str, Any], new: dict[str, Any]) -> list[Op]:
    """The operations that turn `old` into `new`, small rather than minimal.

    Values are compared by their encodings: 1, True and 1.0 differ, and so do two orders of the same keys.
    """
    return Differ(old).delta(new)


class Differ:
    """Finds what changed since the last saved state, for callers who hand over whole states.

    It holds encodings, never the caller's containers, so it sees what was changed in place. `delta` does not move it:
    call `advance` once the operations are safely written; if the write fails, do not, and the next delta is again
    against what is stored.
    """

    __slots__ = ("_next", "_saved")

    def __init__(self, state: dict[str, Any] | None = None) -> None:
        self._saved: dict[str, Saved] = {}
        self._next: dict[str, Saved] = {}
        self.delta(state or {})
        self.advance()

    def delta(self, new: dict[str, Any]) -> list[Op]:
        """The operations from the saved state to this one. They hold the caller's values: encode them at once."""
        known = self._saved
        following: dict[str, Saved] = {}
        kept = _in_place(known, new)
        ops: list[Op] = [[DELETE, key] for key in known if key not in kept]
        for key, value in new.items():
            if type(key) is not str:
                raise StateError(path_text(key), f"a top-level key is a {type(key).__name__}", "Use a str.")
            if key in kept:
                since, following[key] = changed(key, known[key], value)
                ops += since
            else:
                following[key] = saved(key, value)
                ops.append([SET, key, value])
        self._next = following
        return ops

    def advance(self) -> None:
        """Take the state of the last `delta` as the saved one."""
        self._saved = self._next


def changed(name: str, before: Saved, value: Any) -> tuple[list[Op], Saved]:
    """The operations that make `value` of a top-level value as it was saved, and what to save for the next time."""
    after = _unchanged_or_longer(before, value)
    if after is before:
        return [], before
    if after is not None:
        return [[APPEND, name, value[_array_head(before.data)[1] :]]], after
    after = saved(name, value)
    return ([] if after.data == before.data else _changes([name], before.data, value, after.data)), after


def is_as_saved(before: Saved, value: Any) -> bool:
    """Whether a value is still what it was. Raises UnstorableError if it can no longer be encoded."""
    if before.text and type(value) in (list, dict):  # see `_unchanged_or_longer` why this is enough
        with suppress(TypeError):  # keys that are no text, which packing does not know
            return pack(value) == before.data
    return comparable(value) == before.data


class Saved(NamedTuple):
    """A top-level value: the object itself if it is an immutable leaf, its encoding, and whether it is `_is_text`."""

    leaf: Any
    data: bytes
    text: bool


def saved(key: str, value: Any) -> Saved:
    """What is kept of a value to find out later what changed."""
    try:
        return Saved(value if type(value) in (str, bytes) else _MUTABLE, comparable(value), _is_text(value))
    except UnstorableError:
        comparable({key: value})  # fails too, with the key in the path
        raise


def _unchanged_or_longer(before: Saved, value: Any) -> Saved | None:
    """What to save for a value that did not change or is a list that grew, without a look at each old item.

    Only an immutable leaf is unchanged for being the same object; anything else can be changed in place. But where
    text was, and packing gives the same bytes again, there is text still: whatever packing would disguise, it
    disguises as bytes. So the part of a long list that is as it was need not be searched for disguises.
    """
    if before.leaf is value:
        return before
    if not before.text or (type(value) is not list and type(value) is not dict):
        return None
    try:
        data = pack(value)
    except TypeError:
        return None
    if data == before.data:
        return before
    if type(value) is list and _starts_with(data, before.data) and _is_text(value[_array_head(before.data)[1] :]):
        return Saved(_MUTABLE, data, text=True)
    return None


def _is_text(value: Any) -> bool:
    """Whether a value is of dicts, lists, text and numbers alone."""
    boxes = [value]
    for box in boxes:
        kind = type(box)
        if kind is dict or kind is list:
            boxes += [item for item in (box.values() if kind is dict else box) if type(item) not in _TEXT]
        elif kind not in _TEXT:
            return False
    return True


def comparable(value: Any) -> bytes:
    """The encoding, for comparison only. Secrets are compared as what they are: the operations are not stored yet."""
    try:
        return encode(value)
    except UnstorableError:
        return scan_encode(value, UNWATCHED)[0]


def _in_place(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> set[Any]:
    """The keys that can stay where they are. A dict grows at its end only, so all others are deleted and set anew."""
    places = {key: place for place, key in enumerate(old)}
    kept = set()
    last = -1
    for key in new:
        place = places.get(key, -1)
        if place <= last:
            break
        kept.add(key)
        last = place
    return kept


def _changes(path: list[Any], old_data: bytes, new: Any, new_data: bytes, old: Any = _UNREAD) -> list[Op]:
    """The operations at `path`, or one SET of the whole where that is not larger. The encodings differ."""
    at: Path = path[0] if len(path) == 1 else list(path)
    if type(new) is list and _starts_with(new_data, old_data):
        return [[APPEND, at, new[_array_head(old_data)[1] :]]]
    whole: list[Op] = [[SET, at, new]]
    if type(new) is not list and type(new) is not dict:
        return whole
    if old is _UNREAD:
        old = view(old_data)
    if type(new) is list and type(old) is list:
        ops = _list_changes(path, at, old, new)
    elif type(new) is dict and type(old) is dict and _can_enter(old, new):
        ops = _dict_changes(path, old, new)
    else:
        return whole
    # Three bytes: the operation's own head and code.
    return ops if len(comparable(ops)) < len(comparable(at)) + 3 + len(new_data) else whole


def _can_enter(old: dict[Any, Any], new: dict[Any, Any]) -> bool:
    types = {key: type(key) for key in old}
    return PATH_KEYS.issuperset(types.values()) and all(
        type(key) in PATH_KEYS and types.get(key, type(key)) is type(key) for key in new
    )


def _dict_changes(path: list[Any], old: dict[Any, Any], new: dict[Any, Any]) -> list[Op]:
    kept = _in_place(old, new)
    ops: list[Op] = [[DELETE, [*path, key]] for key in old if key not in kept]
    for key, value in new.items():
        if key in kept:
            ops += _item_changes([*path, key], old[key], value)
        else:
            ops.append([SET, [*path, key], value])
    return ops


def _list_changes(path: list[Any], at: Path, old: list[Any], new: list[Any]) -> list[Op]:
    limit = min(len(old), len(new))
    front = _same_front(old, new, limit)
    back = _same_front(old[::-1], new[::-1], limit - front)
    inner = new[front : len(new) - back]
    splice: list[Op] = [[SPLICE, at, front, len(old) - back - front, inner]]
    if len(old) != len(new):
        return splice
    ops: list[Op] = []
    for index, value in enumerate(inner, front):
        ops += _item_changes([*path, index], old[index], value)
    return ops if len(comparable(ops)) < len(comparable(splice)) else splice


def _item_changes(path: list[Any], old: Any, new: Any) -> list[Op]:
    old_data, new_data = comparable(old), comparable(new)
    return [] if old_data == new_data else _changes(path, old_data, new, new_data, old)


def _same_front(old: list[Any], new: list[Any], limit: int) -> int:
    """How many first items are the same. Halving encodes each item about once, in few calls."""
    same = 0
    while same < limit:
        middle = (same + limit + 1) // 2
        if comparable(old[same:middle]) == comparable(new[same:middle]):
            same = middle
        else:
            limit = middle - 1
    return same


def _starts_with(data: bytes, old_data: bytes) -> bool:
    """Whether the first items of an encoded list are all those of the old value, which is a list too then."""
    head, _ = _array_head(old_data)
    # memoryview: no copy of what may be megabytes.
    return head > 0 and data.startswith(memoryview(old_data)[head:], _array_head(data)[0])


def _array_head(data: bytes) -> tuple[int, int]:
    """The length of the array header and the number of items; a length of 0 if it is no array."""
    first = data[0]
    if 0x90 <= first <= 0x9F:
        return 1, first & 0x0F
    if first == 0xDC:
        return 3, int.from_bytes(data[1:3], "big")
    if first == 0xDD:
        return 5, int.from_bytes(data[1:5], "big")
    return 0, 0
