from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def demo(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "everstep", "demo", *options]
    return subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    return demo(tmp_path_factory.mktemp("demo"))


def test_the_balance_of_the_demo_has_every_line_of_the_ledger(tmp_path: Path) -> None:
    printed = demo(tmp_path).stdout
    lines = (tmp_path / ".everstep" / "demo" / "ledger.txt").read_text().splitlines()
    assert f"calls           {len(lines)}, ${len(lines) * 0.04:.2f}; 1 of them for the fork\n" in printed


def test_the_demo_tells_of_a_real_kill_and_ends_well(told: subprocess.CompletedProcess[str]) -> None:
    assert told.returncode == 0, told.stderr
    assert "killed (signal 9)" in told.stdout
    assert "none but the one that was cut off" in told.stdout
    assert "+ state.report" in told.stdout
    assert "demo: identical: 7 steps answered from the record" in told.stdout
    assert "~ state.report" in told.stdout  # what if
    assert told.stdout.count("the only one") == 1  # what did not change is not asked for again


def test_no_answered_call_of_the_demo_is_paid_twice(tmp_path: Path) -> None:
    """Promise 2: what the ledger of the model has twice is the call that was cut off, and nothing else."""
    result = demo(tmp_path, "--json")
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)["demo"]
    twice = [prompt for prompt, count in found["calls"].items() if count > 1]
    assert twice == [found["killed_in"]]
    assert found["repeated"] == {}
    assert (found["served"], found["forked"]) == (3, 1)
    assert found["identical"] is True
    assert found["sound"] is True


def test_the_demo_can_be_looked_at_afterwards_and_told_again(tmp_path: Path) -> None:
    assert demo(tmp_path).returncode == 0
    assert demo(tmp_path).returncode == 0
    command = [sys.executable, "-m", "everstep", "show", "demo", "--trail", ".everstep/demo/trail.db"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert "write_report" in shown.stdout
