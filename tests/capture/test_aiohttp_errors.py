"""aiohttp's exceptions that are made again: code that catches them looks at more than their text."""

from __future__ import annotations

import ssl
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from everstep.capturing.seams.aiohttp_errors import revived
from everstep.capturing.seams.likeness import recordable

KEY = ConnectionKey("localhost", 443, is_ssl=True, ssl=True, proxy=None, proxy_auth=None, proxy_headers_hash=None)
REFUSED = OSError(111, "Connect call failed")
UNKNOWN = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get")
ERRORS: list[tuple[Exception, tuple[str, ...]]] = [
    (aiohttp.ClientOSError(104, "Connection reset by peer"), ("errno", "strerror", "args")),
    (aiohttp.ClientConnectorError(KEY, REFUSED), ("errno", "host", "port", "ssl")),
    (aiohttp.ClientConnectorCertificateError(KEY, UNKNOWN), ("host", "port", "ssl", "certificate_error")),
    (aiohttp.ServerFingerprintMismatch(b"\0\1", b"\2", "localhost", 443), ("expected", "got", "host", "port")),
    (aiohttp.ServerDisconnectedError(), ("message",)),
    (aiohttp.InvalidURL("no: url"), ("url",)),
]


@pytest.mark.parametrize(("live", "names"), ERRORS, ids=lambda each: type(each).__name__)
def test_an_error_has_what_its_handlers_look_at(live: Exception, names: tuple[str, ...]) -> None:
    """Promise 6."""
    asked: Any = SimpleNamespace(connection_key=KEY, request_info=None)
    served = revived(aiohttp, asked, type(live).__name__, str(recordable(live)))
    assert (type(served), str(served)) == (type(live), str(live))
    for name in names:
        told, known = getattr(served, name), getattr(live, name)
        assert (type(told), str(told)) == (type(known), str(known))
