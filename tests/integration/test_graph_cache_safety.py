"""The cache of nodes where something goes wrong: crashes, damage, secrets, other processes, a blocked disk."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import pytest

import everstep
from everstep import AsyncRunner, AsyncTrail, Graph, Retry, Secret, Trail, node
from everstep.codec import frame
from everstep.codec.values import encode
from everstep.errors import DamageWarning, ReadOnlyError, UncachedWarning
from everstep.store import cache as cache_module
from everstep.store.cache import ValueCache
from tests.integration.running import calls, crashed, run
from tests.integration.support import output

TOKEN = "sk-ant-api03-" + "Zq7" * 30


@node(output="text", cache=True)
def fetch(url: Any) -> Any:
    return calls(url)


@node(output="done")
def finish(text: Any) -> Any:
    return calls("end")


GRAPH = Graph([fetch, finish], name="plain")
ALONE = Graph([fetch], name="alone")


@pytest.fixture
def cache_file(tmp_path: Path) -> Path:
    return tmp_path / "trail.db-cache"


# Resuming


def test_a_hit_is_served_from_the_record_when_its_run_is_resumed(trail: Trail, cache_file: Path) -> None:
    """Promise 2: the cache is not asked again, and need not be there."""
    run(trail, ALONE, {"url": "a"})
    calls.crash = {"end"}
    crashed(trail, GRAPH, {"url": "a"}, id="r")
    assert calls.taken() == ["a", "end"]
    cache_file.unlink()
    resumed = run(trail, GRAPH, id="r")
    assert calls.taken() == ["end"]
    assert resumed.values == {"text": "a", "done": "end"}
    assert [step.cached for step in resumed.log.steps] == [True, False]
    assert not cache_file.exists(), "nobody looked"


def test_a_run_that_crashed_before_its_node_ended_may_take_it_from_the_cache(trail: Trail) -> None:
    calls.crash = {"a"}
    crashed(trail, GRAPH, {"url": "a"}, id="r")
    run(trail, ALONE, {"url": "a"})
    calls.taken()
    resumed = run(trail, GRAPH, id="r")
    assert (calls.taken(), resumed["text"]) == (["end"], "a")


def test_what_an_attempt_gave_is_kept_and_one_that_failed_is_not(trail: Trail) -> None:
    @node(output="y", cache=True, retry=Retry(attempts=2, backoff=0))
    def second_time(x: int) -> int:
        calls(x)
        if len(calls) == 1:
            raise ValueError(x)
        return x

    graph = Graph([second_time], name="retried")
    first = run(trail, graph, {"x": 1})
    assert calls.taken() == [1, 1]
    again = run(trail, graph, {"x": 1})
    assert calls.taken() == []
    assert [step.cached for result in (first, again) for step in result.log.steps] == [False, True]


# On an event loop


@pytest.mark.parametrize("is_async", [True, False])
def test_on_an_event_loop_it_works_the_same_and_off_its_thread(trail: Trail, *, is_async: bool) -> None:
    threads: set[int] = set()
    look = ValueCache._connected

    def watched(self: ValueCache) -> Any:
        threads.add(threading.get_ident())
        return look(self)

    async def later(x: int) -> Any:
        return calls(x)

    def plain(x: int) -> Any:
        return calls(x)

    graph = Graph([node(output="y", cache=True)(later if is_async else plain)], name="awaited")

    async def twice() -> list[Any]:
        threads.add(0)
        runner = AsyncRunner(trail)
        results = [await runner.run(graph, {"x": 1}) for _ in range(2)]
        assert threading.get_ident() not in threads
        return [[step.cached for step in result.log.steps] for result in results]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ValueCache, "_connected", watched)
        assert asyncio.run(twice()) == [[False], [True]]
    assert len(threads) > 1
    assert calls.taken() == [1]


def test_the_twin_of_the_trail_empties_it_too(trail: Trail) -> None:
    run(trail, ALONE, {"url": "a"})
    asyncio.run(AsyncTrail(trail).clear_cache())
    run(trail, ALONE, {"url": "a"})
    assert calls.taken() == ["a", "a"]


# Other processes

PROGRAM = """
import sys
import everstep
from dataclasses import dataclass
from everstep import Graph, Runner, node

@dataclass
class Page:
    title: str
    size: tuple

@node(output="page", cache=True)
def load(url):
    print("loaded", url, flush=True)
    return Page(url, (1, 2))

with everstep.open(sys.argv[1]) as trail:
    for url in sys.argv[2:]:
        page = Runner(trail).run(Graph([load], name="program"), {"url": url})["page"]
        assert page == Page(url, (1, 2)), page
"""


def test_another_process_finds_it_and_changed_code_does_not(tmp_path: Path) -> None:
    path = tmp_path / "trail.db"
    assert output(PROGRAM, path, "a", "b", "a") == "loaded a\nloaded b"
    assert not output(PROGRAM, path, "a", "b")
    assert not output(PROGRAM.replace("import sys", "import sys\n\n# other lines"), path, "a")
    changed = PROGRAM.replace("Page(url, (1, 2))", "Page(url, (1, 3))")
    assert output(changed, path, "a", "a") == "loaded a"


ROUTING = """
import sys
import everstep

@everstep.route(targets=[everstep.END], cache=True)
def leave(url):
    print("decided", url)
    return everstep.Decision(everstep.END, "it is late")

with everstep.open(sys.argv[1]) as trail:
    result = everstep.Runner(trail).run(everstep.Graph([leave], name="routing"), {"url": "a"})
    print(trail.steps(result.run_id)[1].metadata["reason"])
