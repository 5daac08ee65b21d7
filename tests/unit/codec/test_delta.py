from __future__ import annotations

import copy
import math
import random
from datetime import date
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.codec.delta import APPEND, DELETE, SET, SPLICE, Differ, apply, diff, path_text
from everstep.codec.values import encode, view
from everstep.errors import StateError, UnstorableError
from everstep.model import Redacted, Secret


def folded(state: dict[str, Any], *ops: Any) -> dict[str, Any]:
    """The fold as a reader does it, with states and operations that were stored."""
    read: dict[str, Any] = view(encode(state))
    apply(read, view(encode(list(ops))))
    return read


# apply


def test_set_replaces_a_value_in_place_and_adds_a_new_one_at_the_end() -> None:
    state = folded({"a": 1, "b": 2}, [SET, "a", "x"], [SET, ["c"], 3])
    assert list(state.items()) == [("a", "x"), ("b", 2), ("c", 3)]


def test_a_path_leads_through_dicts_and_lists() -> None:
    state = {"agents": {7: {"notes": ["a", {"b": 1}]}}}
    changed = folded(state, [SET, ["agents", 7, "notes", 1, "b"], 2], [DELETE, ["agents", 7, "notes", 0]])
    assert changed == {"agents": {7: {"notes": [{"b": 2}]}}}


def test_any_hashable_value_can_be_a_key_in_a_path() -> None:
    assert folded({"grid": {(0, 1): "a"}}, [SET, ["grid", (0, 1)], "b"]) == {"grid": {(0, 1): "b"}}


def test_append_extends_a_list_or_creates_it() -> None:
    state = folded({"a": [1]}, [APPEND, "a", [2, 3]], [APPEND, "b", [4]], [APPEND, ["b"], []])
    assert state == {"a": [1, 2, 3], "b": [4]}


def test_a_list_made_by_append_is_not_the_list_in_the_operation() -> None:
    first = [APPEND, "a", [1]]
    state: dict[str, Any] = {}
    apply(state, [first, [APPEND, "a", [2]]])
    assert first == [APPEND, "a", [1]]


def test_splice_inserts_removes_and_replaces_items() -> None:
    state = {"a": [0, 1, 2, 3]}
    assert folded(state, [SPLICE, "a", 4, 0, [4]])["a"] == [0, 1, 2, 3, 4]
    assert folded(state, [SPLICE, "a", 0, 4, []])["a"] == []
    assert folded(state, [SPLICE, "a", 1, 2, ["x"]])["a"] == [0, "x", 3]


@pytest.mark.parametrize(
    ("op", "path"),
    [
        ([SET, ["missing", "x"], 1], "state.missing.x"),
        ([SET, ["list", 3], 1], "state.list[3]"),
        ([SET, ["list", -1], 1], "state.list[-1]"),
        ([SET, ["list", True], 1], "state.list[True]"),
        ([SET, ["text", "x"], 1], "state.text.x"),
        ([SET, ["pair", 0], 1], "state.pair[0]"),
        ([SET, ["dict", []], 1], "state.dict[[]]"),
        ([DELETE, "missing"], "state.missing"),
        ([DELETE, ["dict", "x y"]], "state.dict['x y']"),
        ([DELETE, ["list", 3]], "state.list[3]"),
        ([APPEND, "text", [1]], "state.text"),
        ([APPEND, "pair", [1]], "state.pair"),
        ([APPEND, ["list", 3], [1]], "state.list[3]"),
        ([APPEND, ["missing", "x"], [1]], "state.missing.x"),
        ([APPEND, "list", "text"], "state.list"),
        ([APPEND, "list", (1,)], "state.list"),
        ([SPLICE, "missing", 0, 0, []], "state.missing"),
        ([SPLICE, "dict", 0, 0, []], "state.dict"),
        ([SPLICE, "list", 4, 0, []], "state.list"),
        ([SPLICE, "list", 2, 2, []], "state.list"),
        ([SPLICE, "list", -1, 1, []], "state.list"),
        ([SPLICE, "list", 1, -1, []], "state.list"),
        ([SPLICE, "list", "0", 0, []], "state.list"),
        ([SPLICE, "list", 0, 0, None], "state.list"),
        ([SET, [], {}], "state"),
        ([SET, [1], 1], "state"),
        ([SET, 1, 1], "state"),
        ([SET, "dict"], "state"),
        ([9, "dict", 1], "state"),
        (["0", "dict", 1], "state"),
        ([], "state"),
        ("no list", "state"),
    ],
)
def test_an_operation_that_does_not_fit_is_refused_naming_the_path(op: Any, path: str) -> None:
    state = {"list": [0, 1, 2], "dict": {}, "text": "t", "pair": (1, 2)}
    before = copy.deepcopy(state)
    with pytest.raises(StateError) as refused:
        apply(state, [op])
    assert refused.value.path == path
    assert state == before


