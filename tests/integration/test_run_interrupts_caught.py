"""A run whose code catches Ctrl-C, wherever in a step that came: it takes no further step, and is left for another."""

from __future__ import annotations

import json
from pathlib import Path

from tests.integration.support import python

PROGRAM = """
import json, sys
import everstep
from everstep.run import driving, execution, flow, lanes, pen

FILES = {module.__file__ for module in (driving, execution, flow, lanes, pen)}
trail = everstep.open(sys.argv[1])
left, lines, landed = 0, 0, []

def traced(frame, event, arg):
    return cut if frame.f_code.co_filename in FILES else None

def cut(frame, event, arg):
    global lines
    if event == "line":
        lines += 1
        if lines == left:
            landed.append(frame.f_code.co_name)
            raise KeyboardInterrupt
    return cut

@everstep.step
def one(number):
    return number

@everstep.workflow
def work():
    global lines
    one(0)
    lines = 0
    sys.settrace(traced)
    try:
        one(1)
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    if not landed:
        one(2)
        return "whole"
    try:
        one(2)
    except everstep.errors.RunStoppedError:
        pass
    return "the code swallowed it"

runner = everstep.Runner(trail)
runner.run(work)
told = []
for left in range(1, lines):
    run_id = f"cut at {left}"
    try:
        how = runner.run(work, id=run_id).value
    except KeyboardInterrupt:
        how = "interrupted"
    (place,), status = landed, str(trail.run(run_id).status)
    landed.clear()
    left = 0
    again = runner.run(work, id=run_id).value
    names = [step.index for step in trail.steps(run_id) if step.name == "one"]
    told.append((place, how, status, again, names))
print(json.dumps(told))
"""


def test_code_that_catches_ctrl_c_in_a_step_does_not_complete_without_it(tmp_path: Path) -> None:
    """Promise 2: what was asked for and not taken is not passed over, and the run goes on whole."""
    done = python(PROGRAM, tmp_path / "trail.db")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert len(told) > 100
    whole = ["interrupted", "active", "whole", [0, 1, 2]]
    others = [each for each in told if each[1:] != whole]
    # Before it had begun, or when it was over: Python lets no code of ours be sooner or later than that.
    assert {place for place, *_ in others} <= {"here", "running_loop", "call_step"}
    assert len(others) < len(told) / 10
