"""urllib3, and so requests and botocore: each attempt on a connection is a call.

Pools, retries, redirects and what errors become are the library's own business: it goes about it live and in replay.
"""

from __future__ import annotations

import ast
import inspect
import re
import ssl
from collections.abc import Iterable
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse
from types import ModuleType
from typing import Any

from everstep.capturing.calls import Call
from everstep.capturing.http import Head, request
from everstep.capturing.layout import checked
from everstep.capturing.seams import upgrades
from everstep.capturing.seams.http_client import SENT
from everstep.capturing.session import boundary
from everstep.capturing.wire import Answer, Source, Wire, head_of, revived
from everstep.errors import UnknownLayoutError
from everstep.run.lanes import Lane

_TAKES = [
    "self", "conn", "method", "url", "body", "headers", "retries", "timeout", "chunked", "response_conn",
    "preload_content", "decode_content", "enforce_content_length",
]  # fmt: skip
_LANE = "_everstep_lane"  # on a connection: whose it is whose tunnel is still to be made
_PAIR = re.compile(r"\('(.*?)', (\w+\(.*\))\)", re.DOTALL)
_SHOWN = re.compile(r"(\w+)\((.*)\)", re.DOTALL)
_OF_TLS = {"CERTIFICATE_VERIFY_FAILED": "SSLCertVerificationError", "UNEXPECTED_EOF": "SSLEOFError"}


def patch(module: ModuleType) -> None:
    """Wrap the pools. Raises UnknownLayoutError."""
    plain = checked(module, "HTTPConnectionPool._make_request", _TAKES)
    checked(module, "HTTPResponse.__init__", ["self", "body", "headers", "status", "version"])
    checked(module, "HTTPConnectionPool._raise_timeout", ["self", "err", "url", "timeout_value"])
    checked(module, "connection._wrap_proxy_error", ["err", "proxy_scheme"])
    checked(module, "connection.HTTPConnection.has_connected_to_proxy", None)
    signature = inspect.signature(plain)

    def _make_request(self: Any, conn: Any, *args: Any, **kwargs: Any) -> Any:
        lane = conn.__dict__.pop(_LANE, None)
        tunnel = lane is not None
        lane = lane or boundary()
        if lane is None:
            return plain(self, conn, *args, **kwargs)
        bound = signature.bind(self, conn, *args, **kwargs)
        bound.apply_defaults()
        return _Attempt(module, plain, bound.arguments, tunnel=tunnel).made(lane)

    module.HTTPConnectionPool._make_request = _make_request  # noqa: SLF001 - checked above
    for pool in (module.HTTPConnectionPool, module.HTTPSConnectionPool):
        _put_off_tunnels(pool)


def _put_off_tunnels(pool: Any) -> None:
    """Have tunnels through a proxy made with the call that needs them: they are part of it."""
    plain = pool.__dict__.get("_prepare_proxy")
    if plain is None:
        return

    def _prepare_proxy(self: Any, conn: Any) -> None:
        lane = None if getattr(conn, _LANE, None) is not None else boundary()
        if lane is None:
            plain(self, conn)
        else:
            setattr(conn, _LANE, lane)

    pool._prepare_proxy = _prepare_proxy  # noqa: SLF001 - it is the library's


