from __future__ import annotations

import os
import random
import resource
import struct
import sys
import zoneinfo
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ormsgpack
import pytest

from everstep.codec import extensions as ext
from everstep.codec.frame import pack, unpack
from everstep.codec.values import LIMIT, decode, encode, view
from everstep.errors import ChangedClassError, DamagedError, UnknownClassError
from tests.corpus.make import stored

TYPED = (DamagedError, UnknownClassError, ChangedClassError)
COUNT = int(os.environ.get("EVERSTEP_FUZZ", "20000"))
GROWTH = 300 << 20
TAGS = [*range(-2, 26), *ext.KINDS, 37, 127]


def outcome(read: Callable[[bytes], Any], data: bytes) -> str:
    """What reading gives: a value or a typed error. Anything else comes out and fails the test."""
    try:
        read(data)
    except TYPED as error:
        return f"{type(error).__name__}: {error}"
    return "value"


def read_frame(data: bytes) -> Any:
    return view(unpack(data))


def memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def mutated(chance: random.Random, seeds: list[bytes]) -> bytes:
    """A stored value after one to four accidents, some of them malicious."""
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(7):
            case 0:
                data[at : at + 1] = bytes([data[at] ^ 1 << chance.randrange(8)]) if at < len(data) else b""
            case 1:
                del data[at:]
            case 2:
                other = chance.choice(seeds)
                start = chance.randrange(len(other) + 1)
                data[at : at + chance.randrange(8)] = other[start : start + chance.randrange(40)]
            case 3:
                data[at:at] = chance.randbytes(chance.randrange(6))
            case 4:  # an extension around some of the bytes
                end = at + chance.randrange(64)
                body = bytes(data[at:end])
                data[at:end] = b"\xc8" + len(body).to_bytes(2, "big") + bytes([chance.choice(TAGS) & 0xFF]) + body
            case 5:  # another tag, or another type
                if at < len(data):
                    data[at] = chance.choice([chance.choice(TAGS) & 0xFF, chance.randrange(0x80, 0x100)])
            case 6:  # a length that lies
                data[at : at + 1] = bytes([chance.choice([0xDD, 0xDF, 0xC6, 0xDB, 0xC9])]) + chance.randbytes(4)
    return bytes(data)


def parsed(data: bytes) -> Any:
    """The tree of an encoding, with slice(tag, content) for its extensions."""
    tree = ormsgpack.unpackb(data, ext_hook=slice)
    return _opened(tree)


def _opened(tree: Any) -> Any:
    if isinstance(tree, slice):
        return slice(tree.start, parsed(tree.stop))
    if isinstance(tree, dict):
        return {key: _opened(item) for key, item in tree.items()}
    return [_opened(item) for item in tree] if isinstance(tree, list) else tree


def packed(tree: Any) -> Any:
    """The tree with extensions that ormsgpack can pack."""
    if isinstance(tree, slice):
        return ormsgpack.Ext(tree.start, ormsgpack.packb(packed(tree.stop)))
    if isinstance(tree, dict):
        return {key: packed(item) for key, item in tree.items()}
    return [packed(item) for item in tree] if isinstance(tree, list) else tree


def parts(tree: Any) -> list[Any]:
    inner = [tree.stop] if isinstance(tree, slice) else [*tree.values()] if isinstance(tree, dict) else tree
    return [tree, *(part for item in inner for part in parts(item))] if isinstance(inner, list) else [tree]


NUMBERS: list[Any] = [None, True, -1, 0, 1 << 63, (1 << 64) - 1, 1e308, float("nan")]
ODD: list[Any] = [*NUMBERS, "", "x", "<f8", "eval", b"", b"\xff" * 9, [], {}]


def regrown(chance: random.Random, tree: Any, pool: list[Any], rate: float) -> Any:
    """The tree with some of its parts replaced, dropped, doubled or given another tag. Its framing stays valid."""
    if chance.random() < rate:
        return chance.choice(ODD) if chance.random() < 0.5 else chance.choice(pool)
    if isinstance(tree, slice):
        tag = chance.choice(TAGS[2:]) if chance.random() < rate else tree.start
        return slice(tag, regrown(chance, tree.stop, pool, rate))
    if isinstance(tree, dict):
        return {key: regrown(chance, item, pool, rate) for key, item in tree.items() if chance.random() > rate}
    if isinstance(tree, list):
        items = [regrown(chance, item, pool, rate) for item in tree if chance.random() > rate / 2]
        return items + items[: chance.randrange(3)] if chance.random() < rate else items
    return tree


