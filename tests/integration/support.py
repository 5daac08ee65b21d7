"""What the integration tests share: processes that can be killed, people without rights, and trails worth damaging."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import everstep
from everstep.errors import DamageWarning, EverstepError

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534


def environment() -> dict[str, str]:
    """The environment of a child that finds the same package as we do."""
    source = str(Path(everstep.__file__).resolve().parents[1])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([source, str(ROOT)])}


def python(code: str, *args: object, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own; what it prints is in `stdout`. A hang is an error."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code, *map(str, args)]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=timeout, check=False)


def output(code: str, *args: object, timeout: float = 60) -> str:
    """What a program prints; its error, if it fails, fails the test."""
    done = python(code, *args, timeout=timeout)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class Nursery:
    """One interpreter that has everything imported and forks writers on request, so that a kill costs milliseconds."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.writers"],
            env=environment(), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # the end of its input is its end
        assert self._process.returncode == 0

    def _ask(self, question: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def start(self, kind: str, trail: str, name: str, acks: Path) -> int:
        """A writer of this kind at work on the trail: its process id."""
        return int(self._ask({"kind": kind, "trail": trail, "name": name, "acks": str(acks)}))

    def kill(self, process: int) -> None:
        """`kill -9`, and gone when this returns."""
        os.kill(process, signal.SIGKILL)
        assert self.wait(process) == -signal.SIGKILL

    def wait(self, process: int) -> int:
        """How a writer ended: the signal as a negative number, or its exit code."""
        return int(self._ask({"wait": process}))


class Watched:
    """Everything that was said of damage while a block ran."""

    def __init__(self) -> None:
        self.said: list[str] = []


@contextmanager
def watched() -> Iterator[Watched]:
    """Collect damage however it is told: an error of ours, a DamageWarning. Any other error comes through."""
    seen = Watched()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DamageWarning)
        try:
            yield seen
        except EverstepError as error:
            seen.said.append(f"{type(error).__name__}: {error}")
    for warning in caught:
        if not issubclass(warning.category, DamageWarning):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
        seen.said.append(str(warning.message))


def everything(trail: everstep.Trail) -> dict[str, Any]:
    """All that can be read from a trail, search excluded, in a form that can be compared."""
    runs = trail.runs(limit=1000)
    found: dict[str, Any] = {"runs": list(runs), "checkpoints": trail.checkpoints(limit=1000)}
    for status in everstep.Status:
        found[f"status {status}"] = [run.id for run in trail.runs(status=status)]
    for workflow in {run.workflow for run in runs}:
        found[f"workflow {workflow}"] = [run.id for run in trail.runs(workflow=workflow)]
    for name, value in {tag for run in runs for tag in run.tags.items()}:
        found[f"tag {name}={value}"] = [run.id for run in trail.runs(tags={name: value})]
    found["at the top"] = [run.id for run in trail.runs(parent=None)]
    for run in runs:
        found[f"children of {run.id}"] = [child.id for child in trail.runs(parent=run.id)]
        found[f"lineage of {run.id}"] = [relative.id for relative in trail.lineage(run.id)]
        found[f"steps of {run.id}"] = [step.to_dict() for step in trail.steps(run.id)]
        found[f"checkpoints of {run.id}"] = trail.checkpoints(run.id)
        points = {run.oldest, (run.oldest + run.head) // 2, run.head - 1, run.head}
        found[f"states of {run.id}"] = [trail.state(run.id, at=at) for at in sorted(points) if at >= run.oldest]
    return found


def small_trail(path: Path) -> Path:
    """A closed trail with one finished run `r`, whose state is {"x": 1}."""
    with everstep.open(path) as trail, trail.record("r") as run:
        run.step("s", output=1, output_to="x")
    return path


def rich_trail(path: Path) -> None:
    """A closed trail with one of everything: forks, checkpoints, failures, keyframes, segments, blobs, pruned rows."""
    trail, chance = everstep.open(path), random.Random(1)
    with trail.record("parent", workflow="research", inputs={"topic": "x"}, tags={"user": "ada", "team": "a"}) as run:
        for number in range(40):
            run.step(f"s{number}", output={"text": f"message {number} " * 40, "n": number}, append_to="messages")
            if number % 10 == 0:
                run.checkpoint(f"point {number}", "routine", {"number": number})
        run.step("document", output="d" * 70_000, output_to="document")
        run.step("broken", error=ValueError("no such page"))
        for number in range(300):
            run.step("fast", append={"numbers": [number, chance.randbytes(300), chance.randbytes(300)]})
    with trail.fork("parent", 20, id="fork", set={"topic": "y"}, tags={"user": "bob"}) as run:
        run.step("other", output=1, output_to="result")
        run.step("failed", error=KeyError("k"), status="failed")
    trail.record("open", workflow="chat", parent="parent", tags={"user": "ada"}).save({"a": [1, 2, {"b": 3}]})
    pruned = trail.record("pruned", workflow="chat")
    for number in range(30):
        pruned.step("p", append={"rows": [number]}, set={"last": number})
    pruned.checkpoint("here")
    pruned.finish("done")
    trail.prune("pruned", keep=5)
    trail.record("dropped").finish()
    trail.drop("dropped")
    trail.close()
