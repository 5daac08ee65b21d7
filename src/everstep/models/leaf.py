"""A model asked in a step: recorded with what it used, served from the record ever after.

What is recorded is plain data, so that whoever reads a trail needs no class for it; and nothing in it differs from one
asking to the next but what the model said, so that two runs can be compared.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import fields
from typing import Any, TypeVar

from everstep.errors import ModelUnavailableError
from everstep.models.prices import Prices, PriceTable
from everstep.models.reply import Message, Reply
from everstep.run.context import Current
from everstep.run.lanes import here
from everstep.run.retry import Retry
from everstep.run.steps import step

T = TypeVar("T")
RETRY = Retry(on=(ModelUnavailableError,))
_NAME, _STREAM = "model", "model stream"
_FIELDS = tuple(each.name for each in fields(Reply))
_COUNTS = ("input_tokens", "output_tokens", "cached_tokens")
_TOOLS = ("tools", "functions")
_END: Any = object()


class LeafClient:
    """A ModelClient whose calls are steps. What is asked is asked in `ask` and `chunks`, which know nothing of runs."""

    def __init__(self, *, prices: Prices | None, retry: Retry) -> None:
        self.retry = retry
        self._prices = PriceTable(prices)
        self._completed = step(name=_NAME, output=None, retry=retry, ignore=["self"])(self._complete)
        self._streamed = step(name=_STREAM, output=None, ignore=["self"])(self.pieces)

    def complete(self, messages: Sequence[Message], *, model: str, **settings: Any) -> Reply:
        """The answer to a conversation: a step in a run, a plain call outside of one. Raises ModelError."""
        return _reply(self._completed(*_checked(messages, model, settings)))

    def stream(self, messages: Sequence[Message], *, model: str, **settings: Any) -> Iterator[str]:
        """The text of the answer, piece by piece; all of them are the outcome of the step. Raises ModelError."""
        return self._streamed(*_checked(messages, model, settings, stream=True))

    def ask(self, messages: list[dict[str, Any]], model: str, settings: dict[str, Any]) -> Reply:
        """The answer."""
        raise NotImplementedError

    def chunks(self, messages: list[dict[str, Any]], model: str, settings: dict[str, Any]) -> Iterator[str | Reply]:
        """The pieces of the answer's text, then a Reply with what else there is to say."""
        raise NotImplementedError

    def _complete(self, messages: list[dict[str, Any]], model: str, settings: dict[str, Any]) -> dict[str, Any]:
        began = time.perf_counter()
        reply = self.ask(messages, model, settings)
        self.note(reply, model, time.perf_counter() - began)
        return plain(reply)

    def pieces(self, messages: list[dict[str, Any]], model: str, settings: dict[str, Any]) -> Iterator[str]:
        """The text of the answer. What it used is noted also when nobody wants the rest of it."""
        waited, last = 0.0, Reply()
        with closing(self.chunks(messages, model, settings)) as source:  # type: ignore[type-var] # a generator
            try:
                while True:
                    began = time.perf_counter()
                    try:
                        each = next(source, _END)
                    finally:
                        waited += time.perf_counter() - began
                    if each is _END:
                        break
                    if isinstance(each, Reply):
                        last = each
                    else:
                        yield each
            finally:
                self.note(last, model, waited, finish_reason=last.finish_reason)

    def note(self, reply: Reply, model: str, seconds: float, **more: Any) -> None:
        """Say on the step what it used. What is not known is not said: an unknown cost is no cost of 0."""
        lane = here()
        if lane is not None:
            used = {
                "model": reply.model or model, **{name: getattr(reply, name) for name in _COUNTS},
                "cost": self._prices.cost(reply, model), "latency_ms": round(seconds * 1000, 3), **more,
            }  # fmt: skip
            Current(lane).usage(**{name: value for name, value in used.items() if value is not None})

    def __everstep_digest__(self) -> str:
        """What stands for it as an argument of a step. Whose model it is does not matter: what is asked does."""
        return type(self).__name__


class AsyncModelClient:
    """A client for event loops: the same calls, awaited, in at most `limit` threads of its own.

    What one of the two recorded the other goes on with.
    """

    def __init__(self, client: LeafClient, *, limit: int = 32) -> None:
        self.client = client
        # Not the loop's own: that has few threads, and others wait for them.
        self._pool = ThreadPoolExecutor(limit, thread_name_prefix="everstep-model")
        self._completed = step(name=_NAME, output=None, retry=client.retry, ignore=["self"])(self._complete)
        self._streamed = step(name=_STREAM, output=None, ignore=["self"])(self._pieces)

    async def complete(self, messages: Sequence[Message], *, model: str, **settings: Any) -> Reply:
        """The answer to a conversation: a step in a run, a plain call outside of one. Raises ModelError."""
        return _reply(await self._completed(*_checked(messages, model, settings)))

    def stream(self, messages: Sequence[Message], *, model: str, **settings: Any) -> AsyncIterator[str]:
        """The text of the answer, piece by piece; all of them are the outcome of the step. Raises ModelError."""
        return self._streamed(*_checked(messages, model, settings, stream=True))

    async def _complete(self, messages: list[dict[str, Any]], model: str, settings: dict[str, Any]) -> dict[str, Any]:
        began = time.perf_counter()
        reply = await self._off_the_loop(self.client.ask, messages, model, settings)
        self.client.note(reply, model, time.perf_counter() - began)
        return plain(reply)

    async def _pieces(self, messages: list[dict[str, Any]], model: str, settings: dict[str, Any]) -> AsyncIterator[str]:
        source: Any = self.client.pieces(messages, model, settings)
        try:
            while (each := await self._off_the_loop(next, source, _END)) is not _END:
                yield each
        except GeneratorExit:  # a cancelled one ends by itself: its thread is still waiting for the endpoint
            await self._off_the_loop(source.close)
            raise

    async def _off_the_loop(self, call: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call, *args)

    def __everstep_digest__(self) -> str:
        """As of a client that is not awaited."""
        return self.client.__everstep_digest__()


def plain(reply: Reply) -> dict[str, Any]:
    """An answer as it is recorded: what it says, without what it does not."""
    found = {name: getattr(reply, name) for name in _FIELDS}
    return {
        name: list(value) if type(value) is tuple else value for name, value in found.items() if value or value == 0
    }


def _reply(kept: Any) -> Reply:
    """An answer as it was recorded; or what a fork has put in its place: a text is one, too."""
    if not isinstance(kept, Mapping):
        return Reply(text=str(kept))
    given = {name: kept[name] for name in _FIELDS if name in kept}
    return Reply(**{**given, "tool_calls": tuple(given.get("tool_calls", ()))})


def _checked(
    messages: Sequence[Message], model: str, settings: dict[str, Any], *, stream: bool = False
) -> tuple[list[dict[str, Any]], str, dict[str, Any]]:
    """What is asked, in the form in which it is recorded."""
    if isinstance(messages, str | Mapping) or not all(isinstance(each, Mapping) for each in messages):
        raise TypeError('messages are a list of mappings, such as [{"role": "user", "content": "Why?"}]')
    if "stream" in settings:
        raise TypeError("stream= is no setting here: call stream() for an answer piece by piece")
    if stream and any(settings.get(name) for name in _TOOLS):
        raise TypeError("a stream gives text alone: call complete() where the model may call tools")
    return [dict(each) for each in messages], model, dict(sorted(settings.items()))
