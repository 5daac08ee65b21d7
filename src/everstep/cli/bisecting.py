"""The command that finds the step after which something is wrong."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from contextlib import suppress
from typing import Any

import click

from everstep.cli import exits, plain
from everstep.cli.output import Cell, talk
from everstep.cli.session import Session, address, options, run_ids, session
from everstep.cli.style import result_of
from everstep.cli.text import count
from everstep.errors import BisectTestError
from everstep.trail.bisecting import Bisection, Found
from everstep.trail.bisecting import bisect as find
from everstep.trail.wording import shown

_SKIP = 125
_FEW = 20  # changes that are shown
_WIDE = 80
_TAIL = 10  # lines of what a test printed


@click.command()
@click.argument("run", metavar="RUN[@SEQ]", shell_complete=run_ids)
@click.option("--test", metavar="COMMAND", required=True, help="What tells good from bad.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long one test may take.",
)
@options
def bisect(run: str, test: str, timeout: float) -> int:
    """Find the first step of a run after which a test fails.

    COMMAND gets the state as JSON on stdin, and EVERSTEP_RUN and EVERSTEP_SEQ. It exits with 0 if the state is good,
    with 125 if it cannot tell, and with 1 to 124 if it is bad. Of 1,000 states about ten are tested. With @SEQ, the run
    is looked at up to there.
    """
    here = session()
    trail = here.open()
    point = address(trail, run)
    command = _Command(point[0], _words(test), timeout)
    found = find(trail, point, command)
    if here.output.as_json:
        here.output.data(bisect=found.to_dict(plain.change))
    elif found.step is not None:
        _tell(here, found)
    else:
        talk(f"{found.summary()}.{_WAYS_OUT[found.found]}")
    return exits.OK if found.step is not None else exits.NOT_FOUND


_WAYS_OUT = {
    Found.AT_START: " Let it exit with 125 where what it looks at is not there yet.",
    Found.NEVER: " It must fail on the newest state, or on the one at RUN@SEQ.",
    Found.NOTHING: " It must fail on the newest state: name an earlier one with RUN@SEQ.",
}


def _words(test: str) -> list[str]:
    try:
        words = shlex.split(test)
    except ValueError as error:
        raise click.UsageError(f"--test {test!r} is no command: {error}.") from None
    if not words:
        raise click.UsageError("--test is empty; name a command.")
    return words


class _Command:
    """A test that is a command of its own."""

    def __init__(self, run_id: str, words: list[str], timeout: float) -> None:
        self._run_id = run_id
        self._words = words
        self._timeout = timeout

    def __call__(self, seq: int, values: dict[str, Any]) -> bool | None:
        """Whether the values are good; None if it cannot tell. Raises BisectTestError."""
        code = self._run(seq, json.dumps(plain.plain(values), ensure_ascii=True).encode())
        if not 0 <= code <= _SKIP:
            said = f"it was ended by signal {-code}" if code < 0 else f"it exited with {code}"
            raise BisectTestError(shlex.join(self._words), seq, said)
        verdict = None if code == _SKIP else code == 0
        talk(f"step {seq}: {'cannot tell' if verdict is None else 'good' if verdict else 'bad'}")
        return verdict

    def _run(self, seq: int, given: bytes) -> int:
        """The exit code of the command. What it prints is no data of ours."""
        variables = {**os.environ, "EVERSTEP_RUN": self._run_id, "EVERSTEP_SEQ": str(seq)}
        pipe = subprocess.PIPE
        try:
            process = subprocess.Popen(  # noqa: S603 - the command that the person typed
                self._words, env=variables, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, start_new_session=True
            )
        except OSError as error:
            raise BisectTestError(shlex.join(self._words), seq, f"it cannot be started ({error})") from None
        with process:
            try:
                printed, _ = process.communicate(given, self._timeout)
            except subprocess.TimeoutExpired:
                raise BisectTestError(
                    shlex.join(self._words), seq, f"it took longer than {self._timeout:g} s"
                ) from None
            finally:
                with suppress(ProcessLookupError, PermissionError):  # all it started ends with it, also at Ctrl-C
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for line in printed.decode("utf-8", "replace").splitlines()[-_TAIL:]:
            talk(f"  {line}")
        return process.returncode


def _tell(here: Session, found: Bisection) -> None:
    output, step = here.output, found.step
    assert step is not None  # noqa: S101 - there is one to tell of
    before = "-" if found.good is None else f"step {found.good}"
    output.fields(
        [
            ("step", Cell(f"{step.run_id}@{step.seq}", "bold")),
            ("name", step.name),
            ("kind", str(step.kind)),
            ("result", result_of(step, _WIDE)),
            ("good after", before),
            ("tested", count(found.tested, "state")),
        ]
    )
    if found.found is Found.UNSURE:
        talk("between what is good and this step the test cannot tell: it may be a step before it.")
    if found.changes:
        output.line()
    for change in found.changes[:_FEW]:
        output.line(Cell(shown(change, width=_WIDE), whole=True))
    if len(found.changes) > _FEW:
        output.line(Cell(f"... {count(len(found.changes) - _FEW, 'more change')}", "dim"))
    last = found.good if found.good is not None else step.seq - 1
    talk(f"next: {here.command('show', f'{step.run_id}@{step.seq}')}")
    talk(f"next: {here.command('diff', f'{step.run_id}@{last}', f'{step.run_id}@{step.seq}')}")
    talk(f"next: {here.command('fork', step.run_id, '--at', last)}")
