"""Comparing two runs: whatever recorded them, whatever they came to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Hashable, Iterator
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import (
    AsyncRunner,
    AsyncTrail,
    Runner,
    Trail,
    pause,
    step,
    workflow,
)
from everstep.codec.record import erase
from everstep.errors import PrunedError, RunNotFoundError, StepNotFoundError
from everstep.model import Kind
from everstep.store.memory import MemoryStore
from everstep.trail import branching, differing
from everstep.trail.comparing import Comparison, Verdict
from everstep.trail.outline import Node
from tests.integration.comparing import book, knobs, record, verdicts, write
from tests.integration.support import output


@pytest.fixture
def trail(tmp_path: Path) -> Iterator[Trail]:
    knobs.clear()
    with everstep.open(tmp_path / "trail.db") as opened:
        yield opened


class TestRunsByHand:
    def test_two_runs_of_the_same_steps_are_identical_whenever_they_ran(self, trail: Trail) -> None:
        record(trail, "a", "a1 b2 a3")
        record(trail, "b", "a1 b2 a3")
        found = trail.compare("a", "b")
        assert found.identical
        assert (found.first, found.changes) == (None, ())
        assert found.summary() == "a and b: identical, 3 steps"
        assert [pair.verdict for pair in found.steps] == [Verdict.SAME] * 5

    @pytest.mark.parametrize(
        ("old", "new", "differ"),
        [
            ("a1 a2 a3 a4", "a1 a2 a9 a3 a4", ["+a - 3"]),
            ("a1 a1 a1 b2", "a1 a1 a1 a1 a1 b2", ["+a - 4", "+a - 5"]),
            ("a1 a2 a3 a4", "a1 a3 a4", ["-a 2 -"]),
            ("a1 a2 a3 a4", "a1 a7 a3 a4", ["~a 2 2 output"]),
            ("a1 a2 a3 a4", "a9 a1 a7 a3 a4", ["+a - 1", "~a 2 3 output"]),
            ("a1 b2 c3 d4", "b2 c3 d4 a1", [">a 1 4"]),
            ("a1 b2 c3", "a1 x2 c3", ["-b 2 -", "+x - 2"]),
        ],
    )
    def test_inserted_removed_moved_and_changed_steps_are_told_apart(
        self, trail: Trail, old: str, new: str, differ: list[str]
    ) -> None:
        record(trail, "a", old)
        record(trail, "b", new)
        found = trail.compare("a", "b")
        assert verdicts(found) == differ
        assert not found.identical
        assert found.first is not None
        assert f"{found.first.sign}{found.first.name}" == differ[0][:2]

    def test_values_that_are_equal_but_of_another_type_differ_in_steps_and_state(self, trail: Trail) -> None:
        for run_id, values in (("a", [1, [1, 2], {"n": 1}, "same"]), ("b", [True, [1, 2.0], {"n": True}, "same"])):
            with trail.record(run_id) as run:
                for number, value in enumerate(values):
                    run.step(f"s{number}", set={f"v{number}": value}, usage={"n": value, "wait_ms": ord(run_id)})
        found = trail.compare("a", "b")
        assert [(change.path, change.old, change.new) for change in found.changes] == [
            (("v0",), 1, True),
            (("v1", 1), 2, 2.0),
            (("v2", "n"), 1, True),
        ]
        assert [pair.what for pair in found.steps[1:-1]] == [("usage", "state")] * 3 + [()]

    def test_a_few_insertions_do_not_derail_a_long_loop(self, trail: Trail) -> None:
        old = [f"{'ab'[at % 2]}{at % 3}" for at in range(300)]
        new = old.copy()
        for at in (250, 100, 40):
            new.insert(at, "a7")
        record(trail, "a", " ".join(old))
        record(trail, "b", " ".join(new))
        assert verdicts(trail.compare("a", "b")) == ["+a - 41", "+a - 102", "+a - 253"]

    def test_usage_is_a_difference_and_summed_up_and_time_is_not(self, trail: Trail) -> None:
        for run_id, tokens, took in (("a", 10, 1.0), ("b", 10, 900.0), ("c", 30, 1.0)):
            with trail.record(run_id) as run:
                usage = {"input_tokens": tokens, "output_tokens": 1, "cost": tokens / 1000, "latency_ms": took}
                run.step("ask", output="x", usage=usage, duration_ms=took)
        slow = trail.compare("a", "b")
        assert slow.identical
        assert slow.steps[1].duration_ms == (1.0, 900.0)
        more = trail.compare("a", "c")
        assert verdicts(more) == ["~ask 1 1 usage"]
        assert (more.a.tokens, more.b.tokens, more.a.cost, more.b.cost) == (11, 31, 0.01, 0.03)

    def test_changes_of_the_state_are_told_at_the_ends_and_where_they_came_from(self, trail: Trail) -> None:
        for run_id, style in (("a", "long"), ("b", "short")):
            with trail.record(run_id) as run:
                run.step("choose", set={"style": style}, metadata={"by": style})
        found = trail.compare("a", "b")
        assert [str(change) for change in found.changes] == ["~ state.style: 'long' -> 'short'"]
        assert verdicts(found) == ["~choose 1 1 metadata,state"]

    def test_other_inputs_are_the_first_divergence(self, trail: Trail) -> None:
        record(trail, "a", "a1", inputs={"topic": "sun"}, workflow="w")
        record(trail, "b", "a2", inputs={"topic": "moon"}, workflow="w")
        found = trail.compare("a", "b")
        assert verdicts(found) == ["~w 0 0 inputs", "~a 1 1 output"]
        assert found.first is found.steps[0]

    def test_steps_may_nest_as_deep_as_they_like(self) -> None:
        trail = Trail(MemoryStore())
        for run_id in "ab":
            run, inside = trail.record(run_id), None
            for depth in range(1_500):
                inside = run.step("dig", kind=Kind.COMPOSITE_START, parent=inside, inputs=f"{run_id} {depth}").id
            run.step("dug", parent=inside, output=run_id)
        found = trail.compare("a", "b")
        assert [pair.verdict for pair in found.steps[1:]] == [Verdict.CHANGED] * 1_501
        assert found.first is found.steps[1]


class TestFunctions:
    def test_what_a_workflow_set_is_told_by_the_values_and_not_by_their_digest(self, trail: Trail) -> None:
        @workflow
        def titled(title: str) -> None:
            everstep.current().state["title"] = title

        for run_id in ("a", "b"):
            Runner(trail).run(titled, run_id, id=run_id)
        found = trail.compare("a", "b")
        assert verdicts(found)[-1] == "~state 1 1 state"
        assert "    set title: 'a' -> 'b'" in str(found).splitlines()

    def test_of_long_texts_the_words_that_differ_are_shown(self, trail: Trail) -> None:
        Runner(trail).run(book, ["sea"], id="a")
        knobs["end"] = "bad"
        Runner(trail).run(book, ["sea"], id="b")
        found = trail.compare("a", "b")
        assert "[-good-]{+bad+}" in str(found)
        assert found.first is not None
        assert (found.first.name, found.first.what, found.first.depth) == ("write", ("output",), 1)

    def test_the_first_divergence_is_the_step_inside_and_not_the_one_around_it(self, trail: Trail) -> None:
        Runner(trail).run(book, ["sea", "sky"], id="a")
        knobs["fail"] = "sky two"
        Runner(trail).run(book, ["sea", "sky"], id="b", error_handling="continue")
        found = trail.compare("a", "b")
        assert found.first is not None
        assert (found.first.name, found.first.what) == ("write", ("status", "output", "error"))
        assert [pair.name for pair in found.steps if pair.verdict is Verdict.CHANGED] == ["chapter", "write", "end"]
        assert (found.a.errors, found.b.errors) == (0, 2)

    def test_a_step_with_other_inputs_comes_before_what_ran_in_it(self, trail: Trail) -> None:
        Runner(trail).run(book, ["sea"], id="a")
        Runner(trail).run(book, ["sky"], id="b")
        found = trail.compare("a", "b")
        assert found.first is found.steps[0]  # the run's own inputs
        knobs["more"] = " and more"
        Runner(trail).run(book, ["sea"], id="c")
        inner = trail.compare("a", "c").first
        assert inner is not None
        assert (inner.name, inner.what) == ("chapter", ("inputs", "output"))

    def test_a_run_that_failed_and_went_on_has_its_failure_as_a_step_more(self, trail: Trail) -> None:
        Runner(trail).run(book, ["sea"], id="a")
        knobs["fail"] = "sea two"
        Runner(trail).run(book, ["sea"], id="b", error_handling="continue")
        knobs.clear()
        Runner(trail).run(book, id="b")
        found = trail.compare("a", "b")
        extra = [pair for pair in found.steps if pair.verdict is Verdict.INSERTED]
        assert [(pair.name, str(pair.b.status)) for pair in extra if pair.b is not None] == [
            ("write", "failed"),
            ("end", "failed"),
        ]
        assert found.changes == ()

    def test_a_paused_run_is_compared_as_far_as_it_got(self, trail: Trail) -> None:
        @workflow
        def asks() -> Any:
            return write("it") + str(pause("Send it?", options=["yes", "no"]))

        Runner(trail).run(asks, id="a")
        Runner(trail).run(asks, id="b")
        assert trail.compare("a", "b").identical
        Runner(trail).run(asks, id="b", answer="yes")
        found = trail.compare("a", "b")
        assert verdicts(found)[0] == "~pause 2 4 status,output"
        assert [pair.kind for pair in found.steps if pair.verdict is Verdict.INSERTED] == [Kind.END]

    def test_a_fork_is_equal_as_far_as_it_is_shared(self, trail: Trail, monkeypatch: pytest.MonkeyPatch) -> None:
        Runner(trail).run(book, ["sea", "sky"], id="a")
        shared = trail.fork("a", 4, id="b")
        shared.release()
        same = trail.compare("a@4", "b")
        assert same.identical
        knobs["end"] = "bad"
        Runner(trail).run(book, id="b")
        looked_at: list[int] = []

        def look(found: Node) -> tuple[Hashable, ...]:
            looked_at.append(found.seq)
            return differing.said(found)

        monkeypatch.setattr(branching, "said", look)
        found = trail.compare("a", "b")
        assert all(pair.verdict is Verdict.SAME for pair in found.steps if pair.a is not None and pair.a.seq <= 4)
        assert min(looked_at) > 4  # what is shared is equal without a look
        assert found.first is not None
        assert found.first.a is not None
        assert found.first.a.seq > 4

    def test_which_task_or_thread_was_quicker_is_no_difference(self, trail: Trail) -> None:
        @step
        async def fetch(name: str) -> str:
            for _ in range(knobs["turns"].get(name, 0)):
                await asyncio.sleep(0)
            return f"{name}{knobs.get('say', '')}"

        @workflow
        async def all_at_once() -> None:
            if knobs.get("first"):
                await fetch("before")
            async with asyncio.TaskGroup() as group:
                for name in "xyz":
                    group.create_task(both(name), name=name)

        async def both(name: str) -> str:
            return await fetch(name) + await fetch(name + name)

        runner = AsyncRunner(trail)
        for run_id, turns in (("a", {"x": 9, "y": 1}), ("b", {"y": 9, "zz": 5})):
            knobs["turns"] = turns
            asyncio.run(runner.run(all_at_once, id=run_id))
        knobs["first"] = True
        asyncio.run(runner.run(all_at_once, id="c"))
        order = [[row.output for row in trail.steps(run_id) if row.kind is Kind.STEP] for run_id in "ab"]
        assert order[0] != order[1]
        assert verdicts(trail.compare("a", "b")) == []
        assert verdicts(trail.compare("a", "c")) == ["+fetch - 1"]  # though every lane is spawned one step later
        knobs["say"] = "!"
        asyncio.run(runner.run(all_at_once, id="d"))
        counts = trail.compare("a", "d").counts
        assert (counts[Verdict.CHANGED], counts[Verdict.INSERTED], counts[Verdict.REMOVED]) == (6, 1, 0)

    def test_the_order_in_an_unordered_lane_is_no_difference(self, trail: Trail) -> None:
        @workflow
        def free(names: str) -> None:
            with everstep.unordered():
                for name in reversed(names) if knobs.get("reverse") else names:
                    write(name)

        Runner(trail).run(free, "xyz", id="a")
        knobs["reverse"] = True
        Runner(trail).run(free, "xyz", id="b")
        found = trail.compare("a", "b")
        assert verdicts(found) == []
        assert [change.path for change in found.changes] == [("write",)]  # whoever came last


class TestPoints:
    def test_two_points_of_a_run_differ_by_the_steps_between_them(self, trail: Trail) -> None:
        record(trail, "a", "a1 b2 c3")
        found = trail.compare("a@1", "a@3")
        assert verdicts(found) == ["+b - 2", "+c - 3"]
        assert [str(change) for change in found.changes] == ["+ state.log[1]: '2'", "+ state.log[2]: '3'"]
        assert verdicts(trail.compare("a@3", "a@1")) == ["-b 2 -", "-c 3 -"]
        assert trail.compare("a@2", "a@2").identical

    def test_checkpoints_are_points(self, trail: Trail) -> None:
        run = trail.record("a")
        one = run.checkpoint("before")
        run.step("do", output=1, output_to="x")
        two = run.checkpoint("after")
        points = {point.name: point for point in trail.checkpoints("a")}
        found = trail.compare(points["before"], points["after"])
        assert verdicts(found) == ["+do - 2", "+after - 3"]
        assert (found.a.address, found.b.address) == (f"a@{one.seq}", f"a@{two.seq}")

    def test_what_is_not_there_is_a_typed_error(self, trail: Trail) -> None:
        record(trail, "a", "a1 b2 c3")
        with pytest.raises(RunNotFoundError):
            trail.compare("a", "none")
        with pytest.raises(StepNotFoundError):
            trail.compare("a", "a@99")
        trail.prune("a", keep=2)
        with pytest.raises(PrunedError):
            trail.compare("a@1", "a")

    def test_a_pruned_run_is_compared_with_what_is_left_and_that_is_said(self, trail: Trail) -> None:
        record(trail, "a", "a1 b2 c3")
        record(trail, "b", "a1 b2 c3")
        trail.prune("b", keep=2)
        found = trail.compare("a", "b")
        assert [pair.name for pair in found.steps if pair.verdict is Verdict.SAME] == ["c", "end"]
        assert any("b was pruned" in note for note in found.notes)

    def test_an_erased_step_equals_only_itself_and_nothing_is_guessed(self) -> None:
        store = MemoryStore()
        trail = Trail(store)
        record(trail, "a", "a1 b2")
        record(trail, "b", "a1 b2")
        history = store._runs["b"].history
        history[1] = erase(history[1])
        found = trail.compare("a", "b")
        assert not found.identical
        assert [(pair.name, "erased" in pair.what) for pair in found.steps if pair.differences] == [("a", True)]
        assert trail.compare("b", "b").identical
        with trail.fork("b", 1, id="c"):
            pass
        assert trail.compare("b@1", "c@1").identical
        assert str(found)


class TestTheAnswer:
    def test_it_is_frozen_and_made_of_what_json_can_hold(self, trail: Trail) -> None:
        record(trail, "a", "a1 b2")
        record(trail, "b", "a1 b3 c4")
        found = trail.compare("a", "b")
        told = json.loads(json.dumps(found.to_dict()))
        assert told["identical"] is False
        assert told["first"]["differences"] == {"output": ["~ state: '2' -> '3'"]}
        assert told["counts"] == {"same": 3, "changed": 1, "inserted": 1, "removed": 0, "moved": 0}
        with pytest.raises(FrozenInstanceError):
            found.first = None  # type: ignore[misc]  # the point of the test

    def test_a_long_list_of_differences_is_cut_when_it_is_printed(self, trail: Trail) -> None:
        record(trail, "a", " ".join(f"a{at}" for at in range(200)))
        record(trail, "b", " ".join(f"a{at}x" for at in range(200)))
        lines = str(trail.compare("a", "b")).splitlines()
        assert "... 160 more steps differ" in lines
        assert "... 160 more changes of the state" in lines

    def test_classes_need_not_be_known(self, tmp_path: Path) -> None:
        source = (
            "import dataclasses, everstep\n"
            "@everstep.register\n@dataclasses.dataclass\nclass Page:\n    title: str\n"
            "for name in 'ab':\n"
            "    with everstep.open('t.db') as trail, trail.record(name) as run:\n"
            "        run.step('read', output=Page(name), output_to='page')\n"
        )
        output(f"import os; os.chdir({str(tmp_path)!r})\n{source}")
        with everstep.open(tmp_path / "t.db") as trail:
            found = trail.compare("a", "b")
        assert verdicts(found) == ["~read 1 1 output"]
        assert "Page" in str(found.changes[0].old)

    def test_the_awaited_twin_gives_the_same(self, tmp_path: Path) -> None:
        async def main() -> Comparison:
            async with await AsyncTrail.open(tmp_path / "trail.db") as trail:
                record(trail.trail, "a", "a1")
                record(trail.trail, "b", "a2")
                return await trail.compare("a", "b")

        assert verdicts(asyncio.run(main())) == ["~a 1 1 output"]
