"""Values to bytes, with their types; what has no faithful form is refused, with the path to it.

The bytes are msgpack. Plain data (None, bool, int, float, str, bytes, list, dict with str keys) is packed by
ormsgpack as it is. Everything else becomes an extension: a tag and, as its bytes, the encoding of its content
(`extensions.py`, `registry.py`). Equal bytes mean equal values, types included.

No Python function is ever called from inside ormsgpack: its hooks swallow what they raise, Ctrl-C included, and
would put the nesting of hostile bytes on the C stack. So extensions are put in before packing and taken out after
unpacking, one Python frame for each level, with the same limits both ways.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import ormsgpack
from ormsgpack import Ext, Fragment

from everstep.codec import extensions as ext
from everstep.codec.registry import Refused, known_for, state_of
from everstep.errors import UnstorableError
from everstep.model import Secret

LIMIT: Final = 255
"""Levels of nesting. A list or a dict is one level, an extension another; ormsgpack packs no more than this."""

_AROUND = 3  # levels that a row, or a keyframe, adds

PAYLOADS_MAX: Final = 1 << 30
"""Bytes of all extensions in a value. Nested ones count at every level, because that is the memory they take."""

AWAIT: Final = "Put `await` before the call that gave it; a function that awaits is an `async def` itself."
"""The way out for something to be awaited."""

_LEAVES: frozenset[type] = frozenset((str, int, float, bool, type(None), bytes))
_LEAVES_AND_FRAGMENTS = _LEAVES | {Fragment}
_ALWAYS_PLAIN = frozenset((float, bool, type(None), bytes))
_STR = frozenset((str,))
_LISTS = frozenset((list, ext.Record, ext.Pairs, ext.Items))
_TAGS = {kind: tag for tag, kind in ext.KINDS.items()} | {entry[0]: tag for tag, entry in ext.LOADERS.items()}
_INT = 1 << 63
_OPTIONS = (
    ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)


class Unwatched(dict[str, bool]):
    """Says no to every name."""

    def __missing__(self, name: str) -> bool:
        return False


UNWATCHED = Unwatched()


@dataclass(frozen=True, slots=True)
class BlobRef:
    """Stands for a large leaf that is kept elsewhere, under the 16 bytes of `id`; `size` is that of its encoding."""

    id: bytes
    size: int


class Kept:
    """The bytes of plain data, taken when it was given: what becomes of the value later changes nothing."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Generic:
    """An instance without its class: what it was, and its fields. Encodes to the bytes it came from.

    `kind` is enum, dataclass, namedtuple, pydantic or object, and `others` holds what is kept beside the fields.
    A value of any other kind that cannot be made here (an array without numpy) has its content as a field.
    """

    kind: str
    name: str
    version: int
    fields: Mapping[str, Any]
    others: tuple[Any, ...] = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Generic) and scan_encode(self, UNWATCHED) == scan_encode(other, UNWATCHED)

    def __hash__(self) -> int:
        return hash(scan_encode(self, UNWATCHED)[0])  # a field may be a Secret, which `encode` refuses

    def __repr__(self) -> str:
        short = self.name.rpartition(":")[2].rpartition(".")[2]
        if self.kind == "enum" and "name" in self.fields:
            return f"{short}.{self.fields['name']}"
        return f"{short}({', '.join(f'{name}={item!r}' for name, item in self.fields.items())})"


def encode(value: Any) -> bytes:
    """The bytes of `value`. UnstorableError, with the path to it, if any part of it has no faithful form."""
    return scan_encode(value, None)[0]


def encode_around(value: Any) -> bytes:
    """`encode` of our own data around encodings, each of which stands in it as a Fragment."""
    return scan_encode(value, None, _LEAVES_AND_FRAGMENTS)[0]


def scan_encode(value: Any, watch: Mapping[str, bool] | None, leaves: frozenset[type] = _LEAVES) -> tuple[bytes, bool]:
    """The bytes of `value`, and whether it holds a Secret or a key or field name that `watch` says yes to.

    A Secret, which `encode` refuses, is encoded as such: the caller must replace it before anything is stored.
    """
    data = plain(value, watch, leaves)
    return _encode_slowly(value, watch, leaves) if data is None else (data, False)