def test_a_path_is_written_as_people_write_it() -> None:
    assert path_text("a") == "state.a"
    assert path_text(["a b", 3, "c"]) == "state['a b'][3].c"


# diff


@pytest.mark.parametrize(
    ("old", "new", "ops"),
    [
        ({}, {}, []),
        ({}, {"a": 1}, [[SET, "a", 1]]),
        ({"a": 1}, {}, [[DELETE, "a"]]),
        ({"a": [1]}, {"a": [1, 2]}, [[APPEND, "a", [2]]]),
        ({"a": []}, {"a": [1]}, [[APPEND, "a", [1]]]),
        (
            {"a": {"b": {"c": 1, "long": "x" * 99}}},
            {"a": {"b": {"c": 2, "long": "x" * 99}}},
            [[SET, ["a", "b", "c"], 2]],
        ),
        ({"a": {"b": [1], "long": "x" * 99}}, {"a": {"b": [1, 2], "long": "x" * 99}}, [[APPEND, ["a", "b"], [2]]]),
        ({"a": {"b": 1, "c": "x" * 99}}, {"a": {"c": "x" * 99}}, [[DELETE, ["a", "b"]]]),
        ({"a": {1: "x" * 99, 2: 0}}, {"a": {1: "x" * 99, 2: 1}}, [[SET, ["a", 2], 1]]),
    ],
)
def test_a_change_gives_the_operation_that_says_it(old: Any, new: Any, ops: Any) -> None:
    assert diff(old, new) == ops


def test_a_change_in_the_middle_of_a_list_is_one_splice() -> None:
    old = {"a": [f"item {n}" for n in range(100)]}
    new = {"a": [*old["a"][:40], "new", *old["a"][43:]]}
    assert diff(old, new) == [[SPLICE, "a", 40, 3, ["new"]]]


def test_a_small_change_in_a_big_item_is_small() -> None:
    old = {"a": [{"text": "x" * 500, "n": n, "tags": ["t"]} for n in range(20)]}
    new = copy.deepcopy(old)
    new["a"][3]["n"] = -1
    new["a"][17]["tags"] = ["t", "u"]
    assert diff(old, new) == [[SET, ["a", 3, "n"], -1], [APPEND, ["a", 17, "tags"], ["u"]]]


def test_a_value_is_set_whole_when_its_changes_would_be_larger() -> None:
    old = {"a": {f"key {n}": n for n in range(9)}}
    new = {"a": {f"key {n}": n + 1 for n in range(9)}}
    assert diff(old, new) == [[SET, "a", new["a"]]]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        (True, 1),
        ((1,), [1]),
        ("a", b"a"),
        ("a", Redacted("a")),
        ({1: 0}, {True: 0}),
        ({0.0: 0}, {-0.0: 0}),
        ({math.nan: 0}, {}),
    ],
)
def test_values_that_are_equal_but_stored_differently_are_changes(old: Any, new: Any) -> None:
    """Promise 7: a comparison by equality would lose these."""
    before, after = ({"top": value, "in": {"a": value, "b": "x" * 99}} for value in (old, new))
    assert encode(folded(before, *diff(before, after))) == encode(after)


