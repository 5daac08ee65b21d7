"""`everstep stop`: a graph stops between two supersteps; what is no graph is cancelled, and that is said."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

import everstep
from everstep import Runner, step, workflow
from everstep.errors import RunCancelledError
from everstep.trail.versions import NODES
from tests.integration.cli_support import run

BEGUN = {"code": "as a runner notes it"}


def test_a_workflow_that_is_no_graph_is_cancelled_and_that_is_said(tmp_path: Path) -> None:
    path, begun = tmp_path / "t.db", Event()

    @step
    def tick(number: int) -> int:
        begun.set()
        time.sleep(0.02)
        return number

    @workflow
    def ticking() -> None:
        for number in range(5_000):
            tick(number)

    with everstep.open(path) as trail, ThreadPoolExecutor(1) as pool:
        at_work = pool.submit(Runner(trail).run, ticking, id="z3")
        assert begun.wait(60)
        stopped = run("stop", "z3", "--trail", path)
        with pytest.raises(RunCancelledError):
            at_work.result(60)
        assert str(trail.run("z3").status) == "cancelled"
    assert stopped.stderr.splitlines()[1:] == [
        "z3 is no graph: it is cancelled; resume it to go on.",
        f"then: everstep resume z3 --app MODULE --trail {path}",
    ]


def test_of_a_graph_and_of_what_nobody_works_on_nothing_is_said_of_it(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with everstep.open(path) as trail:
        trail.record("left", metadata=BEGUN).release()
        held = trail.record("graph", metadata={**BEGUN, NODES: {}})
        assert run("stop", "left", "--trail", path).stderr == "nobody works on left.\n"
        assert run("stop", "graph", "--trail", path).stderr.endswith(" was asked to stop graph.\n")
        held.finish()
