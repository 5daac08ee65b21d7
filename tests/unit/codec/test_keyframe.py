from __future__ import annotations

import copy
import math
import random
from collections.abc import Iterator
from typing import Any

import pytest

from everstep.codec import frame, keyframe, segments
from everstep.codec.delta import APPEND, DELETE, SET, SPLICE
from everstep.codec.keyframe import Frozen, StateTree, refs, thaw
from everstep.codec.segments import Segments
from everstep.codec.values import encode, view
from everstep.errors import DamagedError, NewerFormatError
from tests.unit.codec.pieces import Pieces, make_small


@pytest.fixture
def pieces() -> Pieces:
    return Pieces()


@pytest.fixture
def small_pieces() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        yield


def message(n: int) -> dict[str, Any]:
    return {"role": "user", "text": f"{n:06}" * 78, "id": n}


def thawed(pieces: Pieces, frozen: Frozen) -> dict[str, Any]:
    return thaw(frozen.data, pieces.fetch, decode=view)


def counts(tree: StateTree, key: str) -> list[int]:
    long = tree._state[key]
    assert type(long) is Segments
    return [segments._count(part) for part in long.parts]


# Keyframes


def test_a_short_state_is_one_frame_without_pieces(pieces: Pieces) -> None:
    tree = StateTree(pieces.fetch)
    tree.apply([[SET, "a", {"b": (1, 2)}], [APPEND, "c", [1, 2]]])
    frozen = tree.freeze()
    assert frozen.blobs == {}
    assert thawed(pieces, frozen) == {"a": {"b": (1, 2)}, "c": [1, 2]}


def test_a_long_list_is_cut_into_pieces_of_bounded_size(pieces: Pieces) -> None:
    tree = StateTree(pieces.fetch)
    state = {"few": [message(n) for n in range(300)], "many": list(range(300)), "deep": {"er": {"log": ["x"] * 300}}}
    tree.apply([[SET, key, value] for key, value in copy.deepcopy(state).items()])
    frozen = pieces.keep(tree.freeze())
    assert all(len(data) <= segments.PIECE_BYTES for data in map(frame.unpack, frozen.blobs.values()))
    assert all(len(view(data)) <= segments.PIECE_ITEMS for data in map(frame.unpack, frozen.blobs.values()))
    assert len(frozen.data) < 40_000
    assert thawed(pieces, frozen) == state


def test_one_large_item_is_a_piece_of_its_own(pieces: Pieces) -> None:
    tree = StateTree(pieces.fetch)
    large = {"parts": ["x" * 60_000, "y" * 60_000]}
    tree.apply([[APPEND, "log", [1, large, 2]]])
    frozen = pieces.keep(tree.freeze())
    assert frame.pack(encode([large])) in frozen.blobs.values()
    assert thawed(pieces, frozen) == {"log": [1, large, 2]}


def test_the_names_that_hold_lists_are_known_whether_short_or_long(pieces: Pieces) -> None:
    tree = StateTree(pieces.fetch)
    tree.apply([[APPEND, "long", list(range(500))], [APPEND, "short", [1]], [SET, "pair", (1, 2)]])
    assert tree.lists() == {"long": True, "short": True, "pair": False}
    assert StateTree.load(pieces.keep(tree.freeze()).data, pieces.fetch).lists() == tree.lists()


def test_nothing_is_handed_out_twice(pieces: Pieces) -> None:
    tree = StateTree(pieces.fetch)
    tree.apply([[APPEND, "log", [message(n) for n in range(400)]]])
    first = pieces.keep(tree.freeze())
    assert tree.freeze() == Frozen(first.data, {})
    assert StateTree.load(first.data, pieces.fetch).freeze() == Frozen(first.data, {})
    assert pieces.asked == []


