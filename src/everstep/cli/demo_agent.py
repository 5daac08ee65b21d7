"""The agent of `everstep demo`: it plans, asks, and writes a report. Its model is scripted, and keeps a ledger."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from everstep.run.runner import Runner
from everstep.run.steps import step
from everstep.run.workflows import workflow
from everstep.trail.trail import open as open_trail

RUN_ID, TOPIC, PRICE = "demo", "fusion energy", 0.04  # dollars a call
_THINKS = 0.2  # seconds
SCRIPT = {
    "Plan": "how it works\nwhere it stands\nwhat is still hard\nwhat it would cost\nwho is building it",
    "how it works": "Light nuclei are pressed together until they join; the lost mass is energy.",
    "where it stands": "One laboratory got more energy out of the fuel than its lasers put in.",
    "what is still hard": "Keeping the plasma still, and walls that last.",
    "what it would cost": "Nobody knows: the first plants are drawn, not built.",
    "who is building it": "Some forty companies, and one very large public project.",
    "Report": "Fusion works in the laboratory. As a power plant it has yet to be built.",
}
EASY = "Nothing much: the last plasma stood still for a year."  # what the model might have said in place of hard
_OTHER_REPORT = "Fusion works in the laboratory. A power plant is within reach."
ledger = Path("ledger.txt")


def model(prompt: str) -> str:
    """A model whose answers cost money: every call is a line in the ledger."""
    with ledger.open("a") as file:
        file.write(prompt + "\n")
    print(prompt, flush=True)  # noqa: T201 - what the demo watches
    time.sleep(_THINKS)
    return SCRIPT[prompt]


@step(output="plan")
def make_plan(topic: str) -> list[str]:  # noqa: ARG001 - the script knows one topic
    """What to ask."""
    return model("Plan").splitlines()


@step(output="notes", append=True)
def ask(question: str) -> str:
    """What the model knows about it."""
    return model(question)


@step(output="report")
def write_report(notes: list[str]) -> str:
    """The notes in two sentences."""
    said = model("Report")
    return _OTHER_REPORT if EASY in notes else said


@workflow
def research(topic: str) -> str:
    """A plan, a note on each of its parts, a report."""
    questions = make_plan(topic)
    notes = [ask(question) for question in questions]
    return write_report(notes)


if __name__ == "__main__":
    ledger = Path(sys.argv[2])
    with open_trail(sys.argv[1]) as trail:
        Runner(trail).run(research, TOPIC, id=RUN_ID)
