from __future__ import annotations

import collections
import dataclasses
import io
import struct
import threading
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Context, Decimal, localcontext
from pathlib import Path, PurePosixPath
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import ormsgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from everstep.codec.values import LIMIT, Generic, decode, encode, view
from everstep.errors import UnstorableError
from everstep.model import Redacted, Secret
from tests.corpus.make import Color, Message, Note, Pair, Plain, Point, Point3, Right, Role, Size
from tests.corpus.same import same


def message(**fields: Any) -> Message:
    made = Message.model_construct(role=Role.TOOL, **fields)
    made._seen = 3
    return made


# Values of all types, nested in each other

text = st.text(st.characters(codec="utf-8"), max_size=8)
zones = st.sampled_from(
    [None, UTC, timezone(timedelta(hours=-3)), timezone(timedelta(seconds=1), "odd"), ZoneInfo("America/New_York")]
)
dtypes = st.sampled_from(["?", "<i2", ">u8", "<f2", ">f8", "<c8", "<U3", "|S2", "<M8[ns]", ">m8[D]"])


@st.composite
def arrays(draw: st.DrawFn) -> Any:
    dtype = np.dtype(draw(dtypes))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    array = np.full(shape, draw(st.integers(0, 100))).astype(dtype)
    return np.asfortranarray(array) if draw(st.booleans()) else array


hashable_leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(1 << 70), 1 << 70),
    st.floats(),
    text,
    st.binary(max_size=8),
    st.datetimes(timezones=st.none()).flatmap(lambda at: zones.map(lambda zone: at.replace(tzinfo=zone))),
    st.dates(),
    st.builds(lambda at, fold: at.replace(fold=fold), st.times(), st.integers(0, 1)),
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.uuids(),
    st.complex_numbers(),
    st.builds(range, st.integers(), st.integers(), st.integers(1)),
    st.sampled_from([*Color, *Size, *Role, *Right, Right.READ | Right.WRITE]),
    text.map(PurePosixPath),
    text.map(Redacted),
    st.sampled_from([np.float32(0.5), np.uint64(7), np.datetime64("2024-01-01T00", "h"), np.str_("x")]),
)
hashables = st.recursive(
    hashable_leaves,
    lambda inner: st.one_of(
        st.tuples(inner, inner),
        st.frozensets(inner, max_size=3),
        st.tuples(inner, inner).map(lambda xy: Point(*xy)),
        inner.map(Pair),
    ),
    max_leaves=5,
)
leaves = hashables | arrays() | st.binary(max_size=4).map(bytearray) | st.just(Decimal("NaN"))


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    pairs = st.dictionaries(hashables, inner, max_size=3)
    return st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(text, inner, max_size=4),
        pairs,
        pairs.map(collections.OrderedDict),
        pairs.map(lambda items: collections.defaultdict(set, items)),
        st.sets(hashables, max_size=4),
        st.builds(collections.deque, st.lists(inner, max_size=3), st.none() | st.integers(3, 5)),
        st.tuples(text, st.lists(inner, max_size=2)).map(lambda parts: Note(*parts)),
        st.tuples(inner, inner, inner).map(lambda xyz: Point3(*xyz)),
        st.tuples(inner, inner).map(Pair._make),
        st.builds(lambda content, extra: message(content=content, other=extra), inner, inner),
        st.builds(lambda left, right: Plain(left, right=right), inner, inner),
    )


values = st.recursive(leaves, containers, max_leaves=20)


@settings(max_examples=400)
@given(values)
def test_what_goes_in_comes_out(value: Any) -> None:
    """Promise 7."""
    assert same(decode(encode(value)), value)


@settings(max_examples=400)
@given(values)
def test_a_view_encodes_to_the_bytes_it_came_from(value: Any) -> None:
    data = encode(value)
    assert encode(view(data)) == data


@settings(max_examples=300)
@given(values, values)
def test_encodings_are_equal_exactly_when_the_values_are_the_same(a: Any, b: Any) -> None:
    # A NaN can hold any bits, and `same` takes all of them for one: decoding a NaN gives back its own.
    assert (encode(a) == encode(b)) == same(a, b) or "nan" in f"{a!r} {b!r}".lower()
    assert encode(decode(encode(a))) == encode(a)


