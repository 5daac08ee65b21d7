from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import everstep
from everstep.codec.record import StepRecord, erase
from everstep.errors import DamagedError
from everstep.journal.track import AT, CHAIN, RETRY
from everstep.model import Kind, Status
from everstep.store.memory import MemoryStore
from everstep.trail.outline import Node, outline


class Log:
    """A run written row by row, as a runner writes it."""

    def __init__(self) -> None:
        self.trail = everstep.Trail(MemoryStore())
        self.run = self.trail.record("r", inputs={"topic": "x"})

    def add(self, name: str, kind: Kind = Kind.STEP, **detail: Any) -> int:
        """Write a row; its id is what children and outcomes name."""
        return self.run.step(name, kind=kind, **detail).id

    def end(self, error: Exception | None = None, **metadata: Any) -> None:
        self.add("end", Kind.END, error=error, metadata=metadata)

    def drawn(self) -> list[str]:
        """The tree, one line each: indented, with how it stands and what is special about it."""
        return [f"{'  ' * depth}{line(node)}" for depth, node in outline(self.trail.steps("r")).walk()]


def line(node: Node) -> str:
    attempts = f" x{node.attempts}" if node.attempts > 1 else ""
    return f"{node.name} {node.status}{attempts}{' superseded' if node.superseded else ''}"


@pytest.fixture
def log() -> Log:
    return Log()


def test_a_run_recorded_by_hand_is_a_flat_list_of_its_steps(log: Log) -> None:
    for _ in range(3):
        log.add("read", output="page")
    log.run.checkpoint("half")
    log.run.save({"a": 1})
    log.end()
    tree = outline(log.trail.steps("r"))
    assert [(node.name, node.kind, node.seq, [*node.children]) for node in tree.steps] == [
        ("read", Kind.STEP, 1, []),
        ("read", Kind.STEP, 2, []),
        ("read", Kind.STEP, 3, []),
        ("half", Kind.CHECKPOINT, 4, []),
        ("save", Kind.SAVE, 5, []),
    ]
    assert tree.start is not None
    assert tree.start.inputs == {"topic": "x"}
    assert tree.end is not None
    assert tree.end.status is Status.COMPLETED


def test_a_composite_is_one_node_with_what_ran_inside_it(log: Log) -> None:
    plan = log.add("plan", Kind.COMPOSITE_START)
    log.add("ask", parent=plan, output="a")
    log.add("ask", parent=plan, index=1, output="b")
    log.add("plan", id=plan, output="ab", duration_ms=5)
    log.add("write")
    assert log.drawn() == ["plan completed", "  ask completed", "  ask completed", "write completed"]
    node = outline(log.trail.steps("r")).steps[0]
    assert (node.seq, node.begun.seq, node.duration_ms, node.record.output) == (4, 1, 5.0, "ab")


def test_a_composite_without_an_outcome_is_open(log: Log) -> None:
    plan = log.add("plan", Kind.COMPOSITE_START, inputs={"topic": "x"})
    log.add("ask", parent=plan)
    assert log.drawn() == ["plan active", "  ask completed"]
    node = outline(log.trail.steps("r")).steps[0]
    assert node.open
    assert (node.seq, node.duration_ms) == (1, None)


def test_failed_attempts_belong_to_the_step_that_was_tried_again(log: Log) -> None:
    log.add("ask", Kind.ATTEMPT, error=TimeoutError("slow"), attempt=1)
    assert log.drawn() == ["ask active"]
    log.add("ask", Kind.ATTEMPT, error=OSError("gone"), attempt=2)
    again = outline(log.trail.steps("r")).steps[0]
    assert str(again.error) == "OSError: gone"
    log.add("ask", output="yes", attempt=3)
    assert log.drawn() == ["ask completed x3"]
    done = outline(log.trail.steps("r")).steps[0]
    assert done.error is None
    assert [str(row.error) for row in done.earlier] == ["TimeoutError: slow", "OSError: gone"]


def test_what_a_failed_attempt_of_a_composite_did_is_superseded(log: Log) -> None:
    first = log.add("plan", Kind.COMPOSITE_START)
    log.add("ask", parent=first)
    log.add("plan", Kind.ATTEMPT, id=first, error=ValueError("no"), attempt=1)
    second = log.add("plan", Kind.COMPOSITE_START, attempt=2)
    log.add("ask", parent=second)
    log.add("plan", id=second, attempt=2)
    assert log.drawn() == ["plan completed x2", "  ask completed superseded", "  ask completed"]


