"""Clients in C and Rust, whose calls Python is told nothing of: they cannot be recorded, and no audit hook sees them.

So the program is told when it uses one, once for each, and a sealed replay refuses it. Only those that are widely used
are known here; what others do, a seal of the system alone keeps in.
"""

from __future__ import annotations

import functools
import inspect
import sys
from types import FrameType, ModuleType
from typing import Any

from everstep.capturing.layout import checked
from everstep.capturing.seams.uncaptured import run_here
from everstep.errors import CaptureWarning
from everstep.run import faults

_WAYS = {  # where the calls of each begin
    "curl_cffi.aio": ["AsyncCurl.add_handle"],
    "curl_cffi.curl": ["Curl.perform"],
    "grpc._channel": ["Channel.__init__"],
    "grpc.aio._channel": ["Channel.__init__"],
    "primp": ["Client.request"],
    "psycopg": ["Connection.connect", "AsyncConnection.connect", "connect"],
    "psycopg2": ["connect"],
    "pycurl": ["Curl.perform", "Curl.perform_rb", "Curl.perform_rs", "CurlMulti.add_handle"],
    "zmq.sugar.socket": ["Socket.connect", "Socket.bind"],
}
_VERBS = ("get", "head", "options", "post", "put", "patch", "delete")
_MORE = {  # the same, of which some versions have not all
    "primp": [
        "AsyncClient.request",
        "request",
        *(f"{of}{verb}" for of in ("Client.", "AsyncClient.", "") for verb in _VERBS),
    ],
}
_WITHIN = "inproc:"  # how an address of ZeroMQ begins that is in this process


def patch(module: ModuleType) -> None:
    """Wrap where the calls of a client begin. Raises UnknownLayoutError."""
    for way in (*_WAYS[module.__name__], *filter(functools.partial(_is_there, module), _MORE.get(module.__name__, ()))):
        kind, _, name = way.rpartition(".")
        known: Any = checked(module, kind, None) if kind else module
        plain = checked(module, way, None)
        is_of_class = isinstance(inspect.getattr_static(known, name), classmethod)
        wrapped: Any = _told(plain.__func__ if is_of_class else plain, module.__name__.partition(".")[0])
        wrapped = classmethod(wrapped) if is_of_class else wrapped
        try:
            setattr(known, name, wrapped)
        except TypeError:  # a type that is written in C
            setattr(module, kind, type(kind, (known,), {name: wrapped}))


def _is_there(module: ModuleType, way: str) -> bool:
    kind, _, name = way.rpartition(".")
    return hasattr(getattr(module, kind, None) if kind else module, name)


def _told(plain: Any, client: str) -> Any:
    @functools.wraps(plain)
    def wrapped(*given: Any, **named: Any) -> Any:
        inside = any(isinstance(each, str) and each.startswith(_WITHIN) for each in given)
        run = None if inside or _is_ours(sys._getframe(1)) else run_here()  # noqa: SLF001 - who calls is to be seen nowhere else
        if run is not None and run.captured.replays:
            run.captured.refuse(f"call the outside by {client}")
        elif run is not None and run.captured.is_news(client):
            faults.warn(
                f"run {run.run_id!r} calls the outside by {client}, which cannot be recorded: what that gives will be "
                "missing in a replay, which refuses it if it is sealed, and a resumed run does it again. Use httpx, or "
                "another library that is known.",
                CaptureWarning,
            )
        return plain(*given, **named)

    return wrapped


def _is_ours(frame: FrameType) -> bool:
    """Whether it is the trail that connects to its server."""
    return str(frame.f_globals.get("__name__")).startswith("everstep.store.")
