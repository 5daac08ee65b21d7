"""An agent that exits with status 3 after two calls; what it registered for its end still asks once more."""

import atexit
import os
import sys
import urllib.request

URL = os.environ["MODEL_URL"]


def ask(path: str) -> str:
    """A small answer."""
    with urllib.request.urlopen(f"{URL}/plain/{path}", timeout=10) as got:
        return str(got.headers["X-Counter"])


if __name__ == "__main__":
    atexit.register(lambda: print("at the end", ask("end"), flush=True))
    for at in range(2):
        print("answer", at, ask("same"), flush=True)
    print("exiting", flush=True)
    sys.exit(3)
