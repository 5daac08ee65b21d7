"""Rows by the short way are the rows of the long one, byte for byte, or there is no short way for them."""

from __future__ import annotations

import copy
import random
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ormsgpack import Fragment

from everstep import Runner, Trail, current, step, workflow
from everstep.codec import keyframe
from everstep.codec.delta import APPEND, DELETE, SET, SPLICE
from everstep.codec.encoding import Kept
from everstep.codec.keyframe import StateTree
from everstep.codec.record import ops_of
from everstep.codec.segments import looked_into
from everstep.codec.values import encode, plain, view
from everstep.errors import StateError, UnstorableError
from everstep.model import Secret
from everstep.policy.redaction import Gate
from everstep.trail.packing import gated_row, plain_row
from everstep.trail.shadow import Shadow
from tests.unit.policy.samples import KEY, SAMPLES

GATE = Gate(lambda: KEY)
NAMES = st.sampled_from(["a", "page", "messages", "password", "token", "x" * 40, "ключ"])
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False), st.text(max_size=20),
    st.binary(max_size=20), st.sampled_from([sample.text for sample in SAMPLES]),
    st.sampled_from([(1, 2), datetime(2026, 1, 2, tzinfo=UTC), Secret("word"), bytearray(b"ab"), Fragment(b"\x01")]),
)  # fmt: skip


class Word(StrEnum):
    """A name that is a str, and no plain one."""

    PAGE = "page"


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


VALUES = st.integers(250, 256).map(nested) | st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(NAMES, inner, max_size=3), st.tuples(NAMES, inner).map(list)
    ),
    max_leaves=8,
)


def given_now(value: Any) -> Any:
    """A value as the code of a step sets it."""
    data = plain(value, GATE.names)
    return value if data is None else Kept(data)


SET_NAMES = st.sampled_from(["pad", "page", "\ud800", Word.PAGE])
OPS = st.one_of(
    st.builds(lambda name: [SET, name], st.sampled_from(["page", "messages"])),
    st.builds(lambda name: [APPEND, name], st.sampled_from(["page", "messages"])),
    st.builds(lambda name, value: [SET, name, given_now(value)], SET_NAMES, VALUES),
    st.builds(lambda name, value: [SET, name, value], SET_NAMES, VALUES),
    st.builds(lambda items: [APPEND, "messages", items], st.lists(VALUES, max_size=3)),
    st.builds(lambda value: [SET, ["deep", "er"], value], VALUES),
    st.just([DELETE, "pad"]),
    st.builds(lambda part: [DELETE, ["deep", part]], LEAVES),
    st.builds(lambda items: [SPLICE, "messages", 0, 0, items], st.lists(VALUES, max_size=2)),
)


def is_one_output(ops: list[Any]) -> bool:
    """An output that goes to two places is written twice: it is never shared."""
    return [len(op) == 2 and op[0] != DELETE for op in ops].count(True) <= 1


@settings(max_examples=600)
@given(
    meta=st.lists(st.one_of(st.integers(0, 9), st.text(max_size=5), st.sampled_from([s.text for s in SAMPLES]))),
    inputs=st.one_of(st.none(), st.dictionaries(NAMES, VALUES, max_size=2)),
    ready=st.sampled_from([None, encode({"n": 1})]),
    output=VALUES,
    ops=st.lists(OPS, max_size=3).filter(is_one_output).map(lambda ops: ops or None),
    rest=st.sampled_from([[], [{"type": "E"}, None], [None, {"question": "?"}]]),
)
def test_the_short_way_gives_what_the_long_one_gives(
    meta: list[Any], inputs: Any, ready: bytes | None, output: Any, ops: list[Any] | None, rest: list[Any]
) -> None:
    """Promise 10: what holds a secret, or is no plain data, goes the long way."""
    payload = [inputs if ready is None else None, output, ops, *rest]
    row = plain_row(GATE, list(meta), copy.copy(payload), ready, own_meta=False)
    try:
        light, body, _ = gated_row(GATE, list(meta), copy.copy(payload), ready)
    except UnstorableError:
        assert row is None
        return
    if row is not None:
        assert row[:2] == (light, body)
    if row is not None and row[2] is not None and ops is not None and is_admitted(ops, output):
        by_taking, by_folding = begun(), begun()
        by_taking.take(*row[2])
        by_folding.apply(ops_of(view(body)))
        assert by_taking.freeze() == by_folding.freeze()


