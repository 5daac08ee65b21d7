"""A changed program diverges at the step where the change matters, with its cause; one that was tidied up does not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

import everstep
from everstep.errors import DivergenceError, RunFinishedError, WorkflowDiffersError
from tests.capture.server import ModelServer

PROGRAM = """
import httpx

RETRIES = 3


def ask(client, prompt, model="small", temperature=0.5):
    messages = [{"role": "user", "content": prompt}]
    body = {"model": model, "messages": messages, "temperature": temperature}
    answer = client.post(URL + "/v1/chat/completions", json=body)
    return answer.json()["choices"][0]["message"]["content"]


def parse(text):
    return text.split()[1]


def weather(client):
    for _ in range(RETRIES):
        answer = client.get(URL + "/flaky?key=weather")
        if answer.status_code == 200:
            return answer.json()
    return None


def main():
    with httpx.Client() as client:
        plan = ask(client, "Plan a trip to Oslo")
        found = weather(client)
        first = ask(client, f"The first day of {parse(plan)}")
        if found:
            client.get(URL + "/plain/maps")
        second = ask(client, "Pack the bag", model="large")
    return f"{len(first) > 3} {len(second) > 3} done"
"""
PLAN, FLAKY, WEATHER, FIRST, MAPS, PACK, END = range(1, 8)  # the rows of the record

CHANGED = {
    "prompt": ("Plan a trip to Oslo", "Plan a journey to Oslo", PLAN, "changed argument"),
    "model": ('model="large"', 'model="huge"', PACK, "changed argument"),
    "default argument": ("temperature=0.5", "temperature=0.0", PLAN, "changed argument"),
    "parse": ("split()[1]", "split()[0]", FIRST, "changed argument"),
    "order": (
        '        plan = ask(client, "Plan a trip to Oslo")\n        found = weather(client)\n',
        '        found = weather(client)\n        plan = ask(client, "Plan a trip to Oslo")\n',
        PLAN,
        "changed order",
    ),
    "extra call": (
        "        if found:", '        client.get(URL + "/plain/news")\n        if found:', MAPS, "changed argument"
    ),
    "extra call at the end": (
        "    return f", '        client.get(URL + "/plain/news")\n    return f', None, "extra step"
    ),
    "removed call": ('            client.get(URL + "/plain/maps")\n', "            pass\n", MAPS, "missing step"),
    "branch": ("if found:", "if not found:", MAPS, "missing step"),
    "constant after the last call": ("done", "finished", END, "changed result"),
    "retry": ("RETRIES = 3", "RETRIES = 1", WEATHER, "missing step"),
    "address": ("/plain/maps", "/plain/atlas", MAPS, "changed argument"),
}  # fmt: skip
SAME = {
    "comment": ("def parse", "# What the model said first.\ndef parse"),
    "renamed local": ("found", "forecast"),
    "refactored": ("    return text.split()[1]", "    words = text.split()\n    return words[1]"),
    "log line": ("        found = weather(client)", '        found = weather(client)\n        _ = f"found {found}"'),
    "reordered definitions": ("RETRIES = 3\n", "def unused():\n    return 1\n\n\nRETRIES = 3\n"),
    "default said": ('"Plan a trip to Oslo")', '"Plan a trip to Oslo", temperature=0.5)'),
    "keys in another order": (
        '{"model": model, "messages": messages, "temperature": temperature}',
        '{"temperature": temperature, "messages": messages, "model": model}',
    ),
    "another client": ("httpx.Client()", "httpx.Client(timeout=30, headers={'x-team': 'two'})"),
    "a rotated key": ("httpx.Client()", "httpx.Client(headers={'authorization': 'Bearer another-key'})"),
    "more retries than needed": ("RETRIES = 3", "RETRIES = 5"),
    "type hints": ("def parse(text):", "def parse(text: str) -> str:"),
}  # fmt: skip


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[everstep.Trail, str]]:
    """A trail with the run of the program, its server stopped."""
    path: Path = tmp_path_factory.mktemp("changes") / "trail.db"
    with everstep.open(path) as trail:
        with ModelServer() as server, everstep.capture(trail, "trip") as session:
            session.value = _run(PROGRAM, server.url)
        yield trail, server.url


def _run(program: str, url: str) -> Any:
    names: dict[str, Any] = {"URL": url, "__name__": "program"}
    exec(compile(program, "program.py", "exec"), names)
    return names["main"]()


def _replayed(recorded: tuple[everstep.Trail, str], program: str) -> Any:
    trail, url = recorded
    try:
        with everstep.capture(trail, "trip", mode="verify") as session:
            session.value = _run(program, url)
    except DivergenceError:
        pass
    return session.report


@pytest.mark.parametrize("what", CHANGED)
def test_a_change_is_reported_at_its_step_with_its_cause(recorded: tuple[everstep.Trail, str], what: str) -> None:
    """Promise 6."""
    old, new, seq, cause = CHANGED[what]
    assert PROGRAM.count(old) >= 1
    report = _replayed(recorded, PROGRAM.replace(old, new))
    assert not report.identical
    assert (report.first.seq, report.first.cause) == (seq, cause), str(report)


@pytest.mark.parametrize("what", SAME)
def test_what_changes_nothing_is_no_divergence(recorded: tuple[everstep.Trail, str], what: str) -> None:
    """Promise 6."""
    old, new = SAME[what]
    assert PROGRAM.count(old) >= 1
    report = _replayed(recorded, PROGRAM.replace(old, new))
    assert report.identical, str(report)


def test_a_resume_by_changed_code_names_the_fork_that_goes_on_with_it(tmp_path: Path) -> None:
    """What jobs of a pool were asked is asked in the program's own lane now: a fork must not share their answers."""
    with ModelServer() as server, everstep.open(tmp_path / "trail.db") as trail:

        def asks(paths: list[str], *, pooled: bool) -> None:
            def ask(path: str) -> str:
                return httpx.get(f"{server.url}/plain/{path}").text

            ask("first")
            if pooled:
                with ThreadPoolExecutor(2) as pool:
                    list(pool.map(ask, paths))
            else:
                list(map(ask, paths))
            ask("last")

        with pytest.raises(KeyError), everstep.capture(trail, "trip"):
            asks(["a", "b"], pooled=True)
            raise KeyError
        with pytest.raises(DivergenceError) as caught, everstep.capture(trail, "trip"):
            asks(["a", "b"], pooled=False)
        assert (caught.value.seq, caught.value.fork_at) == (6, 1)
        trail.fork("trip", 1, id="other").release()
        with everstep.capture(trail, "other"):
            asks(["a", "b"], pooled=False)
        assert [each.path for each in server.requests[4:]] == ["/plain/a", "/plain/b", "/plain/last"]


