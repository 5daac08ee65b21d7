"""What probes of peers showed to go wrong there. Each test is named after the probe, and says what has to happen."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import Kind, Runner, Secret, Status, Trail, current, pause, step, workflow
from everstep.codec import chain, frame
from everstep.errors import (
    ChangedClassError,
    DivergenceError,
    NotWaitingError,
    OwnedError,
    UnknownClassError,
    UnstorableError,
)
from tests.integration.running import calls, crashed, rows, run
from tests.integration.support import output, python

code: dict[str, Any] = {}  # how it differs from what it was


@pytest.fixture(autouse=True)
def fresh() -> None:
    code.clear()


@step
def ask(question: str) -> str:
    calls(question)
    return f"answer to {question}"


@workflow
def six_steps() -> list[str]:
    return [ask(f"question {number}") for number in range(6)]


def test_replay_from_step_two_of_six(trail: Trail) -> None:
    """Nothing recorded is called again, and every step says whether it was restored or carried out."""
    calls.crash = {"question 2"}
    crashed(trail, six_steps, id="r")
    before = rows(trail, "r")
    calls.clear()
    result = run(trail, six_steps, id="r")
    assert calls == ["question 2", "question 3", "question 4", "question 5"]
    assert [str(node.status) for node in result.log.steps] == ["restored"] * 2 + ["completed"] * 4
    assert rows(trail, "r")[: len(before)] == before
    calls.clear()
    again = run(trail, six_steps, id="r")
    assert (again.value, again.restored, calls) == (result.value, True, [])
    assert trail.run("r").head == 7


def test_two_runs_on_one_id_at_the_same_time(trail: Trail) -> None:
    """Promise 4: the second one is told who owns the run, and nothing of the first is lost."""
    begun, go_on = threading.Event(), threading.Event()

    @step
    def slow(number: int) -> int:
        begun.set()
        go_on.wait(10)
        return number

    @workflow
    def counting() -> list[int]:
        return [slow(number) for number in range(3)]

    results: list[Any] = []
    first = threading.Thread(target=lambda: results.append(Runner(trail).run(counting, id="r")))
    first.start()
    begun.wait(10)
    with pytest.raises(OwnedError) as caught:
        Runner(trail).run(counting, id="r")
    assert caught.value.owner
    go_on.set()
    first.join()
    assert results[0].value == [0, 1, 2]
    assert len(rows(trail, "r", Kind.STEP)) == 3


@workflow
def asking_one() -> str:
    found = ask(code.get("question", "what is a cat?"))
    calls("end")
    return found


def test_task_arguments_changed_before_resume(trail: Trail) -> None:
    """The old answer is never given to the new question; the step, and what changed, are named."""
    calls.crash = {"end"}
    crashed(trail, asking_one, id="r")
    code["question"] = "what is a dog?"
    calls.clear()
    with pytest.raises(DivergenceError) as caught:
        run(trail, asking_one, id="r")
    assert caught.value.cause == "changed argument"
    assert (caught.value.recorded, caught.value.requested, caught.value.seq) == ("ask", "ask", 1)
    assert "what is a cat?" in str(caught.value)
    assert "what is a dog?" in str(caught.value)
    assert calls == []
    assert trail.run("r").head == 1


@step
def new_step() -> str:
    return str(calls("new step"))


@workflow
def asking_two() -> list[str]:
    if code.get("inserted"):
        new_step()
    found = [ask("one")] if not code.get("removed") else []
    found.append(ask("two"))
    if code.get("swapped"):
        found.append(ask("four"))
    found.append(ask("three"))
    calls("end")
    return found


@pytest.mark.parametrize(
    ("change", "cause", "skipped"),
    [
        ("inserted", "inserted or replaced", ()),
        ("removed", "removed or reordered", ("ask",)),
        ("swapped", "changed argument", ()),
    ],
)
def test_task_inserted_before_a_finished_one(trail: Trail, change: str, cause: str, skipped: tuple[str, ...]) -> None:
    """No finished task runs again, nothing runs in the middle of a history, and the place is named."""
    calls.crash = {"end"}
    crashed(trail, asking_two, id="r")
    head = trail.run("r").head
    calls.clear()
    code[change] = True
    with pytest.raises(DivergenceError) as caught:
        run(trail, asking_two, id="r")
    assert (caught.value.cause, caught.value.skipped) == (cause, skipped)
    assert calls == []
    assert trail.run("r").head == head
    code.clear()
    assert run(trail, asking_two, id="r").value == ["answer to one", "answer to two", "answer to three"]


def test_task_removed_at_the_end(trail: Trail) -> None:
    @workflow
    def shrinking() -> list[str]:
        found = [ask(f"question {number}") for number in range(code.get("count", 3))]
        calls("end")
        return found

    calls.crash = {"end"}
    crashed(trail, shrinking, id="r")
    code["count"] = 2
    with pytest.raises(DivergenceError) as caught:
        run(trail, shrinking, id="r")
    assert (caught.value.cause, caught.value.recorded, caught.value.seq) == ("removed", "ask", 3)
    assert trail.run("r").status is Status.ACTIVE


def test_node_renamed_while_paused_on_approval_then_resume(trail: Trail) -> None:
    """Not "as if finished": refused, naming the step that waits and has no target; the approval is kept."""

    @workflow
    def releasing() -> str:
        ask("is it tested?")

        @step(name=code.get("name", "approve"))
        def approve() -> bool:
            return bool(pause("release?", schema=bool))

        return "released" if approve() else "stopped"

    assert run(trail, releasing, id="r").paused
    code["name"] = "approve_release"
    with pytest.raises(DivergenceError, match="'approve'"):
        run(trail, releasing, id="r")
    with pytest.raises(DivergenceError, match="'approve'"):
        run(trail, releasing, id="r", answer=True)
    assert trail.run("r").status is Status.ACTIVE
    with pytest.raises(NotWaitingError):
        trail.answer("r", False)  # noqa: FBT003 - an answer, not an option
    code.clear()
    assert run(trail, releasing, id="r").value == "released"


def test_state_key_renamed(trail: Trail) -> None:
    """A write under another name is another write: loud on resume, and the old value stays where it was."""

    @workflow
    def counting() -> Any:
        current().state[code.get("key", "count")] = 1
        ask("go on?")
        calls("end")
        return current().state[code.get("key", "count")]

    calls.crash = {"end"}
    crashed(trail, counting, id="r")
    code["key"] = "total"
    with pytest.raises(DivergenceError, match="count"):
        run(trail, counting, id="r")
    assert trail.state("r")["count"] == 1


def test_state_key_renamed_where_it_is_read(trail: Trail) -> None:
    """Nothing is silently gone: what the state never had is a KeyError, not a None."""

    @workflow
    def reading() -> Any:
        current().state["count"] = 1
        calls("end")
        return current().state[code.get("key", "count")]

    calls.crash = {"end"}
    crashed(trail, reading, id="r")
    code["key"] = "total"
    with pytest.raises(KeyError, match="total"):
        run(trail, reading, id="r")


CLASSES = """
import dataclasses, os, sys, everstep

