"""One exchange with an endpoint, over the standard library: bounded, not redirected, and its failures told apart."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from everstep.errors import EverstepError, ModelError, ModelUnavailableError

MAX_BYTES = 32 * 1024 * 1024  # of an answer; no model writes as much
_MAX_ERROR = 64 * 1024
_CHUNK = 64 * 1024
_SHOWN = 300  # characters of what an endpoint says that are worth reading
_AGAIN = frozenset({408, 425, 429})  # and all from 500 on
_WAYS_OUT = {
    401: "Check the key.",
    403: "Check what the key may do.",
    404: "Check base_url and the model's name.",
    413: "Ask with less.",
}


class _Here(HTTPRedirectHandler):
    """Follows no redirection: the key would go along."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Exchange:
    """What is asked of one endpoint, and what it answers."""

    def __init__(self, endpoint: str, url: str, key: str | None, timeout: float) -> None:
        self.done = False  # a stream has said that it is over
        self._endpoint, self._url, self._key, self._timeout = endpoint, url, key, timeout
        self._response: Any = None
        self._ends = 0.0

    def open(self, data: bytes, accept: str) -> None:
        """Ask, and wait for the beginning of the answer."""
        headers = {"Content-Type": "application/json", "Accept": accept, "User-Agent": "everstep"}
        request = Request(self._url, data, headers, method="POST")  # noqa: S310 - http or https: the client has looked
        if self._key is not None:
            request.add_unredirected_header("Authorization", f"Bearer {self._key}")
        self._ends = time.monotonic() + self._timeout
        try:
            self._response = build_opener(_Here).open(request, timeout=self._timeout)
        except HTTPError as error:
            with error:
                raise self._refused(error) from None
        kind = self._response.headers.get_content_type()
        if kind != accept and not (accept.endswith("json") and kind.endswith("+json")):
            said = self._said(self._begun(self._response))
            raise ModelError(
                self._endpoint, f"it answered with {kind}, not {accept}{said}", "Check base_url: is /v1 missing?"
            )

    def close(self) -> None:
        """Let go of the connection."""
        if self._response is not None:
            self._response.close()

    def json(self) -> Any:
        """The whole answer."""
        body = b"".join(self._parts(self._response, MAX_BYTES))
        self._check(len(body))
        length = self._response.headers.get("Content-Length")
        if length is not None and length.isdecimal() and len(body) < int(length):
            raise ModelUnavailableError(self._endpoint, "its answer was cut off", "Ask again.")
        return self._parsed(body)

    def events(self) -> Iterator[Any]:
        """The events of a stream, up to the one that says that it is over, or to its end."""
        size = 0
        while line := self._response.readline(MAX_BYTES + 1):
            size += len(line)
            self._check(size)
            field, _, value = line.strip().partition(b":")
            if field != b"data":
                continue  # comments, and names that no vendor gives
            if value.strip() == b"[DONE]":
                self.done = True
                return
            event = self._parsed(value)
            if isinstance(event, dict) and event.get("error"):
                raise ModelUnavailableError(self._endpoint, f"it broke off{self._said(value)}", "Ask again.")
            yield event

    def failed(self, error: Exception) -> EverstepError:
        """What kept the exchange from ending well."""
        reason = error.reason if isinstance(error, URLError) else error
        if isinstance(reason, EverstepError):
            return reason  # a network that is blocked on purpose
        if isinstance(reason, ssl.SSLCertVerificationError):
            return ModelError(self._endpoint, "its certificate is not trusted", "Check base_url, or whom you trust.")
        if isinstance(reason, TimeoutError):
            return ModelUnavailableError(
                self._endpoint, f"it took longer than {self._timeout:g} s", "Ask again, or give it more timeout."
            )
        if isinstance(reason, http.client.HTTPException):
            return ModelUnavailableError(
                self._endpoint, f"its answer was cut off, or is no HTTP ({type(reason).__name__})", "Ask again."
            )
        return ModelUnavailableError(
            self._endpoint, f"it cannot be reached ({reason})", "Check base_url and the network; then ask again."
        )

    def _refused(self, error: HTTPError) -> ModelError:
        status = error.code
        if 300 <= status < 400:
            return ModelError(
                self._endpoint, "it redirects, which is not followed because the key would go along",
                "Use the address that it redirects to as base_url.", status=status,
            )  # fmt: skip
        reason = f"status {status}{self._said(self._begun(error.fp))}"
        if status in _AGAIN or status >= 500:
            return ModelUnavailableError(self._endpoint, reason, "Ask again later.", status=status)
        return ModelError(self._endpoint, reason, _WAYS_OUT.get(status, "Look at what was asked."), status=status)

    def _parts(self, response: Any, limit: int) -> Iterator[bytes]:
        """What comes in, until that is more than the limit, or takes too long."""
        while limit >= 0 and (part := response.read1(_CHUNK)):
            yield part
            limit -= len(part)
            if time.monotonic() > self._ends:
                raise TimeoutError

    def _begun(self, response: Any) -> bytes:
        """The beginning of a body that is no answer, as far as it can be had."""
        body = b""
        with suppress(OSError, http.client.HTTPException):
            for part in self._parts(response, _MAX_ERROR):
                body += part
        return body

    def _said(self, body: bytes) -> str:
        """What an endpoint says of a failure, as one short line: never the key, which some of them repeat."""
        text = body.decode("utf-8", "replace")
        try:
            found = json.loads(text)["error"]
            text = str(found.get("message") or found) if isinstance(found, dict) else str(found)
        except (ValueError, KeyError, TypeError, RecursionError):
            pass  # whatever it is, its beginning is worth showing
        if self._key:
            text = text.replace(self._key, "[key]")
        text = " ".join(text.split())
        return f": {text[:_SHOWN].rstrip('.')}" if text else ""

    def _check(self, size: int) -> None:
        if size > MAX_BYTES:
            raise ModelError(self._endpoint, f"its answer is larger than {MAX_BYTES:,} bytes", "Ask for less.")

    def _parsed(self, data: bytes) -> Any:
        try:
            found = json.loads(data)
            if b"\\ud" in data.lower():  # perhaps half a character, which cannot be stored: it becomes a question mark
                found = json.loads(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))
            return found  # noqa: TRY300 - what comes after it is about both
        except (ValueError, RecursionError):
            raise ModelUnavailableError(
                self._endpoint, f"its answer is no JSON{self._said(data)}", "Ask again."
            ) from None


@contextmanager
def asking(exchange: Exchange, data: bytes, accept: str) -> Iterator[Exchange]:
    """An exchange from its question to its end. Raises ModelError whatever goes wrong."""
    try:
        exchange.open(data, accept)
        yield exchange
    except (OSError, http.client.HTTPException) as error:  # URLError and timeouts are among them
        raise exchange.failed(error) from None
    finally:
        exchange.close()
