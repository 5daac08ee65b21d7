"""A connection to an MCP server: its requests are steps, whoever answers them."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePath
from types import ModuleType
from typing import Any, Self

from everstep.capturing import calling, loops, process
from everstep.capturing.calls import Call, Form, Nothing
from everstep.capturing.exchange import Exchange
from everstep.capturing.halting import Halted
from everstep.capturing.session import boundary
from everstep.run.lanes import Lane, outside

_CHANCE = frozenset({"progressToken", "traceparent", "tracestate", "baggage"})  # of `_meta`: no part of what is asked
_LOST: dict[str, Any] = {"lost": True}  # the server is gone


@dataclass(frozen=True, slots=True)
class Wire:
    """How messages become plain data, and the other way round."""

    told: Callable[[Any], dict[str, Any]]
    made: Callable[[dict[str, Any]], Any]
    anyio: ModuleType


class _Form(Form):
    """How the answers of a server are stored: the answer, and what else it and the program said before that."""

    def pack(
        self, head: list[Any], chunks: Sequence[dict[str, Any]], offsets: Sequence[float], clean: Callable[[str], str]
    ) -> dict[str, Any]:
        """The stored form of an answer."""
        del offsets, clean
        heard, stored = list(chunks), dict[str, Any]()
        if heard and ("result" in heard[-1]["message"] or "error" in heard[-1]["message"]):
            answer = heard.pop()
            stored = {key: value for key, value in answer["message"].items() if key in {"result", "error"}}
            if answer["after"]:
                stored["after"] = answer["after"]
        if heard:
            stored["heard"] = heard
        if head:
            stored["said"] = list(head)
        return stored

    def unpack(self, stored: Mapping[str, Any]) -> tuple[list[Any], list[dict[str, Any]]]:
        """What the program said meanwhile, and what it heard."""
        heard = [dict(each) for each in stored.get("heard", ())]
        answer = {key: stored[key] for key in ("result", "error") if key in stored}
        if answer:
            heard.append({"message": {"jsonrpc": "2.0", **answer}, "after": stored.get("after", 0)})
        return list(stored.get("said", ())), heard


_FORM = _Form()


class _Open:
    """A request that has no answer yet."""

    def __init__(self, number: Any, said: list[Any], served: Callable[[Any, Any], Halted] | None = None) -> None:
        self.id, self.said = number, said
        self.served = served  # who takes the program out if it says something else
        self.count = 0  # of what the program said meanwhile
        self.changed = asyncio.Event()
        self._heard: deque[dict[str, Any] | None] = deque()

    def hear(self, message: dict[str, Any] | None) -> None:
        """Something came in that belongs to it; None if nothing more will."""
        self._heard.append(message if message is None else {"message": message, "after": self.count})
        self.changed.set()

    async def __anext__(self) -> dict[str, Any]:
        while not self._heard:
            self.changed.clear()
            await self.changed.wait()
        heard = self._heard.popleft()
        if heard is None:
            raise StopAsyncIteration
        return heard

    async def aclose(self) -> None:
        """Nothing to close."""

    def say(self, data: dict[str, Any], *, first: bool) -> None:
        """The program said something; `first` if it is this request's to remember. Raises Halted if it said other."""
        if first and self.served is None:
            self.said.append(data)
        elif first and self.served is not None:
            was = self.said[self.count] if self.count < len(self.said) else None
            if was != data:
                raise self.served(was, data)
        self.count += 1
        self.changed.set()


class Outgoing:
    """What the session writes to."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def send(self, item: Any) -> None:
        """Send a message."""
        await self._connection.send(item)

    def close(self) -> None:
        """Nothing more will be sent."""

    async def aclose(self) -> None:
        """Nothing more will be sent."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass


