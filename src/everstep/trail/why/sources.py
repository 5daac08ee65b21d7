"""Where a value came from: made up by a step that only passes things on, or brought in by it and named by the error."""

from __future__ import annotations

import re
from collections.abc import Iterator

from everstep.trail.why.calls import Call
from everstep.trail.why.clues import Clues
from everstep.trail.why.oddities import FEW, Group, Oddity, others, shown, sure
from everstep.trail.why.tracing import Trace

_ONE_THING = re.compile(r"(?=.*\d).{4,}")  # a word that stands for one thing, like an id
_NAMED = 4  # words of an error that are followed


def made_up(group: Group) -> Iterator[Oddity]:
    """What a step gave and had not taken, where the others of its name gave only what they took."""
    calls = [call for call, given in group.own() if given.words]
    new = [call for call in calls if call.new]
    kept = sum(not call.new and not _gave_nothing(call, group) for call in calls)
    if len(calls) < FEW or len(new) > max(1, len(calls) // 8) or kept < FEW - 1:
        return
    for call in new:
        word = max(sorted(call.new), key=len)
        text = f"gave {shown(word)}, which it was not given; {others(kept)} gave only what they took"
        yield Oddity(call, "lost", 0.85 * sure(kept), text)


def _gave_nothing(call: Call, group: Group) -> bool:
    """Whether a call gave nothing new because it gave nothing somewhere, and the error is about just that."""
    return "none" in group.wrong and any("none" in kinds.split("|") for kinds in call.gives.kinds.values())


def brought(trace: Trace, clues: Clues) -> Iterator[Oddity]:
    """The one step that brought in what the error names."""
    words = sorted(word for word in clues.words if _ONE_THING.match(word) and trace.brought.get(word) == 1)
    for word in words[:_NAMED]:
        call = next((call for call in trace.given.get(word, ()) if word in call.new), None)
        if call is not None and word not in trace.began:
            yield Oddity(call, "named", 0.55, f"brought in {shown(word)}, which the error names", words={word})
