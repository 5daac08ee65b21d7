"""The store of cached values: what comes out is what was put in, or nothing; limits hold; damage is a miss."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import pytest

from everstep.errors import DamageWarning, LockedError, StoreError
from everstep.store import cache as module
from everstep.store.cache import Limits, ValueCache

NOW = Limits(1000.0)
SHELF = b"a shelf"


@pytest.fixture
def trail(tmp_path: Path) -> Path:
    path = tmp_path / "trail.db"
    path.touch()
    return path


@pytest.fixture(params=["file", "memory"])
def cache(request: pytest.FixtureRequest, trail: Path) -> ValueCache:
    return ValueCache(str(trail)) if request.param == "file" else ValueCache()


@pytest.fixture
def on_disk(trail: Path) -> ValueCache:
    return ValueCache(str(trail))


def put(cache: ValueCache, *keys: bytes, limits: Limits = NOW, shelf: bytes = SHELF, size: int = 10) -> None:
    for key in keys:
        assert cache.put(key, os.urandom(size), shelf, limits)


def held(cache: ValueCache, *keys: bytes, limits: Limits = NOW) -> list[bytes]:
    return [key for key in keys if cache.get(key, limits) is not None]


# What comes out


def test_what_is_put_is_got_and_nothing_else_is(cache: ValueCache) -> None:
    assert cache.get(b"a", NOW) is None
    for data in (b"", b"x", b"long " * 5000, os.urandom(70_000)):
        assert cache.put(b"a", data, SHELF, NOW)
        assert cache.get(b"a", NOW) == data
    assert cache.get(b"b", NOW) is None


def test_looking_for_something_makes_no_file(on_disk: ValueCache) -> None:
    on_disk.get(b"a", NOW)
    on_disk.clear()
    assert not Path(on_disk.where).exists()


def test_a_file_is_shared_and_memory_is_not(trail: Path) -> None:
    put(ValueCache(str(trail)), b"a")
    assert ValueCache(str(trail)).get(b"a", NOW) is not None
    put(ValueCache(), b"a")
    assert ValueCache().get(b"a", NOW) is None


def test_clearing_leaves_nothing_in_the_file(cache: ValueCache) -> None:
    cache.put(b"a", b"a value that is gone", SHELF, NOW)
    cache.clear()
    cache.clear()
    assert cache.get(b"a", NOW) is None
    if cache.where != ":memory:":
        assert b"that is gone" not in Path(cache.where).read_bytes()
    put(cache, b"a")
    assert held(cache, b"a")


def test_whoever_may_not_read_the_trail_may_not_read_its_cache(trail: Path, on_disk: ValueCache) -> None:
    trail.chmod(0o600)
    put(on_disk, b"a")
    assert Path(on_disk.where).stat().st_mode & 0o777 == 0o600


# Limits


def test_what_is_too_old_is_not_given(cache: ValueCache) -> None:
    put(cache, b"a")
    assert held(cache, b"a", limits=Limits(1009.9, max_age=10))
    assert not held(cache, b"a", limits=Limits(1010.0, max_age=10))
    assert held(cache, b"a", limits=Limits(1010.0, max_age=11)), "another may allow it to be older"
    assert held(cache, b"a", limits=Limits(5000.0))


def test_what_was_made_under_a_wrong_clock_is_not_given_where_age_counts(cache: ValueCache) -> None:
    put(cache, b"a")
    assert not held(cache, b"a", limits=Limits(999.0, max_age=10))
    assert held(cache, b"a", limits=Limits(999.0))


def test_what_is_too_old_is_let_go_of_with_the_next_put(cache: ValueCache) -> None:
    put(cache, b"a")
    put(cache, b"b", limits=Limits(1010.0, max_age=10))
    assert held(cache, b"a", b"b") == [b"b"]


def test_what_was_used_longest_ago_goes_first(cache: ValueCache) -> None:
    few = Limits(1000.0, max_items=3)
    put(cache, b"a", b"b", b"c", limits=few)
    assert held(cache, b"a") == [b"a"]
    put(cache, b"d", limits=few)
    assert held(cache, b"a", b"b", b"c", b"d") == [b"a", b"c", b"d"]
    put(cache, b"c", limits=few)
    assert held(cache, b"a", b"c", b"d") == [b"a", b"c", b"d"], "put again it is not one more"


def test_bytes_are_counted_as_they_are_kept(cache: ValueCache) -> None:
    small = Limits(1000.0, max_bytes=250)
    put(cache, b"a", b"b", limits=small, size=100)
    assert held(cache, b"a", b"b") == [b"a", b"b"]
    put(cache, b"c", limits=small, size=100)
    assert held(cache, b"a", b"b", b"c") == [b"b", b"c"]
    assert not cache.put(b"d", os.urandom(300), SHELF, small)
    assert held(cache, b"b", b"c", b"d") == [b"b", b"c"], "one that is too large does not push others out"
    assert cache.put(b"d", b"x" * 300, SHELF, small), "it is smaller where it is kept"


def test_shelves_have_limits_of_their_own(cache: ValueCache) -> None:
    one = Limits(1000.0, max_items=1)
    put(cache, b"a", shelf=b"first", limits=one)
    put(cache, b"b", b"c", shelf=b"second", limits=one)
    assert held(cache, b"a", b"b", b"c") == [b"a", b"c"]


# Damage


def changed(cache: ValueCache, statement: str, *values: object) -> None:
    connection = apsw.Connection(cache.where)
    connection.execute(statement, values)
    connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        "update kept set data = cast(x'00ff' || substr(data, 3) as blob)",
        "update kept set made = made + 1",
        "update kept set digest = x'00'",
        "update kept set data = 'text'",
        "update kept set made = 'long ago'",
        "update kept set (data, digest) = (select data, digest from kept where key = x'62') where key = x'61'",
    ],
)
def test_an_entry_that_was_changed_is_a_miss_and_is_told_of(on_disk: ValueCache, statement: str) -> None:
    """Promise 9: it is checked before anybody decodes it."""
    put(on_disk, b"a", b"b")
    changed(on_disk, statement)
    with pytest.warns(DamageWarning, match="not what was written"):
        assert on_disk.get(b"a", NOW) is None
    put(on_disk, b"a")
    assert held(on_disk, b"a")


def _garbage(whole: bytes) -> bytes:
    return b"not a database at all " * 500


def _cut(whole: bytes) -> bytes:
    return whole[:5000]


def _overwritten(whole: bytes) -> bytes:
    return whole[:100] + b"\xff" * 8000 + whole[8100:]


@pytest.mark.parametrize("spoil", [_garbage, _cut, _overwritten])
@pytest.mark.parametrize("use", ["get", "put", "clear"])
def test_a_file_that_cannot_be_read_is_emptied_and_used_again(
    on_disk: ValueCache, spoil: Callable[[bytes], bytes], use: str
) -> None:
    put(on_disk, *(b"%d" % number for number in range(50)), size=500)
    path = Path(on_disk.where)
    path.write_bytes(spoil(path.read_bytes()))
    if use == "clear":
        on_disk.clear()
    else:
        with pytest.warns(DamageWarning, match="was damaged, and was emptied"):
            on_disk.get(b"7", NOW) if use == "get" else put(on_disk, b"7")
    put(on_disk, b"a")
    assert held(on_disk, b"a", b"8") == [b"a"]


def test_wherever_a_bit_flips_no_other_value_comes_out(on_disk: ValueCache) -> None:
    """Promise 9."""
    value = b"the one and only value " * 20
    on_disk.put(b"a", value, SHELF, NOW)
    path = Path(on_disk.where)
    whole = path.read_bytes()
    outcomes = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        for at in range(0, len(whole), 61):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
            try:
                outcomes.add(on_disk.get(b"a", NOW))
            except StoreError:  # it looks like another program's, and is left alone
                outcomes.add(None)
    assert outcomes == {value, None}


def test_totals_that_are_wrong_do_not_go_on_for_ever(on_disk: ValueCache) -> None:
    put(on_disk, b"a")
    changed(on_disk, "update total set items = 100")
    with pytest.warns(DamageWarning, match="emptied"):
        put(on_disk, b"b", limits=Limits(1000.0, max_items=5))
    assert held(on_disk, b"a", b"b") == [b"b"]


def test_another_programs_database_is_left_alone(on_disk: ValueCache) -> None:
    changed(on_disk, "create table precious(thing)")
    before = Path(on_disk.where).read_bytes()
    with pytest.raises(StoreError, match="another program's database, and was not touched"):
        on_disk.get(b"a", NOW)
    with pytest.raises(StoreError, match="another program's database"):
        on_disk.put(b"a", b"", SHELF, NOW)
    on_disk.clear()
    assert Path(on_disk.where).read_bytes() == before


def test_a_place_that_cannot_be_written_to_is_an_error_that_says_so(tmp_path: Path) -> None:
    nowhere = ValueCache(str(tmp_path / "missing" / "trail.db"))
    assert nowhere.get(b"a", NOW) is None
    with pytest.raises(StoreError, match="missing"):
        nowhere.put(b"a", b"", SHELF, NOW)


# Together


@pytest.fixture
def held_by_another(on_disk: ValueCache, monkeypatch: pytest.MonkeyPatch) -> Iterator[apsw.Connection]:
    put(on_disk, b"a", b"b")
    monkeypatch.setattr(module, "BUSY_SECONDS", 0.01)
    other = apsw.Connection(on_disk.where)
    yield other
    other.close()


def test_a_file_that_another_holds_is_not_waited_for_without_end(
    on_disk: ValueCache, held_by_another: apsw.Connection
) -> None:
    held_by_another.execute("begin exclusive")
    with pytest.raises(LockedError):
        on_disk.get(b"a", NOW)
    held_by_another.execute("rollback; begin immediate")
    assert held(on_disk, b"a"), "that it was used cannot be noted, and it is there all the same"
    with pytest.raises(LockedError):
        put(on_disk, b"c")


def test_threads_share_it(cache: ValueCache) -> None:
    def work(worker: int) -> int:
        for number in range(20):
            key = b"%d %d" % (worker, number)
            cache.put(key, key * 10, SHELF, NOW)
        return sum(
            cache.get(b"%d %d" % (worker, number), NOW) == b"%d %d" % (worker, number) * 10 for number in range(20)
        )

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(work, range(6))) == [20] * 6


WORKER = """
import sys
from everstep.store.cache import Limits, ValueCache