def begun() -> StateTree:
    tree = StateTree(lambda _: b"")
    tree.apply([[SET, "page", []], [SET, "messages", [0]]])
    return tree


def is_admitted(ops: list[Any], output: Any) -> bool:
    """Whether a writer lets the operations through, so that they are folded in."""
    shadow = Shadow(begun())
    shadow.lists = None
    with suppress(StateError):
        return not shadow.admit(ops, output)
    return False


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.rule)
@pytest.mark.parametrize("where", ["inputs", "output", "set", "kept", "appended", "meta"])
def test_a_secret_goes_the_long_way_wherever_it_stands(sample: Any, where: str) -> None:
    """Promise 10."""
    at = {where: f"see {sample.text}"}
    kept = Kept(encode(at.get("kept")))
    ops = [[SET, "a", kept], [SET, "b", at.get("set")], [APPEND, "c", [at.get("appended")]], [SET, "d"]]
    payload = [{"x": at.get("inputs")}, at.get("output"), ops]
    assert plain_row(GATE, [1, at.get("meta")], payload, None, own_meta=False) is None
    light, body, _ = gated_row(GATE, [1, at.get("meta")], payload, None)
    assert sample.text.encode() not in light + body


@pytest.mark.parametrize("levels", range(250, 255))
def test_what_is_nested_deeply_does_not_fail_the_step_that_makes_a_keyframe(trail: Trail, levels: int) -> None:
    """It is stored, or refused at once with its path; the steps after it are none the worse."""
    with trail.record("r") as run:
        with suppress(UnstorableError):
            run.step("deep", output=nested(levels), append_to="pages")
        with suppress(UnstorableError):
            run.step("deep", set={"deep": nested(levels)})
        for number in range(70):
            run.step("page", output=f"{random.randbytes(2_000).hex()} {number}", append_to="pages")
    assert trail.store.keyframe("r", 72) is not None
    assert trail.state("r")["pages"][-1].endswith(" 69")
    assert trail.verify("r").ok


def test_a_name_that_is_no_plain_text_is_refused_in_a_step(trail: Trail) -> None:
    @step
    def odd() -> int:
        current().state[Word.PAGE] = [0, "other", 7]
        return 1

    @workflow
    def work() -> int:
        return odd()

    with pytest.raises(StateError):
        Runner(trail).run(work, id="r")
    assert trail.state("r") == {}


def test_what_a_pause_says_of_itself_does_not_decide_whether_it_is_kept(trail: Trail) -> None:
    class Anything:
        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 0

    with trail.record("r") as run, pytest.raises(UnstorableError, match="pause"):
        run.step("ask", pause=Anything())


def test_a_step_costs_what_it_changes_however_many_names_the_state_has(trail: Trail) -> None:
    """Promise 11: folding looks into the names that operations lead to, and into no other."""
    looked: list[Any] = []

    def counted(value: Any) -> Any:
        looked.append(value)
        return looked_into(value)

    with pytest.MonkeyPatch.context() as patch, trail.record("r") as run:
        run.step("names", set={f"name{number}": {"n": number} for number in range(300)})
        patch.setattr(keyframe, "looked_into", counted)
        for number in range(40):
            run.step("deep", set={("name7", "n"): number})
            run.step("log", append={"log": [number]})
    assert len(looked) == 1
    assert trail.state("r")["name7"] == {"n": 39}
