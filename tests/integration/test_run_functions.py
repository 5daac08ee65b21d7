"""What functions can be steps, and where a step is the plain function."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import threading
import warnings
from dataclasses import dataclass
from typing import Any

import pytest

from everstep import Kind, Runner, Trail, current, step, workflow
from everstep.errors import DivergenceError, EscapedStepWarning, JournalError, MutatedArgumentError
from tests.integration.running import Agent, act, act_later, calls, crashed, names, rows, run, twice

# Methods.


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
    assert twice(trail, with_methods) == [
        "ada: why?", "ada: how?", "Agent is here", "Agent too", "x", "y", "content of page"
    ]  # fmt: skip
    first, *_, last = rows(trail, "r", Kind.STEP)[:-1]
    assert (first.name, first.inputs["question"]) == ("Agent.ask", "why?")
    assert first.inputs["self"] == Agent("ada")
    assert (last.name, last.inputs["self"]) == ("Client.get", f"{__name__}:Client")
    assert trail.state("r")["ask"] == "ada: how?"


class Kit:
    """It has its steps as attributes."""

    def __init__(self) -> None:
        self.add = step(name="add")(self.added)

    def added(self, number: int) -> int:
        return number + 1


kit = Kit()


@workflow
def with_a_kit() -> int:
    return kit.add(1)


def test_what_has_steps_can_be_copied_after_a_run_as_before_it(trail: Trail) -> None:
    assert copy.deepcopy(kit).add(1) == 2
    assert run(trail, with_a_kit).value == 2
    assert copy.deepcopy(kit).add(1) == 2


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
    assert twice(trail, with_arguments) == [
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


def test_the_order_of_keywords_means_nothing(trail: Trail) -> None:
    turned = [False]

    @workflow
    def ordered() -> Any:
        more = {"y": 25, "z": 26}
        found = many(1, **dict(reversed(more.items())) if turned[0] else more)
        act("end")
        return found

    calls.crash = {"end"}
    crashed(trail, ordered, id="r")
    turned[0] = True
    assert run(trail, ordered, id="r").value == [1, 2, [], 3, {"y": 25, "z": 26}]
    assert calls.count("many") == 1


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

    assert twice(trail, using) == [4, 3, 15]
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

    assert twice(trail, using) == ["why?", [1, 2, [], 3, {}], "later"]
    assert inspect.iscoroutinefunction(asked)
    assert inspect.iscoroutinefunction(half_later)


@dataclass
class Asker:
    model: str

    def ask(self, question: str) -> str:
        calls(question)
        return f"{self.model}: {question}"

    __call__ = ask


def ask(model: str, question: str) -> str:
    return Asker(model).ask(question)


def shout(model: str, question: str) -> str:
    return ask(model, question).upper()


@pytest.mark.parametrize(
    ("was", "now", "changed"),
    [
        (functools.partial(ask, "one"), functools.partial(ask, "two"), "changed argument"),
        (functools.partial(ask, model="one"), functools.partial(ask, model="two"), "changed argument"),
        (Asker("one").ask, Asker("two").ask, "changed argument"),
        (Asker("one"), Asker("two"), "changed argument"),
        (functools.partial(Asker("one").ask), functools.partial(Asker("two").ask), "changed argument"),
        (functools.partial(ask, "one"), functools.partial(shout, "one"), "inserted or replaced"),
    ],
)
def test_what_a_function_is_bound_to_is_part_of_what_is_asked(trail: Trail, was: Any, now: Any, changed: str) -> None:
    """Promise 2: a record is never given to another question, also if it is the model that is another one."""
    asked = step(was)

    @workflow
    def asking() -> str:
        answer: str = asked(question="why?")
        act("end")
        return answer

    calls.crash = {"end"}
    crashed(trail, asking, id="r")
    asked = step(now)
    with pytest.raises(DivergenceError) as raised:
        run(trail, asking, id="r")
    assert raised.value.cause == changed
    asked = step(was)
    assert run(trail, asking, id="r").value == "one: why?"
    assert calls.count("why?") == 1


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
    for options in ({"name": 5}, {"output": 5}, {"output": ("a",)}):
        with pytest.raises(TypeError, match="give a text"):
            step(**options)(helper)
    with pytest.raises(TypeError, match="in a function of your own"):
        step(functools.partial(max, 3))


# Outside of a run.


def test_outside_of_a_run_a_step_is_the_plain_function() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert act("x") == "x"
        assert asyncio.run(act_later("y")) == "y"
        assert with_arguments()[0] == [1, 2, [], 3, {}]
    with pytest.raises(JournalError, match=r"no run here.* a Runner\(\) without a trail"):
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