{classes}

@everstep.step
def plan():
    print("planned")
    return {make}

@everstep.step
def act(plan):
    if sys.argv[2] == "crash":
        os._exit(9)
    return plan.title

@everstep.workflow
def flow():
    return act(plan())

print(everstep.Runner(everstep.open(sys.argv[1])).run(flow, id="r").value)
"""
PLAN = "@dataclasses.dataclass\nclass Plan:\n    title: str"
TASK = "@dataclasses.dataclass\nclass Task:\n    title: str"


def _crash_with_a_plan(file: Path) -> None:
    assert python(CLASSES.format(classes=PLAN, make="Plan('x')"), file, "crash").returncode == 9


def test_class_renamed(tmp_path: Path) -> None:
    """A typed error and a way out, never a plain dict in the place of the object."""
    _crash_with_a_plan(tmp_path / "trail.db")
    renamed = python(CLASSES.format(classes=TASK, make="Task('x')"), tmp_path / "trail.db", "go on")
    assert UnknownClassError.__name__ in renamed.stderr
    assert "everstep.register" in renamed.stderr
    assert "planned" not in renamed.stdout
    kept = TASK.replace("@dataclasses", "@everstep.register\n@dataclasses").replace(
        "@everstep.register", "@(lambda cls: everstep.register(cls, name='__main__:Plan'))"
    )
    assert output(CLASSES.format(classes=kept, make="Task('x')"), tmp_path / "trail.db", "go on") == "x"


def test_required_field_added(tmp_path: Path) -> None:
    """A typed error that names the field; an upcaster is the way out."""
    _crash_with_a_plan(tmp_path / "trail.db")
    more = PLAN + "\n    owner: str"
    added = python(CLASSES.format(classes=more, make="Plan('x', 'ada')"), tmp_path / "trail.db", "go on")
    assert ChangedClassError.__name__ in added.stderr
    assert "owner" in added.stderr
    assert "planned" not in added.stdout
    mended = more + "\neverstep.register(Plan, version=2, upcast={1: lambda old: {**old, 'owner': 'nobody'}})"
    assert output(CLASSES.format(classes=mended, make="Plan('x', 'ada')"), tmp_path / "trail.db", "go on") == "x"


def test_default_decode_of_a_crafted_row(trail: Trail) -> None:
    """Promise 8: what a row names is not imported, called or unpickled, whatever it says."""
    from everstep.codec.values import Generic, encode  # noqa: PLC0415 - to craft it
    from everstep.trail.beginning import begin  # noqa: PLC0415 - as above

    calls.crash = {"end"}
    crashed(trail, asking_one, id="r")
    [asked] = rows(trail, "r", Kind.STEP)
    run(trail, six_steps, id="other")
    scribe = begin(trail.store, trail.gate, "crafted", workflow="asking_one", inputs={})
    hostile = Generic("object", "subprocess:Popen", 1, {"args": ["touch", "pwned"]})
    append = scribe.row("ask", output=hostile, input_digest=asked.input_digest, inputs=asked.inputs)
    assert b"Popen" in encode(hostile)
    trail.store.append(append)
    trail.store.renew(scribe.claim, 0)
    with pytest.raises(UnknownClassError, match="Popen"):
        run(trail, asking_one, id="crafted")
    assert not Path("pwned").exists()


def test_pydantic_secret_in_state(tmp_path: Path) -> None:
    """Promise 10: neither what a step gave, nor what it was given, nor what the code set, is in the file."""
    import pydantic  # noqa: PLC0415 - only here

    class Login(pydantic.BaseModel):
        password: pydantic.SecretStr

    @step
    def log_in(login: Login, key: Secret[str]) -> Login:
        current().state["api_key"] = "planted-in-state"
        return login

    @workflow
    def using() -> None:
        log_in(Login(password=pydantic.SecretStr("planted-in-model")), Secret("planted-in-argument"))
        with suppress(ValueError):
            raise_it()

    @step
    def raise_it() -> None:
        failure = ValueError("no access")
        failure.password = "planted-in-error"  # type: ignore[attr-defined] # as libraries do
        raise failure

    with everstep.open(tmp_path / "trail.db") as trail:
        Runner(trail).run(using, id="r")
        # Rows are stored compressed: what they say is looked for in what they unpack to, and in the files as they are.
        bodies = [frame.unpack(row._entry.data[chain.KEY_SIZE :]) + row._entry.meta for row in trail.steps("r")]
        stored = b"".join([*bodies, *(file.read_bytes() for file in tmp_path.iterdir() if file.is_file())])
    assert b"no access" in stored
    for secret in (b"planted-in-state", b"planted-in-model", b"planted-in-argument", b"planted-in-error"):
        assert secret not in stored


def test_unserialisable_value(trail: Trail) -> None:
    """Promise 7: the error names the path to the value, and the step."""

    @step
    def making() -> Any:
        return {"results": [{"ok": 1}, {"handle": threading.Lock()}]}

    @workflow
    def outer() -> Any:
        return making()

    with pytest.raises(UnstorableError) as caught:
        run(trail, outer, id="r")
    assert "results" in caught.value.path
    assert "handle" in caught.value.path
    assert "lock" in str(caught.value)


def test_code_before_interrupt(trail: Trail) -> None:
    """Steps before a pause run once; code between steps runs again and is told apart by its key."""

    @step
    def effect() -> str:
        calls("effect")
        return current().idempotency_key

    @workflow
    def interrupted() -> list[str]:
        key = effect()
        pause("go on?")
        return [key, effect()]

    assert run(trail, interrupted, id="r").paused
    keys = run(trail, interrupted, id="r", answer=True).value
    assert calls == ["effect", "effect"]
    assert len(set(keys)) == 2


def test_finished_siblings_are_not_run_again_after_one_fails(trail: Trail) -> None:
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - only here

    @workflow
    def fanning_out() -> list[str]:
        with ThreadPoolExecutor(3) as pool:
            return [job.result() for job in [pool.submit(ask, name) for name in ("a", "b", "c")]]

    calls.fail = {"b"}
    with pytest.raises(ValueError, match="b"):
        run(trail, fanning_out, id="r")
    calls.fail = set()
    calls.clear()
    assert run(trail, fanning_out, id="r").value == ["answer to a", "answer to b", "answer to c"]
    assert calls == ["b"]
