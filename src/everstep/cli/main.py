"""The command `everstep`: the way in."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import NoReturn

from everstep.cli import launching


def main() -> NoReturn:
    """Run the command line of this process."""
    launching.record(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # whatever the encoding, nothing fails on a character
    import_module("everstep.cli.group").cli.main()  # whoever records a program waits for none of it
    raise AssertionError("a command ends by itself")