def test_an_edit_that_is_undone_hands_out_nothing(pieces: Pieces) -> None:
    tree = StateTree(pieces.fetch)
    tree.apply([[APPEND, "log", [message(n) for n in range(400)]]])
    first = pieces.keep(tree.freeze())
    tree.apply([[SET, ["log", 5, "role"], "tool"], [SET, ["log", 5, "role"], "user"]])
    assert tree.freeze() == Frozen(first.data, {})


def test_a_piece_that_was_gone_and_comes_back_is_handed_out_again(pieces: Pieces) -> None:
    tree = StateTree(pieces.fetch)
    tree.apply([[APPEND, "log", list(range(400))]])
    pieces.keep(tree.freeze())
    tree.apply([[SET, ["log", 5], "edited"]])
    pieces.keep(tree.freeze())
    tree.apply([[SET, ["log", 5], 5]])
    assert list(tree.freeze().blobs.values()) == [frame.pack(encode(list(range(128))))]


def test_a_list_under_a_key_that_no_path_finds_again_stays_whole(pieces: Pieces) -> None:
    tree = StateTree(pieces.fetch)
    state = {"a": {math.nan: list(range(500)), (1, 2): {"b": list(range(500))}}}
    tree.apply([[SET, "a", state["a"]]])
    frozen = tree.freeze()
    assert frozen.blobs == {}
    assert encode(thawed(pieces, frozen)) == encode(state)


def test_an_edit_inside_a_closed_piece_reads_and_writes_only_that_piece(pieces: Pieces) -> None:
    """Promise 11: an edit costs the pieces it touches."""
    tree = StateTree(pieces.fetch)
    tree.apply([[APPEND, "log", [message(n) for n in range(1000)]]])
    pieces.keep(tree.freeze())
    for ops in (
        [[SET, ["log", 500, "role"], "tool"]],
        [[SET, ["log", 20], "gone"]],
        [[DELETE, ["log", 700]]],
        [[SPLICE, "log", 300, 1, [1, 2, 3]]],
        [[APPEND, ["log", 800, "tags"], ["new"]]],
    ):
        pieces.asked.clear()
        tree.apply(ops)
        frozen = pieces.keep(tree.freeze())
        assert len(pieces.asked) == 1
        # A full piece that grew is two now.
        assert sum(map(len, frozen.blobs.values())) < segments.PIECE_BYTES + 1000


def test_pieces_that_go_as_a_whole_are_not_read(pieces: Pieces) -> None:
    tree = StateTree(pieces.fetch)
    tree.apply([[APPEND, "log", list(range(1280))]])
    pieces.keep(tree.freeze())
    tree.apply([[SPLICE, "log", 100, 1000, ["x"]]])
    assert len(pieces.asked) == 2
    assert thawed(pieces, pieces.keep(tree.freeze()))["log"] == [*range(100), "x", *range(1100, 1280)]
    pieces.asked.clear()
    tree.apply([[SPLICE, "log", 5, sum(counts(tree, "log")[:2]) - 5, []]])  # to the end of a piece
    assert len(pieces.asked) == 1


def test_closed_pieces_are_not_kept_in_memory(pieces: Pieces) -> None:
    tree = StateTree(pieces.fetch)
    for start in range(0, 20_000, 1000):
        tree.apply([[APPEND, "log", list(range(start, start + 1000))]])
        pieces.keep(tree.freeze())
        long = tree._state["log"]
        assert sum(len(part) for part in long.parts if type(part) is list) <= segments.PIECE_ITEMS
        assert len(long.parts) <= 2 * segments.PIECE_ITEMS


def test_a_list_that_became_short_is_whole_again(pieces: Pieces) -> None:
    tree = StateTree(pieces.fetch)
    tree.apply([[APPEND, "log", list(range(500))]])
    pieces.keep(tree.freeze())
    tree.apply([[SPLICE, "log", 3, 497, []]])
    frozen = tree.freeze()
    assert refs(frozen.data, pieces.fetch) == []
    assert thawed(pieces, frozen) == {"log": [0, 1, 2]}


