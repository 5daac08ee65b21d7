"""A graph that fails ends the same, whether a program or the command goes on with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import everstep
from tests.integration.cli_support import process
from tests.integration.support import output

GRAPH = """
import os
import everstep
from everstep import Graph, node

@node(output="left")
def left(topic):
    return topic

@node(output="right")
def right(topic):
    if os.path.exists("broken"):
        raise ValueError("no right")
    return topic

@node(output="further")
def further(left):
    return left

graph = Graph([left, right, further], name="graph")
"""
RUN = """
import os, sys
os.chdir(sys.argv[1])
sys.path.insert(0, sys.argv[1])
import everstep, agent
with everstep.open("trail.db") as trail:
    try:
        everstep.Runner(trail).run(agent.graph, topic="tea", id="r", error_handling=sys.argv[2])
    except ValueError:
        pass
    print(trail.run("r").status)
"""


@pytest.mark.parametrize(("handling", "status"), [("raise", "failed"), ("continue", "partial")])
def test_a_graph_that_fails_again_ends_as_in_a_program(tmp_path: Path, handling: str, status: str) -> None:
    (tmp_path / "agent.py").write_text(GRAPH)
    (tmp_path / "broken").touch()
    assert output(RUN, tmp_path, handling).split() == [status]
    done = process("resume", "r", "--app", "agent", "--trail", "trail.db", "--json", cwd=tmp_path)
    told = json.loads(done.stdout)["resume"]
    assert (done.code, told["status"], told["error"]) == (1, status, {"type": "ValueError", "message": "no right"})
    with everstep.open(tmp_path / "trail.db", read_only=True) as trail:
        assert trail.run("r").status == status
        assert ("further" in trail.state("r")) is (handling == "continue")
    (tmp_path / "broken").unlink()
    done = process("resume", "r", "--app", "agent", "--trail", "trail.db", cwd=tmp_path)
    assert done.code == 0, done.stderr
    with everstep.open(tmp_path / "trail.db", read_only=True) as trail:
        assert trail.state("r") == {"left": "tea", "right": "tea", "further": "tea"}


def test_a_refusal_before_the_run_goes_on_is_no_failure_of_it(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(GRAPH)
    (tmp_path / "broken").touch()
    output(RUN, tmp_path, "raise")
    (tmp_path / "agent.py").write_text(GRAPH.replace("[left, right, further]", "[left, right]"))
    done = process("resume", "r", "--app", "agent", "--trail", "trail.db", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["error"]["type"] == "GraphChangedError"
