"""A trail with a policy: how durable its runs are, and what is kept of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import (
    END,
    AsyncRunner,
    CheckpointPolicy,
    Graph,
    Runner,
    RunResult,
    SqliteCheckpointer,
    interrupt,
    node,
    route,
)
from everstep.errors import InputsDifferError, PrunedError, RunNotFoundError, StepNotFoundError
from tests.integration.support import output

FAILING: list[int] = []  # the count at which `tick` fails, once


@node(output="count")
def tick(count: int = 0) -> int:
    if count in FAILING:
        FAILING.clear()
        raise ValueError("stuck")
    return count + 1


@route(targets=["tick", END])
def more(count: int) -> str:
    return END if count >= 5 else "tick"


CLOCK = Graph([tick, more], name="clock")
NEWEST = 9  # its supersteps are 0 to 9


@pytest.fixture(autouse=True)
def nothing_fails() -> None:
    FAILING.clear()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trail.db"


@pytest.fixture
def opened(path: Path) -> Iterator[Callable[..., SqliteCheckpointer]]:
    """Opens checkpointers over one file, and closes them."""
    made: list[SqliteCheckpointer] = []

    def make(**options: Any) -> SqliteCheckpointer:
        made.append(SqliteCheckpointer(path, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


Opened = Callable[..., SqliteCheckpointer]
Way = Callable[[SqliteCheckpointer, str], RunResult[Any]]


def waited_for(trail: SqliteCheckpointer, run_id: str) -> RunResult[Any]:
    return Runner(trail).run(CLOCK, id=run_id)


def awaited(trail: SqliteCheckpointer, run_id: str) -> RunResult[Any]:
    return asyncio.run(AsyncRunner(trail).run(CLOCK, id=run_id))


# The policy


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"durability": "never"}, "use one of sync, async, exit"),
        ({"retention": "some"}, "use one of full, latest, windowed"),
        ({"durability": "exit"}, 'needs retention="latest"'),
        ({"durability": "exit", "retention": "windowed", "window": 2}, 'needs retention="latest"'),
        ({"retention": "windowed"}, "needs one, and only it takes one"),
        ({"retention": "latest", "window": 3}, "needs one, and only it takes one"),
        ({"window": 3}, "needs one, and only it takes one"),
        ({"retention": "windowed", "window": 0}, "from 1 up"),
        ({"retention": "windowed", "window": True}, "from 1 up"),
        ({"ttl": 0}, "positive"),
        ({"ttl": -1.5}, "positive"),
        ({"ttl": timedelta(0)}, "positive"),
        ({"ttl": float("nan")}, "positive"),
        ({"ttl": float("inf")}, "positive"),
        ({"ttl": "1h"}, "positive"),
        ({"ttl": True}, "positive"),
    ],
)
def test_a_policy_whose_parts_do_not_fit_is_refused_when_it_is_made(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        CheckpointPolicy(**options)


def test_the_shortcuts_make_a_policy_and_are_refused_beside_one(path: Path, opened: Opened) -> None:
    assert opened().policy == CheckpointPolicy("sync", "full")
    made = opened(durability="async", retention="windowed", window=2)
    assert made.policy == CheckpointPolicy("async", "windowed", 2)
    with pytest.raises(ValueError, match="not both"):
        SqliteCheckpointer(path, policy=CheckpointPolicy(), durability="sync")
    with pytest.raises(ValueError, match="only it takes one"):
        SqliteCheckpointer(path.with_name("other.db"), window=2)
    assert not path.with_name("other.db").exists()


def test_runners_take_its_durability_unless_they_are_told_another(opened: Opened) -> None:
    trail = opened(durability="exit", retention="latest")
    assert (Runner(trail).durability, AsyncRunner(trail).durability) == ("exit", "exit")
    assert Runner(everstep.AsyncTrail(trail)).durability == "exit"
    assert Runner(trail, durability="sync").durability == "sync"
    assert (Runner(opened()).durability, Runner().durability) == ("sync", "sync")
    with pytest.raises(ValueError, match="use one of sync, async, exit"):
        Runner(trail, durability="later")  # type: ignore[arg-type] # the point of the test


# What is kept


@pytest.mark.parametrize("run", [waited_for, awaited])
@pytest.mark.parametrize(
    ("options", "oldest"),
    [
        ({}, 0),
        ({"retention": "latest"}, NEWEST),
        ({"retention": "windowed", "window": 3}, NEWEST - 2),
        ({"retention": "windowed", "window": 500}, 0),
        ({"durability": "exit", "retention": "latest"}, NEWEST),
        ({"durability": "async", "retention": "windowed", "window": 1}, NEWEST),
    ],
)
def test_a_completed_run_keeps_the_supersteps_that_the_policy_names(
    opened: Opened, options: dict[str, Any], oldest: int, run: Way
) -> None:
    """Promise 12: it keeps what it says, and what is gone is told."""
    trail = opened(**options)
    assert run(trail, "c").values == {"count": 5}
    for superstep in range(oldest):
        with pytest.raises(PrunedError, match=f"superstep {superstep} of run 'c' was pruned"):
            trail.get_state("c", superstep)
    for superstep in range(oldest, NEWEST + 1):
        assert trail.get_state("c", superstep) == {"count": superstep // 2 + 1}
        assert len(trail.get_steps("c", superstep)) == 1
    with pytest.raises(StepNotFoundError):
        trail.get_state("c", NEWEST + 1)
    assert trail.get_state("c") == {"count": 5}
    assert trail.verify().ok


@pytest.mark.parametrize("run", [waited_for, awaited])
def test_a_run_that_was_pruned_gives_its_result_again(opened: Opened, run: Way) -> None:
    trail = opened(retention="latest")
    run(trail, "c")
    again = run(trail, "c")
    assert (again.restored, again.values) == (True, {"count": 5})


def test_a_run_that_failed_is_kept_whole_until_it_has_completed(opened: Opened) -> None:
    """Promise 2: retention never takes what a resume needs."""
    trail = opened(retention="latest")
    FAILING[:] = [3]
    with pytest.raises(ValueError, match="stuck"):
        waited_for(trail, "c")
    assert trail.run("c").oldest == 0
    assert waited_for(trail, "c").values == {"count": 5}
    assert trail.run("c").oldest > 0


def test_a_run_that_waits_is_kept_whole(opened: Opened) -> None:
    @interrupt(output="approved")
    def ask(count: int) -> str:
        return "Go on?"

    asking = Graph([tick, more, ask], name="asking")
    trail = opened(retention="latest")
    assert Runner(trail).run(asking, id="a").paused
    assert trail.run("a").oldest == 0


def test_a_failed_run_that_was_pruned_by_hand_cannot_be_gone_on_with_and_says_so(opened: Opened) -> None:
    trail = opened()
    FAILING[:] = [3]
    with pytest.raises(ValueError, match="stuck"):
        waited_for(trail, "c")
    trail.prune("c", keep=2)
    with pytest.raises(PrunedError, match=r"was pruned.* It takes all steps to go on; begin a new run") as caught:
        waited_for(trail, "c")
    assert caught.value.run_id == "c"
    assert trail.get_state("c") == {"count": 3}
    assert trail.run("c").status == "failed"


def test_of_a_plain_workflow_the_newest_steps_are_kept(opened: Opened) -> None:
    @everstep.step
    def say(number: int) -> int:
        return number

    @everstep.workflow
    def talk() -> int:
        return sum(say(number) for number in range(6))

    trail = opened(retention="windowed", window=2)
    assert Runner(trail).run(talk, id="t").value == 15
    assert [step.output for step in trail.get_steps("t")] == [4, 5]
    assert Runner(trail).run(talk, id="t").value == 15


def test_child_runs_are_kept_by_the_same_rule_and_the_run_around_them_goes_on(opened: Opened) -> None:
    @node(output="twice")
    def double(count: int) -> int:
        return 2 * count

    trail = opened(retention="latest")
    around = Graph([CLOCK.as_node(), double], name="around")
    for _ in range(2):
        assert Runner(trail).run(around, id="a").values == {"count": 5, "twice": 10}
    [child] = trail.list_workflows(parent="a")
    with pytest.raises(PrunedError):
        trail.get_state(child.id, 0)
    assert trail.get_state(child.id) == {"count": 5}


def test_letting_go_leaves_no_trace_in_the_run_around_a_child(opened: Opened) -> None:
    @everstep.step
    async def say(word: str) -> str:
        return word

    @everstep.workflow
    async def inner(word: str) -> str:
        return await say(word)

    @everstep.workflow
    async def outer() -> list[str]:
        return [await inner("a"), *await asyncio.gather(say("b"), inner("c"))]

    rows = []
    for run_id, options in (("full", {}), ("windowed", {"retention": "windowed", "window": 99})):
        trail = opened(**options)
        asyncio.run(AsyncRunner(trail).run(outer, id=run_id))
        rows.append(sorted((str(row.kind), row.name, row.lane) for row in trail.steps(run_id)))
    assert rows[0] == rows[1]


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


def test_runs_that_ended_too_long_ago_are_dropped_when_another_ends(opened: Opened) -> None:
    clock = Clock()
    trail = opened(policy=CheckpointPolicy(ttl=timedelta(days=7)), clock=clock)

    @node(output="twice")
    def double(count: int) -> int:
        return 2 * count

    Runner(trail).run(Graph([CLOCK.as_node(), double], name="around"), id="with a child")
    FAILING[:] = [0]
    with pytest.raises(ValueError, match="stuck"):
        waited_for(trail, "failed")
    left = trail.record("at work")
    waited_for(trail, "first")
    clock.ahead = timedelta(days=6)
    waited_for(trail, "second")
    assert len(trail.list_workflows(parent=None)) == 5
    clock.ahead = timedelta(days=8)
    waited_for(trail, "third")
    assert {run.id for run in trail.list_workflows()} == {"third", "at work"}
    with pytest.raises(RunNotFoundError):
        trail.get_state("first")
    left.finish()
    waited_for(trail, "fourth")
    assert {run.id for run in trail.list_workflows()} == {"fourth"}


def test_a_ttl_in_seconds_is_the_same_as_a_timedelta(opened: Opened) -> None:
    clock = Clock()
    trail = opened(policy=CheckpointPolicy(ttl=3600), clock=clock)
    awaited(trail, "first")
    clock.ahead = timedelta(seconds=3500)
    awaited(trail, "second")
    assert len(trail.list_workflows()) == 2
    clock.ahead = timedelta(seconds=3700)
    awaited(trail, "third")
    assert [run.id for run in trail.list_workflows()] == ["third"]


def test_runs_of_another_process_that_grew_old_are_dropped_too(path: Path, opened: Opened) -> None:
    clock = Clock()
    trail = opened(policy=CheckpointPolicy(ttl=60), clock=clock)
    waited_for(trail, "ours")
    with everstep.open(path) as other:
        other.record("theirs").finish()
    clock.ahead = timedelta(seconds=120)
    waited_for(trail, "newest")
    assert [run.id for run in trail.list_workflows()] == ["newest"]


def test_inputs_are_kept_and_are_those_the_run_began_with(opened: Opened) -> None:
    trail = opened()
    clock = Graph([tick, more], name="clock", inputs=["count"])
    assert Runner(trail).run(clock, {"count": 3}, id="c").values == {"count": 5}
    assert trail.get_run_inputs("c") == {"count": 3}
    with pytest.raises(InputsDifferError):
        Runner(trail).run(clock, {"count": 4}, id="c")


# Opening and closing


def test_a_program_that_never_closes_it_ends_promptly(path: Path) -> None:
    printed = output(
        "import asyncio, sys\n"
        "from everstep import AsyncRunner, Graph, SqliteCheckpointer, node\n"
        "@node(output='x')\n"
        "async def one() -> int: return 1\n"
        "trail = SqliteCheckpointer(sys.argv[1], durability='async', retention='latest')\n"
        "print(asyncio.run(AsyncRunner(trail).run(Graph([one]), id='r'))['x'])\n",
        path, timeout=30,
    )  # fmt: skip
    assert printed == "1"
    with everstep.open(path, read_only=True) as trail:
        assert trail.get_state("r") == {"x": 1}


def test_closing_again_is_no_error_and_one_checkpointer_serves_many_event_loops(opened: Opened) -> None:
    trail = opened(retention="windowed", window=2)
    for number in range(3):
        assert awaited(trail, f"r-{number}").values == {"count": 5}
    trail.close()
    trail.close()