def test_a_keyframe_costs_what_changed_and_not_how_long_the_list_is(pieces: Pieces) -> None:
    """Promise 11: bytes per keyframe stay flat over a growing run, with the references counted too."""
    tree = StateTree(pieces.fetch)
    costs = []
    for start in range(0, 60_000, 100):
        tree.apply([[APPEND, "log", list(range(start, start + 100))], [SET, "turn", start]])
        frozen = pieces.keep(tree.freeze())
        costs.append(len(frozen.data) + sum(map(len, frozen.blobs.values())))
    assert pieces.asked == []
    # One full level of references, an open end, at most two levels closing at once.
    assert max(costs) < 128 * 30 + 3 * 128 * 30
    assert sum(costs[-200:]) < 1.5 * sum(costs[200:400])


def test_deletions_leave_few_small_pieces(pieces: Pieces, small_pieces: None) -> None:
    tree = StateTree(pieces.fetch)
    rng = random.Random(1)
    tree.apply([[APPEND, "log", list(range(1000))]])
    pieces.keep(tree.freeze())
    for size in range(1000, 200, -1):
        tree.apply([[DELETE, ["log", rng.randrange(size)]]])
        frozen = pieces.keep(tree.freeze())
    _, lists = keyframe._parts(view(frozen.data))
    leaves = [leaf for ref in lists[0][1] for leaf in keyframe._leaves(ref, pieces.fetch)]
    assert len(leaves) <= 200


def test_a_tail_grows_into_levels_and_every_item_can_be_reached(pieces: Pieces, small_pieces: None) -> None:
    tree = StateTree(pieces.fetch)
    tree.apply([[APPEND, "log", list(range(300))]])
    frozen = pieces.keep(tree.freeze())
    _, lists = keyframe._parts(view(frozen.data))
    assert max(ref.level for ref in lists[0][1]) >= 2
    for n in range(300):
        tree.apply([[SET, ["log", n], -n]])
        if n % 7 == 0:
            pieces.keep(tree.freeze())
    assert thawed(pieces, pieces.keep(tree.freeze()))["log"] == [-n for n in range(300)]


def test_pieces_wait_for_the_next_keyframe_when_one_could_not_be_made(pieces: Pieces, small_pieces: None) -> None:
    tree = StateTree(pieces.fetch)
    tree.apply([[APPEND, "a", list(range(9))], [APPEND, "b", list(range(20))]])
    pieces.keep(tree.freeze())
    tree.apply([[APPEND, "a", list(range(9, 30))], [SPLICE, "b", 8, 3, []]])
    kept, pieces.content = pieces.content, {}
    with pytest.raises(KeyError):
        tree.freeze()  # what is left of b's third piece joins the second, which cannot be read now
    pieces.content = kept
    assert thawed(pieces, pieces.keep(tree.freeze())) == {"a": list(range(30)), "b": [*range(8), *range(11, 20)]}


# References


def test_all_that_a_keyframe_needs_is_named_through_every_level(pieces: Pieces, small_pieces: None) -> None:
    tree = StateTree(pieces.fetch)
    tree.apply([[SET, "doc", pieces.blob("d" * 99)], [APPEND, "log", list(range(90))]])
    tree.apply([[SET, ["log", 3], {"image": (pieces.blob("i" * 99),)}]])
    frozen = pieces.keep(tree.freeze())
    needed = refs(frozen.data, pieces.fetch)
    pieces.asked.clear()
    state = thawed(pieces, frozen)
    assert (state["doc"], state["log"][3]) == ("d" * 99, {"image": ("i" * 99,)})
    assert set(needed) == set(pieces.asked)
    assert len(needed) == len(set(needed))


def test_pieces_without_blobs_are_not_read_to_find_references(pieces: Pieces) -> None:
    tree = StateTree(pieces.fetch)
    tree.apply([[APPEND, "log", list(range(1000))], [SET, ["log", 3], pieces.blob("i" * 99)]])
    frozen = pieces.keep(tree.freeze())
    _, lists = keyframe._parts(view(frozen.data))
    assert len(refs(frozen.data, pieces.fetch)) == len(lists[0][1]) + 1
    assert len(pieces.asked) == 1


