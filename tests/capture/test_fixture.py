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
    shown, _, _ = changed.stdout.str().partition("short test summary info")  # where CI is set: all of it again
    assert shown.count("travel light") == 1, "it is told once"
    assert len(server.requests) == 2


def test_a_block_that_is_not_entered_fails_its_test(pytester: pytest.Pytester, server: ModelServer) -> None:
    """What stands below it is live, also where there is a file: that is not to go unnoticed."""
    pytest_in(pytester, "--everstep-update")
    left_out = TEST.replace("    with everstep", "    everstep").replace('.everstep"):', '.everstep")')
    pytester.makepyfile(test_agent=left_out.replace("        first", "    first"))
    for options in ([], ["--everstep-update"]):
        left = pytest_in(pytester, *options)
        left.stdout.fnmatch_lines(["everstep_capture('runs/agent.everstep') captured nothing: it is a block,*`with`."])
        left.assert_outcomes(passed=1, errors=1)
        assert "recorded again" not in left.stdout.str()


def test_blocks_that_ask_for_something_else_cannot_share_a_file(pytester: pytest.Pytester, server: ModelServer) -> None:
    """Of a test with parameters each would write over what the one before had written, and none would be told."""
    marked = '@pytest.mark.parametrize("word", ["pack", "pack", "leave"])\ndef test_agent(everstep_capture, word)'
    shared = TEST.replace("def test_agent(everstep_capture)", marked).replace('agent("pack")', "agent(word)")
    pytester.makepyfile(test_agent=f"import pytest\n{shared}")
    recorded = pytest_in(pytester, "--everstep-update")
    recorded.assert_outcomes(passed=2, failed=1)
    recorded.stdout.fnmatch_lines(
        ["*give this block a file of its own. *[[]pack0] has just written runs/agent.everstep."]
    )
    assert len(server.requests) == 2, "who asks for the same is answered by the file"
