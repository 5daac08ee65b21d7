from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ormsgpack import Fragment

from everstep.codec import delta
from everstep.codec.delta import APPEND, DELETE, SET, SPLICE
from everstep.codec.keyframe import StateTree, refs, thaw
from everstep.codec.values import encode, view
from everstep.errors import StateError
from tests.unit.codec.pieces import Pieces, make_small

PATHS: list[Any] = ["log", ["deep", "log"], ["deep", 7, "log"], "other"]


def some_item(rng: random.Random, pieces: Pieces) -> Any:
    kind = rng.random()
    if kind < 0.1:
        return pieces.blob(rng.choice(["blob", "other blob"]))
    if kind < 0.2:
        return {"parts": list(range(rng.randrange(20)))}
    return rng.choice([1, True, "text", "long text " * 5, {"a": 1}, (1, 2), [1, 2], {2.5: [1]}])


def some_op(rng: random.Random, state: dict[str, Any], pieces: Pieces) -> Any:
    """An operation on a list, mostly one that fits."""
    path = rng.choice(PATHS)
    target: Any = state
    for part in path if type(path) is list else [path]:
        target = target[part] if type(target) is dict and part in target else []
    size = len(target) if type(target) is list else 0
    index = rng.randrange(size + 1) if rng.random() < 0.97 else rng.choice([-1, size + 3, "x"])
    items = [some_item(rng, pieces) for _ in range(rng.choice([0, 1, 1, 2, 5]))]
    inside = [*([path] if type(path) is str else path), index]
    ops = [
        [APPEND, path, items * 5],
        [SPLICE, path, index, rng.choice([0, 1, 3, size // 2]), items],
        [SET, inside, some_item(rng, pieces)],
        [DELETE, inside],
        [SET, [*inside, "a"], some_item(rng, pieces)],
        [APPEND, [*inside, "parts"], items],
        [SET, path, items * rng.choice([0, 1, 9])],
        [APPEND, path, [some_item(rng, pieces)]],
    ]
    return rng.choices(ops, weights=[4, 4, 4, 4, 2, 2, 1, 4])[0]


@settings(max_examples=100)
@given(seed=st.integers(0, 2**32))
def test_the_tree_agrees_with_the_plain_fold(seed: int) -> None:
    rng = random.Random(seed)
    pieces = Pieces()
    plain: dict[str, Any] = {"deep": {7: {}}}
    tree = StateTree(pieces.fetch)
    tree.apply([[SET, "deep", {7: {}}]])
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        for _ in range(80):
            op = some_op(rng, plain, pieces)
            data = encode([op])
            refused = outcome(plain_fold, data, plain)
            if refused is None and rng.random() < 0.7 and can_be_taken(op):
                take(op, tree)
            else:
                assert outcome(tree_fold, data, tree) == refused
            if rng.random() < 0.2:
                frozen = pieces.keep(tree.freeze())
                whole = thaw(frozen.data, pieces.fetch, decode=view)
                assert encode(whole) == encode(view(encode(plain), pieces.fetch))
                pieces.asked.clear()
                thaw(frozen.data, pieces.fetch, decode=view)
                assert set(refs(frozen.data, pieces.fetch)) == set(pieces.asked)
                if rng.random() < 0.5:
                    tree = StateTree.load(frozen.data, pieces.fetch)


def plain_fold(ops: bytes, state: dict[str, Any]) -> None:
    delta.apply(state, view(ops))


def tree_fold(ops: bytes, tree: StateTree) -> None:
    tree.apply(view(ops))


def can_be_taken(op: Any) -> bool:
    """Whether a tree takes the operation in without looking at its value: it sets or adds one thing at the top."""
    return type(op[1]) is str and (op[0] == SET or (op[0] == APPEND and len(op[2]) == 1))


def take(op: Any, tree: StateTree) -> None:
    """Have the value of an operation folded in as its encoding: in its place, or as the output of a step."""
    code, path, value = op
    if code == SET:
        tree.take([[SET, path, Fragment(encode(value))]], b"")
    else:
        tree.take([[APPEND, path]], encode(value[0]))


def outcome(fold: Callable[[bytes, Any], None], ops: bytes, target: Any) -> str | None:
    try:
        fold(ops, target)
    except StateError as error:
        return str(error)
    return None
