"""`python -m everstep.capturing.outer COMMAND ...`: a command that is no Python program, as one that starts it.

Its run has one step, the process; the Python programs that this starts have runs below it. Whoever resumes the run has
said that the command may run again: so the process is started again without asking. What its programs ask is asked
for as ever.
"""

from __future__ import annotations

import subprocess
import sys

from everstep.capturing.session import boundary


def main(words: list[str]) -> int:
    """Run the command, with this process's own streams. The status that it exits with, as a shell has it."""
    lane = boundary()
    if lane is not None:
        lane.run.captured.unknown = "retry"
    status = subprocess.call(words)  # noqa: S603 - this is what was asked for
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