def test_an_intent_without_an_outcome_is_unknown(log: Log) -> None:
    pay = log.add("pay", Kind.INTENT, external=True)
    assert log.drawn() == ["pay unknown"]
    log.add("pay", id=pay, external=True, output="paid")
    assert log.drawn() == ["pay completed"]


def test_an_effect_that_a_person_has_tried_again_is_open(log: Log) -> None:
    pay = log.add("pay", Kind.INTENT, external=True)
    log.add("answer", Kind.ANSWER, id=pay, metadata={RETRY: True})
    assert log.drawn() == ["pay active"]
    again = log.add("pay", Kind.INTENT, external=True)
    assert log.drawn() == ["pay unknown"]
    log.add("pay", id=again, external=True)
    assert log.drawn() == ["pay completed"]


def test_what_a_person_says_of_an_effect_settles_it(log: Log) -> None:
    pay = log.add("pay", Kind.INTENT, external=True)
    log.add("answer", Kind.ANSWER, id=pay, output="paid")
    assert log.drawn() == ["pay completed"]


def test_where_a_run_was_left_to_wait_is_not_a_step(log: Log) -> None:
    log.add("pause", Kind.PAUSE, status="paused", pause={"prompt": "Go on?"})
    log.add("waiting", Kind.CHECKPOINT, status="paused", node_type="boundary")
    assert log.drawn() == ["pause paused"]


def test_a_pause_and_its_answer_are_one(log: Log) -> None:
    pause = log.add("pause", Kind.PAUSE, status="paused", pause={"prompt": "Go on?"})
    assert log.drawn() == ["pause paused"]
    assert outline(log.trail.steps("r")).steps[0].record.pause == {"prompt": "Go on?"}
    log.add("answer", Kind.ANSWER, id=pause, output="yes")
    [node] = outline(log.trail.steps("r")).steps
    assert (node.name, node.kind, node.status, node.record.output) == ("pause", Kind.PAUSE, Status.COMPLETED, "yes")
    assert node.begun.pause == {"prompt": "Go on?"}
    assert node.duration_ms is not None


def test_a_second_pause_by_hand_leaves_the_first_as_it_is(log: Log) -> None:
    for answer in ("yes", "no"):
        pause = log.add("pause", Kind.PAUSE, status="paused", pause={"prompt": "Go on?"})
        log.add("answer", Kind.ANSWER, id=pause, output=answer)
    assert log.drawn() == ["pause completed", "pause completed"]


def test_ends_of_lanes_are_not_shown_and_lanes_are_kept_apart(log: Log) -> None:
    log.add("fetch", lane="task:fetch#0")
    log.add("lane", Kind.LANE_END, lane="task:fetch#0")
    log.add("fetch", Kind.COMPOSITE_START, lane="task:fetch#1")
    assert log.drawn() == ["fetch completed", "fetch active"]
    assert [node.lane for node in outline(log.trail.steps("r")).steps] == ["task:fetch#0", "task:fetch#1"]


def test_a_cancelled_step_that_was_run_again_is_superseded(log: Log) -> None:
    log.add("ask", Kind.CANCELLED, status="cancelled")
    log.add("other")
    assert log.drawn() == ["ask cancelled", "other completed"]
    log.add("ask")
    assert log.drawn() == ["ask cancelled superseded", "other completed", "ask completed"]


def test_an_open_composite_that_is_cancelled_is_one_node(log: Log) -> None:
    plan = log.add("plan", Kind.COMPOSITE_START)
    log.add("ask", parent=plan)
    log.add("plan", Kind.CANCELLED, id=plan, status="cancelled")
    assert log.drawn() == ["plan cancelled", "  ask completed"]