def plain(  # noqa: C901 - tuned: runs every step
    value: Any, watch: Mapping[str, bool] | None, leaves: frozenset[type] = _LEAVES
) -> bytes | None:
    """The bytes of plain data without a name that `watch` says yes to; None of anything else.

    What `watch` has as its keys are names that it says no to. None also of what is nested so deeply that a row or a
    keyframe around the bytes could be too deep.
    """
    try:
        data = pack(value)
    except TypeError:  # something is not plain, or not storable: the slow way finds out what
        return None
    # After packing, only lists, dicts with str keys, leaves and the disguised (what ormsgpack packs as if it were
    # bytes, or an extension of ours) are left to meet. This loop runs for every step recorded, hence its flat form.
    boxes = [value]
    for box in boxes:
        kind = type(box)
        if kind is dict:
            if watch is not None and not box.keys() <= watch.keys():
                for key in box:
                    if watch[key]:
                        return None
            for item in box.values():
                if type(item) not in leaves:
                    boxes.append(item)  # noqa: PERF401 - a comprehension costs a microsecond here
        elif kind is list:
            for item in box:
                if type(item) not in leaves:
                    boxes.append(item)  # noqa: PERF401 - as above
        elif kind not in leaves:
            return None
    return data if len(boxes) <= LIMIT - _AROUND or _has_room_around(data) else None


def _has_room_around(data: bytes) -> bool:
    """Whether an encoding has at most LIMIT - _AROUND levels: a Fragment takes one more."""
    try:
        Fragment(b"\x91" + data)
    except ValueError:
        return False
    return True


def is_list(data: bytes) -> bool:
    """Whether an encoding is that of a list."""
    return 0x90 <= data[0] <= 0x9F or 0xDC <= data[0] <= 0xDD  # as msgpack has it


def pack(value: Any) -> bytes:
    """The bytes of plain data. TypeError if any of it is not plain; bytearrays and the like pass for bytes."""
    return ormsgpack.packb(value, None, _OPTIONS)


def _encode_slowly(value: Any, watch: Mapping[str, bool] | None, leaves: frozenset[type]) -> tuple[bytes, bool]:
    lowering = _Lowering(watch, leaves)
    try:
        return pack(lowering.lower(value, 1)), lowering.seen
    except Refused as refused:
        labels = refused.trail[::-1]
        if len(labels) > 20:  # a path is for people
            labels = [*labels[:10], " ... ", *labels[-5:]]
        raise UnstorableError("value" + "".join(labels), refused.reason, refused.way_out) from None