"""


def test_another_process_finds_a_decision_with_its_reason(tmp_path: Path) -> None:
    path = tmp_path / "trail.db"
    assert [output(ROUTING, path) for _ in range(2)] == ["decided a\nit is late", "it is late"]


def test_processes_at_the_same_time_get_the_right_values(tmp_path: Path) -> None:
    path = tmp_path / "trail.db"
    everstep.open(path).close()
    urls = [f"page {number % 7}" for number in range(20)]
    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(lambda _: output(PROGRAM, path, *urls), range(3)))
    assert all(len(lines.splitlines()) <= 7 for lines in done)


# Secrets


def everything_in(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir() if file.is_file())


def test_no_secret_reaches_the_file_and_two_secrets_are_not_the_same(trail: Trail, tmp_path: Path) -> None:
    """Promise 10."""

    @node(output="count", cache=True)
    def use(password: str, token: Any, text: str) -> int:
        return len(calls(password))

    graph = Graph([use], name="secretive")
    given: dict[str, Any] = {"password": "hunter2-first", "token": Secret("a hidden one"), "text": f"it is {TOKEN}"}
    others: list[dict[str, Any]] = [
        {"password": "hunter2-other"},
        {"token": Secret("another")},
        {"text": f"it is {TOKEN[:-1]}8"},
    ]
    for values in (given, *({**given, **other} for other in others)):
        run(trail, graph, values)
        assert len(calls.taken()) == 1
        run(trail, graph, values)
        assert calls.taken() == [], "the same secrets are known to be the same"
    stored = everything_in(tmp_path)
    assert [word for word in (b"hunter2", b"a hidden one", TOKEN.encode()) if word in stored] == []


@pytest.mark.parametrize("output_name", ["text", "password"])
def test_what_holds_a_secret_is_not_kept(trail: Trail, tmp_path: Path, output_name: str) -> None:
    """Promise 10: it would come back as a placeholder."""
    secret = TOKEN if output_name == "text" else "hunter2-given"

    @node(output=output_name, cache=True)
    def give(x: int) -> str:
        calls(x)
        return secret

    graph = Graph([give], name="giving")
    with pytest.warns(UncachedWarning, match="holds a secret"):
        run(trail, graph, {"x": 1})
    assert run(trail, graph, {"x": 1})[output_name] == secret
    assert calls.taken() == [1, 1]
    assert secret.encode() not in everything_in(tmp_path)


# Damage


def spoil(cache_file: Path, data: bytes) -> None:
    """Put other bytes into every entry, with the digest that they should have."""
    connection = apsw.Connection(str(cache_file))
    for key, made in connection.execute("select key, made from kept").fetchall():
        digest = cache_module._digest(key, made, data)  # type: ignore[arg-type] # what the columns hold
        connection.execute("update kept set data = ?, digest = ? where key = ?", (data, digest, key))
    connection.close()


@pytest.mark.parametrize(
    "hostile",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\x00\xc1", id="no value"),
        pytest.param(b"\x01" + b"x" * 50, id="no frame"),
        pytest.param(b"\x09abc", id="unknown format"),
        pytest.param(frame.pack(encode(1) + b"more"), id="too much"),
    ],
)
def test_hostile_bytes_are_a_miss(trail: Trail, cache_file: Path, hostile: bytes) -> None:
    """Promise 8: with the right digest they are data all the same."""
    run(trail, ALONE, {"url": "a"})
    spoil(cache_file, hostile)
    with pytest.warns(DamageWarning):
        assert run(trail, ALONE, {"url": "a"})["text"] == "a"
    assert run(trail, ALONE, {"url": "a"})["text"] == "a"
    assert calls.taken() == ["a", "a"], "it was computed once more, and kept"


def test_a_class_that_is_not_known_here_is_a_miss(trail: Trail, cache_file: Path) -> None:
    run(trail, ALONE, {"url": "a"})
    stranger: type = everstep.register(type("Stranger", (), {"__module__": "elsewhere"}))
    data = frame.pack(encode(stranger()).replace(b"Stranger", b"Stronger"))
    spoil(cache_file, data)
    assert run(trail, ALONE, {"url": "a"})["text"] == "a"
    assert calls.taken() == ["a", "a"]


def test_a_damaged_file_costs_no_more_than_what_was_in_it(trail: Trail, cache_file: Path) -> None:
    run(trail, ALONE, {"url": "a"})
    cache_file.write_bytes(b"nothing that SQLite knows" * 300)
    with pytest.warns(DamageWarning, match="was emptied"):
        assert run(trail, ALONE, {"url": "a"})["text"] == "a"
    run(trail, ALONE, {"url": "a"})
    assert calls.taken() == ["a", "a"]


def test_where_the_cache_cannot_be_used_the_node_runs_and_says_so_once(trail: Trail, cache_file: Path) -> None:
    mine = node(output="text", cache=True)(finish.function).renamed(inputs={"text": "url"})
    other = sqlite3.connect(cache_file)
    other.execute("create table precious(thing)")
    other.close()
    with pytest.warns(UncachedWarning, match="another program's database") as told:
        assert [run(trail, Graph([mine]), {"url": "a"})["text"] for _ in range(2)] == ["end"] * 2
    assert len(told) == 1
    assert calls.taken() == ["end", "end"]


def test_a_trail_that_is_only_read_is_not_emptied(trail: Trail, tmp_path: Path) -> None:
    run(trail, ALONE, {"url": "a"})
    with everstep.open(tmp_path / "trail.db", read_only=True) as reading, pytest.raises(ReadOnlyError):
        reading.clear_cache()
    run(trail, ALONE, {"url": "a"})
    assert calls.taken() == ["a"]
