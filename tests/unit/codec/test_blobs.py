from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from everstep.codec import frame
from everstep.codec.blobs import BLOB_SIZE, blob_id, held, opened, outline
from everstep.codec.values import BlobRef, decode, encode, view
from everstep.errors import DamagedError


def name_of(data: bytes) -> bytes:
    return blob_id(frame.pack(data))


def fetch_from(made: dict[bytes, bytes]) -> Callable[[bytes], bytes]:
    return lambda name: opened(name, made[name])


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
    assert [opened(*piece) for piece in made.items()] == [encode(leaf)]
    assert decode(rest, fetch_from(made)) == value
    assert encode(view(rest, fetch_from(made))) == encode(value)


def test_an_array_is_a_leaf() -> None:
    array = np.arange(BLOB_SIZE // 8, dtype=np.int64)
    rest, made = outline(encode({"array": array}))
    assert view(rest) == {"array": BlobRef(name_of(encode(array)), len(encode(array)))}
    assert (decode(rest, fetch_from(made))["array"] == array).all()


def test_a_leaf_is_out_of_line_from_the_bound_on() -> None:
    below, at = "x" * (BLOB_SIZE - 4), "x" * (BLOB_SIZE - 3)
    assert (len(encode(below)), len(encode(at))) == (BLOB_SIZE - 1, BLOB_SIZE)
    rest, made = outline(encode([below, at]))
    assert view(rest) == [below, BlobRef(name_of(encode(at)), BLOB_SIZE)]
    assert [opened(*piece) for piece in made.items()] == [encode(at)]


def test_the_whole_value_can_be_one_leaf() -> None:
    data = encode("x" * BLOB_SIZE)
    assert outline(data) == (encode(BlobRef(name_of(data), len(data))), {name_of(data): frame.pack(data)})


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
    framed = frame.pack(encode("x" * 100))
    assert opened(blob_id(framed), framed) == encode("x" * 100)
    flipped = bytes([*framed[:-1], framed[-1] ^ 1])
    with pytest.raises(DamagedError, match=blob_id(framed).hex()):
        opened(blob_id(framed), flipped)
    with pytest.raises(DamagedError):
        opened(blob_id(framed)[:-1], framed)
