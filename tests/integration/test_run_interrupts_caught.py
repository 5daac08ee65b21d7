"""A run whose code catches Ctrl-C, wherever in a step that came: it takes no further step, and is left for another."""

from __future__ import annotations

import json
from pathlib import Path

from tests.integration.support import python

PROGRAM = """
import json, sys
import everstep
from everstep.run import driving, execution, flow, lanes
from tests.integration.interrupting import CtrlC

ctrl_c = CtrlC({module.__file__ for module in (driving, execution, flow, lanes)})
trail = everstep.open(sys.argv[1])
position, told = 0, []

@everstep.step
def one(number):
    return number

@everstep.workflow
def work():
    one(0)
    try:
        was_cut = ctrl_c.at(position, lambda: one(1)) is None
    except KeyboardInterrupt:  # noticed again when the code asked for more
        was_cut = True
    if was_cut:
        try:
            one(2)
        except everstep.errors.RunStoppedError:
            pass
        return "the code swallowed it"
    one(2)
    return "whole"

runner, positions = everstep.Runner(trail), 0
runner.run(work, id="counted")
positions = ctrl_c.positions
for position in range(1, positions, 2):
    run_id = f"cut at {position}"
    try:
        how = runner.run(work, id=run_id).value
    except KeyboardInterrupt:
        how = "interrupted"
    [place], position = ctrl_c.landed, 0
    ctrl_c.landed.clear()
    status = str(trail.run(run_id).status)
    again = runner.run(work, id=run_id).value
    names = [step.index for step in trail.steps(run_id) if step.name == "one"]
    told.append((place, how, status, again, names))
print(json.dumps([positions, told]))
"""


def test_code_that_catches_ctrl_c_in_a_step_does_not_complete_without_it(tmp_path: Path) -> None:
    """Promise 2: what was asked for and not taken is not passed over, and the run goes on whole."""
    done = python(PROGRAM, tmp_path / "trail.db")
    assert done.returncode == 0, done.stderr
    positions, told = json.loads(done.stdout)
    assert positions > 150
    whole = ["interrupted", "active", "whole", [0, 1, 2]]
    others = [each for each in told if each[1:] != whole]
    # Before it had begun, or when it was over: Python lets no code of ours be sooner or later than that.
    assert {place for place, *_ in others} <= {"here", "running_loop", "call_step", "work.<locals>.<lambda>"}
    assert len(others) < len(told) / 10