# Kept exactly


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        (1, Size.SMALL),
        ("user", Role.USER),
        ("x", Redacted("x")),
        (b"x", bytearray(b"x")),
        ((1,), [1]),
        ((1, None), Pair(1)),
        ({1}, frozenset({1})),
        ({1}, {True}),
        ({1: 0}, {True: 0}),
        ({"a": 1}, collections.OrderedDict(a=1)),
        ({"a": 1}, collections.Counter(a=1)),
        (Decimal("1.0"), Decimal("1.00")),
        (datetime(2024, 1, 1), date(2024, 1, 1)),
        (datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=ZoneInfo("UTC"))),
        (datetime(2024, 1, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=1)))),
        (datetime(2024, 1, 1), datetime(2024, 1, 1, fold=1)),
        (np.float64(1), 1.0),
        (np.zeros(2, "<f4"), np.zeros(2, ">f4")),
        (np.zeros((1, 2)), np.zeros((2, 1))),
        (Path("a"), PurePosixPath("a")),
        (Path("a"), "a"),
    ],
)
def test_values_that_look_alike_stay_apart(a: Any, b: Any) -> None:
    """Promise 7."""
    assert encode(a) != encode(b)
    assert same(decode(encode(a)), a)
    assert same(decode(encode(b)), b)


def test_equal_sets_have_equal_bytes_in_whatever_order_they_were_filled() -> None:
    items = [*range(100), *"abc", (1, 2), None]
    other = set[Any]()
    for item in reversed(items):
        other.add(item)
    assert encode(set(items)) == encode(other)


@pytest.mark.parametrize("value", [1 << 63, (1 << 64) - 1, -(1 << 63), 1 << 64, "ü", {"ü": [1.5, b"x", None, True]}])
def test_the_bytes_of_a_value_do_not_depend_on_what_is_beside_it(value: Any) -> None:
    assert encode([value])[1:] == encode([value, ()])[1:-3]


def test_the_bits_of_a_nan_are_kept() -> None:
    [odd] = struct.unpack(">d", bytes.fromhex("7ff8000000000123"))
    assert struct.pack(">d", decode(encode([odd]))[0]).hex() == "7ff8000000000123"


def test_the_decimal_context_does_not_change_the_bytes() -> None:
    data = encode(Decimal("1E+50"))
    with localcontext(Context(capitals=0, prec=1)):
        assert encode(Decimal("1E+50")) == data
        assert str(decode(encode(Decimal("1.2345")))) == "1.2345"


def test_what_comes_out_is_not_an_alias_and_can_be_changed() -> None:
    inner = [1]
    first, second = decode(encode((inner, inner)))
    first.append(2)
    assert (second, inner) == ([1], [1])
    array = decode(encode(np.arange(3)))
    array[0] = 9
    assert array.tolist() == [9, 1, 2]


def test_an_array_in_another_memory_order_comes_back_with_equal_values() -> None:
    array = np.asfortranarray(np.arange(6).reshape(2, 3))[:, ::2]
    assert decode(encode(array)).tolist() == array.tolist()


def test_a_default_factory_is_kept_and_works() -> None:
    made = decode(encode(collections.defaultdict(list, {1: [2]})))
    made["new"].append(3)
    assert made == {1: [2], "new": [3]}


# Refused


class Zone(tzinfo):
    def utcoffset(self, at: datetime | None) -> None: ...

    def dst(self, at: datetime | None) -> None: ...

    def tzname(self, at: datetime | None) -> None: ...


class OddDict(dict[str, int]):
    pass