class TestAFailedRunThatWasRunAgain:
    def test_what_failed_is_superseded_as_soon_as_the_run_goes_on(self, log: Log) -> None:
        log.add("plan")
        log.add("ask", error=ValueError("no"))
        log.end(ValueError("no"))
        assert log.drawn() == ["plan completed", "ask failed"]
        log.add("other")
        assert log.drawn() == ["plan completed", "ask failed superseded", "end failed superseded", "other completed"]

    def test_what_handlers_did_after_the_failure_is_superseded_too(self, log: Log) -> None:
        log.add("ask", error=ValueError("no"))
        log.add("clean up")
        log.add("elsewhere", lane="task:x#0")
        log.end(ValueError("no"))
        log.add("ask")
        assert log.drawn() == [
            "ask failed superseded",
            "clean up completed superseded",
            "elsewhere completed",
            "end failed superseded",
            "ask completed",
        ]

    def test_what_ran_beside_it_in_no_order_is_in_use(self, log: Log) -> None:
        """The nodes of a graph: those that did not fail are not called again."""
        lane = "unordered:@0"
        log.add("shaky", lane=lane, error=ValueError("no"))
        log.add("fine", lane=lane)
        log.end(ValueError("no"))
        log.add("shaky", lane=lane, index=1)
        assert log.drawn() == [
            "shaky failed superseded",
            "fine completed",
            "end failed superseded",
            "shaky completed",
        ]

    def test_a_failure_that_was_handled_stays(self, log: Log) -> None:
        log.add("try", error=KeyError("k"))
        log.add("ask", error=ValueError("no"))
        log.end(ValueError("no"))
        log.add("ask")
        assert log.drawn()[:2] == ["try failed", "ask failed superseded"]

    def test_a_failure_under_another_name_is_superseded_when_its_step_runs_again(self, log: Log) -> None:
        log.add("ask", error=ValueError("no"))
        log.end(RuntimeError("cannot go on"))
        log.add("first of all")
        assert log.drawn()[0] == "ask failed"
        log.add("ask")
        assert log.drawn()[0] == "ask failed superseded"

    def test_the_chain_of_composites_is_open_again_while_its_inside_runs(self, log: Log) -> None:
        outer = log.add("outer", Kind.COMPOSITE_START)
        inner = log.add("inner", Kind.COMPOSITE_START, parent=outer)
        log.add("good", parent=inner)
        log.add("bad", parent=inner, error=ValueError("no"))
        log.add("inner", id=inner, parent=outer, error=ValueError("no"))
        log.add("outer", id=outer, error=ValueError("no"))
        log.end(ValueError("no"))
        log.add("bad", parent=inner)
        open_again = [
            "outer active",
            "  inner active",
            "    good completed",
            "    bad failed superseded",
            "    bad completed",
            "end failed superseded",
        ]
        assert log.drawn() == open_again
        log.add("inner", id=inner, parent=outer)
        log.add("outer", id=outer)
        assert log.drawn()[:2] == ["outer completed x2", "  inner completed x2"]
        assert [str(row.error) for row in outline(log.trail.steps("r")).steps[0].earlier] == ["ValueError: no"]

    def test_the_row_of_the_end_says_which_steps_are_run_again(self, log: Log) -> None:
        outer = log.add("outer", Kind.COMPOSITE_START)
        bad = log.add("bad", parent=outer, error=ValueError("no"))
        log.add("after", parent=outer)
        failed = log.run.step("outer", id=outer, error=KeyError("k"), metadata={CHAIN: [bad]}).seq
        log.add("handled", error=RuntimeError("cannot go on"))
        log.end(RuntimeError("cannot go on"), chain=[failed])
        log.add("bad", parent=outer)
        assert log.drawn() == [
            "outer active",
            "  bad failed superseded",
            "  after completed superseded",
            "  bad completed",
            "handled failed superseded",
            "end failed superseded",
        ]

    def test_lanes_that_were_spawned_after_the_failure_are_superseded(self, log: Log) -> None:
        log.add("plan")
        log.add("before", lane="task:a#0@1")
        bad = log.add("bad", error=ValueError("no"))
        log.add("later", lane="task:b#0@2")
        log.end(ValueError("no"), chain=[bad])
        log.add("bad")
        assert log.drawn()[:4] == [
            "plan completed",
            "before completed",
            "bad failed superseded",
            "later completed superseded",
        ]

    def test_a_row_that_says_its_position_supersedes_what_stood_there(self, log: Log) -> None:
        log.add("plan")
        log.add("ask")
        log.add("write")
        log.add("draw", metadata={AT: 1})
        log.add("print")
        assert log.drawn() == [
            "plan completed",
            "ask completed superseded",
            "write completed superseded",
            "draw completed",
            "print completed",
        ]

    def test_a_chain_of_nonsense_is_no_trouble(self, log: Log) -> None:
        """Promise 8: what a row says is data."""
        log.add("ask", error=ValueError("no"))
        for chain in (7, ["x", None, -1, 10**30, 0], {"a": 1}):
            log.end(KeyError("k"), chain=chain)
        log.add("ask", metadata={AT: -3}, lane="a/b@c@99999999999")
        assert "ask failed" in log.drawn()

    def test_a_composite_that_begins_anew_is_the_same_step(self, log: Log) -> None:
        old = log.add("plan", Kind.COMPOSITE_START)
        log.add("ask", parent=old, error=ValueError("no"))
        log.add("plan", id=old, error=ValueError("no"))
        log.end(ValueError("no"))
        new = log.add("plan", Kind.COMPOSITE_START)
        log.add("ask", parent=new)
        log.add("plan", id=new)
        assert log.drawn() == [
            "plan completed x2",
            "  ask failed superseded",
            "  ask completed",
            "end failed superseded",
        ]


