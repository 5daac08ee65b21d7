"""MCP over stdio: `mcp.client.stdio.stdio_client`, where messages go to a server and come from it.

Each request is a step of its own, not the process a single one: after a crash the calls that were answered are served
from the record, and the server is started only when one has to be made, with the handshake that the program had.

The streams of the transport are the seam rather than `ClientSession.send_request`: below the session its ids, progress
tokens and timeouts stay its own, and what the server says unasked (notifications, and requests such as sampling and
roots) reaches the session in replay as it did then. Such messages belong to the oldest request that is open, or else to
the next one. What the program says meanwhile (its answers to the server, a cancellation) is kept with it too, compared,
and waited for: nothing comes in before the program has said what it had said then.

A server that keeps something between calls has lost it when it is started again by a resumed program.
"""

from __future__ import annotations

import functools
import json
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

from everstep.capturing.layout import checked
from everstep.capturing.mcp_wire import Connection, Wire
from everstep.capturing.session import boundary
from everstep.errors import UnknownLayoutError
from everstep.trail.late import running_loop


def patch(module: ModuleType) -> None:
    """Wrap the transport: inside, since programs import it by name. Raises UnknownLayoutError."""
    client = checked(module, "stdio_client", ["server", "errlog"])
    checked(module, "SessionMessage", ["message"])
    names = checked(module, "stdio_client.__code__.co_freevars", None)
    if names != ("func",):
        raise UnknownLayoutError(module.__name__, "", "stdio_client is not made by asynccontextmanager")
    wire, inner = _wire(module), client.__closure__[0]
    plain = asynccontextmanager(inner.cell_contents)

    async def stdio_client(server: Any, *more: Any, **named: Any) -> Any:
        lane = None if running_loop() is None else boundary()
        opened = functools.partial(plain, server, *more, **named)
        if lane is None:
            async with opened() as streams:
                yield streams
            return
        connection = Connection(wire, server, opened)
        await connection.open(lane)
        try:
            yield connection.incoming, connection.outgoing
        finally:
            await connection.close()

    inner.cell_contents = stdio_client


def _wire(module: ModuleType) -> Wire:
    """How messages become plain data, and the other way round: two versions are known."""
    types = checked(module, "types", None)
    adapter = getattr(types, "jsonrpc_message_adapter", None)

    def told(item: Any) -> dict[str, Any]:
        message = getattr(item.message, "root", item.message)
        data: dict[str, Any] = json.loads(message.model_dump_json(by_alias=True, exclude_unset=True))
        return data

    def made(data: dict[str, Any]) -> Any:
        text = json.dumps(data)
        if adapter is not None:
            return module.SessionMessage(adapter.validate_json(text, by_name=False))
        return module.SessionMessage(types.JSONRPCMessage.model_validate_json(text))

    if adapter is None:
        checked(module, "types.JSONRPCMessage.model_validate_json", None)
    return Wire(told, made, checked(module, "anyio", None))
