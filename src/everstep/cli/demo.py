"""The command that tells the whole story in a minute: an agent is killed, and goes on where it was."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from contextlib import redirect_stdout
from inspect import getsource
from io import StringIO
from pathlib import Path

import click

from everstep.cli import demo_agent, exits
from everstep.cli.branches import row
from everstep.cli.demo_agent import PRICE, RUN_ID
from everstep.cli.output import Cell
from everstep.cli.session import Session, options, session
from everstep.cli.showing import columns
from everstep.cli.tree import lines
from everstep.run.runner import Runner
from everstep.trail.outline import outline
from everstep.trail.trail import Trail
from everstep.trail.trail import open as open_trail

_FOLDER = Path(".everstep", "demo")
_ASKED, _FORK = "what is still hard", "demo-otherwise"
_KILLED_IN = 4  # the call in whose middle the agent is killed
_PATIENCE = 60.0  # seconds for a process of ours to end


@click.command()
@options
def demo() -> int:
    """Tell the whole story in a minute, offline: an agent is killed with kill -9, and goes on where it was."""
    here = session()
    told = _Story(here)
    _FOLDER.mkdir(parents=True, exist_ok=True)
    for old in _FOLDER.iterdir():
        old.unlink()
    path, ledger = _FOLDER / "trail.db", _FOLDER / "ledger.txt"
    told.code()
    killed = told.first_life(path, ledger)
    with open_trail(path) as trail:
        served = told.on_disk(trail)
        told.second_life(path, ledger, killed)
        told.afterwards(trail)
        calls = Counter(ledger.read_text().splitlines())
        identical = told.again(trail)
        told.otherwise(trail, ledger)
        forked = len(ledger.read_text().splitlines()) - calls.total()
        sound = trail.verify().ok
    repeated = {prompt: count - 1 for prompt, count in calls.items() if count > 1 and prompt != killed}
    told.balance(calls.total() + forked, forked, repeated, served, sound=sound)
    if here.output.as_json:
        here.output.data(
            demo={
                "killed_in": killed, "served": served, "calls": calls, "forked": forked, "repeated": repeated,
                "identical": identical, "sound": sound,
            }
        )  # fmt: skip
    return exits.OK if sound and identical and not repeated else exits.ERROR


class _Story:
    """What is told, to whom. A program that asked for JSON is told at the end, and nothing else."""

    def __init__(self, here: Session) -> None:
        self._output = here.output
        self._silent = here.output.as_json
        self._chapters = 0

    def code(self) -> None:
        """The agent, as it is written."""
        self._chapter("An ordinary agent. Every answer of its model costs money.")
        source = "\n\n".join(getsource(part.function).rstrip() for part in (demo_agent.ask, demo_agent.research))
        for line in source.splitlines():
            if '"""' not in line:
                self._say("    " + line.partition("  # noqa")[0], "dim")

    def first_life(self, path: Path, ledger: Path) -> str:
        """Run the agent, and kill it in the middle of a call. The call."""
        self._chapter("It runs, and is killed in the middle: kill -9, as by a crash.")
        agent = _start(path, ledger)
        assert agent.stdout is not None  # noqa: S101 - it was asked for
        prompt = ""
        for number, line in enumerate(agent.stdout, 1):
            prompt = line.strip()
            self._say(f"    model call {number}: {prompt}")
            if number == _KILLED_IN:
                agent.kill()
                break
        agent.wait(_PATIENCE)
        agent.stdout.close()
        self._say(f"    killed (signal {-agent.returncode}), the answer to {prompt!r} never came", "red")
        return prompt

    def on_disk(self, trail: Trail) -> int:
        """What the dead agent left. How many answers that is."""
        self._chapter("What it had done is on disk, every step of it.")
        found = outline(trail.steps(RUN_ID, view=True))
        if not self._silent:
            rows = [row(self._output, line, at_work=False) for line in lines(found, everything=True)]
            self._output.table(*columns(rows))
        return len(found.steps)

    def second_life(self, path: Path, ledger: Path, killed: str) -> None:
        """Run the same program again."""
        self._chapter("The same line of code again: Runner(trail).run(research, ...)")
        agent = _start(path, ledger)
        assert agent.stdout is not None  # noqa: S101 - it was asked for
        for line in agent.stdout:
            again = "  (the one that was cut off)" if line.strip() == killed else ""
            self._say(f"    model call: {line.strip()}{again}")
        if agent.wait(_PATIENCE) != 0:
            raise click.ClickException("the agent of the demo failed when it was run again; see above")

    def afterwards(self, trail: Trail) -> None:
        """How the state changed between the crash and the end."""
        crash = f"{RUN_ID}@{_KILLED_IN - 1}"
        self._chapter("What it did after the crash: any two points can be compared.")
        for change in trail.diff(crash, RUN_ID):
            self._say(f"    {change}", "green")

    def again(self, trail: Trail) -> bool:
        """Replay the run. Whether the code did what is on record."""
        self._chapter("The whole run once more, without the model: the code runs, every answer comes from the record.")
        report = trail.replay(RUN_ID, demo_agent.research)
        self._say(f"    {report.summary()}", "green" if report.identical else "red")
        return report.identical

    def otherwise(self, trail: Trail, ledger: Path) -> None:
        """Fork the run where an answer was another, and compare the two."""
        at = next(step.seq for step in trail.steps(RUN_ID, view=True) if step.output == demo_agent.SCRIPT[_ASKED])
        self._chapter(f"What if the answer at step {at} had been another? A fork shares the rest, and goes on.")
        trail.fork(RUN_ID, at=at, id=_FORK, outcome=demo_agent.EASY, reuse=True).release()
        demo_agent.ledger = ledger
        with redirect_stdout(StringIO()) as asked:
            Runner(trail).run(demo_agent.research, id=_FORK)
        for prompt in asked.getvalue().splitlines():
            self._say(f"    model call: {prompt}  (the only one: its notes are others now)")
        for change in trail.diff(RUN_ID, _FORK):
            self._say(f"    {change}", "green")

    def balance(self, calls: int, forked: int, repeated: dict[str, int], served: int, *, sound: bool) -> None:
        """What it came to: all that is in the ledger, and how much of it was for the fork."""
        self._chapter("The balance, from the model's own ledger.")
        fields = [
            ("calls", Cell(f"{calls}, ${calls * PRICE:.2f}; {forked} of them for the fork")),
            ("not paid twice", Cell(f"{served} answers, ${served * PRICE:.2f}")),
            ("repeated", Cell("none but the one that was cut off" if not repeated else str(repeated))),
            ("hash chain", Cell("every row is what was written" if sound else "DAMAGED", "" if sound else "red")),
        ]
        if self._silent:
            return
        self._output.fields(fields)
        self._output.line()
        self._say(f"Look around:  {_command()} show demo --trail .everstep/demo/trail.db")
        self._say("Your own:     docs/tutorial.md, your first durable agent")

    def _chapter(self, title: str) -> None:
        self._chapters += 1
        if not self._silent:
            if self._chapters > 1:
                self._output.line()
            self._say(f"{self._chapters}. {title}", "bold")

    def _say(self, text: str, style: str = "") -> None:
        if not self._silent:
            self._output.line(Cell(text, style, whole=True))
            sys.stdout.flush()


def _command() -> str:
    """How this command is called from where the demo was."""
    if shutil.which("everstep") is not None:
        return "everstep"
    beside = Path(sys.executable).with_name("everstep")
    return os.path.relpath(beside) if beside.exists() else f"{sys.executable} -m everstep"


def _start(path: Path, ledger: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "everstep.cli.demo_agent", str(path), str(ledger)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own module
