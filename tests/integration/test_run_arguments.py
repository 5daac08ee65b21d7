"""What can be given to a step and what it can give: known by value, by name, or refused."""

from __future__ import annotations

import functools
import json
import json.decoder
import threading
from typing import Any

import pytest

import everstep
from everstep import Kind, Status, Trail, current, step, workflow
from everstep.errors import DivergenceError, JournalError, MutatedArgumentError, StateError, UnstorableError
from tests.integration.running import Agent, act, calls, crashed, rows, run, twice

who = ["ada"]


@step
def many(a: int, /, b: int = 2, *rest: int, c: int = 3, **more: int) -> list[Any]:
    calls("many")
    return [a, b, list(rest), c, more]


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
    assert twice(trail, with_functions_as_arguments) == [
        1, 4, Agent("ada"), [1, 2, [], 3, {}], "text more", "x", 1
    ]  # fmt: skip
    inputs = [row.inputs["function"] for row in rows(trail, "r") if row.name == "apply" and row.inputs]
    assert inputs[:3] == [
        f"{__name__}:helper", "builtins:len", f"{Agent.__module__}:Agent"
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

    assert twice(trail, using) == "used"
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


@pytest.mark.parametrize(("name", "refusal"), [("opaque", UnstorableError), ("added", StateError)])
def test_an_outcome_that_is_refused_says_of_which_step_it_was(
    trail: Trail, name: str, refusal: type[Exception]
) -> None:
    @step
    async def opaque() -> object:
        return Opaque()

    @step(output="title", append=True)
    async def added() -> object:
        return 1

    @workflow
    async def picking() -> None:
        current().state["title"] = "no list"
        await {"opaque": opaque, "added": added}[name]()

    with pytest.raises(refusal) as caught:
        run(trail, picking, id="r")
    assert caught.value.__notes__[0] == f"everstep: this was the outcome of step {name!r}"


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

    assert twice(trail, spoiling) == [{"x": [1]}]
    assert trail.state("r")["making"] == {"x": [1]}
