"""The run that is kept in `v1/run.everstep`: every later version must read it, and export it the same.

`python -m tests.corpus.runs` writes it where it is not there. What is there is never written again.
"""

from __future__ import annotations

from pathlib import Path

import everstep
from everstep.model import Kind, Secret
from tests.corpus.make import EXPECTED

RUN = Path(__file__).parent / "v1" / "run.everstep"
LARGE = "a large leaf, kept once; " * 4_000


def make(path: Path) -> None:
    """Export a run with every value of the corpus, a child, a piece, a failure, a question and its answer, a fork."""
    with everstep.open(":memory:") as trail:
        run = trail.record("corpus", workflow="all", inputs={"topic": "tides"}, tags={"user": "ada", "téam": "☃"})
        for name, value in EXPECTED.items():
            if name != "blob":
                run.step(name, output=value)
        with trail.record("corpus/child#0", workflow="child", inputs={"n": 1}, parent="corpus") as child:
            child.step("inside", output=[1, 2, 3], append_to="numbers")
        outer = run.step("outer", kind=Kind.COMPOSITE_START, lane="main#0@1").id
        run.step("child", parent=outer, child_run_id="corpus/child#0", output=6, usage={"tokens": 12})
        run.step("outer", id=outer, output=LARGE, output_to="text", superstep=3, decision="go", duration_ms=1.5)
        run.step("again", output=LARGE)
        run.step("cut", output=[{"text": "long " * 100, "deep": [[[[[[[[["end"]]]]]]]]]}, bytes(50), *range(500)])
        run.step("broken", error=ValueError("no such page \u202e"), attempt=2, status="failed")
        run.step("ask", kind=Kind.PAUSE, status="paused", pause={"prompt": "Send it?", "options": ["yes", "no"]})
        run.step("ask", kind=Kind.ANSWER, output="yes")
        run.checkpoint("here", "boundary", {"why": "it is one"})
        run.save({"text": "short", "plan": [{"a": 1}, {"b": (2, 3)}]}, "saved")
        run.step("secret", output=Secret("hidden-from-everybody"))
        run.release()
        with trail.fork("corpus", id="kept", set={"plan": None}, inputs={"topic": "moons"}) as fork:
            fork.step("last", output={"done": True}, external=True)
        trail.export("kept", path)


if __name__ == "__main__" and not RUN.exists():
    make(RUN)
