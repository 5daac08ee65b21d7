"""Programs that press Ctrl-C on themselves, at a chosen bytecode: run in a process of their own, where a hang is seen.

The interpreter looks for signals at certain bytecodes only, so raising from a trace function would interrupt where no
Ctrl-C ever does. Here the trace function is C code that marks the signal as arrived, and the interpreter raises it
itself, at the next place where it would.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any, TypeVar

import everstep
from everstep.errors import ClosedError, RunFinishedError
from everstep.store import commit, files, files_layout, files_writing, lock, postgres, postgres_writing, sqlite
from everstep.trail import recorder, scribe

T = TypeVar("T")
COMMITTING = {
    module.__file__ for module in (commit, files, files_layout, files_writing, lock, postgres, postgres_writing, sqlite)
}
RECORDING = COMMITTING | {module.__file__ for module in (recorder, scribe)}
_TRACER = ctypes.PYFUNCTYPE(None, *[ctypes.py_object] * 3)  # a C function that gives no heed to its arguments
arrive: Any = _TRACER(("PyErr_SetInterrupt", ctypes.pythonapi))
ignore: Any = _TRACER(("Py_GetRecursionLimit", ctypes.pythonapi))


class CtrlC:
    """Interrupts this thread, the main one, at the n-th bytecode of some files."""

    def __init__(self, files: set[str | None]) -> None:
        self._files = files
        self._left = 0
        self.positions = 0  # that the last work had
        self.landed: dict[str, int] = {}
        signal.signal(signal.SIGINT, self._interrupt)

    def at(self, position: int, work: Callable[[], T]) -> T | None:
        """Do the work; None if it was interrupted. 0 only counts the positions."""
        self._left = position or 1_000_000
        start = self._left
        try:
            sys.settrace(self._call)
            result = work()
            sys.settrace(None)
        except KeyboardInterrupt:
            return None
        self.positions = start - self._left
        return result

    def _call(self, frame: FrameType, event: str, arg: object) -> Any:
        if frame.f_code.co_filename not in self._files:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._bytecode

    def _bytecode(self, frame: FrameType, event: str, arg: object) -> Any:
        if event != "opcode":
            return self._bytecode
        self._left -= 1
        if self._left:
            return self._bytecode
        # From here on no Python code may trace: the interrupt would land in it.
        sys.settrace(ignore)
        caller = frame.f_back
        while caller is not None:
            caller.f_trace = None
            caller = caller.f_back
        return arrive

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        sys.settrace(None)
        if frame is not None:
            place = frame.f_code.co_qualname
            self.landed[place] = self.landed.get(place, 0) + 1
        raise KeyboardInterrupt


class Others:
    """Two threads and an event loop that write meanwhile. They must notice nothing.

    With a pause between their steps it is mostly the main thread that leads, and commits for them.
    """

    def __init__(self, trail: everstep.Trail, pause: float = 0.0, which: str = "") -> None:
        self._trail = trail
        self._pause = pause
        self.stop = threading.Event()
        self.acks: list[tuple[str, int, str]] = []
        self.errors: list[str] = []
        works: list[Callable[[], object]] = [
            lambda: self._sync(f"{which}thread-0"),
            lambda: self._sync(f"{which}thread-1"),
            lambda: asyncio.run(self._awaited(f"{which}loop")),
        ]
        self._threads = [threading.Thread(target=self._guarded, args=(work,), daemon=True) for work in works]
        for thread in self._threads:
            thread.start()

    def _guarded(self, work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - an interrupt that strays here is what this looks for
            self.errors.append(repr(error))

    def _sync(self, name: str) -> None:
        mine = self._trail.record(name)
        while not self.stop.is_set():
            self.note(mine.step("s", output=mine.seq, append_to="log"))
            time.sleep(self._pause)

    async def _awaited(self, name: str) -> None:
        mine = await everstep.AsyncTrail(self._trail).record(name)
        while not self.stop.is_set():
            for step in await asyncio.gather(*(mine.step("s", output=n, append_to="log") for n in range(3))):
                self.note(step)
            await asyncio.sleep(self._pause)

    def note(self, step: everstep.StepRecord) -> None:
        self.acks.append((step.run_id, step.seq, step.hash.hex()))

    def end(self) -> int:
        """Tell them to end; how many hang."""
        self.stop.set()
        for thread in self._threads:
            thread.join(20)
        return sum(thread.is_alive() for thread in self._threads)


def tell(found: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(found))


def close(trail: everstep.Trail) -> bool:
    trail.close()
    return True


def works(run: everstep.Recorder, name: str, number: int) -> Callable[[], everstep.StepRecord]:
    """The kinds of work of a recorder in turn; one in eight makes a keyframe."""
    if number % 8 == 7:
        return lambda: run.step(name, append={"log": [name], "bulk": [random.randbytes(45_000) for _ in range(3)]})
    return lambda: run.step(name, append={"log": [name]})


def stepping(path: str, files: set[str | None], stride: int, wanted: int) -> None:
    """Interrupt one step after another, each a little further in its work, to the end of the longest.

    Over and over, from another start each time, until so many were interrupted: some end before it is their turn.
    """
    trail = everstep.open(path)
    ctrl_c, run, longest = CtrlC(files), trail.record("main"), 0
    for number in range(8):
        ctrl_c.at(0, works(run, f"warm {number}", number))
        longest = max(longest, ctrl_c.positions)
    others, interrupts, number, position = Others(trail, 0.002), 0, 0, 1
    while interrupts < wanted or position < longest:
        position = position + stride if position < longest else 1 + (position + 1) % stride
        number += 1
        step = ctrl_c.at(position, works(run, f"at {number}", number))
        if step is None:
            interrupts += 1
        else:
            others.note(step)
        # Traced too: after an interrupt Python 3.13 traces no bytecodes until functions were entered once more.
        after = ctrl_c.at(0, works(run, f"after {number}", 0))
        assert after is not None
        others.note(after)
    hung = others.end()
    run.release()
    trail.close()
    tell(
        {"interrupts": interrupts, "hung": hung, "errors": others.errors, "acks": others.acks, "landed": ctrl_c.landed}
    )


def at_random(path: str, seed: int, count: int) -> None:
    """Real signals from another thread, at moments that nobody chose."""
    trail = everstep.open(path)
    others, run, chance = Others(trail), trail.record("main"), random.Random(seed)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main, armed, interrupts, number = threading.main_thread().ident or 0, threading.Event(), 0, 0

    def press() -> None:
        while not others.stop.is_set():
            if armed.wait(0.05):
                time.sleep(chance.random() * 0.003)
                if armed.is_set():
                    armed.clear()
                    signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()
    while interrupts < count:
        try:
            armed.set()
            while armed.is_set():
                number += 1
                others.note(run.step(f"r {number}", append={"log": [f"r {number}"]}))
            time.sleep(1)  # the signal is on its way
        except KeyboardInterrupt:
            interrupts += 1
    hung = others.end()
    run.release()
    trail.close()
    tell({"interrupts": interrupts, "hung": hung, "errors": others.errors, "acks": others.acks, "landed": {}})


def closing(path: str, stride: int, wanted: int) -> None:
    """Interrupt close, each time a little further, while threads write; then close again."""
    ctrl_c, interrupts, hung, number, position = CtrlC(COMMITTING), 0, 0, 0, 1
    errors: list[str] = []
    acks: list[tuple[str, int, str]] = []
    while interrupts < wanted:
        number += 1
        ctrl_c.at(0, partial(close, everstep.open(path)))
        position = position + stride if position < ctrl_c.positions else 1 + number % stride
        trail = everstep.open(path)
        others = Others(trail, which=f"{number} ")
        while len(others.acks) < 10:
            time.sleep(0.001)
        if ctrl_c.at(position, partial(close, trail)) is None:
            interrupts += 1
            trail.close()
        hung += others.end()
        errors += [error for error in others.errors if ClosedError.__name__ not in error]
        acks += others.acks
    tell({"interrupts": interrupts, "hung": hung, "errors": errors, "acks": acks, "landed": ctrl_c.landed})


def finishing(path: str, stride: int, wanted: int) -> None:
    """Interrupt the end of a run, each time a little further; then end it again."""
    trail = everstep.open(path)
    ctrl_c, interrupts, number, position = CtrlC(RECORDING), 0, 0, 1
    acks: list[tuple[str, int, str]] = []
    while interrupts < wanted:
        number += 1
        ctrl_c.at(0, partial(trail.record(f"warm {number}").finish, "done"))
        position = position + stride if position < ctrl_c.positions else 1 + number % stride
        run = trail.record(f"run {number}")
        step = run.step("s")
        acks.append((step.run_id, step.seq, step.hash.hex()))
        if ctrl_c.at(position, partial(run.finish, "done")) is None:
            interrupts += 1
            with suppress(RunFinishedError):
                run.finish("done")
    trail.close()
    tell({"interrupts": interrupts, "hung": 0, "errors": [], "acks": acks, "landed": ctrl_c.landed})


if __name__ == "__main__":
    style, place, *numbers = sys.argv[1:]
    if style == "committing":
        stepping(place, COMMITTING, int(numbers[0]), int(numbers[1]))
    elif style == "recording":
        stepping(place, RECORDING, int(numbers[0]), int(numbers[1]))
    elif style == "closing":
        closing(place, int(numbers[0]), int(numbers[1]))
    elif style == "finishing":
        finishing(place, int(numbers[0]), int(numbers[1]))
    else:
        at_random(place, int(numbers[0]), int(numbers[1]))
