"""What comes out of the record: values with their types, exceptions for the same handlers."""

from __future__ import annotations

import decimal
import enum
import json
import json.decoder
import os
import subprocess
import sys
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pydantic
import pytest

import everstep
import everstep.errors
from everstep import Status, Trail, step, workflow
from everstep.errors import ChangedClassError, RecordedError
from tests.integration.running import Agent, act, calls, crashed, run, twice
from tests.integration.support import output, python

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
    calls.crash = {"end"}
    crashed(trail, with_values, VALUES, id="r")
    assert calls.taken() == [*VALUES, "end"]
    result = run(trail, with_values, id="r")
    assert calls == ["end"]
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

    assert twice(trail, stopping) == "stopped"


NESTED = FRESH.replace(
    "runner = ", "@everstep.workflow\ndef outer(scale: Round):\n    return flow(scale)\n\nrunner = "
).replace(".run(flow, ", ".run(outer, ")


@pytest.mark.parametrize("program", [FRESH, NESTED], ids=["alone", "inside of another"])
def test_a_run_whose_record_cannot_be_read_is_left_as_it_is(tmp_path: Path, program: str) -> None:
    """Promise 5: that a class is another one today is no failure of the run, nor of the run around it."""
    shapes, trail = tmp_path / "shapes.py", tmp_path / "trail.db"

    def found() -> dict[str, tuple[Status, int]]:
        with everstep.open(trail) as opened:
            return {run.id: (run.status, len(opened.steps(run.id))) for run in opened.runs()}

    shapes.write_text(SHAPES.format(more=""))
    assert python(program, trail, tmp_path, "crash").returncode == 9
    before = found()
    shapes.write_text(SHAPES.format(more="colour: str"))
    assert ChangedClassError.__name__ in python(program, trail, tmp_path, "go on").stderr
    assert found() == before
    shapes.write_text(SHAPES.format(more=""))
    assert output(program, trail, tmp_path, "go on") == "GOOD 6.75 2 9"


SCRIPT = """
import dataclasses, os, sys
import everstep

class Down(Exception): ...

@dataclasses.dataclass
class Order:
    number: int

@everstep.step
def find(number):
    print("found", end=" ")
    return Order(number)

@everstep.step
def ship(order, find):
    print("shipped", type(order).__name__, end=" ")
    if "DOWN" in os.environ:
        raise Down(order.number)
    return order

@everstep.workflow
def sale():
    try:
        return ship(find(7), find).number
    except Down:
        print("caught", end=" ")
        raise

if __name__ == "__main__":
    everstep.Runner(everstep.open("trail.db")).run(sale, id="r")
"""


@pytest.mark.parametrize("how", [["shop.py"], ["-m", "stores.shop"]])
def test_what_a_script_stores_is_known_to_who_imports_it(tmp_path: Path, how: list[str]) -> None:
    """Classes, exceptions and functions of a script are those of the module that it is."""
    (tmp_path / "stores").mkdir()
    app = "shop" if how == ["shop.py"] else "stores.shop"
    (tmp_path / app.replace(".", "/")).with_suffix(".py").write_text(SCRIPT)

    def said(*command: str, down: bool = False) -> str:
        environment = {**os.environ, "EVERSTEP_TRAIL": "trail.db"} | ({"DOWN": "1"} if down else {})
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        return f"{done.returncode} {done.stdout}"

    assert said(*how, down=True) == "1 found shipped Order caught "
    assert said("-m", "everstep", "replay", "r", "--app", app).startswith("0 caught r: identical")
    assert said("-m", "everstep", "resume", "r", "--app", app, down=True).startswith("1 shipped Order caught ")
    assert said(*how) == "0 shipped Order "
    assert said("-m", "everstep", "replay", "r", "--app", app).startswith("0 r: identical")
