"""What user code may look like, and what becomes of it in a run that is crashed, resumed and changed."""

from __future__ import annotations

import asyncio
import decimal
import enum
import functools
import inspect
import json
import json.decoder
import threading
import time
import uuid
import warnings
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pydantic
import pytest

import everstep
import everstep.errors
from everstep import AsyncRunner, Kind, Runner, Secret, Status, Trail, current, step, workflow
from everstep.errors import (
    ChangedClassError,
    CodeChangedWarning,
    ConcurrentStepsError,
    DivergenceError,
    EscapedStepWarning,
    InputsDifferError,
    JournalError,
    MutatedArgumentError,
    PrunedError,
    RecordedError,
    RedactedValueWarning,
    UnknownLoopError,
    UnstorableError,
    WorkflowDiffersError,
)
from tests.integration.running import Calls, Crash, crashed, names, rows, run
from tests.integration.support import output, python

calls = Calls()


@pytest.fixture(autouse=True)
def fresh() -> None:
    calls.__init__()  # type: ignore[misc] # as good as new


@pytest.fixture
def trail(tmp_path: Path) -> Iterator[Trail]:
    with everstep.open(tmp_path / "trail.db") as opened:
        yield opened


@step
def act(what: Any) -> Any:
    return calls(what)


@step
async def act_later(what: Any) -> Any:
    await asyncio.sleep(0)
    return calls(what)


def twice(trail: Trail, flow: Any, *args: Any) -> list[Any]:
    """Crash a run in its last step, `act("end")`, and resume it. The values before and after; nothing is done twice."""
    calls.crash = {"end"}
    crashed(trail, flow, *args, id="r")
    before = calls.taken()
    after = run(trail, flow, id="r")
    assert calls == ["end"]
    assert before[-1] == "end"
    return [before, after.value]


# Methods.


@dataclass
class Agent:
    name: str
    memory: list[str] = field(default_factory=list)

    @step
    def ask(self, question: str) -> str:
        calls((self.name, question))
        return f"{self.name}: {question}"

    @step
    def remember(self, what: str) -> int:
        self.memory.append(what)
        return len(self.memory)

    @step
    async def ask_later(self, question: str) -> str:
        return f"{self.name}: {question}"

    @classmethod
    @step
    def describe(cls, what: str) -> str:
        calls((cls.__name__, what))
        return f"{cls.__name__} {what}"

    @staticmethod
    @step
    def free(what: str) -> str:
        calls(("free", what))
        return what


