"""The client for endpoints, and its twin for event loops, in runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import everstep
from everstep import AsyncModelClient, OpenAIClient, Retry, Runner, workflow
from everstep.errors import CodeChangedWarning, ModelError, ModelUnavailableError
from tests.integration.endpoint import COUNTED, DONE, event, refuses, says, serving, streams

ASKED = [{"role": "user", "content": "The capital of France?"}]
ONCE = Retry(attempts=1)


def test_a_call_is_tried_again_when_that_is_worth_it_and_every_attempt_is_kept(tmp_path: Path) -> None:
    with serving(refuses(429), refuses(500), says()) as (url, endpoint), everstep.open(tmp_path / "t.db") as trail:
        client = OpenAIClient(url, retry=Retry(backoff=0, on=(ModelUnavailableError,)))

        @workflow
        def ask() -> str:
            return client.complete(ASKED, model="m").text

        twin = AsyncModelClient(client)

        @workflow
        async def ask_later() -> str:
            return (await twin.complete(ASKED, model="m")).text

        assert Runner(trail).run(ask, id="r").value == "Paris"
        endpoint.answers[:0] = [refuses(503), refuses(429)]
        assert Runner(trail).run(ask_later, id="s").value == "Paris"
        for run_id in "rs":
            assert [(str(row.kind), row.attempt) for row in trail.steps(run_id)[1:-1]] == [
                ("attempt", 1), ("attempt", 2), ("step", 3),
            ]  # fmt: skip
    assert len(endpoint.asked) == 6


def test_a_refusal_is_not_tried_again_and_raised_again_from_the_record(tmp_path: Path) -> None:
    with serving(refuses(400, "too long"), says()) as (url, endpoint), everstep.open(tmp_path / "t.db") as trail:
        client = OpenAIClient(url)

        @workflow
        def ask() -> str:
            try:
                return client.complete(ASKED, model="m").text
            except ModelError as error:
                return f"{type(error).__name__} {error.status}"

        assert Runner(trail).run(ask, id="r").value == "ModelError 400"
        assert trail.replay("r", ask).identical
    assert len(endpoint.asked) == 1


def test_a_stream_is_a_step_with_what_the_last_event_counts(tmp_path: Path) -> None:
    events = [event({"content": "Pa"}), event({"content": "ris"}, "length"), COUNTED, DONE]
    with serving(streams(*events)) as (url, endpoint), everstep.open(tmp_path / "t.db") as trail:
        client = OpenAIClient(url, prices={"m-*": (10, 20, 1)})

        @workflow
        def ask() -> str:
            return "".join(client.stream(ASKED, model="m"))

        assert Runner(trail).run(ask, id="r").value == "Paris"
        row = trail.steps("r")[-2]
        assert (row.name, row.output) == ("model stream", ["Pa", "ris"])
        used = dict(row.usage or {})
        assert used.pop("latency_ms") > 0
        assert used == {
            "model": "m-2026-01-01", "input_tokens": 12, "output_tokens": 3, "cached_tokens": 4,
            "cost": (8 * 10 + 4 * 1 + 3 * 20) / 1e6, "finish_reason": "length",
        }  # fmt: skip
        assert trail.replay("r", ask).identical
    assert len(endpoint.asked) == 1


def test_the_twin_for_event_loops_asks_side_by_side_and_goes_on_with_what_the_other_recorded(tmp_path: Path) -> None:
    with serving(says()) as (url, endpoint), everstep.open(tmp_path / "t.db") as trail:
        client = OpenAIClient(url, prices={"m": (1, 1)})
        twin = AsyncModelClient(client)

        @workflow(name="ask")
        async def ask_later() -> list[str]:
            replies = await asyncio.gather(*(twin.complete(ASKED, model="m", seed=n) for n in range(20)))
            return [reply.text for reply in replies]

        assert asyncio.run(everstep.AsyncRunner(trail).run(ask_later, id="r")).value == ["Paris"] * 20
        assert trail.usage("r").total.calls == len(endpoint.asked) == 20
        assert trail.replay("r", ask_later).identical

        @workflow(name="one")
        def one(stop: list[bool]) -> str:
            text = client.complete(ASKED, model="m").text
            if stop:
                raise KeyboardInterrupt
            return text

        @workflow(name="one")
        async def one_later(stop: list[bool]) -> str:
            return (await twin.complete(ASKED, model="m")).text

        with pytest.raises(KeyboardInterrupt):
            Runner(trail).run(one, [True], id="s")
        with pytest.warns(CodeChangedWarning):
            assert asyncio.run(everstep.AsyncRunner(trail).run(one_later, [True], id="s")).value == "Paris"
    assert len(endpoint.asked) == 21


def test_the_twin_streams_and_its_failures_are_errors_of_ours(tmp_path: Path) -> None:
    answers = [streams(event({"content": "Pa"}), event({"content": "ris"}, "stop"), COUNTED, DONE)] * 2
    with serving(*answers, refuses(400)) as (url, _), everstep.open(tmp_path / "t.db") as trail:
        twin = AsyncModelClient(OpenAIClient(url, retry=ONCE))

        @workflow
        async def ask() -> list[str]:
            all_of_it = [piece async for piece in twin.stream(ASKED, model="m")]
            first = twin.stream(ASKED, model="m")
            all_of_it.append(await anext(first))
            await first.aclose()  # type: ignore[attr-defined] # a generator
            with pytest.raises(ModelError):
                await twin.complete(ASKED, model="m")
            return all_of_it

        assert asyncio.run(everstep.AsyncRunner(trail).run(ask, id="r")).value == ["Pa", "ris", "Pa"]
        rows = [row for row in trail.steps("r") if row.name == "model stream" and row.kind == "step"]
        assert [(row.output, row.partial) for row in rows] == [(["Pa", "ris"], False), (["Pa"], True)]
        assert [set(row.usage or {}) for row in rows] == [
            {"model", "input_tokens", "output_tokens", "cached_tokens", "latency_ms", "finish_reason"},
            {"model", "latency_ms"},
        ]
        assert trail.replay("r", ask).identical