class OddStr(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        (object(), "value", "builtins.object"),
        ({"state": {"messages": [1, {"when": object()}]}}, "value.state.messages[1].when", "object"),
        ([Point(1, [print])], "value[0].y[0]", "builtin_function"),
        ({"a b": {1: {(1, 2): iter([1])}}}, "value['a b'][1][(1, 2)]", "list_iterator"),
        ({1: 2, object: 3}, "value.keys()", "type"),
        ({object()}, "value{...}", "object"),
        (message(content={"lock": threading.Lock()}), "value.content.lock", "lock"),
        (message(other=object()), "value.other", "object"),
        (Pair(1, collections.deque([object()])), "value.right[0]", "object"),
        (collections.defaultdict(lambda: 1), "value", "is code"),
        (Plain(1, more=[object()]), "value.more[0]", "object"),
        (io.StringIO(), "value", "StringIO"),
        ([memoryview(b"x")], "value[0]", "memoryview"),
        ([ormsgpack.Ext(2, b"\x90")], "value[0]", "Ext"),
        (ValueError("x"), "value", "ValueError"),
        ("\ud800", "value", "surrogate"),
        ({"a": ["\ud800"]}, "value.a[0]", "surrogate"),
        ({"a": {"\ud800": 1}}, "value.a['\\ud800']", "surrogate"),
        (PurePosixPath("\udcff"), "value", "surrogate"),
        ([OddDict()], "value[0]", "OddDict"),
        ([OddStr("x")], "value[0]", "OddStr"),
        ({OddStr("x"): 1}, "value.keys()", "OddStr"),
        (datetime(2024, 1, 1, tzinfo=Zone()), "value", "Zone"),
        (np.array([object()]), "value", "dtype object"),
        (np.zeros(1, [("a", "i4")]), "value", "dtype"),
        (np.ma.masked_array([1]), "value", "MaskedArray"),
        (np.longdouble(1), "value", "longdouble"),
        (Secret("x"), "value", "Secret"),
        ([SecretStr("x")], "value[0]", "Secret"),
        (Generic("nothing", "n", 1, {}), "value", "kind"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_its_path(value: Any, path: str, reason: str) -> None:
    """Promise 7."""
    with pytest.raises(UnstorableError, match=reason) as caught:
        encode(value)
    assert caught.value.path == path


def test_a_value_that_contains_itself_is_refused_where_it_first_appears() -> None:
    """Promise 7."""
    inner: dict[str, Any] = {}
    inner["back"] = (1, [inner])
    for value, path in [(inner, "value"), ({"a": [0, inner]}, "value.a[1]")]:
        with pytest.raises(UnstorableError, match="contains itself") as caught:
            encode(value)
        assert caught.value.path == path


def test_a_time_zone_that_is_not_in_the_zone_database_is_refused() -> None:
    file = b"TZif" + bytes(16) + struct.pack(">6l", 0, 0, 0, 0, 1, 4) + struct.pack(">lbb", 0, 0, 0) + b"UTC\0"
    zone = ZoneInfo.from_file(io.BytesIO(file), key="../escape")
    with pytest.raises(UnstorableError, match="zone"):
        encode(datetime(2024, 1, 1, tzinfo=zone))


def test_an_interrupt_while_a_value_is_read_comes_out_as_it_is() -> None:
    @dataclasses.dataclass
    class Slow:
        x: int = 0

        def __getattribute__(self, name: str) -> Any:
            if name == "x":
                raise KeyboardInterrupt
            return super().__getattribute__(name)

    with pytest.raises(KeyboardInterrupt):
        encode([Slow()])


# Depth


def nested(wrap: Any, levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = wrap(value)
    return value


@pytest.mark.parametrize(
    "wrap",
    [
        lambda x: [x],
        lambda x: {"a": x},
        lambda x: (x,),
        lambda x: {1: x},
        lambda x: frozenset([x]),
        Point,
        Pair,
        lambda x: message(content=x),
        lambda x: collections.deque([[x, (x,)]]) if x == 1 else collections.deque([x]),
    ],
)
def test_whatever_depth_is_accepted_comes_back(wrap: Any) -> None:
    """Promise 7."""
    deepest = 0
    for levels in range(1, LIMIT + 2):
        try:
            data = encode(nested(wrap, levels))
        except UnstorableError as error:
            assert "deeper" in str(error)  # noqa: PT017 - the depth at which it is raised is what is looked for
            break
        deepest = levels
    assert deepest >= 60
    assert encode(decode(data)) == data
    assert encode(view(data)) == data


def test_the_limit_of_depth_is_the_same_with_and_without_an_extension_in_the_value() -> None:
    plain = nested(lambda x: [x], LIMIT)
    assert decode(encode(plain)) == plain
    with pytest.raises(UnstorableError, match="deeper"):
        encode([plain])
    mixed = [nested(lambda x: [x], LIMIT - 1), ()]
    assert decode(encode(mixed)) == mixed
    with pytest.raises(UnstorableError, match="deeper"):
        encode([mixed])
