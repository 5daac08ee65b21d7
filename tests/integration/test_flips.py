"""A flipped bit or a torn file is told, or changes nothing that can be read: no damage is silent."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import everstep
from tests.integration.support import everything, rich_trail, watched

FLIPS = 120
CUTS = 40


@pytest.fixture(scope="module", autouse=True)
def key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVERSTEP_KEY_FILE", str(tmp_path_factory.mktemp("key") / "redaction.key"))
        yield


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, dict[str, Any]]:
    """The file of a closed trail, and all that can be read from it."""
    path = tmp_path_factory.mktemp("closed") / "trail.db"
    rich_trail(path)
    data = path.read_bytes()
    assert not path.with_name("trail.db-wal").exists()
    with everstep.open(path) as trail:
        assert trail.verify().ok
        return data, everything(trail)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The files of a trail whose writer is at work and has its newest commits in the log; all that can be read."""
    folder, copy = tmp_path_factory.mktemp("live"), tmp_path_factory.mktemp("copy")
    trail = everstep.open(folder / "trail.db")
    run = trail.record("r", workflow="w", tags={"user": "ada"})
    for number in range(25):
        run.step(f"s{number}", output={"n": number}, append_to="log")
    trail.record("other").step("x", output="y" * 9000, output_to="z")
    shutil.copy(folder / "trail.db", copy)
    shutil.copy(folder / "trail.db-wal", copy)
    found = everything(trail)
    trail.close()
    return copy, found


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def silent(path: Path, original: dict[str, Any]) -> list[str]:
    """What differs in a damaged trail without a word; an error of another kind than ours comes through."""
    found: dict[str, Any] = {}
    with watched() as seen:
        with everstep.open(path) as trail:
            report = trail.verify()
            found = everything(trail)
        if not report.ok:
            seen.said.append(str(report))
    if seen.said:
        return []
    return [name for name in {*original, *found} if original.get(name) != found.get(name)]


