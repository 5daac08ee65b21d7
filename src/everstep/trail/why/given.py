"""What a run was given, as a place that a failure may have come from: beside other runs, and beside the error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from everstep.errors import EverstepError
from everstep.model import Kind, Run, Status
from everstep.trail.outline import Node
from everstep.trail.why import shapes, texts
from everstep.trail.why.calls import Call, Story
from everstep.trail.why.clues import Clues
from everstep.trail.why.oddities import Group, Oddity, Sample, shown
from everstep.trail.why.values import profile, same

if TYPE_CHECKING:
    from everstep.trail.trail import Trail
    from everstep.trail.why.tracing import Trace

INPUTS = "inputs"  # what they are called among the steps
_OTHERS = 12  # runs whose inputs are looked at; that is one row each
_ONE_THING = re.compile(r"(?=.*[\d@/_:#]).{4,}")  # a word that stands for one thing, like an id
_NAMED, _LACKING = 0.55, 0.45  # how much it says that the error names something of them, or something they lack


def given(story: Story) -> Call | None:
    """The inputs of a run as a call that took nothing and gave them; None where there are none."""
    start, inputs = story.tree.start, story.inputs
    if start is None or not isinstance(inputs, dict) or not inputs:
        return None
    made = Call(Node(INPUTS, Kind.START, Status.COMPLETED, start, start), {}, {})
    made.give({INPUTS: inputs})
    made.place = -1
    return made


def odd_inputs(trail: Trail, trace: Trace, clues: Clues) -> Iterator[Oddity]:
    """What is odd about the inputs, in sentences about what the run was given."""
    call = trace.given_first
    if call is None:
        return
    group = Group(INPUTS, [Sample(call, call.gives), *_of_other_runs(trail, trace.story_of(call.run_id).run)])
    for detect in (shapes.odd_shapes, shapes.odd_emptiness, shapes.odd_numbers, texts.odd_texts):
        for odd in detect(group):
            yield replace(odd, text="was given" + odd.text.removeprefix("gave"))
    for word in sorted(clues.words | clues.keys):
        if word in call.gives.words and trace.brought.get(word, 0) == 0 and _ONE_THING.match(word):
            yield Oddity(call, "named", _NAMED, f"was given {shown(word)}, which the error names", words={word})
    yield from _lacking(trace, call, clues)


def _of_other_runs(trail: Trail, run: Run) -> Iterator[Sample]:
    if not run.workflow:
        return
    for other in trail.runs(workflow=run.workflow, status=Status.COMPLETED, limit=_OTHERS):
        try:
            inputs = trail.step(other.id, 0, view=True).inputs
        except EverstepError:
            continue  # pruned, erased or damaged; this question is about another
        if other.id != run.id and other.parent_run_id == run.parent_run_id and isinstance(inputs, dict):
            yield Sample(None, profile(inputs))


def _lacking(trace: Trace, call: Call, clues: Clues) -> Iterator[Oddity]:
    """A key that was not there, in a dict that the step that failed had from the inputs."""
    if not trace.path or not clues.is_about_a_key:
        return
    for name, value in handed_on(call, trace.path[-1]):
        for key in sorted(clues.keys - {str(each) for each in value}) if isinstance(value, dict) else ():
            text = f"was given no {shown(key)}, which the error names, with {name}"
            yield Oddity(call, "lost", _LACKING, text, keys={key})


def handed_on(inputs: Call, taker: Call) -> Iterator[tuple[str, Any]]:
    """The inputs, by name, that a call took as they are and that are no single word or number."""
    taken = taker.inputs.values() if isinstance(taker.inputs, dict) else [taker.inputs]
    known = [value for value in taken if isinstance(value, dict | list) and value]
    for name, value in inputs.output.items():
        if isinstance(value, dict | list) and any(same(value, each) for each in known):
            yield name, value
