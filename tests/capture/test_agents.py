"""Unmodified agents on real SDKs: recorded once, the server stopped, replayed sealed; the same 20 of 20."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.capture.running import STATUS, run
from tests.capture.server import ModelServer

AGENTS = [
    "openai_sync", "openai_async", "anthropic_sync", "anthropic_async", "httpx_agent", "requests_agent", "urllib_agent",
    "aiohttp_agent", "threads", "langgraph_agent", "subprocess_agent", "tool_loop", "long_agent", "failing", "exits",
]  # fmt: skip
EVERSTEP = (sys.executable, "-m", "everstep")


def _replays(agent: str, folder: Path, times: int) -> None:
    trail, program = str(folder / "trail.db"), ("--", sys.executable)
    with ModelServer() as server:
        recorded = run(
            agent, server.url, folder, python=[*EVERSTEP, "record", "--id", "r", *program], EVERSTEP_TRAIL=trail
        )
    assert recorded.returncode == STATUS.get(agent, 0), recorded.stderr
    asked = len(server.requests)
    for _ in range(times):
        again = [*EVERSTEP, "replay", "r", "--sealed", "--allow", str(folder), *program]
        replayed = run(agent, server.url, folder, python=again, EVERSTEP_TRAIL=trail)
        assert (replayed.returncode, replayed.stdout) == (0, recorded.stdout), replayed.stderr
        assert "r: identical" in replayed.stderr
    assert len(server.requests) == asked


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_is_replayed_sealed_and_identical(agent: str, tmp_path: Path) -> None:
    """Promise 6, of programs that never heard of us."""
    _replays(agent, tmp_path, 1)


@pytest.mark.torture
@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_is_identical_20_of_20(agent: str, tmp_path: Path) -> None:
    """Promise 6."""
    _replays(agent, tmp_path, 20)
