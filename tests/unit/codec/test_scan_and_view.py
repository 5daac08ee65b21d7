from __future__ import annotations

import collections
import enum
import itertools
import subprocess
import sys
from datetime import date
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel, SecretBytes, SecretStr

from everstep.codec.values import BlobRef, Generic, decode, encode, scan_encode, view
from everstep.errors import DamagedError, UnstorableError
from everstep.model import Redacted, Secret
from tests.corpus.make import EXPECTED, Color, Message, Plain, Point, Right, Role
from tests.corpus.same import same

# Secrets and watched names


class Watch(dict[str, bool]):
    def __missing__(self, key: str) -> bool:
        self[key] = "password" in key
        return self[key]


class Login(BaseModel):
    password: str


Credentials = collections.namedtuple("Credentials", ["user", "password"])  # noqa: PYI024 - one of the kinds kept


@pytest.mark.parametrize(
    "value",
    [
        {"password": 1},
        [[{"a": {"my password": 1}}]],
        ({"password": 1},),
        [{1: {"password": 1}}],
        {"password": 1, 2: 3},
        collections.OrderedDict(password=1),
        [collections.defaultdict(list, {"password": [1]})],
        {Redacted("password"): 1},
        Plain(1, password=2),
        Login(password="x"),
        {"a": Credentials(1, 2)},
        Message.model_validate({"role": "user", "password": "x"}),
        [{"ok": bytearray(b"x"), "password": 1}],
        Generic("dataclass", "m:Login", 1, {"password": 1}),
        Secret(1),
        {"a": [(Secret("x"),)]},
        {Secret("x"): 1},
        [SecretStr("x")],
        (SecretBytes(b"x"),),
    ],
)
def test_watched_names_and_secrets_are_seen_wherever_they_are(value: Any) -> None:
    """Promise 10."""
    assert scan_encode(value, Watch())[1]


@pytest.mark.parametrize("name", EXPECTED)
def test_watching_changes_nothing_about_the_bytes(name: str) -> None:
    assert scan_encode(EXPECTED[name], Watch()) == (encode(EXPECTED[name]), False)


def test_a_watched_name_of_an_enum_key_is_seen() -> None:
    field = enum.Enum("field", {"PASS": "password"})
    assert scan_encode({field.PASS: 1}, Watch())[1]


def test_a_value_without_watched_names_or_secrets_is_not_suspected() -> None:
    value = [{"user": "password"}, ("password",), Point(1, {"a": {"password"}}), Role.USER]
    assert scan_encode(value, Watch()) == (encode(value), False)


def test_a_scanned_secret_is_encoded_as_a_secret_and_never_shown() -> None:
    data, seen = scan_encode({"a": Secret({"k": (1,)}), "b": SecretStr("x")}, Watch())
    assert seen
    made = decode(data)
    assert same(made, {"a": Secret({"k": (1,)}), "b": Secret("x")})
    assert repr(made) == "{'a': Secret(...), 'b': Secret(...)}"


def test_the_text_of_a_refusal_does_not_show_a_secret() -> None:
    """Promise 10."""
    with pytest.raises(UnstorableError) as caught:
        encode({"token": Secret("hunter2"), "other": object()})
    assert "hunter2" not in str(caught.value)


# Views


def test_a_view_needs_no_classes_and_reads_well() -> None:
    value = {"at": Point(1, (2,)), "color": Color.RED, "rights": Right.READ | Right.RUN, "when": date(2024, 1, 1)}
    seen = view(encode(value))
    assert repr(seen) == (
        "{'at': Point(x=1, y=(2,)), 'color': Color.RED, 'rights': Right(value=5), 'when': datetime.date(2024, 1, 1)}"
    )
    assert (seen["at"].kind, seen["at"].name, seen["at"].version) == ("dataclass", "corpus:Point", 1)
    assert seen["at"].fields == {"x": 1, "y": (2,)}


def test_generic_nodes_are_equal_by_content_and_type() -> None:
    one, true, again = (view(encode(Point(x))) for x in (1, True, 1))
    assert one == again
    assert one != true
    assert one != Point(1)
    assert {one: "found"}[again] == "found"


def test_different_objects_that_look_equal_in_a_view_are_not_lost() -> None:
    value = {Plain(1), Plain(1)}
    data = encode(value)
    assert len(decode(data)) == 2
    assert encode(view(data)) == data


def test_an_array_without_numpy_is_viewed_and_named_but_not_decoded() -> None:
    """Promise 8: bytes do not decide what is imported."""
    data = encode([np.arange(3, dtype="<i2")])
    code = (
        "import sys; from everstep.codec.values import *; from everstep.errors import *\n"
        f"data = bytes.fromhex('{data.hex()}')\n"
        "assert encode(view(data)) == data; print(view(data))\n"
        "try: decode(data)\n"
        "except UnknownClassError as error: print(error.name)\n"
        "assert 'numpy' not in sys.modules and 'pydantic' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    shown, named = done.stdout.splitlines()
    assert shown == f"[ndarray(content=['<i2', [3], {np.arange(3, dtype='<i2').tobytes()!r}])]"
    assert "numpy" in named


# Blobs


def test_a_reference_is_resolved_when_there_is_something_to_fetch_it_from() -> None:
    ref = BlobRef(bytes(16), 5)
    blobs = {ref.id: encode(Point(1, (2,)))}
    data = encode({"doc": ref, "more": [(ref,)]})
    assert decode(data) == {"doc": ref, "more": [(ref,)]}
    assert decode(data, blobs.__getitem__) == {"doc": Point(1, (2,)), "more": [(Point(1, (2,)),)]}
    assert repr(view(data, blobs.__getitem__)["doc"]) == "Point(x=1, y=(2,))"


def test_references_that_lead_to_themselves_or_multiply_without_end_are_damage() -> None:
    """Promise 8."""
    ref = BlobRef(bytes(16), 5)
    with pytest.raises(DamagedError):
        decode(encode(ref), {ref.id: encode([ref])}.__getitem__)
    with pytest.raises(DamagedError):
        decode(encode(ref), {ref.id: encode([ref, ref])}.__getitem__)
    ids = [bytes([n]) * 16 for n in range(60)]
    laughs = {a: encode([BlobRef(b, 1), BlobRef(b, 1)]) for a, b in itertools.pairwise(ids)} | {ids[-1]: encode(1)}
    with pytest.raises(DamagedError, match="bytes"):
        decode(encode(BlobRef(ids[0], 1)), laughs.__getitem__)
