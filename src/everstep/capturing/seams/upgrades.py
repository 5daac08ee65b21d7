"""Answers that make another thing of their connection (status 101): what is said on it then is not recorded.

That it was upgraded is a step. The program gets the live answer as its library made it, with the connection below, and
is told. A sealed replay refuses it where it is asked for; one that is not sealed, and a resumed run, ask again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from everstep.capturing import threads
from everstep.capturing.calls import Call, Nothing
from everstep.capturing.exchange import inside
from everstep.capturing.telemetry import Aside, http_call, http_call_awaited
from everstep.errors import CaptureWarning
from everstep.run import faults
from everstep.run.lanes import Lane

_UPGRADED = HTTPStatus.SWITCHING_PROTOCOLS


def call(lane: Lane, asked: Call, live: Callable[[], tuple[Any, Any]], library: str) -> tuple[Any, Any]:
    """`http_call`; without chunks if the connection is no longer one of HTTP: then the live answer is to be given."""
    made: list[Any] = []

    def noted() -> tuple[Any, Any]:
        made.append(live())
        return _kept(*made[0])

    head, chunks = http_call(lane, asked, noted)
    if head.status != _UPGRADED:
        return head, chunks
    for _ in chunks:
        pass
    return (head, None) if _is_live(lane, asked, library, made) else _again(lane, asked, live)


async def call_awaited(
    lane: Lane, asked: Call, live: Callable[[], Awaitable[tuple[Any, Any]]], library: str
) -> tuple[Any, Any]:
    """`call`, for what is awaited."""
    made: list[Any] = []

    async def noted() -> tuple[Any, Any]:
        made.append(await live())
        return _kept(*made[0])

    head, chunks = await http_call_awaited(lane, asked, noted)
    if head.status != _UPGRADED:
        return head, chunks
    async for _ in chunks:
        pass
    if _is_live(lane, asked, library, made):
        return head, None
    aside = Aside(lane, asked.name)
    with inside(aside):
        head, aside.source = await live()
    return head, None if head.status == _UPGRADED else aside


def _kept(head: Any, source: Any) -> tuple[Any, Any]:
    """What is kept of an answer: of such a one no body, and the connection is the program's."""
    return head, Nothing() if head.status == _UPGRADED else source


@threads.away
def _again(lane: Lane, asked: Call, live: Callable[[], tuple[Any, Any]]) -> tuple[Any, Any]:
    aside = Aside(lane, asked.name)
    with inside(aside):
        head, aside.source = live()
    return head, None if head.status == _UPGRADED else aside


def _is_live(lane: Lane, asked: Call, library: str, made: list[Any]) -> bool:
    """Tell of such an answer. Raises SealedError where none can be had."""
    run = lane.run
    if not made:
        run.captured.refuse(f"talk over a connection that {library} has upgraded from HTTP ({asked.name}, status 101)")
    if run.captured.is_news(f"upgraded {asked.name}"):
        faults.warn(
            f"run {run.run_id!r} talks over a connection that {library} has upgraded from HTTP ({asked.name}, status "
            "101), which is not recorded: what is said there will be missing in a replay, which refuses it if it is "
            "sealed, and a resumed run does it again. For websockets use websockets or aiohttp, which are recorded.",
            CaptureWarning,
        )
    return bool(made)
