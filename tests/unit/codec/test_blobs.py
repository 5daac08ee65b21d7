from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from everstep.codec.blobs import BLOB_SIZE, blob_id, checked, held, outline
from everstep.codec.values import BlobRef, decode, encode, view
from everstep.errors import DamagedError


@dataclasses.dataclass
class Page:
    number: int
    text: str


def test_a_small_value_stays_as_it_is() -> None:
    data = encode({"text": "x" * (BLOB_SIZE - 20)})
    assert len(data) < BLOB_SIZE
    assert outline(data) == (data, {})


def test_a_large_value_of_small_leaves_stays_as_it_is() -> None:
    data = encode([{"text": "x" * 500}] * 1000)
    assert outline(data) == (data, {})


@pytest.mark.parametrize(
    "leaf",
    [
        "x" * BLOB_SIZE,
        "\N{GRINNING FACE}" * (BLOB_SIZE // 4),
        b"x" * BLOB_SIZE,
        bytearray(BLOB_SIZE),
        (1, "x" * BLOB_SIZE),
        frozenset(range(BLOB_SIZE)),
        1 << (8 * BLOB_SIZE),
        Page(1, "x" * BLOB_SIZE),
    ],
    ids=lambda leaf: type(leaf).__name__,
)
def test_a_large_leaf_of_any_type_comes_back_as_it_was(leaf: Any) -> None:
    """Promise 7: out of line changes where bytes are, not what they mean."""
    value = {"a": [1, {"b": leaf}], 7: "small"}
    rest, made = outline(encode(value))
    assert len(rest) < 100
    assert list(made.values()) == [encode(leaf)]
    assert decode(rest, made.__getitem__) == value
    assert encode(view(rest, made.__getitem__)) == encode(value)


def test_an_array_is_a_leaf() -> None:
    array = np.arange(BLOB_SIZE // 8, dtype=np.int64)
    rest, made = outline(encode({"array": array}))
    assert view(rest) == {"array": BlobRef(blob_id(encode(array)), len(encode(array)))}
    assert (decode(rest, made.__getitem__)["array"] == array).all()


def test_a_leaf_is_out_of_line_from_the_bound_on() -> None:
    below, at = "x" * (BLOB_SIZE - 4), "x" * (BLOB_SIZE - 3)
    assert (len(encode(below)), len(encode(at))) == (BLOB_SIZE - 1, BLOB_SIZE)
    rest, made = outline(encode([below, at]))
    assert view(rest) == [below, BlobRef(blob_id(encode(at)), BLOB_SIZE)]
    assert list(made.values()) == [encode(at)]


def test_the_whole_value_can_be_one_leaf() -> None:
    data = encode("x" * BLOB_SIZE)
    assert outline(data) == (encode(BlobRef(blob_id(data), len(data))), {blob_id(data): data})


def test_equal_leaves_are_one_blob_and_leaves_of_other_types_are_others() -> None:
    rest, made = outline(encode(["x" * BLOB_SIZE, {"again": "x" * BLOB_SIZE}, b"x" * BLOB_SIZE]))
    assert len(made) == 2
    assert held(rest) == list(made)


def test_a_value_that_is_out_of_line_already_stays_as_it_is() -> None:
    rest, _ = outline(encode(["x" * BLOB_SIZE, *["small"] * BLOB_SIZE]))
    assert outline(rest) == (rest, {})


def test_references_are_found_inside_every_container() -> None:
    refs = [BlobRef(bytes([n]) * 16, 10**n) for n in range(4)]
    value = {"a": refs[0], "b": [(refs[1],)], 3: Page(1, refs[2])}  # type: ignore[arg-type]  # as a stored page may be
    found = held(encode([value, frozenset({refs[3]}), refs[0]]))
    assert sorted(found) == [ref.id for ref in refs]
    assert held(encode({"no": ["reference", "\x18"]})) == []


def test_content_that_changed_under_its_name_is_damage() -> None:
    """Promise 9: one flipped bit is seen."""
    data = encode("x" * 100)
    assert checked(blob_id(data), data) == data
    flipped = bytes([*data[:-1], data[-1] ^ 1])
    with pytest.raises(DamagedError, match=blob_id(data).hex()):
        checked(blob_id(data), flipped)
    with pytest.raises(DamagedError):
        checked(blob_id(data)[:-1], data)