# Damage


@pytest.mark.parametrize(
    "frame",
    [
        None,
        [],
        [1],
        ["1", {}, []],
        [1, [], []],
        [1, {}, {}],
        [1, {}, [[]]],
        [1, {}, [[["a"], []]]],
        [1, {"a": 1}, [[["a"], []]]],
        [1, {"a": []}, [["a", []]]],
        [1, {"a": []}, [[[["a"]], []]]],
        [1, {"a": []}, [[["a", "b"], []]]],
        [1, {"a": []}, [[["a"], [1]]]],
        [1, {"a": []}, [[["a"], [["id", 1, 0, False]]]]],
        [1, {"a": []}, [[["a"], [[b"i", 0, 0, False]]]]],
        [1, {"a": []}, [[["a"], [[b"i", 1, -1, False]]]]],
        [1, {"a": []}, [[["a"], [[b"i", 1, 99, False]]]]],
        [1, {"a": []}, [[["a"], [[b"i", 1, 0, 1]]]]],
    ],
)
def test_a_frame_of_another_shape_is_damage(pieces: Pieces, frame: Any) -> None:
    """Promise 8: hostile bytes give an error of ours."""
    with pytest.raises(DamagedError):
        thaw(encode(frame), pieces.fetch, decode=view)
    with pytest.raises(DamagedError):
        StateTree.load(encode(frame), pieces.fetch)


@pytest.mark.parametrize("content", [[1], [1, 2, 3], {"a": 1}, [[b"i", 2, 0, False]], None])
@pytest.mark.parametrize("level", [0, 2])
def test_a_piece_that_is_not_what_its_reference_says_is_damage(pieces: Pieces, content: Any, level: int) -> None:
    """Promise 9: a piece of another shape is seen before its items are used."""
    pieces.content[b"p"] = frame.pack(encode(content))
    pieces.content[b"i"] = frame.pack(encode([1, 2]))
    data = encode([1, {"a": [0]}, [[["a"], [[b"p", 2, level, False]]]]])
    with pytest.raises(DamagedError):
        thaw(data, pieces.fetch, decode=view)
    with pytest.raises(DamagedError):
        StateTree.load(data, pieces.fetch).apply([[SET, ["a", 0], 1]])


def test_a_piece_that_covers_other_items_than_its_reference_says_is_damage(pieces: Pieces) -> None:
    """Promise 9: a wrong count would shift every index after it."""
    pieces.content[b"p"] = frame.pack(encode([[b"i", 2, 0, False]]))
    pieces.content[b"i"] = frame.pack(encode([1, 2]))
    with pytest.raises(DamagedError):
        thaw(encode([1, {"a": [0]}, [[["a"], [[b"p", 3, 1, False]]]]]), pieces.fetch, decode=view)


def test_a_later_format_is_told_apart_from_damage(pieces: Pieces) -> None:
    with pytest.raises(NewerFormatError):
        StateTree.load(encode([2, "anything"]), pieces.fetch)


def test_a_small_file_cannot_claim_a_huge_list(pieces: Pieces, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise 8: one piece named over and over is stopped at a bound."""
    monkeypatch.setattr(keyframe, "MAX_BYTES", 1_000_000)
    pieces.content[b"0"] = frame.pack(encode(["x" * 100]))
    count = 1
    for level in range(1, 5):
        pieces.content[b"%d" % level] = frame.pack(encode([[b"%d" % (level - 1), count, level - 1, False]] * 100))
        count *= 100
    data = encode([1, {"a": []}, [[["a"], [[b"4", count, 4, False]]]]])
    with pytest.raises(DamagedError, match="more than 1,000,000 bytes"):
        thaw(data, pieces.fetch, decode=view)
    assert len(pieces.asked) < 300
    pieces.asked.clear()
    assert len(refs(data, pieces.fetch)) == 5
    assert len(pieces.asked) == 4
