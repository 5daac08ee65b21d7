"""Where a program's calls leave it: one module for each library that makes them."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from everstep.capturing.imports import Patch, when_imported

# The module that is patched when it is imported, and who patches it.
_SEAMS = {
    "aiohttp": "aiohttp",
    "anyio._backends._asyncio": "anyio",
    "asyncio": "asyncio",
    "curl_cffi.aio": "native",
    "curl_cffi.curl": "native",
    "dspy._vendor.lm15.transports": "lm15",
    "eventlet.patcher": "green",
    "gevent.monkey": "green",
    "grpc._channel": "native",
    "grpc.aio._channel": "native",
    "http.client": "http_client",
    "httpx": "httpx",
    "httpx2": "httpx",
    "lm15.transports": "lm15",
    "mcp.client.stdio": "mcp",
    "multiprocessing.process": "uncaptured",
    "os": "uncaptured",
    "primp": "native",
    "psycopg": "native",
    "psycopg2": "native",
    "pycurl": "native",
    "socket": "uncaptured",
    "subprocess": "subprocess",
    "urllib3": "urllib3",
    "uuid_utils": "uuid_utils",
    "uvloop": "asyncio",
    "websockets.asyncio.client": "websockets",
    "websockets.legacy.client": "websockets",
    "websockets.sync.client": "websockets",
    "websockets.trio.client": "websockets",
    "zmq.sugar.socket": "native",
}
_installed = False


def install() -> None:
    """Patch what is there, and the rest when it is imported. Once: what is patched passes through outside of a run."""
    global _installed  # noqa: PLW0603 - once in a process
    if not _installed:
        _installed = True
        when_imported({module: _patch_by(seam) for module, seam in _SEAMS.items()})


def _patch_by(seam: str) -> Patch:
    def patch(module: ModuleType) -> None:
        import_module(f"everstep.capturing.seams.{seam}").patch(module)

    return patch
