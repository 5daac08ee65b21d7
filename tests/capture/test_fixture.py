"""The fixture `everstep_capture`: a test's calls are recorded once, live, and answered by the file ever after."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.capture.server import ModelServer
from tests.integration.plugging import pytest_in
from tests.integration.support import environment

pytest_plugins = ["pytester"]

TEST = """
import os
import httpx

def agent(prompt):
    body = {"model": "m", "messages": [{"role": "user", "content": prompt}]}
    answer = httpx.post(os.environ["MODEL_URL"] + "/v1/chat/completions", json=body)
    return answer.json()["choices"][0]["message"]["content"]

def test_agent(everstep_capture):
    with everstep_capture("runs/agent.everstep"):
        first, second = agent("plan"), agent("pack")
    print("said", first, second)
"""


@pytest.fixture
def server(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    """A server, and a test that asks it."""
    pytester.makepyfile(test_agent=TEST)
    with ModelServer() as server:
        monkeypatch.setenv("MODEL_URL", server.url)
        monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
        yield server


def test_what_was_recorded_answers_the_test(pytester: pytest.Pytester, server: ModelServer) -> None:
    """Promise 6."""
    missing = pytest_in(pytester)
    missing.assert_outcomes(failed=1)
    missing.stdout.fnmatch_lines(["*there is no file*runs/agent.everstep*--everstep-update*"])
    assert not server.requests
    recorded = pytest_in(pytester, "--everstep-update", "-s")
    recorded.assert_outcomes(passed=1)
    [said] = [line for line in recorded.outlines if "said" in line]
    server.stop()
    replayed = pytest_in(pytester, "-s")
    replayed.assert_outcomes(passed=1)
    assert [said] == [line for line in replayed.outlines if "said" in line]
    assert len(server.requests) == 2


def test_another_call_fails_the_test_with_both_sides(pytester: pytest.Pytester, server: ModelServer) -> None:
    """Promise 6."""
    pytest_in(pytester, "--everstep-update")
    pytester.makepyfile(test_agent=TEST.replace('agent("pack")', 'agent("travel light")'))
    changed = pytest_in(pytester)
    changed.assert_outcomes(failed=1)
    changed.stdout.fnmatch_lines(["*body.messages*", "*- *pack*", "*+ *travel light*", "*--everstep-update*"])
    assert len(server.requests) == 2
