"""Telemetry: what a program, or a library in it, tells those who watch it. It is no part of the run.

It says how long things took, and is sent in batches, from threads of its own, when some time has passed: no two runs of
a program say the same, or as often, and none does anything with the answer. So it goes out where calls are live, and is
not recorded. A replay sends none, and answers that it was received.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

from everstep.capturing import calling, threads
from everstep.capturing.calls import Call
from everstep.capturing.exchange import inside
from everstep.errors import CaptureWarning
from everstep.run import faults
from everstep.run.lanes import Lane, Scope

_RECEIVED = {"status": 200, "reason": "OK", "body": b"", "headers": [["content-length", "0"]]}

# Known by the method, the host and the path. What is asked of the same services, like prompts and flags, is none.
_KNOWN = re.compile(
    r"""POST\ \S+/v[\d.]+/(traces|metrics|logs)         # OpenTelemetry, whoever collects it; Datadog
      | POST\ \S+/v1/traces/ingest                      # OpenAI's agents
      | POST\ \S+/api/\d+/(envelope|store)              # Sentry
      | POST\ \S*\bposthog\.com/(batch|capture|track|e|i/v0/e)
      | POST\ api\.segment\.io/v1/\w+
      | POST\ \S*\bmixpanel\.com/(track|engage|import)
      | (POST|PATCH)\ \S*\bsmith\.langchain\.com(/api/v1)?/runs\S*
      | POST\ \S+/api/public/(ingestion|scores)         # Langfuse
      | POST\ \S+/v1/private/(traces|spans)(/batch)?    # Opik
      | (POST|GET|HEAD)\ \S+\bscarf\.sh/\S*
      | (POST|HEAD)\ \S+/telemetry(/\S*)?               # Agno, the Hugging Face hub and others
    """,
    re.VERBOSE,
)


def is_telemetry(method: str, host: str | None, path: str) -> bool:
    """Whether a request is of this kind."""
    return _KNOWN.fullmatch(f"{method} {host}{path.rstrip('/')}") is not None


class Aside:
    """A call that is no step: whatever happens in it is part of nothing that is recorded. Also its chunks.

    Without a source of them there are none.
    """

    over = is_left = False  # it never is: what it leaves behind belongs to it, too

    def __init__(self, lane: Lane, name: str) -> None:
        scope = Scope(lane, name, 0, 1)
        scope.start = scope.waits = True
        scope.leaf = self
        self.inner = Lane(lane.run, scope, "", lane)
        self.source: Any = None

    def __iter__(self) -> Aside:
        return self

    @threads.away
    def __next__(self) -> Any:
        if self.source is None:
            raise StopIteration
        with inside(self):
            return next(self.source)

    @threads.away
    def close(self) -> None:
        """Read no further."""
        if self.source is not None:
            with inside(self):
                self.source.close()

    def __aiter__(self) -> Aside:
        return self

    async def __anext__(self) -> Any:
        if self.source is None:
            raise StopAsyncIteration
        with inside(self):
            return await anext(self.source)

    async def aclose(self) -> None:
        """Read no further."""
        if self.source is not None:
            with inside(self):
                await self.source.aclose()


def http_call(lane: Lane, asked: Call, live: Callable[[], tuple[Any, Any]]) -> tuple[Any, Any]:
    """`calling.call`, of a request that may be telemetry."""
    return (_sent if asked.is_telemetry else calling.call)(lane, asked, live)


async def http_call_awaited(lane: Lane, asked: Call, live: Callable[[], Awaitable[tuple[Any, Any]]]) -> tuple[Any, Any]:
    """`calling.call_awaited`, of a request that may be telemetry."""
    return await (_sent_awaited if asked.is_telemetry else calling.call_awaited)(lane, asked, live)


@threads.away
def _sent(lane: Lane, asked: Call, live: Callable[[], tuple[Any, Any]]) -> tuple[Any, Any]:
    aside = Aside(lane, asked.name)
    if lane.run.captured.replays:
        return asked.form.unpack(_RECEIVED)[0], aside
    _tell(lane.run.captured, asked.name)
    with inside(aside):
        head, aside.source = live()
    return head, aside


async def _sent_awaited(lane: Lane, asked: Call, live: Callable[[], Awaitable[tuple[Any, Any]]]) -> tuple[Any, Any]:
    aside = Aside(lane, asked.name)
    if lane.run.captured.replays:
        return asked.form.unpack(_RECEIVED)[0], aside
    _tell(lane.run.captured, asked.name)
    with inside(aside):
        head, aside.source = await live()
    return head, aside


def _tell(session: Any, name: str) -> None:
    """Say once for each run, and each place that its telemetry goes to, that it is not recorded."""
    if session.is_news(f"telemetry {name}"):
        faults.warn(
            f"run {session.id!r} sends telemetry ({name}), which is no part of the record: it is sent as ever, and a "
            "replay sends none.",
            CaptureWarning,
        )
