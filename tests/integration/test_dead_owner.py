"""A run whose owner ended without letting go of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

import everstep
from everstep.errors import OwnedError, PrunedError
from tests.places import in_each_place

PROGRAM = """
import everstep, sys, time
run = everstep.open(sys.argv[1]).record("r")
run.step("s", output=1, append_to="numbers")
print("recorded", flush=True)
time.sleep(60)
"""


@in_each_place()
def test_a_killed_process_of_this_machine_is_followed_at_once_and_a_living_one_is_not(trail_url: str) -> None:
    """Promises 1 and 4."""
    with subprocess.Popen([sys.executable, "-c", PROGRAM, trail_url], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "recorded\n"
        trail = everstep.open(trail_url)
        with pytest.raises(OwnedError, match=f":{other.pid}:"):
            trail.record("r")
        other.send_signal(signal.SIGKILL)
    with trail.record("r") as run:
        assert run.seq == 1
        run.step("s", output=2, append_to="numbers")
    assert trail.state("r") == {"numbers": [1, 2]}
    assert trail.run("r").epoch == 2
    trail.close()


@pytest.mark.parametrize("owner", ["worker-7", "a:b", "elsewhere:1:00000000", f"{os.uname().nodename}:x:", "::"])
@in_each_place()
def test_an_owner_that_cannot_be_known_to_be_gone_keeps_the_run(trail_url: str, owner: str) -> None:
    """Promise 4."""
    with everstep.open(trail_url) as trail:
        trail.record("r").release()
        trail.store.claim("r", owner)
        with pytest.raises(OwnedError):
            trail.record("r")


def test_a_pruned_step_is_named_as_it_was_asked_for() -> None:
    with everstep.open(":memory:") as trail:
        with trail.record("r") as run:
            for number in range(6):
                run.step("s", output=number)
        trail.prune("r", keep=2)
        with pytest.raises(PrunedError, match="step 3 of run 'r' was pruned"):
            trail.step("r", 3)
        assert [step.seq for step in trail.steps("r")] == [6, 7]
