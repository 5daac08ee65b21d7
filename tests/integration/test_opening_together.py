"""Many processes that open a trail which none of them has made yet."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys, time, everstep
for number in range(60):
    while time.time() < float(sys.argv[2]) + number / 50:
        pass
    with everstep.open(f"{sys.argv[1]}-{number}.db") as trail, trail.record(f"r-{sys.argv[3]}") as run:
        run.step("s")
"""


def test_processes_that_make_one_trail_together_all_find_it(tmp_path: Path) -> None:
    """Promise 13: nobody takes a trail that is being made for somebody else's file."""
    start = subprocess.run(
        [sys.executable, "-c", "import time; print(time.time() + 1.0)"], check=True, capture_output=True, text=True
    ).stdout.strip()
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "trail"), start]
    makers = [subprocess.Popen([*command, str(number)], stderr=subprocess.PIPE, text=True) for number in range(4)]
    assert [maker.communicate(timeout=60)[1] for maker in makers] == [""] * 4