def test_a_fork_goes_on_after_the_end_it_shares_and_nothing_is_superseded_but_that_end(log: Log) -> None:
    log.add("ask", error=ValueError("handled"))
    log.end()
    fork = log.trail.fork("r", id="f", set={"x": 1})
    fork.step("ask")
    assert [line(node) for _, node in outline(log.trail.steps("f")).walk()] == [
        "ask failed",
        "end completed superseded",
        "fork completed",
        "ask completed",
    ]


def test_children_of_a_start_that_was_pruned_find_their_parent_when_it_ends(log: Log) -> None:
    plan = log.add("plan", Kind.COMPOSITE_START)
    inner = log.add("inner", Kind.COMPOSITE_START, parent=plan)
    log.add("ask", parent=inner)
    log.add("inner", id=inner, parent=plan)
    log.add("plan", id=plan)
    kept = log.trail.steps("r")[3:]
    assert [f"{'  ' * depth}{line(node)}" for depth, node in outline(kept).walk()] == [
        "plan completed",
        "  inner completed",
        "    ask completed",
    ]
    assert [f"{'  ' * depth}{line(node)}" for depth, node in outline(kept[:1]).walk()] == ["ask completed"]


def test_steps_that_name_one_another_as_parents_are_all_shown(log: Log) -> None:
    """Promise 8: hostile rows give a tree, or an error, and no endless loop."""
    log.add("a", id=100, parent=200)
    log.add("b", id=200, parent=100)
    log.add("c", id=300, parent=300)
    log.add("d", id=400, parent=999)
    assert sorted(log.drawn(), key=str.strip) == ["  a completed", "b completed", "c completed", "d completed"]


def test_a_step_whose_payload_was_erased_is_shown_without_its_error() -> None:
    log = Log()
    log.add("ask", error=ValueError("secret"))
    [row] = log.trail.steps("r")[1:]
    erased = StepRecord("r", erase(row._entry), row._fetch)
    [node] = outline([erased]).steps
    assert (node.status, node.error) == (Status.FAILED, None)


@pytest.mark.parametrize("detail", [{"parent": [1]}, {"metadata": [1]}, {"parent": {}}, {"lane": [2]}])
def test_a_row_with_a_field_of_another_type_is_damage(log: Log, detail: Any) -> None:
    """Promise 8: a hostile row gives an error of ours."""
    log.add("ask", **detail)
    with pytest.raises(DamagedError):
        outline(log.trail.steps("r"))


def rows(log: Log, count: int) -> Iterator[StepRecord]:
    """Composites nested as deep as there are, then their ends: no stack is deep enough for it."""
    starts = [log.run.step("down", kind=Kind.COMPOSITE_START, parent=above or None) for above in range(count)]
    yield from starts
    for start in reversed(starts):
        yield log.run.step("down", id=start.id, parent=start.parent)


def test_nesting_deeper_than_the_stack_is_no_trouble(log: Log) -> None:
    tree = outline(rows(log, 5_000))
    found = list(tree.walk())
    assert len(found) == 5_000
    assert found[-1][0] == 4_999
    assert all(node.status is Status.COMPLETED for _, node in found)