def test_the_same_nan_is_no_change() -> None:
    assert diff({"a": math.nan, "b": [math.nan]}, {"a": float("nan"), "b": [float("nan")]}) == []


@pytest.mark.parametrize("old", [{"a": 1, "b": 2, "c": 3}, {"b": 2, "d": 1, "a": 1}])
@pytest.mark.parametrize("new", [{"c": 3, "b": 2, "a": 1}, {"a": 1, "x": 0, "b": 2}])
def test_the_order_of_keys_is_kept_at_every_depth(old: Any, new: Any) -> None:
    for before, after in ((old, new), ({"in": old}, {"in": new})):
        assert encode(folded(before, *diff(before, after))) == encode(after)


# Differ


def test_what_was_changed_in_place_is_seen() -> None:
    state: dict[str, Any] = {"messages": [{"text": f"message {n}"} for n in range(9)], "board": {"todo": [1, 2]}}
    differ = Differ(state)
    state["messages"][2]["text"] = "edited"
    state["board"]["todo"].append(3)
    assert differ.delta(state) == [
        [SET, ["messages", 2, "text"], "edited"],
        [APPEND, ["board", "todo"], [3]],
    ]


def test_a_mutable_value_is_never_skipped_for_being_the_same_object() -> None:
    blob = bytearray(b"abc")
    state: dict[str, Any] = {"blob": blob, "pair": ([1],)}
    differ = Differ(state)
    blob[0] = 0
    state["pair"][0].append(2)
    assert [op[1] for op in differ.delta(state)] == ["blob", "pair"]


@pytest.mark.parametrize("old", [b"abc", "abc", 1, None])
@pytest.mark.parametrize("new", [bytearray(b"abc"), b"abc", (1,), date(2020, 1, 2), "2020-01-02", True])
@pytest.mark.parametrize("grown", [[], [1], [bytearray(b"x")]])
def test_an_old_item_that_changes_its_type_in_place_is_seen_in_a_list_that_grows(
    old: Any, new: Any, grown: Any
) -> None:
    """Promise 7: nothing that packs to the same bytes may pass for the old item."""
    state: dict[str, Any] = {"list": ["x" * 99, {"item": old}]}
    differ = Differ(state)
    stored = view(encode(state))
    for item in (new, old, new):
        state["list"][1]["item"] = item
        state["list"] += grown
        apply(stored, view(encode(differ.delta(state))))
        differ.advance()
        assert encode(stored) == encode(state)


def test_a_new_item_that_packs_like_another_type_is_remembered_as_what_it_is() -> None:
    state: dict[str, Any] = {"list": ["x" * 99]}
    differ = Differ(state)
    state["list"].append(bytearray(b"abc"))
    assert differ.delta(state) == [[APPEND, "list", [bytearray(b"abc")]]]
    differ.advance()
    state["list"][1] = b"abc"
    assert differ.delta(state) == [[SET, ["list", 1], b"abc"]]


def test_after_a_failed_write_the_next_delta_is_against_what_is_stored() -> None:
    differ = Differ({"a": [1]})
    assert differ.delta({"a": [1, 2]}) == [[APPEND, "a", [2]]]
    assert differ.delta({"a": [1, 2, 3]}) == [[APPEND, "a", [2, 3]]]
    differ.advance()
    assert differ.delta({"a": [1, 2, 3, 4]}) == [[APPEND, "a", [4]]]


def test_a_refused_state_leaves_the_saved_one_alone() -> None:
    differ = Differ({"a": 1})
    with pytest.raises(UnstorableError):
        differ.delta({"a": 2, "b": object()})
    assert differ.delta({"a": 2}) == [[SET, "a", 2]]


def test_the_path_of_a_refused_value_begins_at_the_top_level_key() -> None:
    """Promise 7: what cannot be stored is named."""
    with pytest.raises(UnstorableError) as refused:
        Differ({"messages": [{"text": "fine"}, {"when": object()}]})
    assert refused.value.path == "value.messages[1].when"


