"""Programs that are alive at the same time and take turns at their calls, a few each, in an order that changes.

A machine changes its pace from one second to the next by more than a call may cost here. Of programs that run one after
the other each would meet another pace; calls that lie a tenth of a second apart meet nearly the same.
"""

from __future__ import annotations

import os
import select
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from time import sleep

from benchmarks.capture.tools import Ran, Tool
from tests.capture.running import serving

BLOCK = 15  # calls in a turn
REST = 0.07  # seconds between two turns: what is written after a call is written by then, 50 ms later at the most
_PATIENCE = 60.0  # seconds for a turn


class _Place:
    """Where one program is told that it is its turn, and tells that it is over."""

    def __init__(self, folder: Path) -> None:
        self.told = f"{folder / 'go'}:{folder / 'done'}:{BLOCK}"
        for name in ("go", "done"):
            os.mkfifo(folder / name)
        # To read and to write, so that none of the two waits for the other to open it, and neither end is the last.
        self._go, self._done = (os.open(folder / name, os.O_RDWR) for name in ("go", "done"))

    def give(self) -> None:
        os.write(self._go, b".")

    def wait(self, running: Future[Ran]) -> None:
        """Wait until the program is ready for its next turn. Raises AssertionError if it has ended, or hangs."""
        for _ in range(int(_PATIENCE)):
            if select.select([self._done], [], [], 1.0)[0]:
                os.read(self._done, 1)
                return
            assert not running.done(), running.result().stderr
        raise AssertionError(f"no turn came to its end in {_PATIENCE:g} seconds")

    def close(self) -> None:
        os.close(self._go)
        os.close(self._done)


def taken(
    folder: Path,
    tools: Sequence[Tool],
    program: Sequence[str],
    told: dict[str, str],
    turns: int,
    delay: float,
    seed: int,
) -> dict[str, Ran]:
    """The program by each tool, as many turns each, with servers that take as long for the calls of one number."""
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(len(tools)))
        places, running = [], []
        for tool in tools:
            own = folder / tool.name.replace(", ", "-").replace(" ", "-")
            own.mkdir()
            server = stack.enter_context(serving(own, delay=delay, seed=seed))
            places.append(stack.enter_context(closing(_Place(own))))
            environment = {**told, "MODEL_URL": server.url, "BENCH_TURNS": places[-1].told}
            running.append(pool.submit(tool.record, own, program, environment))
        for place, run in zip(places, running, strict=True):
            place.wait(run)
        for turn in range(turns):
            for at in _order(len(tools), turn):
                sleep(REST)
                places[at].give()
                places[at].wait(running[at])
        return {tool.name: run.result() for tool, run in zip(tools, running, strict=True)}


def _order(count: int, turn: int) -> list[int]:
    """There and back, and begun at another one then: none comes after the same one each time."""
    order = [(number + turn // 2) % count for number in range(count)]
    return order[::-1] if turn % 2 else order