class Client:
    """Of a class that cannot be stored."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.lock = threading.Lock()

    @step
    def get(self, url: str) -> str:
        calls((self.key, url))
        return f"content of {url}"


who = ["ada"]


@workflow
def with_methods() -> list[str]:
    agent = Agent(who[0])
    found = [agent.ask("why?"), Agent.ask(agent, "how?"), Agent.describe("is here"), agent.describe("too")]
    found += [Agent.free("x"), agent.free("y"), Client("secret").get("page")]
    act("end")
    return found


def test_methods_are_steps_of_their_object(trail: Trail) -> None:
    assert twice(trail, with_methods)[1] == [
        "ada: why?", "ada: how?", "Agent is here", "Agent too", "x", "y", "content of page"
    ]  # fmt: skip
    first, *_, last = rows(trail, "r", Kind.STEP)[:-1]
    assert (first.name, first.inputs["question"]) == ("Agent.ask", "why?")
    assert first.inputs["self"] == Agent("ada")
    assert (last.name, last.inputs["self"]) == ("Client.get", "tests.integration.test_run_code:Client")
    assert trail.state("r")["ask"] == "ada: how?"


def test_an_object_with_other_values_is_another_argument(trail: Trail) -> None:
    calls.crash = {"end"}
    crashed(trail, with_methods, id="r")
    who[:] = ["bob"]
    try:
        with pytest.raises(DivergenceError, match=r"changed argument.*ada.*bob"):
            run(trail, with_methods, id="r")
    finally:
        who[:] = ["ada"]


@workflow
def remembering() -> int:
    return int(Agent("ada").remember("x"))


def test_a_method_that_changes_its_object_is_told_so(trail: Trail) -> None:
    with pytest.raises(MutatedArgumentError, match="'self'"):
        run(trail, remembering, id="r")


def test_async_methods_are_awaited(trail: Trail) -> None:
    @workflow
    async def asking() -> str:
        return str(await Agent("ada").ask_later("when?"))

    assert run(trail, asking, id="r").value == "ada: when?"


# Functions of all kinds.

default = [5]


@step
def many(a: int, /, b: int = 2, *rest: int, c: int = 3, **more: int) -> list[Any]:
    calls("many")
    return [a, b, list(rest), c, more]


@workflow
def with_arguments() -> list[Any]:
    found = [many(1), many(1, 2), many(1, b=2, c=3), many(1, 2, 3, 4, c=5, z=26, y=25), many(1, y=25, z=26)]
    act("end")
    return found


def test_all_kinds_of_arguments_reach_the_function_and_the_record(trail: Trail) -> None:
    same = [1, 2, [], 3, {}]
    assert twice(trail, with_arguments)[1] == [
        same, same, same, [1, 2, [3, 4], 5, {"z": 26, "y": 25}], [1, 2, [], 3, {"y": 25, "z": 26}]
    ]  # fmt: skip
    recorded = rows(trail, "r", Kind.STEP)
    assert recorded[0].inputs == {"a": 1, "b": 2, "rest": (), "c": 3, "more": {}}
    assert len({row.input_digest for row in recorded[:3]}) == 1


def test_however_an_argument_is_given_it_is_the_same(trail: Trail) -> None:
    @step
    def power(base: int, exponent: int = 2) -> int:
        return int(calls(base**exponent))

    spelling = [lambda: power(3), lambda: power(3, 2), lambda: power(base=3), lambda: power(exponent=2, base=3)]
    way = [0]

    @workflow
    def spelled() -> int:
        found = spelling[way[0]]()
        act("end")
        return found

    calls.crash = {"end"}
    crashed(trail, spelled, id="r")
    for number in range(1, 4):
        way[0] = number
        calls.crash = {"end"}
        crashed(trail, spelled, id="r")
    assert run(trail, spelled, id="r").value == 9
    assert calls.count(9) == 1


def test_a_changed_default_is_a_changed_argument(trail: Trail) -> None:
    def make(size: int) -> Any:
        @step(name="sized")
        def sized(size: int = size) -> int:
            return int(calls(size))

        return sized

    steps = [make(1)]

    @workflow
    def using() -> int:
        found = steps[0]()
        act("end")
        return int(found)

    calls.crash = {"end"}
    crashed(trail, using, id="r")
    steps[0] = make(2)
    with pytest.raises(DivergenceError, match="changed argument"):
        run(trail, using, id="r")


def test_wrong_arguments_are_a_type_error_as_ever(trail: Trail) -> None:
    @workflow
    def wrong() -> None:
        for function, args, kwargs in [(act, (), {}), (act, (1, 2), {}), (act, (1,), {"no": 2}), (many, (), {})]:
            with pytest.raises(TypeError):
                function(*args, **kwargs)  # type: ignore[operator] # the point of it

    run(trail, wrong, id="r")
    assert rows(trail, "r", Kind.STEP) == []


def helper(x: int) -> int:
    return x


@workflow
def with_functions_as_arguments() -> list[Any]:
    @step(ignore=["function"])
    def apply_ignored(function: Any, x: int) -> int:
        return int(function(x))

    @step
    def apply(function: Any, x: Any) -> Any:
        calls("apply")
        return function(x)

    found = [
        apply(helper, 1), apply(len, "four"), apply(Agent, "ada"), apply(functools.partial(many, 1), 2),
        apply("text".__add__, " more"), apply(Agent("ada").free, "x"), apply_ignored(lambda x: x, 1),
    ]  # fmt: skip
    act("end")
    return found


def test_functions_classes_and_partials_are_known_by_their_name(trail: Trail) -> None:
    assert twice(trail, with_functions_as_arguments)[1] == [
        1, 4, Agent("ada"), [1, 2, [], 3, {}], "text more", "x", 1
    ]  # fmt: skip
    inputs = [row.inputs["function"] for row in rows(trail, "r") if row.name == "apply" and row.inputs]
    assert inputs[:3] == [
        "tests.integration.test_run_code:helper", "builtins:len", "tests.integration.test_run_code:Agent"
    ]  # fmt: skip


def test_partials_of_other_arguments_are_other_arguments(trail: Trail) -> None:
    """A partial is its function and what it holds: a changed argument never gets the old answer."""
    held = [1]

    @step
    def apply(function: Any) -> int:
        return int(calls(function()))

    @workflow
    def applying() -> int:
        found = apply(functools.partial(helper, held[0]))
        act("end")
        return int(found)

    calls.crash = {"end"}
    crashed(trail, applying, id="r")
    held[0] = 2
    with pytest.raises(DivergenceError, match="changed argument"):
        run(trail, applying, id="r")


def test_bound_methods_of_other_objects_are_other_arguments(trail: Trail) -> None:
    @step
    def apply(function: Any) -> str:
        return str(calls(function("why?")))

    @workflow
    def applying() -> str:
        found = apply(functools.partial(Agent.free)) + apply(Agent(who[0]).ask)
        act("end")
        return str(found)

    calls.crash = {"end"}
    crashed(trail, applying, id="r")
    who[:] = ["bob"]
    try:
        with pytest.raises(DivergenceError, match="changed argument"):
            run(trail, applying, id="r")
    finally:
        who[:] = ["ada"]


class Digested:
    def __init__(self, version: int) -> None:
        self.version, self.lock = version, threading.Lock()

    def __everstep_digest__(self) -> Any:
        return {"version": self.version}


def test_a_value_may_say_what_it_is_known_by(trail: Trail) -> None:
    version = [1]

    @workflow
    def using() -> str:
        @step
        def use(thing: Any, things: list[Any]) -> str:
            return str(calls("used"))

        found = use(Digested(version[0]), [Digested(7)])
        act("end")
        return str(found)

    assert twice(trail, using)[1] == "used"
    assert rows(trail, "r", Kind.STEP)[0].inputs["thing"] == {"version": 1}


def test_ignored_arguments_are_no_part_of_the_question(trail: Trail) -> None:
    given: list[Any] = [threading.Lock()]

    @step(ignore=["client"])
    def fetch(client: Any, url: str) -> str:
        return str(calls(url))

    @workflow
    def fetching() -> str:
        found = fetch(given[0], "page")
        act("end")
        return found

    calls.crash = {"end"}
    crashed(trail, fetching, id="r")
    given[0] = object()
    assert run(trail, fetching, id="r").value == "page"
    assert calls.count("page") == 1
    assert rows(trail, "r", Kind.STEP)[0].inputs == {"url": "page"}


def test_a_parameter_that_is_not_there_cannot_be_ignored() -> None:
    with pytest.raises(TypeError, match="no parameter client"):
        step(ignore=["client"])(lambda url: url)


class Opaque:
    def __init__(self) -> None:
        self.lock = threading.Lock()


@pytest.mark.parametrize("value", [Opaque(), {"deep": [1, {"er": Opaque()}]}, (i for i in "ab")])
def test_what_cannot_be_stored_is_refused_naming_step_parameter_and_ways_out(trail: Trail, value: Any) -> None:
    """Promise 7."""

    @workflow
    def giving() -> None:
        act(value)

    with pytest.raises(UnstorableError) as caught:
        run(trail, giving, id="r")
    said = str(caught.value)
    for part in ("'what'", "'act'", "@step(ignore=['what'])", "everstep.register", "__everstep_digest__"):
        assert part in said
    if isinstance(value, dict):
        assert "['deep'][1]['er']" in said or "deep[1].er" in said or ".deep[1]" in said
    assert calls == []


def test_inputs_of_a_run_that_cannot_be_stored_are_refused_at_the_start(trail: Trail) -> None:
    @workflow
    def taking(thing: Any) -> None:
        act("never")

    with pytest.raises(UnstorableError, match="'thing'"):
        run(trail, taking, Opaque(), id="r")
    assert list(trail.runs()) == []


def test_inputs_that_only_have_a_name_must_be_given_again(trail: Trail) -> None:
    """Promise 7: a function that was given does not come back as a text."""

    @workflow
    def taking(function: Any) -> Any:
        found = function("x")
        act("end")
        return found

    calls.crash = {"end"}
    crashed(trail, taking, helper, id="r")
    with pytest.raises(JournalError, match="'function'"):
        run(trail, taking, id="r")
    assert run(trail, taking, helper, id="r").value == "x"


def test_results_that_cannot_be_stored_fail_where_they_are_made(trail: Trail) -> None:
    @step
    def making() -> Any:
        calls("made")
        return {"a": [Opaque()]}

    @workflow
    def outer() -> Any:
        try:
            return making()
        except UnstorableError as error:
            return str(error)

    said = run(trail, outer, id="r").value
    assert "a" in said
    assert "Opaque" in said

    @workflow
    def opaque() -> Any:
        act("done")
        return Opaque()

    with pytest.raises(UnstorableError):
        run(trail, opaque, id="o")
    assert trail.run("o").status is Status.FAILED


def test_a_step_whose_result_cannot_be_stored_is_not_tried_again(trail: Trail) -> None:
    """Its effect has happened; another attempt would have it happen twice, and fail the same way."""

    @step(retry=everstep.Retry(attempts=3, backoff=0))
    def making() -> Any:
        calls("made")
        return Opaque()

    @workflow
    def outer() -> Any:
        making()

    with pytest.raises(UnstorableError):
        run(trail, outer, id="r")
    assert calls == ["made"]


def test_lambdas_and_closures_can_be_steps(trail: Trail) -> None:
    double = step(name="double")(lambda x: calls(x * 2))
    nameless = step(lambda x: calls(x + 0))

    @workflow
    def using() -> list[int]:
        base = 10

        @step
        def closure(x: int) -> int:
            return int(calls(base + x))

        found = [double(2), nameless(3), closure(5)]
        act("end")
        return found

    assert twice(trail, using)[1] == [4, 3, 15]
    assert names(rows(trail, "r", Kind.STEP)) == ["double", "<lambda>", "closure", "act"]


class Model:
    """An object that can be called, as many clients are."""

    async def __call__(self, question: str) -> str:
        return str(calls(question))


def test_partials_and_objects_that_can_be_called_can_be_steps(trail: Trail) -> None:
    asked = step(name="model")(Model())
    half = step(name="half")(functools.partial(many.function, 1))
    half_later = step(name="half_later")(functools.partial(act_later.function, "later"))

    @workflow
    async def using() -> list[Any]:
        found = [await asked("why?"), half(2), await half_later()]
        act("end")
        return found

    assert twice(trail, using)[1] == ["why?", [1, 2, [], 3, {}], "later"]
    assert inspect.iscoroutinefunction(asked)
    assert inspect.iscoroutinefunction(half_later)


def test_async_steps_are_seen_as_coroutine_functions() -> None:
    assert inspect.iscoroutinefunction(act_later)
    assert asyncio.iscoroutinefunction(act_later)
    assert inspect.iscoroutinefunction(Agent("ada").ask_later)
    assert not inspect.iscoroutinefunction(act)
    assert not asyncio.iscoroutinefunction(act)
    assert getattr(act, "__name__", None) == "act"
    assert str(inspect.signature(act)) == "(what: 'Any') -> 'Any'"
    coroutine = act_later("x")
    assert inspect.iscoroutine(coroutine)
    coroutine.close()


def test_what_is_no_function_is_no_step() -> None:
    for wrong in (classmethod(lambda cls: cls), 5, "name", property(lambda self: self)):
        with pytest.raises(TypeError, match="function"):
            step(wrong)  # type: ignore[call-overload] # the point of it
        with pytest.raises(TypeError, match="function"):
            workflow(wrong)  # type: ignore[call-overload] # the point of it
    with pytest.raises(TypeError, match="not a workflow"):
        Runner().run(act)  # type: ignore[arg-type] # the point of it
    with pytest.raises(ValueError, match="unknown="):
        step(unknown="maybe")(helper)  # type: ignore[call-overload] # the point of it


# Outside of a run.


def test_outside_of_a_run_a_step_is_the_plain_function() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert act("x") == "x"
        assert asyncio.run(act_later("y")) == "y"
        assert with_arguments()[0] == [1, 2, [], 3, {}]
    with pytest.raises(JournalError, match="no run here"):
        current()


def test_a_step_that_escapes_its_run_is_warned_of_once_for_each_place(trail: Trail) -> None:
    jobs: list[Any] = []
    ready, done = threading.Semaphore(0), threading.Semaphore(0)

    def worker() -> None:
        for _ in range(3):
            ready.acquire()
            jobs.append(act("escaped"))
            done.release()
        ready.acquire()
        jobs.append(act("escaped elsewhere"))
        done.release()

    outside = threading.Thread(target=worker)
    outside.start()

    @workflow
    def waiting() -> None:
        for _ in range(4):
            ready.release()
            done.acquire()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(trail, waiting, id="r")
    outside.join()
    assert [warning.category for warning in caught] == [EscapedStepWarning, EscapedStepWarning]
    assert __file__ in str(caught[0].message)
    assert "everstep.submit" in str(caught[0].message)
    assert len(jobs) == 4
    assert rows(trail, "r", Kind.STEP) == []


def test_two_steps_of_one_lane_at_once_are_an_error(trail: Trail) -> None:
    """Threads started behind everybody's back, here with the lane's own context."""
    import contextvars  # noqa: PLC0415 - only here
    from _thread import start_new_thread  # noqa: PLC0415 - the way that is not seen

    seen: list[BaseException] = []
    finished = threading.Event()

    @workflow
    def racing() -> None:
        context = contextvars.copy_context()

        def other() -> None:
            try:
                context.run(act, "other")
            except ConcurrentStepsError as error:
                seen.append(error)
            finally:
                finished.set()

        @step
        def slow() -> None:
            start_new_thread(other, ())
            finished.wait(10)

        slow()

    run(trail, racing, id="r")
    assert len(seen) == 1
    assert "everstep.submit" in str(seen[0])
    assert calls == []


def test_an_unknown_loop_is_refused_until_it_is_adopted(trail: Trail) -> None:
    async def inner() -> Any:
        return await asyncio.gather(act_later("a"), act_later("b"))

    async def adopted() -> Any:
        everstep.adopt_loop()
        return await inner()

    @workflow
    def looping() -> Any:
        with pytest.raises(UnknownLoopError, match="adopt_loop"):
            asyncio.run(inner())
        found = asyncio.run(adopted())
        act("end")
        return found

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the other branch of the refused gather
        assert sorted(twice(trail, looping)[1]) == ["a", "b"]


# Mutation.


def test_a_step_that_changes_its_argument_is_told_so(trail: Trail) -> None:
    @step
    def spoil(items: list[int], more: dict[str, Any]) -> int:
        more["x"].add(1)
        return 1

    @workflow
    def spoiling() -> int:
        return spoil([1], {"x": set()})

    with pytest.raises(MutatedArgumentError, match="'more'"):
        run(trail, spoiling, id="r")


def test_what_is_handed_out_is_no_alias_of_what_is_stored(trail: Trail) -> None:
    """Promise 5."""
    kept: list[Any] = []

    @step
    def making() -> dict[str, list[int]]:
        value = {"x": [1]}
        kept.append(value)
        return value

    @workflow
    def spoiling() -> list[Any]:
        first = making()
        before = json.loads(json.dumps(first))
        first["x"].append(2)
        kept[0]["x"].append(3)
        act("end")
        return [before]

    assert twice(trail, spoiling)[1] == [{"x": [1]}]
    assert trail.state("r")["making"] == {"x": [1]}


# Nesting, recursion, children.


@step
def factorial(n: int) -> int:
    calls(("factorial", n))
    return 1 if n <= 1 else n * factorial(n - 1)


@workflow
def recursive(n: int) -> int:
    found = factorial(n)
    act("end")
    return found


def test_recursion_is_recorded_level_by_level(trail: Trail) -> None:
    calls.crash = {("factorial", 2)}
    crashed(trail, recursive, 5, id="r")
    calls.clear()
    assert run(trail, recursive, id="r").value == 120
    assert ("factorial", 1) in calls
    parents = [row.parent for row in rows(trail, "r", Kind.STEP) if row.name == "factorial"]
    assert len(set(parents)) == 5


def test_deep_recursion_works_as_deep_as_python_goes(trail: Trail) -> None:
    assert run(trail, recursive, 60, id="r").value > 10**60


@step
def pair(name: str) -> str:
    return act(f"{name} 1") + act(f"{name} 2")  # type: ignore[no-any-return] # texts


@workflow
def nested() -> list[str]:
    found = [pair("a"), pair("b")]
    act("end")
    return found


def test_a_crash_inside_a_step_repeats_no_step_inside(trail: Trail) -> None:
    """Promise 2, at any depth."""
    calls.crash = {"b 2"}
    crashed(trail, nested, id="r")
    calls.clear()
    assert run(trail, nested, id="r").value == ["a 1a 2", "b 1b 2"]
    assert calls == ["b 2", "end"]


@workflow
def child(name: str) -> str:
    return act(f"{name} 1") + act(f"{name} 2")  # type: ignore[no-any-return] # texts


@workflow
def parent(*children: str) -> list[str]:
    found = [child(name) for name in children]
    act("end")
    return found


@workflow
async def child_later(name: str) -> str:
    return await act_later(f"{name} 1") + await act_later(f"{name} 2")  # type: ignore[no-any-return] # texts


@workflow
async def parent_later(*children: str) -> list[str]:
    found = list(await asyncio.gather(*map(child_later, children)))
    await act_later("end")
    return found


@workflow
async def parent_of_plain_children(*children: str) -> list[str]:
    found = [child(name) for name in children]
    await act_later("end")
    return found


PARENTS = pytest.mark.parametrize(
    "family", [parent, parent_later, parent_of_plain_children], ids=lambda family: family.name
)


@PARENTS
def test_a_workflow_in_a_run_is_a_run_of_its_own_with_a_link_to_its_parent(trail: Trail, family: Any) -> None:
    result = run(trail, family, "a", "b", id="r", tags={"user": "ada"})
    assert result.value == ["a 1a 2", "b 1b 2"]
    children = sorted(trail.runs(parent="r"), key=lambda each: each.id)
    assert [each.status for each in children] == [Status.COMPLETED] * 2
    links = [row.child_run_id for row in rows(trail, "r", Kind.STEP) if row.child_run_id]
    assert sorted(links) == [each.id for each in children]
    assert [trail.state(each.id)["act_later" if family is parent_later else "act"] for each in children] == [
        "a 2", "b 2"
    ]  # fmt: skip
    assert [each.id for each in trail.runs(parent=None)] == ["r"]


@PARENTS
def test_a_child_that_was_cut_off_goes_on_where_it_was(trail: Trail, family: Any) -> None:
    """Promise 2, at any depth."""
    calls.crash = {"b 2"}
    crashed(trail, family, "a", "b", id="r")
    calls.clear()
    assert run(trail, family, id="r").value == ["a 1a 2", "b 1b 2"]
    assert calls == ["b 2", "end"]


@PARENTS
def test_a_child_that_failed_is_taken_up_at_its_failure(trail: Trail, family: Any) -> None:
    calls.fail = {"b 2"}
    with pytest.raises(ValueError, match="b 2"):
        run(trail, family, "a", "b", id="r")
    assert trail.run("r").status is Status.FAILED
    assert {each.status for each in trail.runs(parent="r")} == {Status.COMPLETED, Status.FAILED}
    calls.fail = set()
    calls.clear()
    assert run(trail, family, id="r").value == ["a 1a 2", "b 1b 2"]
    assert calls == ["b 2", "end"]


@workflow
def forgiving_parent() -> list[str]:
    found = []
    for name in ("a", "b"):
        try:
            found.append(child(name))
        except ValueError as error:
            found.append(f"failed: {error}")
    act("end")
    return found


def test_the_failure_of_a_child_that_its_parent_forgave_is_served_after_a_crash(trail: Trail) -> None:
    calls.fail = {"a 2"}
    calls.crash = {"end"}
    crashed(trail, forgiving_parent, id="r")
    calls.fail = set()
    calls.clear()
    assert run(trail, forgiving_parent, id="r").value == ["failed: a 2", "b 1b 2"]
    assert calls == ["end"]


@workflow
def loop_of_children() -> list[str]:
    return [child("same") for _ in range(3)]


def test_equal_calls_of_a_workflow_are_different_children(trail: Trail) -> None:
    assert run(trail, loop_of_children, id="r").value == ["same 1same 2"] * 3
    assert len(trail.runs(parent="r")) == 3


def test_children_without_an_order_are_told_apart_too(trail: Trail) -> None:
    @workflow
    def parent_of_all() -> list[str]:
        with everstep.unordered():
            return [child("x"), child("y"), child("x")]

    assert run(trail, parent_of_all, id="r").value == ["x 1x 2", "y 1y 2", "x 1x 2"]
    assert len(trail.runs(parent="r")) == 3


def test_a_workflow_outside_of_a_run_is_the_plain_function(trail: Trail) -> None:
    assert child("x") == "x 1x 2"
    assert list(trail.runs()) == []


# The two runners.


@workflow
async def mixed() -> list[Any]:
    found = [act("plain"), await act_later("awaited"), pair("both")]
    found.append(await asyncio.to_thread(act, "in a thread"))
    act("end")
    return found


def test_plain_steps_work_in_async_workflows(trail: Trail) -> None:
    assert twice(trail, mixed)[1] == ["plain", "awaited", "both 1both 2", "in a thread"]


@pytest.mark.parametrize("flow", [nested, mixed], ids=["a plain workflow", "an async workflow"])
@pytest.mark.parametrize("first", ["Runner", "AsyncRunner"])
def test_what_one_runner_recorded_the_other_resumes(trail: Trail, flow: Any, first: str) -> None:
    def by(which: str) -> Any:
        if which == "Runner":
            return Runner(trail).run(flow, id="r")
        return asyncio.run(AsyncRunner(trail).run(flow, id="r"))

    calls.crash = {"end"}
    with pytest.raises(Crash):
        by(first)
    calls.clear()
    assert by("AsyncRunner" if first == "Runner" else "Runner").completed
    assert calls == ["end"]


def test_the_async_runner_takes_an_async_trail(tmp_path: Path) -> None:
    async def main() -> Any:
        async with await everstep.AsyncTrail.open(tmp_path / "trail.db") as opened:
            return (await AsyncRunner(opened).run(mixed, id="r")).value

    assert asyncio.run(main()) == ["plain", "awaited", "both 1both 2", "in a thread"]


# Values after a resume.


class Colour(enum.Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: int


class Plan(pydantic.BaseModel):
    title: str
    steps: list[str] = []


@dataclass(frozen=True)
class Nested:
    plan: Plan
    colour: Colour
    points: tuple[Point, ...]


VALUES = [
    (1, 2), {1, 2}, frozenset({"a"}), datetime(2026, 1, 2, tzinfo=UTC), timedelta(hours=1), b"bytes", 10**30,
    decimal.Decimal("1.10"), uuid.UUID(int=5), Colour.RED, Point(1, 2), Plan(title="t", steps=["a"]), {1: {2: (3,)}},
    Nested(Plan(title="t"), Colour.RED, (Point(0, 0),)), Agent("ada", ["x"]), None, float("inf"), 1j, range(3),
]  # fmt: skip


@workflow
def with_values(values: list[Any]) -> list[Any]:
    found = [act(value) for value in values]
    act("end")
    return [(type(value).__name__, value) for value in found] + [values]


def test_values_have_their_types_after_a_resume(trail: Trail) -> None:
    """Promise 7."""

    class Unhashable(Calls):
        def __call__(self, what: Any) -> Any:
            self.append(what)
            if what == "end" and len(self) == len(VALUES) + 1:
                raise Crash
            return what

    global calls  # noqa: PLW0603 - its sets cannot hold all of these values
    before, calls = calls, Unhashable()
    try:
        crashed(trail, with_values, VALUES, id="r")
        result = run(trail, with_values, id="r")
        assert calls[-1] == "end"
        assert len(calls) == len(VALUES) + 2
    finally:
        calls = before
    assert result.value == [(type(value).__name__, value) for value in VALUES] + [VALUES]
    assert run(trail, with_values, id="r").value == result.value


FRESH = """
import dataclasses, enum, os, sys, everstep
sys.path.insert(0, sys.argv[2])
import shapes                       # reachable as a module among the globals
from shapes import Circle as Round  # and under another name