class Connection:
    """A connection to a server, which is started when it is first needed."""

    def __init__(self, wire: Wire, server: Any, opened: Callable[[], Any]) -> None:
        self._wire, self._opened = wire, opened
        words = [str(server.command), *map(str, server.args)]
        self._asked = process.request(words, server.cwd, ()).request
        scripts = [PurePath(word).name for word in words if not word.startswith("-")]
        self.name = next((name for name in reversed(scripts) if "." in name), scripts[0] if scripts else "server")
        self._into, self.incoming = wire.anyio.create_memory_object_stream(math.inf)
        self.outgoing = Outgoing(self)
        self._open: dict[Any, _Open] = {}  # in the order in which they were made
        self._strays: list[dict[str, Any]] = []  # what came in while no request was open
        self._handshake: list[Any] = []  # what a server that is started late has to be told first
        self._passing: set[asyncio.Task[None]] = set()
        self._real: Any = None  # where messages to the server go
        self._owner: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._starting = asyncio.Lock()

    # The server.

    async def open(self, lane: Lane) -> None:
        """Start the server, or learn from the record that it was."""
        call = Call(f"mcp {self.name} start", self._asked, _FORM, process.revive, node_type="mcp")
        said: list[Any] = []

        async def live() -> tuple[list[Any], Nothing]:
            await self._start()
            return said, Nothing()

        _, chunks = await calling.call_awaited(lane, call, live)
        async for _ in chunks:
            pass

    async def _start(self) -> None:
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._owner = outside().run(asyncio.get_running_loop().create_task, self._own(ready))
        await ready

    async def _own(self, ready: asyncio.Future[None]) -> None:
        """Hold the real transport: in one task, as it wants to be."""
        try:
            async with self._opened() as (incoming, self._real):
                ready.set_result(None)
                reading = asyncio.ensure_future(self._read(incoming))
                await self._stop.wait()
                reading.cancel()
        except BaseException as error:  # whoever waits until it is ready must hear of it
            if ready.done():
                raise
            ready.set_exception(error)

    async def _read(self, incoming: Any) -> None:
        async for item in incoming:
            if isinstance(item, Exception):
                self._pass(item)
            else:
                self._arrived(item)
        for each in list(self._open.values()):
            each.hear(_LOST)
            each.hear(None)
        if not self._open:
            self._into.close()

    def _arrived(self, item: Any) -> None:
        data = self._wire.told(item)
        if "method" not in data:
            known = self._open.get(data.get("id"))
            if known is None:
                return  # nobody waits for it any more
            known.hear({key: value for key, value in data.items() if key != "id"})
            known.hear(None)
            return
        oldest = next((each for each in self._open.values() if each.served is None), None)
        if oldest is None:
            self._strays.append(data)
            self._pass(item)
        else:
            oldest.hear(data)

    async def _late_start(self) -> None:
        """Start a server that the program believes to be at work since long."""
        async with self._starting:
            if self._real is not None:
                return
            await self._start()
            real: Any = self._real
            for item in self._handshake:
                data = self._wire.told(item)
                if "id" in data:
                    answer = self._open[data["id"]] = _Open(data["id"], [])
                await real.send(item)
                if "id" in data:
                    with suppress(StopAsyncIteration):
                        while True:
                            await anext(answer)
                    del self._open[data["id"]]

    async def close(self) -> None:
        """The program has enough of the server."""
        with self._wire.anyio.CancelScope(shield=True):
            self._stop.set()
            for each in list(self._open.values()):
                each.hear(None)
                if each.served is not None:
                    each.changed.set()
            if self._owner is not None:
                with suppress(asyncio.CancelledError):
                    await self._owner
            for task in list(self._passing):
                if not task.done() and self._real is None:
                    task.cancel()
            await asyncio.gather(*self._passing, return_exceptions=True)
            self._into.close()

    # Messages.

    def _pass(self, item: Any) -> None:
        with suppress(self._wire.anyio.BrokenResourceError, self._wire.anyio.ClosedResourceError):
            self._into.send_nowait(item)

    async def send(self, item: Any) -> None:
        """The program says something: a request is a step."""
        data = self._wire.told(item)
        if "method" in data and "id" in data:
            await self._request(item, data)
            return
        for number, each in enumerate(list(self._open.values())):
            each.say(data, first=number == 0)
        if self._real is not None:
            await self._real.send(item)
        elif data.get("method") == "notifications/initialized":
            self._handshake.append(item)

    async def _request(self, item: Any, data: dict[str, Any]) -> None:
        lane, number = boundary(), data["id"]
        if lane is None:
            await self._real.send(item)
            return
        call = self._call(data)
        opened: list[_Open] = []

        async def live() -> tuple[list[Any], _Open]:
            if self._real is None:
                await self._late_start()
            said: list[Any] = []
            made = self._open[number] = _Open(number, said)
            opened.append(made)
            for stray in self._strays:
                made.hear({**stray, "stray": True})
            self._strays.clear()
            await self._real.send(item)
            return said, made

        said, chunks = await calling.call_awaited(lane, call, live)
        if not opened:
            if data["method"] == "initialize":
                self._handshake.insert(0, item)
            opened.append(_Open(number, said, _different(chunks.exchange)))
            self._open[number] = opened[0]
        task = loops.passing().run(asyncio.get_running_loop().create_task, self._answer(opened[0], chunks))
        self._passing.add(task)
        task.add_done_callback(self._passing.discard)

    def _call(self, data: dict[str, Any]) -> Call:
        method, params = data["method"], dict(data.get("params") or {})
        meta = {key: value for key, value in params.pop("_meta", {}).items() if key not in _CHANCE}
        if meta:
            params["_meta"] = meta
        target = params.get("name") or params.get("uri") or ""
        is_tool = method == "tools/call"
        return Call(
            f"mcp {self.name} {method} {target if isinstance(target, str) and method != 'initialize' else ''}".rstrip(),
            {"method": method, "params": params}, _FORM, process.revive,
            external=is_tool, node_type="tool" if is_tool else "mcp",
        )  # fmt: skip

    async def _answer(self, asked: _Open, chunks: Any) -> None:
        """Pass on what comes in for one request, its answer when that is on record."""
        last: dict[str, Any] | None = None
        try:
            async for heard in chunks:
                message = heard["message"]
                while asked.served is not None and asked.count < heard["after"]:
                    asked.changed.clear()
                    await asked.changed.wait()
                if "method" not in message:
                    last = message
                elif not message.pop("stray", False) or asked.served is not None:
                    self._pass(self._wire.made(message))
        finally:
            self._open.pop(asked.id, None)
        if last is not None and "lost" in last:
            self._into.close()
        elif last is not None:
            self._pass(self._wire.made({"jsonrpc": "2.0", **last, "id": asked.id}))


def _different(exchange: Exchange) -> Callable[[Any, Any], Halted]:
    """What takes out a program that says something else than it said."""
    name = exchange.call.name

    def different(was: Any, now: Any) -> Halted:
        return exchange.halted(exchange.diverged("changed input", f"{name} << {was}", f"{name} << {now}"))

    return different