@pytest.mark.parametrize("mode", ["record", "verify"])
def test_a_program_by_another_name_is_told_of_programs_and_not_of_workflows(tmp_path: Path, mode: Any) -> None:
    with everstep.open(tmp_path / "trail.db") as trail:
        with pytest.raises(KeyError), everstep.capture(trail, "trip", name="agent.py"):
            raise KeyError
        with pytest.raises(WorkflowDiffersError) as caught, everstep.capture(trail, "trip", name="new.py", mode=mode):
            pass
    assert "is one of the program 'agent.py', not of 'new.py'" in str(caught.value)
    assert "workflow" not in str(caught.value)


def test_a_thread_whose_function_was_renamed_is_told_to_be_known_by_that(tmp_path: Path) -> None:
    with ModelServer() as server, everstep.open(tmp_path / "trail.db") as trail:

        def go(name: str) -> None:
            def asks() -> None:
                httpx.get(f"{server.url}/plain/a")

            asks.__name__ = asks.__qualname__ = name
            with ThreadPoolExecutor(1) as pool:
                pool.submit(asks).result()

        with everstep.capture(trail, "trip"):
            go("one")
        with pytest.raises(DivergenceError), everstep.capture(trail, "trip", mode="verify") as session:
            go("two")
        assert "It is made in 'job:two#0@0', and the record knows none of that name" in str(session.report)


def test_a_block_that_is_captured_again_is_told_how_it_is_replayed_and_how_recorded_anew(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "trail.db") as trail:
        with everstep.capture(trail, "trip"):
            pass
        with pytest.raises(RunFinishedError, match='say mode="verify"; to record anew, another id'):
            everstep.capture(trail, "trip").__enter__()


@pytest.mark.parametrize("count", [1, 2])
def test_a_mended_program_that_goes_on_after_its_failure_differs_on_an_event_loop_too(
    tmp_path: Path, count: int
) -> None:
    """Promise 6. No end of its task is on record, only that of the run."""
    with ModelServer() as server, everstep.open(tmp_path / "trail.db") as trail:

        async def main(*, mended: bool) -> None:
            async with httpx.AsyncClient(base_url=server.url) as client:
                if count == 1:
                    await client.get("/plain/0")
                else:
                    await asyncio.gather(*[client.get(f"/plain/{each}") for each in range(count)])
                if not mended:
                    raise KeyError
                await client.get("/plain/more")

        with pytest.raises(KeyError), everstep.capture(trail, "trip"):
            asyncio.run(main(mended=False))
        with pytest.raises(KeyError), everstep.capture(trail, "trip", mode="verify") as session:
            asyncio.run(main(mended=False))
        assert session.report is not None
        assert (session.report.identical, session.report.whole) == (True, True)
        with pytest.raises(DivergenceError), everstep.capture(trail, "trip", mode="verify") as session:
            asyncio.run(main(mended=True))
        assert session.report is not None
        assert "If that is mended, resume it" in session.report.hints[0]
        assert "knows none of that name" not in str(session.report)