cache, worker = ValueCache(sys.argv[1]), sys.argv[2].encode()
for number in range(int(sys.argv[3])):
    key = b"%s %d" % (worker, number)
    cache.put(key, key * 100, b"shelf", Limits(1000.0))
    if number == 5:
        print("at work", flush=True)
"""


def worker(trail: Path, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-c", WORKER, str(trail), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_processes_share_it(trail: Path, on_disk: ValueCache) -> None:
    workers = [worker(trail, name, 40) for name in "abcd"]
    assert [each.communicate() and each.returncode for each in workers] == [0] * 4
    keys = [b"%s %d" % (name, number) for name in (b"a", b"b", b"c", b"d") for number in range(40)]
    assert [key for key in keys if on_disk.get(key, NOW) != key * 100] == []


def test_a_process_that_is_killed_while_it_writes_leaves_what_is_whole(trail: Path, on_disk: ValueCache) -> None:
    """Promise 9: a torn entry would be a miss, and SQLite leaves none."""
    process = worker(trail, "a", 1_000_000)
    assert process.stdout is not None
    assert process.stdout.readline() == "at work\n"
    process.kill()
    process.communicate()
    keys = [b"a %d" % number for number in range(6)]
    assert [on_disk.get(key, NOW) for key in keys] == [key * 100 for key in keys]
    put(on_disk, b"b")


def test_a_forked_child_uses_it_as_its_parent_does(cache: ValueCache) -> None:
    put(cache, b"a")
    child = os.fork()
    if child == 0:
        found = held(cache, b"a")
        put(cache, b"b")
        os._exit(0 if found and held(cache, b"b") else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert held(cache, b"a")
