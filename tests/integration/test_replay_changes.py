"""A changed program over an old record: what matters is told, at its step and with its cause, and the rest is not."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from everstep import ReplayReport, Trail, step, workflow
from tests.integration.running import act, calls, run

PROGRAM = """
from everstep import Retry, step, workflow
from tests.integration.running import calls

LIMIT = 50


@step
def ask(prompt, model="small", temperature=0.0):
    calls(prompt)
    return f"{prompt}: 42, 43"


@step(retry=Retry(attempts=3, backoff=0))
def fetch(page):
    calls(page)
    if calls.count(page) < 2:
        raise ConnectionError(page)
    return f"page of {page}"


@step
def store(count):
    calls(count)


@step
def extract(text):
    said = ask(f"numbers in {text}")
    return [int(each) for each in said.partition(": ")[2].split(", ")]


@workflow
def research(topic):
    plan = ask(f"plan {topic}")
    page = fetch(topic)
    numbers = extract(page)
    note = plan
    if sum(numbers) > LIMIT:
        note = ask("too much?", model="large")
    store(len(numbers))
    return f"{note}, {sum(numbers)} of 100"
"""
PLAN, FETCH, FETCHED, EXTRACTED, NOTE, STORE, THE_END = 1, 2, 3, 6, 7, 8, 9  # the rows of a run

PARSE = '[int(each) for each in said.partition(": ")[2].split(", ")]'
_numbers = itertools.count()
Load = Callable[..., Any]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Give the program, with some of its text replaced, as it is loaded from a file."""

    def loaded(*replaced: tuple[str, str]) -> Any:
        text = PROGRAM
        for old, new in replaced:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        path = tmp_path / f"program_{next(_numbers)}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.research

    return loaded


@pytest.fixture
def recorded(trail: Trail, load: Load) -> Trail:
    run(trail, load(), "tea", id="r")
    calls.forget()
    return trail


def told(report: ReplayReport) -> tuple[str, str, int | None]:
    """What is said of the first divergence. No leaf was called for it."""
    assert calls == []
    assert report.first is not None
    return report.first.cause, report.first.step, report.first.seq


# Ten changes that matter, and some more.

