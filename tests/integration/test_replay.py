"""A recorded run is replayed: identical, nothing live, nothing written (promise 6)."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import socket
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import Runner, Secret, Status, Trail
from everstep.errors import (
    JournalError,
    MapDiffersError,
    PrunedError,
    RedactedValueWarning,
    RunNotFoundError,
    UnknownClassError,
    WorkflowDiffersError,
)
from everstep.run.turnstile import Turnstile
from tests.integration import replaying_ends, replaying_graphs
from tests.integration.replaying import SCENARIOS, both, plain_flow, plain_steps, stream_flow
from tests.integration.replaying_together import secret_flow
from tests.integration.running import act, calls, names, run
from tests.integration.support import output

assert replaying_graphs  # it is imported for its scenarios


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No socket can be connected. An event loop makes a pair of them for itself."""

    def refused(*_: Any) -> None:
        raise AssertionError("a replay is offline")

    monkeypatch.setattr(socket.socket, "connect", refused)
    monkeypatch.setattr(socket.socket, "connect_ex", refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)


@pytest.fixture
def waited_for(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The recorded outcomes that a replay has waited for in vain."""
    found: list[Any] = []

    def pass_over(gone: Turnstile, loop: Any, held_up: int | None) -> None:
        waits = gone._order and gone._order[0] == held_up and not gone._turning and (gone._recorded or gone._live)
        found.extend([held_up] if waits else [])
        passed_over(gone, loop, held_up)

    passed_over = Turnstile._pass_over
    monkeypatch.setattr(Turnstile, "_pass_over", pass_over)
    return found


def kept(trail: Trail) -> list[Any]:
    """All that a trail has of its runs."""
    return [(run, [(step.seq, step.hash) for step in trail.steps(run.id)]) for run in trail.runs()]


def replay(trail: Trail, run_id: str, workflow: Any, mode: Any = "verify") -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RedactedValueWarning)
        return trail.replay(run_id, workflow, mode=mode)


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_run_is_replayed_identically(trail: Trail, tmp_path: Path, name: str, waited_for: list[Any]) -> None:
    """Promise 6: in every mode, also where nothing can be written; and it waits for nothing in vain."""
    workflow, run_id = SCENARIOS[name](trail)
    calls.forget()
    before = kept(trail)
    with everstep.open(tmp_path / "trail.db", read_only=True) as to_read:
        for opened, mode in ((trail, "verify"), (trail, "lenient"), (trail, "recorded"), (to_read, "verify")):
            report = replay(opened, run_id, workflow, mode)
            assert report.identical, f"{mode}: {report}"
            ended = report.status in {Status.COMPLETED, Status.FAILED, Status.PARTIAL}
            assert report.whole is (ended or (mode == "recorded" and report.status is Status.CANCELLED))
            assert (calls, waited_for) == ([], [])
    assert kept(trail) == before


# What is told.


def test_each_step_says_where_its_outcome_came_from(trail: Trail) -> None:
    run(trail, plain_flow, "tea", 1, id="r")
    report = trail.replay("r", plain_flow)
    assert [(step.name, str(step.source)) for step in report.steps] == [
        ("act", "recorded"), ("act", "recorded"), ("act", "recorded"), ("both", "re-executed"),
    ]  # fmt: skip
    assert (report.served, report.re_executed, report.mode, report.workflow) == (3, 1, "verify", "plain_flow")
    assert {trail.step("r", step.seq).name for step in report.steps} == {"act", "both"}
    assert report.original_ms is not None
    assert report.duration_ms > 0


def test_streams_pauses_and_sleeps_count_as_steps(trail: Trail) -> None:
    run(trail, stream_flow, id="r")
    assert [step.name for step in trail.replay("r", stream_flow).steps].count("tokens") == 2
    for name in ("sleeps", "pauses_that_were_answered"):
        with everstep.open(":memory:") as other:
            workflow, run_id = SCENARIOS[name](other)
            assert {"sleep", "pause"} & {step.name for step in other.replay(run_id, workflow).steps}


def test_steps_of_children_are_among_them(trail: Trail) -> None:
    replaying_ends.child_runs(trail)
    report = trail.replay("r", replaying_ends.parent_flow)
    assert {step.run_id for step in report.steps} == {"r", *(child.id for child in trail.runs(parent="r"))}


def test_a_report_is_text_and_json(trail: Trail) -> None:
    workflow, run_id = plain_steps(trail)
    report = trail.replay(run_id, workflow)
    assert str(report).startswith("r: identical: 4 steps answered from the record, 1 run again; ")
    told = json.loads(json.dumps(report.to_dict()))
    assert (told["identical"], told["whole"], told["divergences"], told["hints"]) == (True, True, [], [])
    assert told["steps"][0] == {"run_id": "r", "seq": 1, "name": "act", "source": "recorded"}


def test_a_record_that_ends_in_the_middle_is_told_so(trail: Trail) -> None:
    workflow, run_id = replaying_ends.an_interrupted_run(trail)
    report = trail.replay(run_id, workflow)
    assert "identical, as far as the record goes" in str(report)


def test_recorded_mode_needs_no_code(trail: Trail) -> None:
    plain_steps(trail)
    report = trail.replay("r")
    assert (report.mode, report.identical, report.served, report.re_executed) == ("recorded", True, 5, 0)
    assert calls.taken()
    trail.replay("r", mode="recorded")
    assert calls == []


def test_a_run_recorded_by_hand_is_rebuilt(trail: Trail) -> None:
    with trail.record("r") as recorder:
        recorder.step("one", output=1, output_to="n")
        recorder.save({"n": 2})
    assert trail.replay("r").served == 1


# What is refused.


def test_a_mode_that_runs_code_needs_the_workflow(trail: Trail) -> None:
    plain_steps(trail)
    with pytest.raises(ValueError, match="give the workflow of the run"):
        trail.replay("r", mode="verify")
    with pytest.raises(ValueError, match="use one of recorded, verify, lenient"):
        trail.replay("r", plain_flow, mode="sealed")  # type: ignore[arg-type] # what is tested


def test_another_workflow_is_refused(trail: Trail) -> None:
    plain_steps(trail)
    with pytest.raises(WorkflowDiffersError):
        trail.replay("r", stream_flow)
    with pytest.raises(RunNotFoundError):
        trail.replay("none", plain_flow)


@pytest.mark.parametrize("mode", ["verify", "recorded"])
def test_a_pruned_run_is_refused(trail: Trail, mode: Any) -> None:
    plain_steps(trail)
    trail.prune("r", keep=2)
    with pytest.raises(PrunedError):
        trail.replay("r", plain_flow, mode=mode)


def test_a_map_is_refused_and_each_of_its_items_replayed(trail: Trail) -> None:
    Runner(trail).map(plain_flow, {"topic": ["tea", "milk"]}, map_over="topic", id="m")
    calls.forget()
    with pytest.raises(MapDiffersError):
        trail.replay("m", plain_flow)
    assert trail.replay("m").identical
    items = list(trail.runs(parent="m"))
    assert [trail.replay(item.id, plain_flow).identical for item in items] == [True, True]
    assert calls == []


def test_an_async_workflow_is_replayed_on_a_loop_of_its_own(trail: Trail) -> None:
    workflow, run_id = SCENARIOS["awaited_steps"](trail)

    async def from_a_loop() -> Any:
        with pytest.raises(JournalError, match="to_thread"):
            trail.replay(run_id, workflow)
        return await asyncio.to_thread(trail.replay, run_id, workflow)

    assert asyncio.run(from_a_loop()).identical


def test_inputs_that_could_not_be_stored_are_given_again(trail: Trail) -> None:
    @everstep.workflow(name="calling")
    def calling(function: Any, word: str) -> Any:
        return both(function(word), word)

    run(trail, calling, str.upper, "tea", id="r")
    with pytest.raises(JournalError, match="Give the run all of its inputs again"):
        trail.replay("r", calling)
    assert trail.replay("r", calling, inputs={"function": str.upper, "word": "tea"}).identical
    report = trail.replay("r", calling, inputs={"function": str.lower, "word": "tea"})
    assert report.first is not None
    assert report.first.cause == "changed argument"


PROGRAM = """
from dataclasses import dataclass
import everstep
from tests.integration.running import act

@dataclass
class Page:
    text: str

class Refused(Exception): ...

@everstep.step
def fetch(name):
    if name == "none":
        raise Refused(name)
    return Page(act(name))

@everstep.workflow
def reading(name):
    return act(fetch(name).text)
"""


def loaded(tmp_path: Path, name: str, text: str = PROGRAM) -> Any:
    (tmp_path / f"{name}.py").write_text(text)
    spec = importlib.util.spec_from_file_location(name, tmp_path / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # a dataclass looks its module up
    spec.loader.exec_module(module)
    return module


def test_what_cannot_be_read_is_an_error_and_no_divergence(trail: Trail, tmp_path: Path) -> None:
    """A leaf gave something of a class that the code of today does not have; another process recorded it."""
    leaf = PROGRAM.replace("Page(act(name))", "Page(name)")
    (tmp_path / "pages.py").write_text(leaf)
    output(
        "import sys, everstep; sys.path.insert(0, sys.argv[1]); import pages\n"
        "with everstep.open(sys.argv[1] + '/trail.db') as trail:\n"
        "    everstep.Runner(trail).run(pages.reading, 'tea', id='r')",
        tmp_path,
    )
    with pytest.raises(UnknownClassError, match="pages:Page"):
        trail.replay("r", loaded(tmp_path, "pages", leaf.replace("Page", "Sheet")).reading)
    assert trail.replay("r", loaded(tmp_path, "pages", leaf).reading).identical


def test_an_exception_whose_class_is_gone_stands_for_the_one_that_was(trail: Trail, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="none"):
        run(trail, loaded(tmp_path, "refusing").reading, "none", id="r")
    gone = loaded(tmp_path, "refusing", PROGRAM.replace("class Refused(Exception): ...", ""))
    assert trail.replay("r", gone.reading).identical


# Secrets.


def test_a_secret_that_is_given_again_is_the_one_that_was(trail: Trail) -> None:
    """Promise 10: what is compared are placeholders, and a report has no more than these."""
    run(trail, secret_flow, Secret("sesame"), id="r")
    report = trail.replay("r", secret_flow, inputs={"password": Secret("sesame")})
    assert report.identical
    other = trail.replay("r", secret_flow, inputs={"password": Secret("barley")})
    assert not other.identical
    assert "barley" not in str(other) + json.dumps(other.to_dict())


# Inside another run.


def test_a_run_is_replayed_from_a_step_of_another(trail: Trail) -> None:
    plain_steps(trail)
    calls.forget()

    @everstep.step
    def check() -> bool:
        return trail.replay("r", plain_flow).identical

    @everstep.workflow(name="checking")
    def checking() -> Any:
        return [act("before"), check(), act("after")]

    assert run(trail, checking, id="other").value == ["before", True, "after"]
    assert calls == ["before", "after"]
    assert names(trail.steps("other")) == ["checking", "act", "check", "act", "end"]
