"""Why a run failed, told from its record: the step it came from is named, and nobody is accused without a reason."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import FrozenInstanceError
from pathlib import Path
from random import Random
from typing import Any

import pytest

import everstep
from everstep.trail.why.report import Why
from tests.integration import why_agents, why_further, why_more, why_scenarios, why_variants
from tests.integration.support import ROOT, environment
from tests.integration.why_scenarios import Program, World

Scenario = Callable[[World], Program]

TEN: list[Scenario] = [
    why_scenarios.bad_answer, why_scenarios.lost_message, why_scenarios.wrong_route, why_scenarios.stale_value,
    why_scenarios.swallowed_error, why_more.timeout, why_more.type_change, why_more.truncated_text,
    why_more.duplicate_delivery, why_more.wrong_unit,
]  # fmt: skip
OTHERS: list[Scenario] = [
    why_variants.nested_bad_answer, why_variants.forgotten_job, why_variants.wrong_tool, why_variants.old_rate,
    why_variants.error_as_text, why_variants.second_attempt, why_variants.one_of_many_rows,
    why_variants.cut_off_in_a_child, why_variants.sent_twice, why_variants.seconds_and_milliseconds,
    why_further.another_date, why_further.another_currency, why_further.made_up_id,
]  # fmt: skip
NOISY: list[Scenario] = [why_agents.noisy_agent, why_agents.noisy_agent_with_a_number_as_text]


def failed(path: Path, scenario: Scenario, seed: int, *, faulty: bool = True) -> tuple[Why, int]:
    """A program run for real until it fails: why it did, and the step that was at fault."""
    program, inputs, (name, number) = scenario(World(Random(f"{scenario.__name__} {seed}"), faulty))
    with everstep.open(path) as trail:
        with suppress(Exception):  # which one, the program knows
            everstep.Runner(trail, durability="async").run(program, *inputs, id="r")
        found = trail.why("r")
        assert found.status == "failed"
        steps = [row for row in trail.steps("r") if row.name == name and row.kind is everstep.Kind.STEP]
    return found, steps[number].seq if faulty else -1


def names(path: Path, scenario: Scenario, seed: int) -> bool:
    """Whether the first suspect is the step that was at fault."""
    found, culprit = failed(path / f"{scenario.__name__}-{seed}.db", scenario, seed)
    return bool(found.suspects) and found.suspects[0].seq == culprit


# Who is named.


@pytest.mark.parametrize("seed", range(6))
def test_a_malformed_answer_at_step_14_is_named_when_the_agent_fails_at_step_27(tmp_path: Path, seed: int) -> None:
    found, culprit = failed(tmp_path / "t.db", why_agents.booking_agent, seed)
    assert culprit == 14
    assert found.failure is not None
    assert found.failure.seq == 27
    assert (found.suspects[0].seq, found.suspects[0].confidence) == (14, "high")
    assert found.last_good is not None
    assert found.last_good.seq == 13
    assert [link.seq for link in found.chain] == [28, 27, 14]


@pytest.mark.parametrize("scenario", [*TEN, *OTHERS])
def test_each_kind_of_fault_is_traced_to_its_step(tmp_path: Path, scenario: Scenario) -> None:
    traced = [names(tmp_path, scenario, seed) for seed in range(4)]
    assert sum(traced) >= 3, traced  # a price that is small in the right unit may be an ordinary one in the wrong


@pytest.mark.parametrize("scenario", NOISY)
def test_harmless_oddities_do_not_hide_the_one_that_matters(tmp_path: Path, scenario: Scenario) -> None:
    assert [names(tmp_path, scenario, seed) for seed in range(5)] == [True] * 5


@pytest.mark.parametrize("scenario", [*TEN, *OTHERS, *NOISY, why_agents.booking_agent])
def test_a_bug_in_the_last_step_is_blamed_on_no_other_with_confidence(tmp_path: Path, scenario: Scenario) -> None:
    for seed in range(2):
        found, _ = failed(tmp_path / f"{seed}.db", scenario, seed, faulty=False)
        assert [each for each in found.suspects if each.confidence == "high"] == []


# What is told.


def told(path: Path) -> Why:
    return failed(path, why_agents.booking_agent, 1)[0]


def test_the_report_is_frozen_and_all_of_it_fits_json(tmp_path: Path) -> None:
    found = told(tmp_path / "t.db")
    with pytest.raises(FrozenInstanceError):
        found.run_id = "x"  # type: ignore[misc] # what is tested
    data = found.to_dict()
    assert json.loads(json.dumps(data)) == data
    assert data["suspects"][0]["seq"] == 14
    assert data["status"] == "failed"


def test_the_page_fits_a_hundred_columns_and_ends_with_commands(tmp_path: Path) -> None:
    found = told(tmp_path / "t.db")
    lines = str(found).splitlines()
    assert max(map(len, lines)) <= 100
    assert found.next[0] == "everstep show r@14"
    assert "everstep state r@13" in found.next
    assert [line.strip() for line in lines[-len(found.next) :]] == list(found.next)
    assert "most likely because of step 14" in found.summary()


def test_a_failure_inside_steps_and_child_runs_is_followed_to_its_leaf(tmp_path: Path) -> None:
    @everstep.step
    def leaf(word: str) -> str:
        raise ValueError(f"{word} is not allowed here")

    @everstep.step
    def inner(word: str) -> str:
        return leaf(word)

    @everstep.workflow
    def child(word: str) -> str:
        return inner(word)

    @everstep.step
    def choose() -> str:
        return "tulips-4411"

    @everstep.workflow
    def top() -> str:
        return child(choose())

    with everstep.open(tmp_path / "t.db") as trail:
        with pytest.raises(ValueError, match="tulips"):
            everstep.Runner(trail).run(top, id="r")
        found = trail.why("r")
    assert [link.name for link in found.chain] == ["end", "child", "inner", "leaf", "choose"]
    assert found.failure is not None
    assert found.failure.run_id != "r"
    assert found.failure.step == "leaf"
    assert found.failure.where is not None
    assert "in leaf: raise ValueError" in found.failure.where
    [suspect] = found.suspects
    assert (suspect.run_id, suspect.evidence) == ("r", "brought in 'tulips-4411', which the error names")
    assert suspect.confidence != "high"


def test_a_failure_between_steps_names_no_step(tmp_path: Path) -> None:
    @everstep.step
    def give(number: int) -> int:
        return number

    @everstep.workflow
    def work() -> float:
        return 1 / (give(3) - give(3))

    with everstep.open(tmp_path / "t.db") as trail:
        with pytest.raises(ZeroDivisionError):
            everstep.Runner(trail).run(work, id="r")
        found = trail.why("r")
    assert found.failure is not None
    assert found.failure.step is None
    assert "failed between two steps, with ZeroDivisionError: division by zero" in " ".join(str(found).split())


def test_the_values_of_a_graph_are_followed_by_who_gave_them(tmp_path: Path) -> None:
    program, inputs, (name, number) = why_more._measured_by_a_graph(
        world := World(Random(5)), (sensors := world.words(9)), "probe", "mean", 4,
        lambda sensor: {"sensor": sensor, "value": 20.5 if sensor != sensors[4] else "20,5"},
        lambda readings: sum(each["value"] for each in readings),
    )  # fmt: skip
    with everstep.open(tmp_path / "t.db") as trail:
        with pytest.raises(TypeError):
            everstep.Runner(trail).run(program, *inputs, id="r")
        found = trail.why("r")
        culprit = [row.seq for row in trail.steps("r") if row.name == name][number]
    assert found.suspects[0].seq == culprit
    assert "took reading from it" in found.suspects[0].link
    assert found.chain[0].name == "end"
    assert found.chain[-1].seq == culprit


# How else a run can stand.


def test_of_a_run_that_completed_it_says_so_and_what_looks_odd(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "t.db") as trail:
        with trail.record("good") as run:
            for number in range(6):
                run.step("read", output={"page": f"p-{number}", "size": 300 + number})
        with trail.record("odd") as run:
            for number in range(9):
                run.step("read", output={"page": f"p-{number}"} if number == 4 else {"page": f"p-{number}", "size": 7})
        good, odd = trail.why("good"), trail.why("odd")
    assert (good.failure, good.suspects, good.chain) == (None, (), ())
    assert str(good).startswith("good completed\n\nnothing in it looks odd")
    assert [(each.seq, each.confidence) for each in odd.suspects] in ([], [(5, "likely")])


def test_of_a_run_that_waits_it_says_for_what(tmp_path: Path) -> None:
    @everstep.workflow
    def ask() -> Any:
        return everstep.pause("Shall I?")

    with everstep.open(tmp_path / "t.db") as trail:
        everstep.Runner(trail).run(ask, id="r")
        found = trail.why("r")
    assert found.status == "paused"
    assert found.failure is not None
    assert (found.failure.error, found.failure.step) == (None, "pause")
    assert found.next[-1] == "everstep answer r VALUE"


def test_of_a_run_that_was_left_it_names_the_step_that_is_open(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "t.db") as trail:
        run = trail.record("r")
        run.step("read", output="all")
        run.step("charge", kind=everstep.Kind.INTENT, external=True)
        run.release()
        found = trail.why("r")
    assert found.failure is not None
    assert (found.failure.step, found.failure.error) == ("charge", None)


def test_steps_that_are_asked_the_same_again_and_again_are_listed(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "t.db") as trail:
        with pytest.raises(RuntimeError), trail.record("r") as run:
            for _ in range(5):
                run.step("look", inputs={"page": "home"}, output="nothing new")
            for _ in range(3):
                run.step("look", inputs={"page": "news"}, output="nothing new")
            raise RuntimeError("I give up")
        found = trail.why("r")
    assert [(each.name, each.count, each.first, each.last) for each in found.repeated] == [("look", 5, 1, 5)]


def test_steps_that_took_far_longer_than_their_like_are_listed(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "t.db") as trail:
        with pytest.raises(RuntimeError), trail.record("r") as run:
            for number in range(6):
                run.step(
                    "look", inputs={"page": number}, output=f"page {number}", duration_ms=9000 if number == 3 else 20
                )
            raise RuntimeError("I give up")
        found = trail.why("r")
    assert [(each.seq, each.duration_ms, each.usual_ms) for each in found.slow] == [(4, 9000.0, 20.0)]


def test_a_checkpoint_before_the_suspect_is_the_last_good_place(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "t.db") as trail:
        with pytest.raises(KeyError), trail.record("r") as run:
            for number in range(8):
                if number == 2:
                    run.checkpoint("halfway")
                run.step("read", output={"page": f"p-{number}"} if number == 5 else {"page": f"p-{number}", "size": 7})
            raise KeyError("size")
        found = trail.why("r")
    assert found.suspects[0].seq == 7
    assert found.last_good is not None
    assert (found.last_good.id, found.last_good.is_checkpoint) == ("r@3", True)


def test_other_runs_of_the_workflow_are_compared_with_where_a_step_ran_once(tmp_path: Path) -> None:
    price: list[Any] = [12, 15, 11, "n/a"]

    @everstep.step
    def offer(number: int) -> dict[str, Any]:
        return {"number": f"A-{number}33", "price": price[number]}

    @everstep.step
    def book(offer: dict[str, Any]) -> int:
        return int(offer["price"]) * 2

    @everstep.workflow
    def trip(number: int) -> int:
        return book(offer(number))

    with everstep.open(tmp_path / "t.db") as trail:
        runner = everstep.Runner(trail)
        for number in range(3):
            runner.run(trip, number)
        with pytest.raises(ValueError, match="invalid literal"):
            runner.run(trip, 3, id="r")
        found = trail.why("r")
    assert found.suspects[0].name == "offer"
    assert "gave text as price where it is a number in the 3 others" in found.suspects[0].evidence


def test_a_pruned_run_is_explained_from_what_is_left(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "t.db") as trail:
        with pytest.raises(KeyError), trail.record("r") as run:
            for number in range(20):
                run.step("read", output={"page": f"p-{number}"} if number == 15 else {"page": f"p-{number}", "size": 7})
            raise KeyError("size")
        trail.prune("r", keep=12)
        assert trail.why("r").suspects[0].seq == 16


# For whom it is told.


def test_it_runs_no_code_of_the_workflow_and_tells_the_same_in_every_process(tmp_path: Path) -> None:
    found, _ = failed(tmp_path / "t.db", why_agents.noisy_agent, 2)
    code = (
        "import everstep, json, sys\nprint(json.dumps(everstep.open(sys.argv[1], read_only=True).why('r').to_dict()))"
    )
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "t.db")], capture_output=True, text=True, timeout=60,
            check=True, cwd=ROOT, env={**environment(), "PYTHONHASHSEED": seed},
        )  # fmt: skip
        assert json.loads(done.stdout) == found.to_dict()


def test_the_awaited_trail_tells_the_same(tmp_path: Path) -> None:
    found = told(tmp_path / "t.db")

    async def ask() -> Why:
        async with await everstep.AsyncTrail.open(tmp_path / "t.db") as trail:
            return await trail.why("r")

    assert asyncio.run(ask()) == found


def test_a_run_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "t.db") as trail, pytest.raises(everstep.EverstepError, match="no run 'nobody'"):
        trail.why("nobody")


def test_a_run_four_times_as_long_takes_four_times_the_work() -> None:
    """Counted, not timed: in the square, `why` of 10,000 steps took seconds."""

    def work(steps: int) -> int:
        with everstep.open(":memory:") as trail:
            with trail.record("r") as run:
                for number in range(steps):
                    run.step("note", inputs={"number": number}, output={"number": number, "text": f"note {number}"})
            called = 0

            def count(*_: object) -> None:
                nonlocal called
                called += 1

            sys.setprofile(count)
            try:
                trail.why("r")
            finally:
                sys.setprofile(None)
        return called

    work(10)  # what is loaded once
    assert work(1600) < 5 * work(400)
