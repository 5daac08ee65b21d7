"""Write a notice, have a person approve it, and publish it; or write it again as the person wishes.

    python examples/approval.py          writes the notice, asks, and ends: the run waits in the trail, no process does
    everstep answer notice-1 shorter     answers, a minute or a week later
    python examples/approval.py          goes on: writes a shorter one and asks again
    everstep answer notice-1 publish
    python examples/approval.py          publishes it

Another id is another notice: `python examples/approval.py notice-2`. Where a model would be called, the function
`complete` fills in a form: put your model there.
"""

from __future__ import annotations

import sys
from pathlib import Path

import everstep
from everstep import Graph, Runner, current, gate, interrupt, node

TRAIL = Path(".everstep/trail.db")  # where the command line looks, too
BOARD = Path(".everstep/notices")
EVENT = {"what": "The archive is closed for repairs", "when": "on Friday from 9 to 12", "why": "The lift is replaced."}


def complete(event: dict[str, str], wish: str | None) -> str:
    """Stands in for a model: the notice as a text, plain or as somebody wished."""
    notice = f"{event['what']} {event['when']}."
    if wish == "shorter":
        return notice
    if wish == "kinder":
        return f"Dear readers, {notice[0].lower()}{notice[1:]} {event['why']} We are sorry for the trouble."
    return f"{notice} {event['why']} Loans can be returned at the desk."


# The graph. `verdict` leads back to `write`: a loop, which the gate lets go round only when it says so.


@node(output="notice")
def write(event: dict[str, str], verdict: str | None = None) -> str:
    """Write the notice; when a person has seen one already, as they wished."""
    print("writing" if verdict is None else f"writing again, {verdict}")
    return complete(event, verdict)


@interrupt(output="verdict", options=["publish", "shorter", "kinder"])
def ask(notice: str) -> str:
    """Ask a person. The answer becomes the verdict, if it is one of the options."""
    return f"Publish this? {notice}"


@gate(when_true="publish", when_false="write")
def approved(verdict: str) -> bool:
    """Whether the person agreed."""
    return verdict == "publish"


@node(output="published", external=True)
def publish(notice: str) -> str:
    """Put the notice up. It acts on the world: cut off by a crash, it is not repeated before somebody says so."""
    print("publishing")
    BOARD.mkdir(exist_ok=True)
    place = BOARD / f"{current().run_id}.txt"
    place.write_text(notice, "utf-8")
    return str(place)


approval = Graph([write, ask, approved, publish], name="approval")


def main(run_id: str) -> None:
    """Begin the run, or go on with it."""
    TRAIL.parent.mkdir(exist_ok=True)
    with everstep.open(TRAIL) as trail:
        result = Runner(trail).run(approval, event=EVENT, id=run_id)
    if result.pause is not None:
        print(result.pause.prompt)
        print(f"next: everstep answer {run_id} {'|'.join(result.pause.options or ['VALUE'])}, then run this again")
    else:
        print(f"published in {result['published']}: {result['notice']}")
        print(f"next: everstep show {run_id}\n  or: everstep graph {__file__}:approval --run {run_id}")


if __name__ == "__main__":
    main(sys.argv[1] if sys.argv[1:] else "notice-1")