def run_fuzz(count: int, seed: int) -> dict[str, int]:
    """How often each outcome came. "inside" counts those judged by what an extension holds, not by the framing."""
    chance = random.Random(seed)
    seeds = [*stored().values()]
    trees = [parsed(data) for data in seeds]
    pool = [part for tree in trees for part in parts(tree)]
    before = memory()
    tally = {"inside": 0}
    for turn in range(count):
        if turn % 2:
            data = ormsgpack.packb(packed(regrown(chance, chance.choice(trees), pool, chance.choice([0.03, 0.1, 0.3]))))
        else:
            data = chance.randbytes(chance.randrange(60)) if turn % 40 == 0 else mutated(chance, seeds)
        found = outcome(decode, data)
        outcome(view, data)
        outcome(read_frame, pack(data) if turn % 4 < 2 else data)
        kind = found.partition(":")[0]
        tally[kind] = tally.get(kind, 0) + 1
        tally["inside"] += not ("not an encoded value" in found or "after the end" in found)
    assert memory() - before < GROWTH
    return tally


def test_mutated_bytes_give_a_value_or_a_typed_error() -> None:
    """Promise 8: a hostile file gives an error."""
    tally = run_fuzz(COUNT, seed=1)
    # A fuzzer whose mutants all die at the outermost length proves nothing about what lies behind it.
    assert tally["inside"] > COUNT * 0.4
    for kind in ("value", "DamagedError", "ChangedClassError", "NewerFormatError"):
        assert tally[kind] > COUNT * 0.003, kind


@pytest.mark.torture
def test_a_million_mutations_give_a_value_or_a_typed_error() -> None:
    """Promise 8."""
    run_fuzz(int(os.environ.get("EVERSTEP_FUZZ", "1000000")), seed=2)


def test_flipping_any_bit_of_the_corpus_gives_a_value_or_a_typed_error() -> None:
    """Promise 9: what the codec can see of damage, it reports; the hash chain sees the rest."""
    for data in stored().values():
        for bit in range(min(len(data), 200) * 8):
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << bit % 8
            outcome(decode, bytes(flipped))


# Attacks with a name


def extension(tag: int, content: Any) -> bytes:
    return ormsgpack.packb(ormsgpack.Ext(tag, ormsgpack.packb(content)))


def chain(tag: int, levels: int) -> bytes:
    data = b"\x90"
    for _ in range(levels):
        data = ormsgpack.packb(ormsgpack.Ext(tag, data))
    return data


def wrapped(tag: int, lists: int, levels: int) -> bytes:
    data = b"\x90"
    for _ in range(levels):
        data = b"\x91" * lists + ormsgpack.packb(ormsgpack.Ext(tag, data))
    return data


def array(code: str, shape: list[int], data: bytes) -> bytes:
    return extension(ext.NDARRAY, [code, shape, data])


def instance(kind: int, *parts: Any) -> bytes:
    return extension(kind, [*parts])


# Sizes here are such that a reader which believes them succeeds: it gives a value, and so fails the test.
LAZY = ormsgpack.Ext(ext.RANGE, ormsgpack.packb([0, 1 << 20, 1]))