class _Attempt:
    """One request on one connection."""

    def __init__(self, module: ModuleType, plain: Any, asked: dict[str, Any], *, tunnel: bool) -> None:
        self._module, self._plain, self._asked, self._tunnel = module, plain, asked, tunnel
        self._pool, self._conn = asked["self"], asked["conn"]
        self._shutdown: Any = None
        self._is_live = False
        self._upgraded: Any = None  # a response whose connection is no longer one of HTTP
        if not isinstance(self._conn, HTTPConnection):
            kind = type(self._conn)
            raise UnknownLayoutError(
                "urllib3", str(module.__version__), f"connections are {kind.__module__}.{kind.__name__}"
            )

    def made(self, lane: Lane) -> Any:
        """Make it, or have it answered. The response, as the library makes it."""
        asked = self._asked
        asked["body"], body = _known(asked["body"])
        headers = {str(name).lower(): str(value) for name, value in (asked["headers"] or {}).items()}
        call = request(asked["method"], self._url(), headers, body, self._revive)
        call.tells_when_sent = True
        head, chunks = upgrades.call(lane, call, lambda: self._live(call), "urllib3")
        if chunks is None:
            return self._upgraded
        if not self._is_live:
            self._pool.num_requests += 1
        return self._response(head, chunks)

    def _live(self, call: Call) -> tuple[Head, Source | None]:
        self._is_live = True
        setattr(self._conn, SENT, call.sent)
        try:
            if self._tunnel:
                self._make_tunnel()
            response = self._plain(**{**self._asked, "preload_content": False})
        except (OSError, HTTPException, self._module.exceptions.HTTPError) as error:
            self._blame_proxy(error)
            raise
        finally:
            delattr(self._conn, SENT)
        answer = response._original_response  # noqa: SLF001 - the answer itself, of which the response is a view
        if response.status == HTTPStatus.SWITCHING_PROTOCOLS:
            self._upgraded = response
            return head_of(answer), None
        self._shutdown = getattr(response, "_sock_shutdown", None)
        response._fp = response._original_response = response._connection = None  # noqa: SLF001 - it goes, they stay
        return head_of(answer), Source(answer)

    def _blame_proxy(self, error: Exception) -> None:
        """Raise what the library makes of an error on the way to a proxy: afterwards nobody knows how far it came."""
        conn, known = self._conn, self._module.exceptions
        if getattr(conn, "proxy", None) is None or conn.has_connected_to_proxy or isinstance(error, known.ProxyError):
            return
        new = known.SSLError(error) if isinstance(error, ssl.SSLError) else error
        if isinstance(new, (OSError, HTTPException, known.NewConnectionError, known.TimeoutError, known.SSLError)):
            raise self._module.connection._wrap_proxy_error(new, conn.proxy.scheme)  # noqa: SLF001 - checked

    def _make_tunnel(self) -> None:
        """As the pool does it before an attempt."""
        pool, conn = self._pool, self._conn
        try:
            pool._prepare_proxy(conn)  # noqa: SLF001 - there is no other way
        except OSError as error:
            pool._raise_timeout(err=error, url=pool.proxy.url, timeout_value=conn.timeout)  # noqa: SLF001 - as above
            raise

    def _url(self) -> str:
        url, pool = str(self._asked["url"]), self._pool
        if not url.startswith("/"):
            return url
        host = f"[{pool.host}]" if ":" in pool.host else pool.host
        standard = {"http": 80, "https": 443}.get(pool.scheme)
        return f"{pool.scheme}://{host}{'' if pool.port in {None, standard} else f':{pool.port}'}{url}"

    def _response(self, head: Head, chunks: Any) -> Any:
        asked = self._asked
        answer = Answer(asked["method"], head, chunks)
        plain = HTTPResponse(Wire(answer), method=asked["method"])  # type: ignore[arg-type] # a socket, as far as that goes
        plain.begin()
        if answer.length is not None:
            plain.length = answer.length
        normal = getattr(self._module.connection, "_normalize_header_values", lambda message: message.items())
        given = {
            "body": plain, "headers": self._module.HTTPHeaderDict(normal(plain.msg)), "status": plain.status,
            "version": plain.version, "version_string": head.version, "reason": plain.reason,
            "preload_content": False, "decode_content": asked["decode_content"], "original_response": plain,
            "enforce_content_length": asked["enforce_content_length"], "request_method": asked["method"],
            "request_url": asked["url"], "sock_shutdown": self._shutdown or (lambda _: None),
        }  # fmt: skip
        takes = inspect.signature(self._module.HTTPResponse.__init__).parameters
        response = self._module.HTTPResponse(**{name: value for name, value in given.items() if name in takes})
        if answer.length is not None and response.length_remaining is not None:
            response.length_remaining = answer.length
        if asked["preload_content"]:
            response._body = response.read(decode_content=asked["decode_content"])  # noqa: SLF001 - as it does itself
        response.retries = asked["retries"]
        response._connection, response._pool = asked["response_conn"], self._pool  # noqa: SLF001 - as the pool does it
        return response

    def _revive(self, kind: str, message: str) -> BaseException:
        """An error of the library, that knows its pool and its connection again."""
        conn, known = self._conn, self._module.exceptions
        pair = _PAIR.fullmatch(message)
        if kind == "ProxyError" and pair is not None:
            return known.ProxyError(pair[1], self._shown(pair[2]))  # type: ignore[no-any-return] # it is one
        if getattr(conn, "proxy", None) is not None:
            conn._has_connected_to_proxy = True  # noqa: SLF001 - else it would pass for an error of the proxy
        if kind == "SSLError":
            inner = next((name for said, name in _OF_TLS.items() if said in message), "SSLError")
            return known.SSLError(revived(inner, message))  # type: ignore[no-any-return] # it is one
        error = revived(kind, message, known)
        for name, value in (("pool", self._pool), ("conn", conn), ("url", self._asked["url"])):
            if name in _attributes(error):
                setattr(error, name, value)
        return error

    def _shown(self, text: str) -> BaseException:
        """An error, from how Python shows it."""
        found = _SHOWN.fullmatch(text)
        if found is None:
            return RuntimeError(text)
        if _SHOWN.fullmatch(found[2]):
            outer = revived(found[1], "", self._module.exceptions)
            outer.args = (self._shown(found[2]),)
            return outer
        said = ast.literal_eval(f"({found[2]},)")
        return revived(
            found[1], f"[Errno {said[0]}] {said[1]}" if len(said) > 1 else str(said[0]), self._module.exceptions
        )


def _attributes(error: BaseException) -> set[str]:
    """What an error of the library is made of."""
    return set(inspect.signature(type(error).__init__).parameters)


def _known(body: Any) -> tuple[Any, bytes]:
    """A body that can be sent as it would have been, and its bytes."""
    if body is None:
        return None, b""
    if isinstance(body, str):
        return body, body.encode()
    if hasattr(body, "read"):
        parts = iter(lambda: body.read(1 << 16), type(body.read(0))())
        known = b"".join(_as_bytes(part) for part in parts)
        return _File(known), known
    try:
        return body, bytes(memoryview(body))
    except TypeError:
        if not isinstance(body, Iterable):
            return body, b""  # the library says what is wrong with it
    pieces = [_as_bytes(piece) for piece in body]
    return iter(pieces), b"".join(pieces)


def _as_bytes(piece: Any) -> bytes:
    return piece.encode() if isinstance(piece, str) else bytes(piece)


class _File:
    """A file that was read, for whoever wants to read it."""

    def __init__(self, known: bytes) -> None:
        self._rest = memoryview(known)

    def read(self, size: int = -1) -> bytes:
        """Some of it, or all."""
        size = len(self._rest) if size < 0 else size
        piece, self._rest = self._rest[:size], self._rest[size:]
        return bytes(piece)
