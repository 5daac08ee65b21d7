"""How often a recording that waits for its rows has to wait: once for a call, twice for one that changes the world."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import mode

import httpx
import pytest

import everstep
from everstep.capturing.session import capture
from tests.capture.running import commits
from tests.capture.server import ModelServer

MODEL = {"model": "gpt-test", "messages": [{"role": "user", "content": "Hello"}]}
CALLS: dict[str, tuple[Callable[[httpx.Client], httpx.Response], int]] = {
    "a question to a model": (lambda client: client.post("/v1/chat/completions", json=MODEL), 1),
    "a safe request": (lambda client: client.get("/lines?n=3"), 1),
    "one that changes the world": (lambda client: client.post("/echo", json={"charge": 5}), 2),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_costs_as_many_commits_as_its_promises_take(name: str, tmp_path: Path) -> None:
    """Promise 3: what changes the world is announced before it is sent; that is the second one."""
    call, expected = CALLS[name]
    path = tmp_path / "trail.db"
    with (
        ModelServer() as server,
        everstep.open(path) as trail,
        capture(trail, "run", durability="sync"),
        httpx.Client(base_url=server.url) as client,
    ):
        counts = [commits(path)]
        for _ in range(7):
            call(client).raise_for_status()
            counts.append(commits(path))
    # What goes on beside the calls, as when a run begins, may commit once in a while: the usual difference counts.
    assert mode(after - before for before, after in pairwise(counts)) == expected