class Mood(enum.Enum):
    GOOD = 1

@dataclasses.dataclass
class Note:
    mood: Mood
    circle: Round
    square: "shapes.Square"

@everstep.step
def make():
    print("made")
    return Note(Mood.GOOD, Round(1.5), shapes.Square(2))

@everstep.step
def end(note):
    if sys.argv[3] == "crash":
        os._exit(9)
    return f"{note.mood.name} {note.circle.area():.2f} {note.square.side}"

@everstep.workflow
def flow(scale: Round):
    return end(make()) + f" {scale.radius}"

runner = everstep.Runner(everstep.open(sys.argv[1]))
print(runner.run(flow, *([Round(9)] if sys.argv[3] == "crash" else []), id="r").value)
"""
SHAPES = """
import dataclasses
@dataclasses.dataclass
class Circle:
    radius: float
    def area(self): return 3 * self.radius ** 2
@dataclasses.dataclass
class Square:
    side: int
    {more}
"""


def test_classes_that_the_code_can_name_are_found_in_a_new_process(tmp_path: Path) -> None:
    (tmp_path / "shapes.py").write_text(SHAPES.format(more=""))
    trail = tmp_path / "trail.db"
    assert python(FRESH, trail, tmp_path, "crash").returncode == 9
    assert output(FRESH, trail, tmp_path, "go on") == "GOOD 6.75 2 9"


def test_a_class_that_changed_meanwhile_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "shapes.py").write_text(SHAPES.format(more=""))
    trail = tmp_path / "trail.db"
    assert python(FRESH, trail, tmp_path, "crash").returncode == 9
    (tmp_path / "shapes.py").write_text(SHAPES.format(more="colour: str"))
    changed = python(FRESH.replace("shapes.Square(2)", 'shapes.Square(2, "red")'), trail, tmp_path, "go on")
    assert ChangedClassError.__name__ in changed.stderr
    assert "colour" in changed.stderr
    assert "made" not in changed.stdout


SET_ARGUMENT = """
import os, sys, everstep
@everstep.step
def use(words, table): return len(words)
@everstep.step
def end():
    if sys.argv[2] == "crash": os._exit(9)