def test_a_secret_is_compared_as_what_it_is() -> None:
    state: dict[str, Any] = {"keys": {"first": Secret("one"), "second": Secret("two"), "note": "x" * 99}}
    differ = Differ(state)
    assert differ.delta(copy.deepcopy(state)) == []
    state["keys"]["second"] = Secret("three")
    assert differ.delta(state) == [[SET, ["keys", "second"], Secret("three")]]


def test_a_top_level_key_that_is_not_a_str_is_refused() -> None:
    bad: Any = {1: 1}
    with pytest.raises(StateError, match=r"state\[1\]"):
        Differ(bad)


def test_a_list_grows_past_every_size_of_its_stored_head() -> None:
    state: dict[str, Any] = {"a": []}
    differ = Differ(state)
    for size in (1, 15, 16, 17, 65535, 65536, 65537):
        grown = list(range(len(state["a"]), size))
        state["a"].extend(grown)
        assert differ.delta(state) == [[APPEND, "a", grown]]
        differ.advance()


def test_the_delta_of_an_append_does_not_grow_with_the_list() -> None:
    """Promise 11: the operations hold what changed."""
    state: dict[str, Any] = {"messages": [], "document": "d" * 200_000, "scratch": {}}
    differ = Differ(state)
    sizes = []
    for n in range(200):
        state["messages"].append({"role": "user", "text": "x" * 470, "id": 1000 + n})
        state["scratch"] = {"turn": 1000 + n, "plan": "p" * 100}
        sizes.append(len(encode(differ.delta(state))))
        differ.advance()
    assert len(set(sizes[1:])) == 1


# The fuzzer

TEXT: list[Any] = [0, 1, True, 1.0, -0.0, math.nan, "", "word", "x" * 60, None]
OTHER: list[Any] = [b"word", bytearray(b"word"), (1, "a"), 2**70, frozenset({1}), date(2020, 1, 2)]
KEYS: list[Any] = ["a", "b", "c", "d", 1, True, 2.5, math.nan, b"k", (1, 2)]


def some_value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.random()
    if depth < 3 and kind < 0.2:
        return [some_value(rng, depth + 1) for _ in range(rng.randrange(6))]
    if depth < 3 and kind < 0.4:
        keys = KEYS if rng.random() < 0.2 else KEYS[:5]
        return {rng.choice(keys): some_value(rng, depth + 1) for _ in range(rng.randrange(5))}
    return rng.choice(TEXT if rng.random() < 0.9 else OTHER)


def containers(node: Any) -> list[Any]:
    inner = node.values() if type(node) is dict else node if type(node) is list else ()
    found = [node] if type(node) in (dict, list) else []
    return found + [deep for value in inner for deep in containers(value)]


def mutate(rng: random.Random, state: dict[str, Any]) -> None:
    """Change the state somewhere, in place."""
    node = rng.choice(containers(state))
    if type(node) is list:
        at = rng.randrange(len(node) + 1)
        node[at : at + rng.choice([0, 0, 1, 2])] = [some_value(rng, 1) for _ in range(rng.choice([0, 1, 1, 3]))]
        return
    keys = list(node)
    act = rng.random()
    if act < 0.15 and keys:
        del node[rng.choice(keys)]
    elif act < 0.3:
        rng.shuffle(keys)
        shuffled = {key: node[key] for key in keys}
        node.clear()
        node.update(shuffled)
    else:
        node[rng.choice(KEYS[:4] if node is state else KEYS)] = some_value(rng)


@settings(max_examples=400)
@given(seed=st.integers(0, 2**32))
def test_folding_the_deltas_of_random_changes_gives_the_state(seed: int) -> None:
    rng = random.Random(seed)
    state: dict[str, Any] = {key: some_value(rng) for key in "abc"}
    differ = Differ(state)
    stored = view(encode(state))
    for _ in range(40):
        for _ in range(rng.choice([1, 1, 2])):
            mutate(rng, state)
        data = encode(differ.delta(state))
        if rng.random() < 0.2:
            continue  # the write failed
        differ.advance()
        apply(stored, view(data))
        assert encode(stored) == encode(state)