ATTACKS = {
    "extensions nested thousands deep": chain(ext.SECRET, 5000),
    "extensions and lists nested by turns": wrapped(ext.TUPLE, 900, 60),
    "lists nested too deep": b"\x91" * 100_000 + b"\x90",
    "an array that claims to be large": array("<f8", [1 << 40], b"12345678"),
    "an array of negative size": array("<f8", [-1, -1], b"12345678"),
    "an array with a shape that never ends": ormsgpack.packb(
        ormsgpack.Ext(ext.NDARRAY, ormsgpack.packb(["<f8", LAZY, b""]))
    ),
    "an array of too many dimensions": array("<i1", [1] * 10_000, b"1"),
    "an array of objects": array("|O", [1], b"12345678"),
    "an array of objects in disguise": array("<f8,O", [1], b"1234567812345678"),
    "an array of text beyond Unicode": array("<U1", [1], b"\xff\xff\xff\xff"),
    "an array of bools that are neither": array("|b1", [1], b"\x07"),
    "an array of memory that nobody wrote": array("<f8", [1 << 20], b""),
    "an array whose size takes forever to compute": array("<f8", [(1 << 64) - 1] * 300_000, b"12345678"),
    "an array of records": array("<i4,<i4", [1], b"12345678"),
    "an array of raw memory": array("|V8", [1], b"12345678"),
    "a bytearray of a size": extension(ext.BYTEARRAY, 1 << 20),
    "a deque of what never ends": ormsgpack.packb(ormsgpack.Ext(ext.DEQUE, ormsgpack.packb([None, LAZY]))),
    "a defaultdict of what never ends": ormsgpack.packb(ormsgpack.Ext(ext.DEFAULT, ormsgpack.packb([None, LAZY]))),
    "a tuple of what never ends": ormsgpack.packb(ormsgpack.Ext(ext.TUPLE, ormsgpack.packb(LAZY))),
    "an instance of what never ends": ormsgpack.packb(ormsgpack.Ext(33, ormsgpack.packb(LAZY))),
    "a factory that is code": extension(ext.DEFAULT, ["eval", []]),
    "a zone outside the zone database": extension(ext.DATETIME, [2024, 1, 1, 0, 0, 0, 0, 0, "../../etc/passwd"]),
    "a zone by an absolute path": extension(ext.DATETIME, [2024, 1, 1, 0, 0, 0, 0, 0, "/etc/passwd"]),
    "a zone that is a folder": extension(ext.DATETIME, [2024, 1, 1, 0, 0, 0, 0, 0, "America"]),
    "a zone that is no zone": extension(ext.DATETIME, [2024, 1, 1, 0, 0, 0, 0, 0, "Nowhere/Land"]),
    "a date that does not exist": extension(ext.DATE, [2024, 2, 30]),
    "a duration too long": extension(ext.TIMEDELTA, [1 << 62, 0, 0]),
    "a range without a step": extension(ext.RANGE, [0, 1, 0]),
    "a decimal that is none": extension(ext.DECIMAL, "1" * 50 + "x"),
    "a set of lists": extension(ext.SET, [[1]]),
    "a set with an item twice": extension(ext.SET, [1, 1]),
    "a dict with a list as a key": extension(ext.PAIRS, [[1], 2]),
    "a dict with a key twice": extension(ext.PAIRS, [1, 2, 1, 3]),
    "a dict with a key and no value": extension(ext.PAIRS, [1, 2, 3]),
    "an instance without fields": instance(33, "corpus:Point", 1),
    "an instance of a list": instance(33, ["corpus:Point"], 1, {}),
    "a model without its notes": instance(35, "corpus:Message", 1, {"role": 1, "content": 1, "parent": 1}),
    "a tag that nobody knows": extension(99, None),
    "a tag below zero": b"\xd4\xff\x00",
    "bytes after the end": encode([1, (2,)]) + b"\x00",
    "plain bytes after the end": encode([1, 2]) + b"\x00",
    "bytes after the end of an extension": ormsgpack.packb(ormsgpack.Ext(ext.TUPLE, b"\x90\x90")),
    "nothing": b"",
    "half of a value": encode({"a": "long enough to cut"})[:-4],
    "a str that is not UTF-8": b"\xa1\xff",
    "a reserved byte": b"\xc1",
}


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_with_a_name_is_refused_at_once(name: str) -> None:
    """Promise 8."""
    before = memory()
    with pytest.raises(TYPED):
        decode(ATTACKS[name])
    outcome(view, ATTACKS[name])
    assert memory() - before < GROWTH


def test_only_the_name_of_a_zone_reaches_the_file_system(tmp_path: Path) -> None:
    """Promise 8."""
    file = b"TZif" + bytes(16) + struct.pack(">6l", 0, 0, 0, 0, 1, 4) + struct.pack(">lbb", 0, 0, 0) + b"UTC\0"
    for name in ("odd.zone", "Good_Zone"):
        (tmp_path / name).write_bytes(file)
    zoneinfo.reset_tzpath([str(tmp_path)])
    try:
        assert zoneinfo.ZoneInfo("odd.zone").key == "odd.zone"
        assert decode(extension(ext.TIME, [1, 2, 3, 4, 0, "Good_Zone"])).tzinfo.key == "Good_Zone"
        with pytest.raises(DamagedError):
            decode(extension(ext.TIME, [1, 2, 3, 4, 0, "odd.zone"]))
    finally:
        zoneinfo.reset_tzpath()
        zoneinfo.ZoneInfo.clear_cache(only_keys=["odd.zone", "Good_Zone"])


def test_values_that_are_large_only_in_what_they_mean_are_fine() -> None:
    for value in [range(1 << 62), range(0, -(10**40), -7)]:
        assert decode(encode(value)) == value
    assert str(decode(extension(ext.DECIMAL, "1E+999999999999999999"))) == "1E+999999999999999999"


def test_keys_chosen_to_collide_are_refused_instead_of_taking_forever() -> None:
    """Promise 8."""
    prime = sys.hash_info.modulus
    numbers = [(prime * n).to_bytes(16, "big") for n in range(1, 50_000)]
    keys = [ormsgpack.Ext(ext.BIG_INT, ormsgpack.packb(number)) for number in numbers]
    data = ormsgpack.packb(ormsgpack.Ext(ext.SET, ormsgpack.packb(keys)))
    with pytest.raises(DamagedError):
        decode(data)


def test_what_is_nested_to_the_limit_is_read_from_a_deep_stack_of_the_caller() -> None:
    def at_depth(frames: int) -> Any:
        return at_depth(frames - 1) if frames else decode(chain(ext.SECRET, LIMIT))

    at_depth(300)
    with pytest.raises(DamagedError, match="deeper"):
        decode(chain(ext.SECRET, LIMIT + 1))
