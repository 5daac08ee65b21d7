"""What the pytest plugin does when a test asks for it: replay a recorded run, tell what differs, record it again."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from everstep.codec.record import INPUTS, read_payload
from everstep.codec.shown import brief, cut, safe, whole
from everstep.errors import EverstepError
from everstep.journal.track import metadata_of
from everstep.model import Kind, Run, Status
from everstep.policy.redaction import PLACEHOLDER
from everstep.policy.rules import Rule
from everstep.run.faults import Reach
from everstep.run.runner import Runner
from everstep.run.workflows import Workflow
from everstep.testing.network import no_network
from everstep.testing.plugin import MARKER, UPDATED
from everstep.trail.compare import MISSING, Change
from everstep.trail.reading import Reader
from everstep.trail.replayed import Divergence, ReplayReport
from everstep.trail.trail import Trail
from everstep.trail.trail import open as open_trail

_FOUND = pytest.StashKey["list[_Found]"]()
_USE = f'write @pytest.mark.{MARKER}("file.everstep", workflow=the_workflow)'
_CHANGES, _LINES, _WIDE = 8, 30, 1_000


class _Asked(NamedTuple):
    """What a mark or a call asks for."""

    path: str  # from the folder of the test
    workflow: Any
    redact: Sequence[Rule] = ()  # the rules of the trail that the run was recorded in
    inputs: Mapping[str, Any] | None = None  # all that the workflow is given, for a run that could not store all of it
    rerun: Sequence[str] = ()  # leaves whose code is tested too


class _Found(NamedTuple):
    """How a replay went: its report, and why the test fails, if it does."""

    report: ReplayReport | None
    failure: str | None


def check_marked(item: pytest.Item) -> None:
    """Fail a marked test whose run does not replay; one of its runs, if it has several marks."""
    for found in _of_marked(item):
        if found.failure is not None:
            pytest.fail(found.failure, pytrace=False)


def report_of(item: pytest.Item) -> ReplayReport:
    """The report of a marked test: of the mark that is nearest to it."""
    if item.get_closest_marker(MARKER) is None:
        pytest.fail(f"there is no run to replay: {_USE}", pytrace=False)
    found = _of_marked(item)[0]
    if found.report is None:
        pytest.fail(found.failure or "", pytrace=False)
    return found.report


def _of_marked(item: pytest.Item) -> list[_Found]:
    """The replays that the marks of a test ask for, made once."""
    if _FOUND not in item.stash:
        try:
            asked = [_Asked(*marker.args, **marker.kwargs) for marker in item.iter_markers(MARKER)]
        except TypeError as error:
            pytest.fail(f"{str(error).partition(' ')[2]}: {_USE}", pytrace=False)
        item.stash[_FOUND] = [_looked_at(item, each) for each in asked]
    return item.stash[_FOUND]


def replayer(item: pytest.Item) -> Callable[..., ReplayReport]:
    """The fixture: replays what it is given, and fails the test where code and record part."""

    def everstep_replay(
        path: str,
        workflow: Any,
        redact: Sequence[Rule] = (),
        inputs: Mapping[str, Any] | None = None,
        rerun: Sequence[str] = (),
    ) -> ReplayReport:
        __tracebackhide__ = True
        found = _looked_at(item, _Asked(path, workflow, redact, inputs, rerun))
        if found.failure is not None or found.report is None:
            pytest.fail(found.failure or "")
        return found.report

    return everstep_replay


def _looked_at(item: pytest.Item, asked: _Asked) -> _Found:
    """Replay the run in a file, recorded again first if that is wanted."""
    path, workflow = asked.path, asked.workflow
    if not isinstance(workflow, Workflow):
        return _Found(None, f"workflow={workflow!r:.80} is no workflow: decorate it with @everstep.workflow")
    place = item.path.parent / path
    if not place.is_file():
        return _Found(None, f"there is no file {str(place)!r}. Make it with `everstep export RUN -o {path}`.")
    try:
        if item.config.getoption("everstep_update"):
            item.user_properties.append((UPDATED, f"{path}: {_recorded_again(place, asked)}"))
        with open_trail(":memory:", redact=asked.redact) as trail:
            run = trail.import_run(place)
            with no_network() as tried:
                report = trail.replay(run.id, workflow, inputs=asked.inputs, rerun=asked.rerun)
    except EverstepError as error:
        return _Found(None, f"{path}: {error}")
    return _Found(report, _failure(path, report, tried))


def _failure(path: str, report: ReplayReport, tried: list[str]) -> str | None:
    """Why a test fails, in the words that pytest shows."""
    if report.identical and not tried:
        return None
    again = "pytest --everstep-update runs the workflow live and writes the file anew."
    return told_failure(path, report, again, tried)


def told_failure(path: str, report: ReplayReport, again: str, tried: Sequence[str] = ()) -> str:
    """What a replay found, with how to record `again`."""
    lines = [f"{path}: {_verdict(report)}", safe(report.summary()), ""]
    lines += [f"reached for the network: {safe(place)}. Make that a step." for place in dict.fromkeys(tried)]
    if report.first is not None:
        lines += _told(report.first)
    lines += map(safe, report.beside())
    lines += ["", f"If the new way is right: {again}"]
    return "\n".join(lines)


def _verdict(report: ReplayReport) -> str:
    first = report.first
    if first is None:
        return "the code between the steps is live"
    at = "" if first.seq is None else f" at step {first.seq}"
    return f"the code does not do what is on record{at}, {safe(first.step)!r}: {first.cause}"


def _told(first: Divergence) -> Iterator[str]:
    yield safe(first.message)
    for change in first.changes[:_CHANGES]:
        yield from _both_sides(change)
    if len(first.changes) > _CHANGES:
        yield f"  ... {len(first.changes) - _CHANGES} more"


def _both_sides(change: Change) -> Iterator[str]:
    """What stands there on record, and what the code has now: as a diff, if it has several lines."""
    yield f"  {safe('.'.join(map(str, change.path)))}:"
    was, now = _lines(change.old), _lines(change.new)
    if len(was) > 1 or len(now) > 1:
        found = [line for line in difflib.ndiff(was, now) if not line.startswith("?")]
    else:
        found = [*(f"- {line}" for line in was), *(f"+ {line}" for line in now)]
    yield from (f"    {line}" for line in found[:_LINES])
    if len(found) > _LINES:
        yield f"    ... {len(found) - _LINES} more lines"


def _lines(value: Any) -> list[str]:
    if value is MISSING:
        return []
    if isinstance(value, str) and "\n" in value:
        return [cut(safe(line), _WIDE) for line in value.split("\n")]
    return [brief(value, _WIDE)]


# Recording again.


def _recorded_again(place: Path, asked: _Asked) -> str:
    """Run the workflow live, with the inputs and answers on record, and write the file anew: what came of it."""
    workflow: Workflow[..., Any] = asked.workflow
    with open_trail(":memory:", redact=asked.redact) as was, open_trail(":memory:", redact=asked.redact) as trail:
        run = was.import_run(place)
        inputs = _inputs(was, run, workflow) if asked.inputs is None else asked.inputs
        answers = [step.output for step in was.steps(run.id) if step.kind is Kind.ANSWER]
        _go_live(trail, run, workflow, *workflow.parameters.spread(inputs), answers)
        trail.export(run.id, place)
        now = trail.run(run.id)
    return f"{run.id}, {run.status} with {run.step_count} entries, is now {now.status} with {now.step_count}"


def _inputs(trail: Trail, run: Run, workflow: Workflow[..., Any]) -> dict[str, Any]:
    """What the run was given. Raises EverstepError where that is not all on record."""
    reader, reach = Reader(trail.store), Reach()
    for function in workflow.functions():
        reach.add(function)
    [start] = reader.entries(trail.store.run(run.id), 0, 0)
    shown = trail.step(run.id, 0, view=True).inputs or {}
    secret = [name for name, value in shown.items() if PLACEHOLDER.decode() in whole(value)]
    missing = [*(metadata_of(start).get("named") or ()), *secret]
    if missing:
        raise EverstepError(
            f"the run cannot be recorded again: of its inputs {', '.join(map(repr, missing))} could not be stored. "
            "Give them all, with inputs={...}, or run it in your program and export it."
        )
    inputs: dict[str, Any] = (read_payload(start, reader.fetch, reach.decode) or [None])[INPUTS] or {}
    return inputs


def _go_live(
    trail: Trail,
    run: Run,
    workflow: Workflow[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    answers: list[Any],
) -> None:
    """Run the workflow. That it fails is kept as what it did, and so is that it waits for what nobody answered then."""
    runner: Any = Runner(trail)
    handling = "continue" if run.status is Status.PARTIAL else "raise"
    try:
        result = runner.run(workflow, *args, id=run.id, tags=run.tags, error_handling=handling, **kwargs)
        while result.paused and answers:
            asked = result.pauses[0]
            trail.answer(asked.run_id, answers.pop(0), pause=asked.seq)
            result = runner.run(workflow, id=run.id, error_handling=handling)
    except Exception as error:  # what the workflow raises is how the run ended; only what kept it from running counts
        if isinstance(error, EverstepError) or not trail.runs():
            raise EverstepError(f"the run could not be recorded again: {type(error).__qualname__}: {error}") from error
