"""Programs under capture: agents in a process of their own, and functions in this one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from everstep.capturing.session import capture
from everstep.codec.record import StepRecord
from everstep.model import Kind
from everstep.trail.trail import Trail
from tests.capture.running import AGENTS, CAPTURED, environment

Ask = Callable[[str], str]


def program(agent: str, mode: str, url: str, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """An agent under capture, in a process of its own."""
    said = json.dumps({"trail": str(folder / "trail.db"), "id": agent, "mode": mode})
    more = {"PYTHONHASHSEED": "0", "EVERSTEP_CAPTURE": said, **more}
    command = [*CAPTURED, str(AGENTS / f"{agent}.py")]
    return subprocess.run(
        command, cwd=folder, env=environment(url, **more), capture_output=True, text=True, timeout=60, check=False
    )


class Ground:
    """Programs that are functions here."""

    def __init__(self, trail: Trail, url: str) -> None:
        self.trail, self.url = trail, url

    def go(self, written: Callable[..., Any], mode: Any = "record", run_id: str = "run", **how: Any) -> Any:
        """What a program gives."""
        with httpx.Client() as client, capture(self.trail, run_id, mode=mode, **how) as session:
            return written(lambda path: client.get(f"{self.url}/{path}").text, session)

    def twice(self, written: Callable[..., Any], **how: Any) -> tuple[Any, Any]:
        """What it gives when it is recorded, and replayed."""
        return self.go(written, **how), self.go(written, "verify", **how)

    def fork(self, source: str, at: int, run_id: str) -> None:
        self.trail.fork(source, at, id=run_id).release()

    def outcomes(self, run_id: str) -> list[StepRecord]:
        return [step for step in self.trail.steps(run_id) if step.kind is Kind.STEP]
