"""Writers that are made to be killed. Each notes what was acknowledged, as soon as it was, in a file that outlives it.

Run as a program it is a nursery: it reads requests, forks writers, and tells how they ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable

import everstep

Acknowledge = Callable[[everstep.StepRecord], None]


def notes(path: str) -> Acknowledge:
    """A function that notes a step in one system call: nothing of it is lost with the process."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(step: everstep.StepRecord) -> None:
        os.write(file, f"{step.run_id} {step.seq} {step.hash.hex()}\n".encode())

    return note


def one(recorder: everstep.Recorder, number: int) -> everstep.StepRecord:
    """A step of one of the many shapes: small, large, failed, a checkpoint, a whole state."""
    if number % 17 == 0:
        return recorder.checkpoint(f"at {number}")
    if number % 29 == 0:
        return recorder.step("large", output="x" * 70_000, output_to="document")
    if number % 13 == 0:
        return recorder.step("broken", error=ValueError(str(number)))
    if number % 19 == 0:
        return recorder.save({"messages": list(range(number % 7)), "document": "short"})
    return recorder.step("s", output={"n": number, "text": "word " * 60}, append_to="messages")


def sync(trail: everstep.Trail, name: str, note: Acknowledge) -> None:
    recorder = trail.record(name)
    while True:
        note(one(recorder, recorder.seq + 1))


def threads(trail: everstep.Trail, name: str, note: Acknowledge) -> None:
    """Three runs, and two threads that share one of them."""
    shared = trail.record(f"{name}-shared")

    def share() -> None:
        while True:
            note(shared.step("s", output=threading.get_ident(), append_to="who"))

    for work in (share, share, lambda: sync(trail, f"{name}-a", note)):
        threading.Thread(target=work, daemon=True).start()
    sync(trail, f"{name}-b", note)


async def awaited(trail: everstep.AsyncTrail, name: str, note: Acknowledge) -> None:
    recorder = await trail.record(name)
    while True:
        steps = (recorder.step("s", output=number, append_to="numbers") for number in range(3))
        for step in await asyncio.gather(*steps):
            note(step)


async def loop(trail: everstep.Trail, name: str, note: Acknowledge) -> None:
    twin = everstep.AsyncTrail(trail)
    await asyncio.gather(*(awaited(twin, f"{name}-{number}", note) for number in range(4)))


def mixed(trail: everstep.Trail, name: str, note: Acknowledge) -> None:
    threading.Thread(target=sync, args=(trail, f"{name}-thread", note), daemon=True).start()
    asyncio.run(loop(trail, f"{name}-loop", note))


KINDS: dict[str, Callable[[everstep.Trail, str, Acknowledge], None]] = {
    "sync": sync,
    "threads": threads,
    "async": lambda trail, name, note: asyncio.run(loop(trail, name, note)),
    "mixed": mixed,
}


def answer(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def serve() -> None:
    everstep.open(":memory:").close()  # loads everything once, for all writers
    alive = set[int]()
    for line in sys.stdin:
        asked = json.loads(line)
        if "wait" in asked:
            alive.discard(asked["wait"])
            _, status = os.waitpid(asked["wait"], 0)
            answer(os.waitstatus_to_exitcode(status))
            continue
        process = os.fork()
        if process == 0:
            try:
                KINDS[asked["kind"]](everstep.open(asked["trail"]), asked["name"], notes(asked["acks"]))
            except BaseException as error:  # noqa: BLE001 - a child must never become a second nursery
                traceback.print_exc()
                with open(asked["acks"], "a", encoding="utf-8") as file:  # noqa: PTH123 - nothing but this is left to do
                    file.write(f"failed: {error!r}\n")
            os._exit(1)
        alive.add(process)
        answer(process)
    for process in alive:  # a test that failed has left them at work
        os.kill(process, signal.SIGKILL)


if __name__ == "__main__":
    serve()
