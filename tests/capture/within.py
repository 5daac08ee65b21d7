"""`python within.py PROGRAM ...`: a program under capture, as EVERSTEP_CAPTURE says, without the command line."""

from __future__ import annotations

import json
import os
import sys

from everstep.capturing.running import run_program
from everstep.trail.trail import open as open_trail

if __name__ == "__main__":
    said = json.loads(os.environ.pop("EVERSTEP_CAPTURE"))
    with open_trail(said.pop("trail")) as trail:
        status, _ = run_program(trail, sys.argv[1:], said.pop("id", None), **said)
    sys.exit(status)