CHANGES = {
    "prompt text": ([("plan {topic}", "make a plan for {topic}")], ("changed argument", "ask", PLAN)),
    "order": (
        [
            ('    plan = ask(f"plan {topic}")\n', ""),
            ("fetch(topic)\n", 'fetch(topic)\n    plan = ask(f"plan {topic}")\n'),
        ],
        ("changed order", "ask", PLAN),
    ),
    "extra call": ([("    store(len", '    ask("why?")\n    store(len')], ("extra step", "ask", STORE)),
    "extra call at the end": (
        [('    return f"{note}', '    store(0)\n    return f"{note}')],
        ("extra step", "store", None),
    ),
    "extra call in a step": ([("return [int", 'ask("sure?")\n    return [int')], ("extra step", "ask", None)),
    "removed call": ([("page = fetch(topic)", 'page = "page of tea"')], ("missing step", "fetch", FETCH)),
    "removed call at the end": ([("    store(len(numbers))\n", "")], ("missing step", "store", STORE)),
    "renamed step": ([("def store(", "def keep("), ("    store(", "    keep(")], ("extra step", "keep", STORE)),
    "model name": ([('model="large"', 'model="huge"')], ("changed argument", "ask", NOTE)),
    "changed parse": ([("[int(each)", "[int(each) + 1")], ("changed result", "extract", EXTRACTED)),
    "changed branch": ([("> LIMIT", "> 10 * LIMIT")], ("missing step", "ask", NOTE)),
    "changed constant": ([("LIMIT = 50", "LIMIT = 500")], ("missing step", "ask", NOTE)),
    "constant after the last call": ([("of 100", "of 99")], ("changed result", "research", THE_END)),
    "fewer attempts": ([("attempts=3", "attempts=1")], ("changed retry", "fetch", FETCHED)),
    "default argument": ([("temperature=0.0", "temperature=0.7")], ("changed argument", "ask", PLAN)),
    "error instead of a result": (
        [('    return f"{note}', '    1 / 0\n    return f"{note}')],
        ("changed result", "research", THE_END),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_told_at_its_step_with_its_cause(recorded: Trail, load: Load, change: str) -> None:
    """Promise 6."""
    replaced, expected = CHANGES[change]
    for mode in ("verify", "lenient"):
        report = recorded.replay("r", load(*replaced), mode=mode)
        assert told(report) == expected, str(report)


HARMLESS = {
    "comment": [("    page = fetch", "    # The page.\n    page = fetch")],
    "docstring": [("def research(topic):\n", 'def research(topic):\n    """Look it up."""\n')],
    "renamed local": [("    said = ask", "    words = ask"), ("in said.partition", "in words.partition")],
    "log line": [("    page = fetch", '    print("fetching", plan)\n    page = fetch')],
    "another order of definitions": [
        ("\n@step\ndef store(count):\n    calls(count)\n\n", ""),
        ("LIMIT = 50\n", "LIMIT = 50\n\n\n@step\ndef store(count):\n    calls(count)\n"),
    ],
    "extracted helper": [
        (PARSE, "parsed(said)"),
        ("LIMIT = 50\n", f"LIMIT = 50\n\n\ndef parsed(said):\n    return {PARSE}\n"),
    ],
    "type hints": [
        ("def research(topic):", "def research(topic: str) -> str:"),
        (
            'def ask(prompt, model="small", temperature=0.0):',
            'def ask(prompt: str, model: str = "small", temperature: float = 0.0) -> str:',
        ),
    ],
    "keywords": [('ask("too much?", model="large")', 'ask(model="large", prompt="too much?")')],
    "a default that is given": [('ask(f"plan {topic}")', 'ask(f"plan {topic}", "small", 0.0)')],
    "another way to write it": [('f"{note}, {sum(numbers)} of 100"', 'note + ", " + str(sum(numbers)) + " of 100"')],
    "named constant": [("of 100", "of {HUNDRED}"), ("LIMIT = 50", "LIMIT = 50\nHUNDRED = 100")],
    "inside of a leaf": [('return f"page of {page}"', 'return f"another page of {page}"')],
    "more attempts": [("attempts=3", "attempts=5")],
}


@pytest.mark.parametrize("change", HARMLESS)
def test_a_change_that_makes_no_difference_is_not_told(recorded: Trail, load: Load, change: str) -> None:
    """Promise 6."""
    report = recorded.replay("r", load(*HARMLESS[change]))
    assert report.identical, str(report)
    assert calls == []


# Both sides.


def test_a_changed_argument_is_shown_as_a_difference(recorded: Trail, load: Load) -> None:
    report = recorded.replay("r", load(('model="large"', 'model="huge"')))
    assert report.first is not None
    [change] = report.first.changes
    assert (change.path, change.old, change.new) == (("model",), "large", "huge")
    assert "~ model: 'large' -> 'huge'" in str(report)
    assert report.to_dict()["divergences"][0]["changes"] == ["~ model: 'large' -> 'huge'"]


def test_a_changed_result_is_shown_as_a_difference(recorded: Trail, load: Load) -> None:
    report = recorded.replay("r", load(("[int(each)", "[int(each) + 1")))
    assert "~ result[0]: 42 -> 43" in str(report)


def test_an_extra_step_says_what_it_comes_after(recorded: Trail, load: Load) -> None:
    report = recorded.replay("r", load(('    return f"{note}', '    store(0)\n    return f"{note}')))
    assert f"The last one is 'store', step {STORE}." in str(report)


def test_lenient_lists_every_difference(recorded: Trail, load: Load) -> None:
    changed = load(("plan {topic}", "make a plan for {topic}"), ('model="large"', 'model="huge"'), ("of 100", "of 99"))
    strict, lenient = recorded.replay("r", changed), recorded.replay("r", changed, mode="lenient")
    assert len(strict.divergences) == 1
    assert [each.cause for each in lenient.divergences] == ["changed argument", "changed argument", "changed result"]
    assert [each.seq for each in lenient.divergences] == [PLAN, NOTE, THE_END]
    assert calls == []


def test_that_the_code_changed_is_a_hint(recorded: Trail, load: Load) -> None:
    same = recorded.replay("r", load())
    assert same.hints == ()
    report = recorded.replay("r", load(("plan {topic}", "make a plan for {topic}")))
    assert report.hints == ("the workflow's code has changed since it was recorded",)
    assert "note: the workflow's code has changed" in str(report)


# Retries.


def test_more_attempts_matter_where_the_step_failed_in_the_end(trail: Trail, load: Load) -> None:
    once = ("if calls.count(page) < 2:", "if True:")
    with pytest.raises(ConnectionError):
        run(trail, load(once), "tea", id="r")
    calls.forget()
    assert trail.replay("r", load(once)).identical
    assert told(trail.replay("r", load(once, ("attempts=3", "attempts=5")))) == ("changed retry", "fetch", 4)
    other = ("backoff=0", "backoff=0, on=(KeyError,)")
    assert trail.replay("r", load(once, other, ("attempts=3", "attempts=5"))).identical  # not worth a further attempt


# What the code makes of it.


def test_a_divergence_that_the_code_catches_is_still_one(trail: Trail) -> None:
    """Promise 6."""
    word = ["tea"]

    @step
    def careful() -> str:
        try:
            return str(act(word[0]))
        except Exception:  # noqa: BLE001 - what is tested
            return "tea"

    @workflow(name="careful_flow")
    def careful_flow() -> str:
        try:
            return careful()
        except Exception:  # noqa: BLE001 - what is tested
            return "tea"

    run(trail, careful_flow, id="r")
    calls.forget()
    word[0] = "milk"
    assert told(trail.replay("r", careful_flow)) == ("changed argument", "act", 2)


def test_a_failure_that_is_mended_is_told(trail: Trail) -> None:
    """A run that failed, and whose code goes on now: the record has nothing for what follows."""
    mended = [False]

    @workflow(name="mending")
    def mending() -> str:
        act("one")
        if not mended[0]:
            raise ValueError("not yet")
        return str(act("two"))

    with pytest.raises(ValueError, match="not yet"):
        run(trail, mending, id="r")
    calls.forget()
    assert trail.replay("r", mending).identical
    mended[0] = True
    report = trail.replay("r", mending)
    assert told(report) == ("extra step", "act", None)
    assert "If that is mended, resume it" in report.hints[0]


def test_another_failure_is_told(trail: Trail) -> None:
    text = ["no such page"]

    @workflow(name="failing_flow")
    def failing_flow() -> None:
        act("one")
        raise LookupError(text[0])

    with pytest.raises(LookupError):
        run(trail, failing_flow, id="r")
    calls.forget()
    assert trail.replay("r", failing_flow).identical
    text[0] = "another text"
    report = trail.replay("r", failing_flow)
    assert told(report) == ("changed result", "failing_flow", 2)
    assert not any("mended" in hint for hint in report.hints)  # it fails still


def test_a_step_that_fails_where_it_did_not_is_told(trail: Trail) -> None:
    broken = [False]

    @step
    def around() -> str:
        found = act("inside")
        if broken[0]:
            raise KeyError("gone")
        return str(found)

    @workflow(name="around_flow")
    def around_flow() -> str:
        return around()

    run(trail, around_flow, id="r")
    calls.forget()
    broken[0] = True
    report = trail.replay("r", around_flow)
    assert told(report) == ("changed result", "around", 3)
    assert "KeyError: 'gone'" in str(report)