@everstep.workflow
def flow():
    found = use({"one", "two", "three", "four", "five"}, {"a": frozenset({"x", "y", "z"})})
    end()
    return found
print(everstep.Runner(everstep.open(sys.argv[1])).run(flow, id="r").value)
"""


def test_sets_as_arguments_are_the_same_in_every_process(tmp_path: Path) -> None:
    """Their order is chance, from process to process."""
    assert python(SET_ARGUMENT, tmp_path / "trail.db", "crash").returncode == 9
    assert output(SET_ARGUMENT, tmp_path / "trail.db", "go on") == "5"


# Exceptions after a resume.


class RefusalError(Exception):
    def __init__(self, status: int, detail: str) -> None:
        self.status = status
        super().__init__(f"{status}: {detail}")


class AwkwardError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


FAILURES: list[Any] = [
    ValueError("plain"), KeyError("key"), RefusalError(429, "too many"), OSError(2, "no such file"),
    json.JSONDecodeError("bad", "doc", 0), everstep.errors.StepTimeoutError("s", 1.0), TimeoutError(),
    UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), ExceptionGroup("several", [ValueError("one")]),
    StopAsyncIteration(),
    pydantic.ValidationError.from_exception_data("t", []), RefusalError(500, "other"), AwkwardError(),
    LookupError("a", 1),
]  # fmt: skip


def handled(error: Exception) -> str:
    """What a handler sees of an exception."""
    seen = type(error).__name__
    if isinstance(error, RefusalError):
        return f"{seen} {error.status} {error}"
    if isinstance(error, OSError) and error.errno:
        return f"{seen} {error.errno} {error.strerror}"
    try:
        return f"{seen} {error}"
    except RuntimeError:
        return f"{seen} without text"


@step
def failing(number: int) -> None:
    calls(("failing", number))
    raise FAILURES[number]


@workflow
def catching(number: int) -> str:
    try:
        failing(number)
    except (ValueError, LookupError, OSError, RefusalError, ExceptionGroup, StopAsyncIteration, AwkwardError) as error:
        found = handled(error)
    act("end")
    return found


@pytest.mark.parametrize("number", range(len(FAILURES)), ids=lambda number: type(FAILURES[number]).__name__)
def test_a_recorded_failure_is_raised_again_for_the_same_handler(trail: Trail, number: int) -> None:
    """What the code caught before a crash it catches after it."""
    error = FAILURES[number]
    expected = handled(error)
    calls.crash = {"end"}
    crashed(trail, catching, number, id="r")
    calls.clear()
    assert run(trail, catching, id="r").value == expected
    assert calls == ["end"]


def _hidden() -> type[Exception]:
    class HiddenError(Exception):
        pass

    return HiddenError


def test_a_failure_whose_class_is_out_of_reach_is_a_recorded_error_with_the_same_text(trail: Trail) -> None:
    hidden = _hidden()

    @step
    def obscure() -> None:
        raise hidden("what happened")

    @workflow
    def catching_all() -> list[str]:
        try:
            obscure()
        except Exception as error:  # noqa: BLE001 - the point
            found = [type(error).__name__, str(error)]
        act("end")
        return found

    calls.crash = {"end"}
    crashed(trail, catching_all, id="r")
    assert run(trail, catching_all, id="r").value == [RecordedError.__name__, "what happened"]


def test_a_step_may_raise_stop_iteration_like_any_exception(trail: Trail) -> None:
    @step
    def empty() -> Any:
        return next(iter([]))

    @workflow
    def stopping() -> str:
        try:
            empty()
        except StopIteration:
            found = "stopped"
        act("end")
        return found

    assert twice(trail, stopping)[1] == "stopped"


# Any order.


@step
def fetch(name: str, seconds: float) -> str:
    time.sleep(seconds)
    return str(calls(name))


order = ["slow", "middle", "fast"]
pace = {"slow": 0.06, "middle": 0.03, "fast": 0.0}


@step(ignore=["wait"])
def paced(name: str, wait: float) -> str:
    time.sleep(wait)
    return str(calls(name))


@workflow
def as_they_come() -> list[str]:
    with ThreadPoolExecutor(3) as pool:
        jobs: list[Future[str]] = [pool.submit(paced, name, pace[name]) for name in order]
        with everstep.unordered():
            found = [act(f"used {job.result()}") for job in as_completed(jobs)]
    act("end")
    return sorted(found)


def test_results_that_come_in_another_order_are_all_served(trail: Trail) -> None:
    """Promise 2."""
    pace.update(slow=0.06, middle=0.03, fast=0.0)
    calls.crash = {"used middle"}
    crashed(trail, as_they_come, id="r")
    assert calls.count("used fast") == 1
    pace.update(slow=0.0, middle=0.03, fast=0.06)
    calls.crash = {"end"}
    crashed(trail, as_they_come, id="r")
    calls.clear()
    assert run(trail, as_they_come, id="r").value == ["used fast", "used middle", "used slow"]
    assert calls == ["end"]


removed: set[str] = set()


@workflow
def unordered_with_gaps() -> list[str]:
    with everstep.unordered():
        found = [act(name) for name in ("a", "b", "c") if name not in removed]
    act("end")
    return found


def test_a_step_removed_from_an_unordered_lane_is_reported(trail: Trail) -> None:
    calls.crash = {"end"}
    crashed(trail, unordered_with_gaps, id="r")
    removed.add("b")
    try:
        with pytest.raises(DivergenceError) as caught:
            run(trail, unordered_with_gaps, id="r")
    finally:
        removed.clear()
    assert (caught.value.cause, caught.value.recorded) == ("removed", "act")
    assert run(trail, unordered_with_gaps, id="r").value == ["a", "b", "c"]


def test_equal_calls_in_an_unordered_lane_are_each_taken_once(trail: Trail) -> None:
    count = [0]

    @step
    def numbered(name: str) -> int:
        count[0] += 1
        return count[0]

    @workflow
    def counting() -> list[int]:
        with everstep.unordered():
            found = [numbered("x"), numbered("x"), numbered("y"), numbered("x")]
        act("end")
        return found

    calls.crash = {"end"}
    crashed(trail, counting, id="r")
    assert sorted(run(trail, counting, id="r").value) == [1, 2, 3, 4]
    assert count == [4]


def test_every_step_has_a_key_of_its_own_that_outlives_a_crash(trail: Trail) -> None:
    @step
    def key(what: str) -> str:
        calls((what, current().idempotency_key))
        if calls.crash:
            calls.crash.clear()
            raise Crash
        return current().idempotency_key

    @step
    def outer(what: str) -> list[str]:
        return [key(what), key(what)]

    @workflow
    def asking() -> list[str]:
        found = [key("a"), key("a"), *outer("b"), *outer("b")]
        with ThreadPoolExecutor(1) as pool:
            found += [job.result() for job in [pool.submit(key, "c") for _ in range(2)]]
        with everstep.unordered():
            found += [key("d"), key("e"), key("d")]
        return found

    calls.crash = {"any"}
    crashed(trail, asking, id="r")
    keys = run(trail, asking, id="r").value
    assert len(set(keys)) == len(keys) == 11
    assert calls[0] == calls[1]


# Time.


@workflow
def sleeping(seconds: float) -> str:
    act("before")
    everstep.sleep(seconds)
    return str(act("after"))


@workflow
async def sleeping_later(seconds: float) -> str:
    await act_later("before")
    await everstep.sleep(seconds)
    return str(await act_later("after"))


SLEEPERS = pytest.mark.parametrize("flow", [sleeping, sleeping_later], ids=lambda flow: flow.name)


@SLEEPERS
def test_a_resumed_run_sleeps_only_for_what_is_left(tmp_path: Path, flow: Any) -> None:
    program = f"""
