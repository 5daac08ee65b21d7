from __future__ import annotations

import re
from typing import Any

import pytest

from everstep.codec import delta
from everstep.codec.values import decode, encode, view
from everstep.model import Redacted
from everstep.policy.redaction import Gate
from tests.unit.policy.samples import KEY, MIXED

TOKEN = "gh" + "p_" + MIXED[:36]
OPAQUE = "tr0ub4dor&3"


@pytest.fixture
def gate() -> Gate:
    return Gate(lambda: KEY)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"password": OPAQUE}),
        ({"config": {"a": 1}}, {"config": {"a": 1, "api_key": OPAQUE}}),
        ({"config": {"api_key": "old"}}, {"config": {"api_key": OPAQUE, "b": 2}}),
        ({"credentials": {"user": "a", "word": "b"}}, {"credentials": {"user": "a", "word": OPAQUE}}),
        ({"secrets": ["a"]}, {"secrets": ["a", OPAQUE]}),
        ({"secrets": ["a", "b", "c"]}, {"secrets": ["a", OPAQUE, "c"]}),
        ({"password": OPAQUE, "x": 1}, {"x": 1}),
        ({"password": OPAQUE}, {"password": None}),
        ({"users": {TOKEN: {"n": 1}}}, {"users": {TOKEN: {"n": 2}}}),
        ({"users": {TOKEN: {"n": 1}}}, {"users": {}}),
        ({"users": {}}, {"users": {TOKEN: {"n": 1}}}),
        ({}, {TOKEN: 1}),
        ({TOKEN: [1]}, {TOKEN: [1, 2]}),
        ({TOKEN: {"password": "a"}}, {TOKEN: {"password": OPAQUE}}),
        ({TOKEN: 1, "a": 1}, {"a": 1}),
        ({"messages": []}, {"messages": [f"see {TOKEN}"]}),
    ],
)
def test_operations_make_of_the_stored_state_what_the_gate_makes_of_the_real_one(
    gate: Gate, before: dict[str, Any], after: dict[str, Any]
) -> None:
    """Promise 10: in an operation the name of a secret stands in the path, not above the value."""
    ops = delta.diff(before, after)
    stored = gate.gate(gate.operations(ops, after))
    assert OPAQUE.encode() not in stored
    assert TOKEN.encode() not in stored
    state = decode(gate.gate(before))
    delta.apply(state, decode(stored))
    assert encode(state) == gate.gate(after)


@pytest.mark.parametrize("path", ["password", TOKEN, ["a", "api_key", 0], ["a", f"x {TOKEN}"], ["password"]])
def test_an_operation_on_the_name_of_a_secret_is_noticed(gate: Gate, path: Any) -> None:
    assert gate.named([[delta.SET, "a", 1], [delta.SET, path, 1]])


def test_other_operations_pass_as_they_are(gate: Gate) -> None:
    ops = [[delta.SET, "max_tokens", 1], [delta.APPEND, ["a", 1, "b"], []], [delta.DELETE, "x"]]
    assert not gate.named(ops)
    assert gate.operations(ops) == ops


def test_without_the_state_an_operation_below_such_a_name_sets_a_placeholder(gate: Gate) -> None:
    [op] = gate.operations([[delta.SET, ["a", "credentials", "word"], OPAQUE]])
    assert op[:2] == [delta.SET, ["a", "credentials"]]
    assert type(op[2]) is Redacted


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Cfg(user='u', password='hunter two')", "Cfg(user='u', password='[redacted:field:DIGEST]')"),
        ('connect(api_key="abc", n=1)', 'connect(api_key="[redacted:field:DIGEST]", n=1)'),
        ("Login(secret=b'abc')", "Login(secret=b'[redacted:field:DIGEST]')"),
        ("Cfg(password='', n='5', total_tokens='7')", "Cfg(password='', n='5', total_tokens='7')"),
        ('<input type="password" value="x">', '<input type="password" value="x">'),
        ("x = 'password'", "x = 'password'"),
    ],
)
def test_what_a_secret_name_is_set_to_in_text_is_replaced(gate: Gate, text: str, kept: str) -> None:
    """Promise 10: the printed form of an object is what error messages are full of."""
    found = view(gate.gate({"error": ["before", text]}))["error"][1]
    assert re.sub("[0-9a-f]{16}", "DIGEST", found) == kept
    assert view(gate.gate(found)) == found
