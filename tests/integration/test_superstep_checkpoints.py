"""Checkpoints of a graph's run: values and steps together, at the ends of supersteps, which are never written."""

from __future__ import annotations

import dataclasses
import json

import pytest

from everstep import CheckpointKind, Graph, Runner, Trail, interrupt, node
from tests.integration.stories import FAILING, broken, written


@pytest.fixture(autouse=True)
def nothing_fails() -> None:
    FAILING.clear()


def test_a_checkpoint_is_values_and_steps(trail: Trail) -> None:
    written(trail)
    found = trail.get_checkpoint("s", 3)
    assert (found.source_run_id, found.source_superstep) == ("s", 3)
    assert found.values == trail.get_state("s", 3)
    assert list(found.steps) == [step for number in range(4) for step in trail.get_steps("s", number)]
    told = json.loads(json.dumps(found.to_dict()))
    assert (told["values"], told["source_superstep"]) == (list(found.values), 3)
    assert told["steps"][-1] == [3, "write", "completed", found.steps[-1].seq]
    newest = trail.get_checkpoint("s")
    assert newest.values == trail.get_state("s")
    assert newest.source_superstep == newest.steps[-1].superstep
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.values = {}  # type: ignore[misc] # the point of the test


def test_what_is_handed_out_is_no_alias_of_what_is_stored(trail: Trail) -> None:
    """Promise 5: history cannot be changed through what was read of it."""
    written(trail)
    for read_it in (trail.get_state("s", 3), trail.get_checkpoint("s", 3).values):
        read_it["words"].append("changed")
        read_it.clear()
    trail.get_steps("s")[0].metadata["changed"] = True
    assert trail.get_state("s", 3)["words"] == ["ALL", "GOOD", "TIDES"]
    assert trail.get_steps("s")[0].metadata == {}


def test_the_end_of_every_finished_superstep_is_a_checkpoint_that_was_never_written(trail: Trail) -> None:
    written(trail)
    before = trail.run("s").head
    points = trail.checkpoints("s", kind="boundary")
    newest = max(step.superstep or 0 for step in trail.get_steps("s"))
    assert [point.metadata for point in points] == [{"superstep": number} for number in range(newest, -1, -1)]
    assert {point.kind for point in points} == {CheckpointKind.BOUNDARY}
    for point in points:
        assert point.name == f"superstep {point.metadata['superstep']}"
        assert trail.state(point.run_id, at=point.seq) == trail.get_state("s", point.metadata["superstep"])
    assert trail.checkpoints() == []
    assert trail.checkpoints("s", kind="manual") == []
    assert [point.seq for point in trail.checkpoints("s", limit=2)] == [point.seq for point in points[:2]]
    assert trail.run("s").head == before


def test_checkpoints_that_were_written_stand_among_the_ends_of_supersteps(trail: Trail) -> None:
    recorder = trail.record("hand")
    recorder.step("a", superstep=0, set={"x": 1})
    recorder.checkpoint("by a person")
    recorder.step("b", superstep=1, set={"x": 2})
    assert [point.name for point in trail.checkpoints("hand")] == ["by a person", "superstep 0"]
    recorder.finish()
    assert [point.name for point in trail.checkpoints("hand")] == ["superstep 1", "by a person", "superstep 0"]
    assert [point.name for point in trail.checkpoints("hand", kind="manual")] == ["by a person"]
    assert [point.name for point in trail.checkpoints()] == ["by a person"]


def test_a_superstep_that_failed_or_waits_is_no_checkpoint_until_the_run_goes_on(trail: Trail) -> None:
    broken(trail)
    failed = trail.get_steps("s")[-1].superstep
    assert trail.checkpoints("s")[0].metadata == {"superstep": (failed or 0) - 1}

    @interrupt(output="approved")
    def ask(draft: str) -> str:
        return f"Print {draft}?"

    @node(output="draft")
    def begin() -> str:
        return "it"

    asking = Graph([begin, ask], name="asking")
    Runner(trail).run(asking, id="q")
    assert [point.name for point in trail.checkpoints("q")] == ["waiting", "superstep 0"]
    Runner(trail).run(asking, id="q", answer="yes")
    assert [point.name for point in trail.checkpoints("q")] == ["superstep 1", "waiting", "superstep 0"]
    assert trail.get_state("q", 0) == {"draft": "it"}
    assert trail.get_state("q", 1) == {"draft": "it", "approved": "yes"}


def test_a_paused_run_that_is_run_again_without_an_answer_has_no_new_step(trail: Trail) -> None:
    @interrupt(output="approved")
    def ask() -> str:
        return "Go?"

    asking = Graph([ask], name="asking")
    for _ in range(3):
        assert Runner(trail).run(asking, id="q").paused
        assert (trail.get_steps("q"), trail.run("q").head) == ([], 3)
