"""Two agents write to one trail; one is killed in the middle; nothing that was acknowledged is lost.

Run it with `make demo`, or `python examples/demo.py`. It works in a temporary folder and needs nothing but everstep.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

import everstep
from everstep.errors import RunFinishedError

RUNS = 40  # for each agent
PAGES = 25  # read in each run
KILL_AFTER = 610  # acknowledged steps of the agent that is killed


def main() -> int:
    """Tell the story; the exit code is 1 if anything was lost, repeated or damaged."""
    with tempfile.TemporaryDirectory(prefix="everstep-demo-") as folder:
        path = Path(folder, "trail.db")
        everstep.open(path).close()
        acknowledged = crash(path)
        with everstep.open(path) as trail:
            faults = after_the_crash(trail, acknowledged) + resume(path, trail) + look_back(trail) + check(trail, path)
    print()
    for fault in faults:
        print(f"WRONG: {fault}")
    print("Something is wrong, see above." if faults else "Nothing was lost, nothing was recorded twice.")
    return 1 if faults else 0


# The agents. Each is this file again, as a process of its own.


def agent(path: str, name: str) -> None:
    """Read all pages of all runs that the trail does not have yet, and say so after each step that is on disk."""
    trail = everstep.open(path)
    for number in range(RUNS):
        run_id = f"{name}-{number:02}"
        try:
            run = trail.record(run_id, workflow="research", inputs={"book": number}, tags={"agent": name})
        except RunFinishedError:
            continue
        with run:
            done = len(run.state().get("pages", []))
            for page in range(done, PAGES):
                text = f"page {page} of book {number}: " + "what the model said about it. " * 10
                run.step("read", inputs={"page": page}, output=text, append_to="pages")
                print(run_id, run.seq, flush=True)
    trail.close()


class Agent:
    """A process that works, and what it says has been acknowledged: for each run the newest step."""

    def __init__(self, path: Path, name: str) -> None:
        command = [sys.executable, __file__, str(path), name]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - this file itself
        self.newest: dict[str, int] = {}
        self.steps = 0
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        for line in self.process.stdout or ():
            if line.endswith("\n"):  # a killed process may leave half a line
                run_id, seq = line.split()
                self.newest[run_id] = int(seq)
                self.steps += 1

    def wait(self) -> int:
        """Its exit code, once it has ended and all it said was heard."""
        code = self.process.wait()
        self._listener.join()
        return code


# The story.


def crash(path: Path) -> dict[str, int]:
    """Two agents at once; the second is killed. What both say was acknowledged."""
    print("Two agents, two processes, one file.")
    print(f"Each wants to read {RUNS} books of {PAGES} pages; a book is a run, a page is a step.")
    begun = time.perf_counter()
    ada, bob = Agent(path, "ada"), Agent(path, "bob")
    while bob.steps < KILL_AFTER and bob.process.poll() is None:
        time.sleep(0.001)
    bob.process.kill()
    code = bob.wait()
    if code != -signal.SIGKILL:
        sys.exit(f"WRONG: bob was to be killed, and ended with exit code {code}")
    print(f"Bob was killed (exit code {code}: SIGKILL, no goodbye) after {bob.steps} acknowledged steps.")
    if ada.wait():
        sys.exit("WRONG: ada failed; her error is above")
    took = time.perf_counter() - begun
    steps = ada.steps + bob.steps
    print(f"Ada went on and finished her {ada.steps} steps.")
    print(f"Together {steps} steps in {took:.1f} s, {steps / took:,.0f} a second, starting Python twice included;")
    print("each of them was synced to disk before its agent went on.")
    return ada.newest | bob.newest


def after_the_crash(trail: everstep.Trail, acknowledged: dict[str, int]) -> list[str]:
    """Whether everything is there that an agent was told is there."""
    print("\nAfter the crash")
    lost = [f"{run_id}@{seq}" for run_id, seq in acknowledged.items() if trail.run(run_id).head < seq]
    print(f"  acknowledged steps that are missing: {len(lost)}")
    for run in trail.runs(status="active"):
        pages = trail.state(run.id).get("pages", [])
        print(f"  {run.id} was cut off after {len(pages)} of {PAGES} pages; it is still {run.status}")
    return [f"{step} was acknowledged and is gone" for step in lost]


def resume(path: Path, trail: everstep.Trail) -> list[str]:
    """Start the killed agent again, and compare every page of every run with what it must be."""
    print("\nBob again, the same program")
    before = sum(run.step_count for run in trail.runs(tags={"agent": "bob"}))
    begun = time.perf_counter()
    bob = Agent(path, "bob")
    code = bob.wait()
    took = time.perf_counter() - begun
    print(f"  found {before} entries of his, recorded {bob.steps} further steps in {took:.1f} s")
    faults = [f"bob ended with exit code {code}"] if code else []
    for name in ("ada", "bob"):
        for number in range(RUNS):
            pages = [step.inputs["page"] for step in trail.steps(f"{name}-{number:02}") if step.name == "read"]
            if pages != list(range(PAGES)):
                faults.append(f"{name}-{number:02} has the pages {pages}")
    print(f"  {2 * RUNS} runs with {PAGES} pages each, in order, none missing, none twice: {not faults}")
    return faults


def look_back(trail: everstep.Trail) -> list[str]:
    """The state at any step, a fork and a comparison."""
    print("\nLooking back")
    begun = time.perf_counter()
    then, now = trail.state("ada-07", at=10), trail.state("ada-07")
    took = (time.perf_counter() - begun) * 1000
    had, has = len(then["pages"]), len(now["pages"])
    print(f"  ada-07 had {had} pages after step 10 and has {has} now ({took:.1f} ms for both)")
    with trail.fork("ada-07", at=10, id="ada-07-other", set={"style": "short"}) as other:
        other.step("read", inputs={"page": 10}, output="page 10, told otherwise", append_to="pages")
    print("  forked there: ada-07-other shares those steps, copies nothing, and goes its own way:")
    changes = trail.diff("ada-07@11", "ada-07-other")
    for change in changes:
        print("   ", textwrap.shorten(str(change), 76, placeholder=" ..."))
    untouched = trail.state("ada-07") == now
    return [] if untouched and len(changes) == 2 else ["the fork is not what it should be"]


def check(trail: everstep.Trail, path: Path) -> list[str]:
    """The hash chain over everything."""
    print("\nChecking")
    begun = time.perf_counter()
    report = trail.verify()
    took = time.perf_counter() - begun
    print(f"  {report} ({took:.2f} s)")
    trail.reclaim()
    print(f"  {path.stat().st_size / 1e6:.1f} MB on disk")
    return [str(damage) for damage in report.damage]


if __name__ == "__main__":
    if len(sys.argv) == 3:
        agent(sys.argv[1], sys.argv[2])
    else:
        sys.exit(main())
