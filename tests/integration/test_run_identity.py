"""Which run an id means, whether its code is still the same, and runs that are not kept."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import everstep
from everstep import Runner, Secret, Status, Trail, current, step, workflow
from everstep.errors import (
    CodeChangedWarning,
    InputsDifferError,
    PrunedError,
    RedactedValueWarning,
    WorkflowDiffersError,
)
from tests.integration.running import act, act_later, calls, crashed, run


class Opaque:
    def __init__(self) -> None:
        self.lock = threading.Lock()


@step
def pair(name: str) -> str:
    return act(f"{name} 1") + act(f"{name} 2")  # type: ignore[no-any-return] # texts


@workflow
def nested() -> list[str]:
    found = [pair("a"), pair("b")]
    act("end")
    return found


@workflow
def child(name: str) -> str:
    return act(f"{name} 1") + act(f"{name} 2")  # type: ignore[no-any-return] # texts


# Secrets.


def test_a_redacted_output_warns_when_the_run_goes_on_with_the_placeholder(trail: Trail) -> None:
    @step
    def login() -> dict[str, Any]:
        return {"user": "ada", "key": Secret("s3cr3t-value")}

    @workflow
    def using() -> str:
        token = login()["key"]
        act("end")
        return type(token).__name__

    calls.crash = {"end"}
    crashed(trail, using, id="r")
    with pytest.warns(RedactedValueWarning, match="login"):
        assert run(trail, using, id="r").value == "Redacted"


# Which run it is.


@workflow
def greeting(name: str, greeting: str = "hello") -> str:
    return str(act(f"{greeting} {name}"))


@workflow(name="greeting")
def renamed_greeting(name: str, greeting: str = "hello") -> str:
    return str(act(f"{greeting} {name}"))


@workflow
def other_workflow(name: str) -> str:
    return name


def test_the_same_id_with_other_inputs_is_refused(trail: Trail) -> None:
    calls.crash = {"hello ada"}
    crashed(trail, greeting, "ada", id="r")
    for args, kwargs in [(("bob",), {}), (("ada", "hi"), {}), ((), {"name": "ada", "greeting": "hi"})]:
        with pytest.raises(InputsDifferError, match="fork"):
            run(trail, greeting, *args, id="r", **kwargs)
    for args, kwargs in [(("ada",), {}), ((), {"name": "ada"}), (("ada", "hello"), {})]:
        calls.crash = {"hello ada"}
        crashed(trail, greeting, *args, id="r", **kwargs)
    assert run(trail, greeting, id="r").value == "hello ada"
    with pytest.raises(InputsDifferError):
        run(trail, greeting, "bob", id="r")
    assert run(trail, greeting, "ada", id="r").restored


def test_other_inputs_are_told_apart_by_name_and_long_ones_briefly(trail: Trail) -> None:
    run(trail, greeting, "ada", id="r")
    with pytest.raises(
        InputsDifferError, match=r"first ones\. Changed: name: 'ada' -> 'bob'; .*\. Leave the"
    ) as refused:
        run(trail, greeting, "bob", "hi", id="r")
    assert refused.value.changes == ("name: 'ada' -> 'bob'", "greeting: 'hello' -> 'hi'")
    with pytest.raises(InputsDifferError, match=r"xxx\.\.\.;") as refused:
        run(trail, greeting, "x" * 1_000_000, "hi", id="r")
    assert len(str(refused.value)) < 500


def test_secrets_among_other_inputs_stay_hidden(trail: Trail) -> None:
    run(trail, greeting, Secret("one-secret-word"), id="r")
    with pytest.raises(InputsDifferError, match="Changed: name: ") as refused:
        run(trail, greeting, Secret("another-secret"), id="r")
    assert "secret-word" not in str(refused.value)
    assert "another-secret" not in str(refused.value)


def test_another_workflow_is_refused(trail: Trail) -> None:
    run(trail, greeting, "ada", id="r")
    with pytest.raises(WorkflowDiffersError, match="'greeting'"):
        run(trail, other_workflow, "ada", id="r")
    with pytest.raises(everstep.EverstepError):
        Runner(trail).resume(greeting, "nobody")


def test_changed_code_is_reported_and_not_blocked(trail: Trail) -> None:
    calls.crash = {"hello ada"}
    crashed(trail, greeting, "ada", id="r")
    with pytest.warns(CodeChangedWarning, match="'greeting'") as caught:
        assert run(trail, renamed_greeting, id="r").value == "hello ada"
    assert caught[0].filename.endswith("running.py")  # who asked for it


def test_of_a_fork_it_is_told_since_when_the_code_has_changed(trail: Trail) -> None:
    calls.crash = {"hello ada"}
    crashed(trail, greeting, "ada", id="r")
    fork = trail.fork("r")
    fork.release()
    with pytest.warns(CodeChangedWarning, match=r"since run 'r' began\. .* up to the end of .* record, and live after"):
        assert run(trail, renamed_greeting, id=fork.run_id).value == "hello ada"


def test_a_pruned_run_cannot_go_on(trail: Trail) -> None:
    calls.crash = {"end"}
    crashed(trail, nested, id="r")
    trail.prune("r", keep=2)
    with pytest.raises(PrunedError):
        run(trail, nested, id="r")
    assert trail.run("r").owner is None
    run(trail, nested, id="done")
    trail.prune("done", keep=1)
    assert run(trail, nested, id="done").value == ["a 1a 2", "b 1b 2"]


def test_a_completed_run_gives_its_result_again_and_executes_nothing(trail: Trail) -> None:
    first = run(trail, nested, id="r")
    head = trail.run("r").head
    calls.clear()
    again = run(trail, nested, id="r")
    assert (again.value, again.status, again.restored) == (first.value, Status.COMPLETED, True)
    assert calls == []
    assert trail.run("r").head == head
    assert [node.node_name for node in again.log.steps] == [node.node_name for node in first.log.steps]
    assert {node.status for node in again.log.steps} == {Status.RESTORED}
    assert not first.restored


def test_a_run_without_an_id_gets_one(trail: Trail) -> None:
    first, second = run(trail, greeting, "ada"), run(trail, greeting, "ada")
    assert first.run_id != second.run_id
    assert trail.run(first.run_id).status is Status.COMPLETED


def test_resume_needs_a_run(trail: Trail) -> None:
    calls.crash = {"hello ada"}
    crashed(trail, greeting, "ada", id="r")
    assert Runner(trail).resume(greeting, "r").value == "hello ada"


# Without a trail.


def test_without_a_trail_everything_works_but_a_crash(trail: Trail) -> None:
    @workflow
    def everything() -> list[Any]:
        current().state["k"] = 1
        current().checkpoint("here")
        found: list[Any] = [pair("a"), child("b"), current().state["k"], current().state["pair"]]
        with ThreadPoolExecutor(2) as pool:
            found += pool.map(act, ["t1", "t2"])
        with everstep.unordered():
            found.append(act("u"))
        everstep.sleep(0)
        found.append(current().idempotency_key.startswith(current().run_id))
        return found

    result = run(None, everything)
    assert result.value == ["a 1a 2", "b 1b 2", 1, "a 1a 2", "t1", "t2", "u", True]
    assert result.completed
    assert "act" in result.log.node_stats
    by_name = {node.node_name: node for node in result.log.steps}
    inside = [node for node in result.log.steps if node.parent_span_id == by_name["pair"].span_id]
    assert [node.node_name for node in inside] == ["act", "act"]
    assert by_name["pair"].parent_span_id is None


def test_without_a_trail_failures_retries_and_streams_work() -> None:
    tries = [0]

    @step(retry=everstep.Retry(attempts=3, backoff=0))
    def flaky() -> int:
        tries[0] += 1
        if tries[0] < 3:
            raise OSError
        return current().attempt

    @step
    def chunks() -> Iterator[int]:
        yield from range(3)

    @workflow
    def using() -> list[Any]:
        return [flaky(), list(chunks())]

    assert run(None, using).value == [3, [0, 1, 2]]

    @workflow
    async def failing_later() -> None:
        calls.fail = {"x"}
        await act_later("x")

    with pytest.raises(ValueError, match="x"):
        run(None, failing_later)
    result = run(None, failing_later, error_handling="continue")
    assert (result.status, type(result.error)) == (Status.FAILED, ValueError)
    assert [node.node_name for node in result.log.errors] == ["act_later"]


def test_without_a_trail_arguments_need_no_stored_form() -> None:
    @workflow
    def opaque() -> Any:
        return act(Opaque())

    assert isinstance(run(None, opaque).value, Opaque)
