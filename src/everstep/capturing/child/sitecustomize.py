"""Found by every Python that a captured program starts: has it captured, or gets out of the way.

It runs before the program does, in Pythons of any version, with or without everstep: so it needs nothing, and what it
stands in front of, another `sitecustomize`, is run as if this were not there.
"""

import os
import sys
from importlib import import_module, util
from importlib.machinery import PathFinder

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib would be loaded into every process


def _is_helper() -> bool:
    """Whether multiprocessing started it: it works for another Python, and is no program."""
    words = getattr(sys, "orig_argv", sys.argv)
    return any(word.startswith(("from multiprocessing.", "--multiprocessing-fork")) for word in words)


def _become_captured() -> None:
    """Run the program again, captured. Returns if that cannot be."""
    try:
        becoming = import_module("everstep.capturing.becoming")
    except (ImportError, SyntaxError):  # not there, or this Python is too old for it
        sys.stderr.write(
            f"everstep: {sys.executable} has no everstep, so what it runs is not recorded; install it there: "
            f"{sys.executable} -m pip install FOLDER, which is a clone of it\n"
        )
    else:
        becoming.become()


def _hand_on() -> None:
    """Run the `sitecustomize` that is found without this one."""
    sys.path[:] = [path for path in sys.path if path != _HERE]
    found = PathFinder.find_spec(__name__)
    if found is not None and found.loader is not None:
        module = util.module_from_spec(found)
        sys.modules[__name__] = module
        found.loader.exec_module(module)


if __name__ == "sitecustomize":
    if "EVERSTEP_CHILD" in os.environ and not _is_helper():
        _become_captured()
    _hand_on()