import asyncio, sys, everstep
import tests.integration.test_run_code as module
trail = everstep.open(sys.argv[1])
print("ready", flush=True)
module.run(trail, module.{flow.name}, 1.5, id="r")
"""
    import signal  # noqa: PLC0415 - only here
    import subprocess  # noqa: PLC0415 - only here
    import sys  # noqa: PLC0415 - only here

    from tests.integration.support import ROOT, environment  # noqa: PLC0415 - only here

    sleeper = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "trail.db")],
        env=environment(), cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert sleeper.stdout is not None
    sleeper.stdout.readline()
    with everstep.open(tmp_path / "trail.db") as trail:
        while not trail.runs() or "sleep" not in names(rows(trail, "r")):
            time.sleep(0.005)
        began = rows(trail, "r")[-1].started_at
        sleeper.send_signal(signal.SIGKILL)
        sleeper.communicate()
        time.sleep(0.5)
        assert run(trail, flow, id="r").value == "after"
        slept = (datetime.now(UTC) - began).total_seconds()
        assert 1.5 <= slept < 2.4
        assert calls == ["after"]
        again = time.perf_counter()
        assert run(trail, flow, id="r").restored
        assert time.perf_counter() - again < 0.5


@pytest.mark.parametrize("seconds", [-1, "1", None])
def test_there_is_no_other_sleep(seconds: Any) -> None:
    with pytest.raises(ValueError, match="cannot sleep"):
        everstep.sleep(seconds)


def test_a_sleep_that_was_cut_short_by_a_timeout_is_cut_short_again(trail: Trail) -> None:
    @workflow
    async def impatient() -> str:
        try:
            async with asyncio.timeout(0.05):
                await everstep.sleep(0.15)
            found = "slept"
        except TimeoutError:
            found = "timed out"
        await act_later("went on")
        await act_later("end")
        return found

    calls.crash = {"end"}
    crashed(trail, impatient, id="r")
    time.sleep(0.2)  # by now the sleep would be over
    assert run(trail, impatient, id="r").value == "timed out"


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

    class Plain(Calls):
        def __call__(self, what: Any) -> Any:
            return what

    global calls  # noqa: PLW0603 - an Opaque cannot be kept in a set either
    before, calls = calls, Plain()
    try:
        assert isinstance(run(None, opaque).value, Opaque)
    finally:
        calls = before
