"""What a node gave is used again, in other runs and other processes; never for other code or other inputs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pydantic
import pytest

import everstep
from everstep import END, Cache, Decision, Graph, Trail, gate, node, route
from everstep.errors import GraphError, UncachedWarning
from everstep.graph.nodes import Interrupt
from tests.integration.running import calls, run


@dataclass(frozen=True)
class Page:
    title: str
    seen: datetime


class Price(pydantic.BaseModel):
    amount: Decimal
    tags: tuple[str, ...] = ()


@node(output="text", cache=True)
def fetch(url: Any, times: int = 1) -> str:
    calls(url)
    return f"{url}!" * times


@node(output="length")
def measure(text: str) -> int:
    return len(text)


PLAIN = Graph([fetch, measure], name="plain")


@pytest.fixture(params=["file", "memory"])
def trail(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Trail]:
    with everstep.open(tmp_path / "trail.db" if request.param == "file" else ":memory:") as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trail.db"


def noted(x: Any) -> Any:
    return calls(x)


def ran(trail: Trail | None, graph: Graph, **inputs: Any) -> list[Any]:
    """What was really called when the graph ran."""
    run(trail, graph, inputs)
    return calls.taken()


# Hits


def test_the_same_inputs_are_not_computed_twice_and_the_row_says_so(trail: Trail) -> None:
    first = run(trail, PLAIN, {"url": "a"})
    again = run(trail, PLAIN, {"url": "a"})
    assert calls.taken() == ["a"]
    assert again.values == first.values == {"text": "a!", "length": 2}
    assert [step.cached for step in first.log.steps] == [False, False]
    assert [step.cached for step in again.log.steps] == [True, False]
    assert "cached" in str(again.log).splitlines()[2]
    stats = again.log.node_stats["fetch"]
    assert (stats.count, stats.cached, stats.succeeded) == (1, 1, 0)
    assert [step.cached for step in trail.steps(again.run_id) if step.name == "fetch"] == [True]
    assert trail.state(again.run_id) == {"text": "a!", "length": 2}


def test_without_a_trail_it_is_kept_in_the_process() -> None:
    assert ran(None, PLAIN, url="of this test alone") == ["of this test alone"]
    assert ran(None, PLAIN, url="of this test alone") == []


def test_a_trail_that_is_opened_again_still_has_it(path: Path) -> None:
    with everstep.open(path) as first:
        assert ran(first, PLAIN, url="a") == ["a"]
    with everstep.open(path) as second:
        assert ran(second, PLAIN, url="a") == []


def test_two_trails_do_not_share_it(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "one.db") as one, everstep.open(tmp_path / "two.db") as two:
        assert ran(one, PLAIN, url="a") == ran(two, PLAIN, url="a") == ["a"]


def test_the_name_of_a_node_does_not_matter(trail: Trail) -> None:
    ran(trail, PLAIN, url="a")
    other = Graph([fetch.renamed("other", inputs={"url": "link"}, output="page")], name="renamed")
    result = run(trail, other, {"link": "a"})
    assert (calls.taken(), result["page"]) == ([], "a!")


def test_the_cache_can_be_emptied(trail: Trail) -> None:
    ran(trail, PLAIN, url="a")
    trail.clear_cache()
    assert ran(trail, PLAIN, url="a") == ["a"]


def test_what_is_dropped_does_not_live_on_in_the_cache(path: Path) -> None:
    with everstep.open(path) as trail:
        result = run(trail, PLAIN, {"url": "a private page"})
        assert b"a private page" in Path(f"{path}-cache").read_bytes()
        trail.drop(result.run_id)
    assert [file.name for file in path.parent.iterdir() if b"a private page" in file.read_bytes()] == []


# Values


@node(output=("page", "price", "more"), cache=True)
def describe(what: str) -> tuple[Page, Price, Any]:
    calls(what)
    page = Page(what, datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC))
    return page, Price(amount=Decimal("1.10"), tags=("a",)), ({1: (2, 3)}, frozenset({"x"}), b"\0", END)


def test_what_comes_back_is_what_was_given(trail: Trail) -> None:
    """Promise 7."""
    graph = Graph([describe], name="exact")
    first, again = (run(trail, graph, {"what": "a"}) for _ in range(2))
    assert calls.taken() == ["a"]
    assert again.values == first.values
    assert [type(value) for value in again.values.values()] == [Page, Price, tuple]
    assert again["more"] == ({1: (2, 3)}, frozenset({"x"}), b"\0", "__end__")
    assert again["page"].seen.tzinfo is not None


def test_what_is_done_to_a_value_does_not_change_what_is_kept(trail: Trail | None) -> None:
    @node(output="items", cache=True)
    def listing(size: int) -> list[int]:
        return list(range(size))

    graph = Graph([listing], name="listing")
    for opened in (trail, None):
        for _ in range(3):
            result = run(opened, graph, {"size": 3})
            assert result["items"] == [0, 1, 2]
            result["items"].append("changed")


def test_a_stream_is_kept_as_its_list(trail: Trail) -> None:
    @node(output="words", cache=True)
    def speak(text: str) -> Iterator[str]:
        calls(text)
        yield from text.split()

    graph = Graph([speak], name="speak")
    assert [run(trail, graph, {"text": "a b"})["words"] for _ in range(2)] == [["a", "b"]] * 2
    assert calls.taken() == ["a b"]


@node(output="answer")
def answer(text: str) -> str:
    return f"answer {text}"


@node(output="refusal")
def refuse(text: str) -> str:
    return f"refusal {text}"


@route(targets=["answer", "refuse", END], cache=True)
def choose(text: str) -> Any:
    calls(text)
    return Decision("answer", "it is short") if len(text) < 5 else "refuse"


@gate(when_true="answer", when_false="refuse", cache=True)
def short(text: str) -> bool:
    calls(text)
    return len(text) < 5


@pytest.mark.parametrize("decider", [choose, short])
def test_a_decision_is_restored_on_a_hit(trail: Trail, decider: Any) -> None:
    graph = Graph([decider, answer, refuse], name="decide")
    for text, chosen in (("abc", "answer"), ("abcdefgh", "refusal")):
        first, again = (run(trail, graph, {"text": text}) for _ in range(2))
        assert calls.taken() == [text]
        assert list(again.values) == list(first.values) == [chosen]
        rows = [trail.steps(result.run_id)[1] for result in (first, again)]
        assert [row.cached for row in rows] == [False, True]
        assert rows[0].decision == rows[1].decision
        assert rows[0].metadata == rows[1].metadata
    assert "(cached)" in str(again.log)


# Misses


def test_other_inputs_are_not_the_same(trail: Trail) -> None:
    values: list[Any] = [1, True, 1.0, "1", (1,), [1], {"a": 1}, None, b"1", Decimal(1), {1}, frozenset({1})]
    for value in values:
        assert ran(trail, PLAIN, url=value) == [value]
    for value in values:
        assert ran(trail, PLAIN, url=value) == []


def make(body: str, module: dict[str, Any] | None = None) -> Graph:
    """A graph of one node `f`, of code that is compiled here."""
    names: dict[str, Any] = {"calls": calls, "node": node, "__name__": "made", **(module or {})}
    exec(body, names)
    return Graph([names["f"]], name="made")


F = '@node(output="y", cache=True)\ndef f(x{default}):\n    calls(x)\n    return {what}\n'


def test_changed_code_under_the_same_name_is_other_code(trail: Trail) -> None:
    bodies = [F.format(default="", what=what) for what in ("x + 1", "x + 2", "x + 1.0", "x - 1", "(x, 1)", "[x, 1]")]
    for body in bodies:
        assert ran(trail, make(body), x=1) == [1], body
        assert ran(trail, make(body), x=1) == [], body


def test_a_changed_default_is_another_input(trail: Trail) -> None:
    for default in (", n=1", ", n=2", ", *, n=1.0"):
        assert ran(trail, make(F.format(default=default, what="n")), x=1) == [1]
    assert ran(trail, make(F.format(default=", n=2", what="n")), x=1) == []


def test_what_is_too_old_is_computed_again(trail: Trail) -> None:
    now = [1000.0]
    policy = Cache(max_age=timedelta(minutes=1), clock=lambda: now[0])
    graph = Graph([node(output="y", cache=policy)(noted)], name="aging")
    assert ran(trail, graph, x=1) == [1]
    now[0] += 59
    assert ran(trail, graph, x=1) == []
    now[0] += 1
    assert ran(trail, graph, x=1) == [1]
    assert ran(trail, graph, x=1) == []


def test_no_more_is_kept_than_the_limits_say(trail: Trail) -> None:
    few = Graph([node(output="y", cache=Cache(max_items=2))(noted)], name="few")
    assert [ran(trail, few, x=x) for x in (1, 2, 1, 3)] == [[1], [2], [], [3]]
    assert [ran(trail, few, x=x) for x in (1, 2)] == [[], [2]], "2 was used longest ago"

    small = Cache(max_bytes=100)
    large = Graph([node(output="y", name="large", cache=small)(lambda x: calls(bytes(range(x))))], name="large")
    assert [len(ran(trail, large, x=50)) for _ in range(2)] == [1, 0]
    with pytest.warns(UncachedWarning, match="more than the 100 bytes"):
        ran(trail, large, x=200)
    assert len(ran(trail, large, x=200)) == 1


@pytest.mark.parametrize("wrong", [{"max_age": 0}, {"max_age": timedelta(0)}, {"max_items": 0}, {"max_bytes": -1}])
def test_limits_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="makes no sense"):
        Cache(**wrong)


def test_a_failure_is_not_kept(trail: Trail) -> None:
    calls.fail = {"a"}
    for _ in range(2):
        with pytest.raises(ValueError, match="a"):
            run(trail, PLAIN, {"url": "a"})
    calls.fail = set()
    assert ran(trail, PLAIN, url="a") == ["a", "a", "a"]
    assert ran(trail, PLAIN, url="a") == []


def test_a_value_that_does_not_fit_its_outputs_is_not_kept(trail: Trail) -> None:
    @node(output=("a", "b"), cache=True)
    def two(x: int) -> Any:
        calls(x)
        return (1, 2) if calls.fail else (1, 2, 3)

    for _ in range(2):
        with pytest.raises(GraphError, match="returned a tuple of 3"):
            run(trail, Graph([two], name="two"), {"x": 1})
    assert calls.taken() == [1, 1]


# What cannot be cached


def uncached(trail: Trail | None, graph: Graph, match: str, **inputs: Any) -> int:
    """How often the node was called in three runs. It says once why it is not cached."""
    with pytest.warns(UncachedWarning, match=match) as told:
        assert [run(trail, graph, inputs).status for _ in range(3)] == ["completed"] * 3
    assert len([one for one in told if one.category is UncachedWarning]) == 1
    return len(calls.taken())


def test_an_input_without_a_stored_form_means_that_nothing_is_cached(trail: Trail) -> None:
    graph = Graph(
        [node(output="y", cache=True)(lambda lock, x: calls(x))], name="client", bind={"lock": threading.Lock()}
    )
    assert uncached(trail, graph, "input 'lock' cannot be told from another", x=1) == 3


def test_an_object_may_say_what_it_stands_for(trail: Trail) -> None:
    class Client:
        def __init__(self, model: str) -> None:
            self.model, self.lock = model, threading.Lock()

        def __everstep_digest__(self) -> str:
            return self.model

    ask = node(output="y", cache=True)(lambda client, x: calls(x))
    for model in ("small", "large"):
        assert ran(trail, Graph([ask], bind={"client": Client(model)}), x=1) == [1]
        assert ran(trail, Graph([ask], bind={"client": Client(model)}), x=1) == []


def test_a_function_that_changes_what_it_closes_over_or_is_given_is_not_cached() -> None:
    seen: list[int] = []

    @node(output="y", cache=True)
    def note(x: int) -> Any:
        seen.append(x)
        return calls(x)

    assert uncached(None, Graph([note], name="note"), "changes what it is given or closes over", x=1) == 3
    grow = node(output="y", name="grow", cache=True)(lambda xs: calls(xs.append(1)))
    assert uncached(None, Graph([grow], name="grow"), "changes what it is given or closes over", xs=[]) == 3


def test_nodes_that_must_run_cannot_have_a_cache() -> None:
    wrongs: list[tuple[Callable[[], Any], str]] = [
        (lambda: node(output="y", external=True, cache=True)(print_it), "is external"),
        (lambda: node(cache=True)(print_it), "gives nothing"),
        (lambda: Interrupt(print_it, outputs=("y",), cache=True), "asks a person"),
    ]
    for wrong, why in wrongs:
        with pytest.raises(GraphError, match=f"cannot have a cache: it {why}"):
            wrong()


def print_it(x: int) -> int:
    return x