class _Lowering:
    """One pass that turns a value into plain data and extensions, looking at every name on the way."""

    __slots__ = ("leaves", "seen", "taken", "watch")

    def __init__(self, watch: Mapping[str, bool] | None, leaves: frozenset[type]) -> None:
        self.watch = watch
        self.leaves = leaves
        self.seen = False
        self.taken = 0

    def lower(self, value: Any, depth: int) -> Any:  # noqa: C901 - one function, so one frame for each level
        kind = type(value)
        if kind in self.leaves and _is_plain(value, kind):
            return value
        # What is surely plain is passed over inside the loops: a call for every leaf would double the time.
        if depth > LIMIT:
            raise Refused(f"it is nested deeper than {LIMIT} levels", "Flatten it.")
        key: Any = None
        try:
            if kind is dict and _STR.issuperset(map(type, value)):
                lowered = {}
                for key, item in value.items():
                    if not key.isascii():
                        _is_plain(key, str)
                    if self.watch is not None and self.watch[key]:
                        self.seen = True
                    of = type(item)
                    if of in _ALWAYS_PLAIN or (of is str and item.isascii()):
                        lowered[key] = item
                    else:
                        lowered[key] = self.lower(item, depth + 1)
                return lowered
            if kind in _LISTS:
                items: list[Any] = []
                for key, item in enumerate(value):  # noqa: B007 - the handler below names the item by it
                    of = type(item)
                    plain = of in _ALWAYS_PLAIN or (of is int and -_INT <= item < _INT)
                    items.append(item if plain else self.lower(item, depth + 1))
                if kind is ext.Items:
                    items.sort(key=pack)
                return items
            tag, content = self._extension(value, kind)
            return self._wrap(tag, pack(self.lower(content, depth + 1)))
        except Refused as refused:
            _extend_trail(refused, value, key)
            raise

    def _wrap(self, tag: int, payload: bytes) -> Any:
        self.taken += len(payload)
        if self.taken > PAYLOADS_MAX:
            raise Refused(f"its extensions take more than {PAYLOADS_MAX:,} bytes", "Split it.")
        return Ext(tag, payload)

    def _extension(self, value: Any, kind: type) -> tuple[int, Any]:
        """The tag and the content of what is not plain."""
        entry = ext.DUMPERS.get(kind)
        if entry is not None:
            if self.watch is not None and isinstance(value, dict):
                self._notice_keys(value, self.watch)
            return entry[0], entry[1](value)
        if kind is Generic:
            return _dump_generic(value)
        if kind is BlobRef:
            return ext.BLOB, ext.Record([value.id, value.size])
        secret = _inside_secret(value)
        if secret is not None:
            return ext.SECRET, self._reveal(secret)
        known = known_for(kind)
        if known is not None:
            fields, others = state_of(known, value)
            return _TAGS[known.kind], ext.Record([known.name, known.version, fields, *others])
        found = ext.dump_numpy(value)
        if found is None and isinstance(value, Awaitable):
            name = getattr(value, "__qualname__", kind.__qualname__)
            raise Refused(f"{name!r} was called and not awaited, so this is not yet what it gives", AWAIT)
        if found is None:
            raise Refused(f"a {kind.__module__}.{kind.__qualname__} cannot be stored and restored")
        return found

    def _reveal(self, secret: Callable[[], Any]) -> Any:
        if self.watch is None:
            raise Refused("a Secret is never stored", "Record it through a trail, which puts a placeholder there.")
        self.seen = True
        return secret()

    def _notice_keys(self, value: dict[Any, Any], watch: Mapping[str, bool]) -> None:
        for key in value:
            for name in (key, getattr(key, "name", None), getattr(key, "value", None)):  # the last two: of an enum
                if isinstance(name, str) and watch[str.__str__(name)]:
                    self.seen = True


def _is_plain(value: Any, kind: type) -> bool:
    """Whether a leaf can be packed as it is. A str that has no UTF-8 form cannot be stored at all."""
    if kind is int:
        return bool(-_INT <= value < 2 * _INT)  # what msgpack holds
    if kind is str and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Refused("a str with a lone surrogate has no UTF-8 form", "Encode it to bytes.") from None
    return True


def _inside_secret(value: Any) -> Callable[[], Any] | None:
    if isinstance(value, Secret):
        return value.reveal
    types = sys.modules.get("pydantic.types")
    if types is not None and isinstance(value, (types.SecretStr, types.SecretBytes, types.Secret)):
        reveal: Callable[[], Any] = value.get_secret_value
        return reveal
    return None


def _dump_generic(value: Generic) -> tuple[int, Any]:
    tag = _TAGS.get(value.kind)
    if tag is None:
        raise Refused(f"no value is of the kind {value.kind!r}")
    if tag in ext.KINDS:
        return tag, ext.Record([value.name, value.version, dict(value.fields), *value.others])
    return tag, value.fields["content"]


def _extend_trail(refused: Refused, box: Any, key: Any) -> None:
    """Note where in `box` the refused value was. Runs after a failure only."""
    again = any(box is inner for inner in refused.passed)
    refused.passed.append(box)
    if again:
        refused.trail.clear()  # the path leads to its outermost appearance
        refused.reason, refused.way_out = "it contains itself", "Break the cycle: refer to the other by a name or id."
    elif isinstance(box, ext.Items):
        refused.trail.append("{...}")
    elif isinstance(box, ext.Pairs):
        refused.trail.append(f"[{_shown(box[key - 1])}]" if key % 2 else ".keys()")
    elif isinstance(box, dict) and key is not None:
        refused.trail.append(f".{key}" if key.isidentifier() else f"[{key!r}]")
    elif type(box) is list and key is not None:
        refused.trail.append(f"[{key}]")


def _shown(key: Any) -> str:
    """A key as it may be shown. One of a class may hold what must not be: its type tells enough."""
    parts = key if type(key) is tuple else (key,)
    return repr(key) if all(type(part) in _LEAVES for part in parts) else f"<{type(key).__name__}>"