def everywhere(size: int, count: int, seed: int, page: int = 4096) -> list[int]:
    """Bits to flip: some of every page, and more where a page says how it is laid out."""
    chance = random.Random(seed)
    bits = [chance.randrange(100 * 8) for _ in range(count // 20)]  # the file's own head
    pages = size // page
    while len(bits) < count:
        start = (len(bits) % pages) * page
        reach = chance.choice([16, 256, page, page, page])
        bits.append((start + chance.randrange(reach)) * 8 + chance.randrange(8))
    return bits


def flip(tmp_path: Path, closed: tuple[bytes, dict[str, Any]], bits: list[int]) -> None:
    data, original = closed
    quiet = []
    for bit in bits:
        for file in tmp_path.iterdir():
            file.unlink()
        path = tmp_path / "trail.db"
        path.write_bytes(flipped(data, bit))
        try:
            differs = silent(path, original)
        except Exception as error:
            error.add_note(f"bit {bit} of page {bit // 8 // 4096}")
            raise
        quiet += [(bit, differs)] if differs else []
    assert quiet == []


def test_what_is_not_damaged_reads_the_same_and_says_nothing(
    tmp_path: Path, closed: tuple[bytes, dict[str, Any]]
) -> None:
    (tmp_path / "trail.db").write_bytes(closed[0])
    with everstep.open(tmp_path / "trail.db") as trail:
        assert trail.verify().ok
        assert everything(trail) == closed[1]


@pytest.mark.parametrize("part", range(4))
def test_no_flipped_bit_of_the_file_is_silent(tmp_path: Path, closed: tuple[bytes, dict[str, Any]], part: int) -> None:
    """Promise 9."""
    flip(tmp_path, closed, everywhere(len(closed[0]), FLIPS, seed=1)[part::4])


@pytest.mark.torture
@pytest.mark.parametrize("part", range(20))
def test_none_of_ten_thousand_flipped_bits_is_silent(
    tmp_path: Path, closed: tuple[bytes, dict[str, Any]], part: int
) -> None:
    """Promise 9."""
    flip(tmp_path, closed, everywhere(len(closed[0]), 10_000, seed=2)[part::20])


def test_a_torn_file_is_told(tmp_path: Path, closed: tuple[bytes, dict[str, Any]]) -> None:
    """Promise 9: cut at any length, also where a page ends."""
    data, original = closed
    chance = random.Random(3)
    lengths = [chance.randrange(1, len(data)) for _ in range(CUTS)]
    lengths += [length // 4096 * 4096 for length in lengths if length >= 4096]
    for length in lengths:
        for file in tmp_path.iterdir():
            file.unlink()
        (tmp_path / "trail.db").write_bytes(data[:length])
        assert silent(tmp_path / "trail.db", original) == [], length


# The log of a writer that is at work, or was killed.


def with_log(tmp_path: Path, live: tuple[Path, dict[str, Any]], log: bytes) -> Path:
    for file in tmp_path.iterdir():
        file.unlink()
    path = tmp_path / "trail.db"
    shutil.copy(live[0] / "trail.db", path)
    path.with_name("trail.db-wal").write_bytes(log)
    return path


def flip_log(tmp_path: Path, live: tuple[Path, dict[str, Any]], bits: list[int]) -> None:
    log = (live[0] / "trail.db-wal").read_bytes()
    quiet = []
    for bit in bits:
        path = with_log(tmp_path, live, flipped(log, bit))
        differs = silent(path, live[1])
        quiet += [(bit // 8, differs)] if differs else []
    assert quiet == []


def log_bits(log: bytes, count: int, seed: int) -> list[int]:
    """Bits of the log: its head, the heads of its frames, and their pages."""
    chance = random.Random(seed)
    frames = (len(log) - 32) // 4120
    bits = [chance.randrange(32 * 8) for _ in range(count // 8)]
    while len(bits) < count:
        start = 32 + (len(bits) % frames) * 4120
        bits.append((start + chance.randrange(chance.choice([24, 4120]))) * 8 + chance.randrange(8))
    return bits


def test_a_log_that_is_whole_is_read_and_says_nothing(tmp_path: Path, live: tuple[Path, dict[str, Any]]) -> None:
    path = with_log(tmp_path, live, (live[0] / "trail.db-wal").read_bytes())
    with everstep.open(path) as trail:
        assert trail.verify().ok
        assert everything(trail) == live[1]


def test_no_flipped_bit_of_the_log_is_silent(tmp_path: Path, live: tuple[Path, dict[str, Any]]) -> None:
    """Promise 9: SQLite takes a frame that does not fit for the end of its log, and says nothing."""
    flip_log(tmp_path, live, log_bits((live[0] / "trail.db-wal").read_bytes(), 120, seed=4))


@pytest.mark.torture
def test_none_of_many_flipped_bits_of_the_log_is_silent(tmp_path: Path, live: tuple[Path, dict[str, Any]]) -> None:
    """Promise 9."""
    flip_log(tmp_path, live, log_bits((live[0] / "trail.db-wal").read_bytes(), 4000, seed=5))


@pytest.mark.parametrize("wiped", [24, 512, 4096, 4120 * 3])
def test_a_stretch_of_the_log_that_was_wiped_out_is_told(
    tmp_path: Path, live: tuple[Path, dict[str, Any]], wiped: int
) -> None:
    """Promise 9: where two commits or more stand behind it."""
    log = (live[0] / "trail.db-wal").read_bytes()
    for frame in range(1, (len(log) - 32) // 4120 - 12, 5):
        start = 32 + frame * 4120
        path = with_log(tmp_path, live, log[:start] + bytes(wiped) + log[start + wiped :])
        assert silent(path, live[1]) == [], frame


def test_a_log_that_was_cut_gives_an_earlier_state_of_the_trail_never_a_broken_one(
    tmp_path: Path, live: tuple[Path, dict[str, Any]]
) -> None:
    """What was cut off left no trace; what is left is whole."""
    log, chance = (live[0] / "trail.db-wal").read_bytes(), random.Random(6)
    whole = live[1]["steps of r"]
    for length in sorted(chance.randrange(len(log)) for _ in range(CUTS)):
        path = with_log(tmp_path, live, log[:length])
        with watched() as seen, everstep.open(path) as trail:
            assert trail.verify().ok
            runs = [run.id for run in trail.runs()]
            steps = [step.to_dict() for step in trail.steps("r")] if "r" in runs else []
            assert steps == whole[: len(steps)]
        assert seen.said == []


def test_what_a_killed_writer_left_of_a_commit_is_not_called_damage(
    tmp_path: Path, live: tuple[Path, dict[str, Any]]
) -> None:
    """A large write that was cut off, the beginning of which a later one has overwritten: its rest does not fit."""
    log = bytearray((live[0] / "trail.db-wal").read_bytes())
    rest, salts = log[-4120 * 3 :], log[16:24]
    for at in range(3):  # as if it followed on other frames: their sums are not those that stand before it
        struct.pack_into(">8sII", rest, at * 4120 + 8, salts, 11 + at, 17 + at)
        struct.pack_into(">I", rest, at * 4120 + 4, 9 if at == 2 else 0)
    path = with_log(tmp_path, live, bytes(log + rest))
    with everstep.open(path) as trail:
        assert trail.verify().ok
        assert everything(trail) == live[1]


def test_a_commit_that_nobody_was_told_of_is_not_called_lost_when_the_next_writer_is_killed_over_it(
    tmp_path: Path, live: tuple[Path, dict[str, Any]]
) -> None:
    """One killed when its commit was written, before others knew; the next between a frame's head and its page."""
    log = bytearray((live[0] / "trail.db-wal").read_bytes())
    starts = range(32, len(log), 4120)
    commits = [start for start in starts if log[start + 4 : start + 8] != bytes(4)]
    first = commits[-2] + 4120  # of the last commit, which takes more frames than one
    assert first != commits[-1]
    log[first + 16 : first + 24] = random.Random(7).randbytes(8)  # the sum of a page that was not written
    with watched() as seen, everstep.open(with_log(tmp_path, live, bytes(log))) as trail:
        assert trail.verify().ok
    assert seen.said == []
