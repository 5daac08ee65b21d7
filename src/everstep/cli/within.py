"""`python -m everstep.cli.within PROGRAM ...`: a program under capture. It loads what that takes, and then runs it."""

from __future__ import annotations

import gc
import sys
from importlib import import_module

if __name__ == "__main__":
    gc.disable()  # whatever is loaded stays: to look for what can go takes a tenth of the time
    captured = import_module("everstep.cli.captured")
    gc.freeze()  # nor does any later collection look at it, or the end of the process
    gc.enable()
    sys.exit(captured.main())
