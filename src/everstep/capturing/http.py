"""HTTP calls as steps: what is asked, what is kept of the answer, and the answer made again from it.

Kept is what was said, not how it travelled: a body is stored decoded, as text where it is text, in one piece with the
sizes of its chunks. Headers of the request are not stored at all, and no part of what is compared: they carry keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from everstep.capturing import codings, deltas
from everstep.capturing.calls import Call
from everstep.capturing.sizes import by_lines, by_placeholders
from everstep.capturing.telemetry import is_telemetry
from everstep.policy.redaction import PLACEHOLDER
from everstep.trail import providers
from everstep.trail.schemas import nests

Headers = list[tuple[str, str]]
_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "QUERY"})  # they change nothing, so they may go again
FIELDS = frozenset(
    {
        "body", "cancelled", "headers", "jar", "missing", "offsets", "open", "raw", "reason", "sizes", "status",
        "unpacked", "version",
    }
)  # fmt: skip
_AS_JSON = [["content-type", "application/json"]]
_JSON_BEGINS = (b"{", b"[")
_read_json = json.JSONDecoder().raw_decode
_BOUNDARY = re.compile(r'boundary="?([^";]+)')
_HIDDEN = PLACEHOLDER.decode()
# The last event of an answer in events: of OpenAI's chat and what is like it, of Anthropic's messages, of responses.
_LAST_EVENT = re.compile(
    rb"(?:^|\n)(?:data: ?\[DONE\]|event: ?(?:message_stop|response\.(?:completed|failed|incomplete))\r?\ndata:[^\r\n]*)"
    rb"(?:\r?\n){2}\Z"
)
_DEEPEST = 200  # levels of what a body says
_HALVES = (b"\\ud", b"\\uD")  # what half a character may begin with in JSON
# Errors that say that nothing was sent: of httpx and httpx2, of urllib3, of aiohttp, and of Python.
_UNSENT = frozenset(
    {
        "ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError", "UnsupportedProtocol", "LocalProtocolError",
        "NewConnectionError", "ConnectTimeoutError", "LocationParseError",
        "ClientConnectorError", "ConnectionTimeoutError", "InvalidURL",
        "ConnectionRefusedError", "gaierror", "SSLCertVerificationError",
    }
)  # fmt: skip
_BLANK = re.compile(rb"\n\r?\n")  # between two events
_BAD = 400
# Answers that may be others when asked again, later or with another key.
_LATER, _SERVER_ERROR = frozenset({401, 402, 403, 407, 408, 409, 425, 429}), 500


class Head:
    """The beginning of an answer. `length` is that of the whole body; None if it is not told before."""

    __slots__ = ("_named", "headers", "length", "reason", "status", "version")

    def __init__(self, status: int, headers: Headers, version: str = "HTTP/1.1", reason: str = "") -> None:
        self.status, self.headers, self.version, self.reason = status, headers, version, reason
        self._named = {name.lower(): value for name, value in reversed(headers)}  # of several by one name, the first
        told = self._named.get("content-length", "")
        self.length = int(told) if told.isdecimal() else None

    def get(self, name: str) -> str | None:
        """The value of a header, by its name in lower case."""
        return self._named.get(name)

    def lines(self) -> bytes:
        """As its server would send it, by HTTP/1."""
        lines = [f"{self.version} {self.status} {self.reason}", *(f"{name}: {value}" for name, value in self.headers)]
        return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")


def pairs(raw: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Headers, from their bytes."""
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in raw]


def request(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    revive: Callable[[str, str], BaseException],
) -> Call:
    """A call, from what a library is about to send."""
    asked: dict[str, Any] = {"method": method, "url": url}
    parts, said = urlsplit(url), None
    if body:
        # What begins as JSON is taken for it whatever its headers say, and to look into them takes some time.
        said = _asked(body, "" if body.startswith(_JSON_BEGINS) else headers.get("content-type", ""))
        asked["body"] = said if _is_storable(said, body) else body.decode()
    model = providers.of(method, parts.path, said)
    name = f"{method} {parts.hostname}" if model is None else model
    external = method not in _SAFE and model is None
    node_type = "http" if model is None else "model"
    return Call(
        name, asked, FORM, revive, external=external, node_type=node_type, is_temporary=_is_temporary,
        is_whole=_is_whole, is_fit=_is_in_events if _wants_events(said) else None,
        is_hidden=lambda: PLACEHOLDER in body or _HIDDEN in "\n".join((url, *headers.values())),
        may_have_been=_may_have_been,
        is_telemetry=model is None and is_telemetry(method, parts.hostname, parts.path),
        is_late=True,
    )  # fmt: skip


def _is_whole(head: Head, chunks: Sequence[bytes]) -> bool:
    """Whether an answer is all there, though nobody looked for its end: many a client stops at its last event."""
    is_all = head.length is not None and sum(map(len, chunks)) == head.length
    return is_all or _LAST_EVENT.search(_end_of(chunks)) is not None


def _end_of(chunks: Sequence[bytes]) -> bytes:
    """The end of a body, from before its last event: it is asked for with each call beside a stream that is open."""
    parts: list[bytes] = []
    for chunk in reversed(chunks):
        is_before = bool(parts) and _BLANK.search(chunk) is not None
        if chunk:
            parts.append(chunk)
        if is_before:
            break
    return b"".join(reversed(parts))


def _is_temporary(stored: Mapping[str, Any]) -> bool:
    return stored["status"] in _LATER or stored["status"] >= _SERVER_ERROR


def _may_have_been(error: BaseException) -> bool:
    """Whether the other side may have acted on a request that failed so: nothing says that it was not even sent."""
    cause: BaseException | None = error
    while cause is not None:  # and not its context, which may be the failure of an earlier call
        if not _UNSENT.isdisjoint(base.__name__ for base in type(cause).__mro__):
            return False
        cause = cause.__cause__
    return True


def _asked(body: bytes, kind: str) -> Any:
    """The body of a request as it is compared and shown: its meaning, where that is known."""
    drawn = _BOUNDARY.search(kind) if kind.startswith("multipart/") else None
    if drawn is not None:  # it is made of chance, and means nothing
        body = body.replace(drawn[1].encode(), b"boundary")
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return body
    is_json = body.startswith(_JSON_BEGINS)
    if is_json or "json" in kind:
        try:
            found, end = _read_json(text) if is_json else (None, 0)
            if end != len(text):  # what is around it is looked at, too
                found = json.loads(text)
        except (ValueError, RecursionError):
            return text
        # The order of settings means nothing; further in, that of a tool's parameters may mean something to a model.
        return dict(sorted(found.items())) if isinstance(found, dict) else found
    if "x-www-form-urlencoded" in kind:
        return [list(pair) for pair in parse_qsl(text, keep_blank_values=True)]
    return text


def _is_storable(said: Any, body: bytes) -> bool:
    """Whether what a body says can be stored: no half characters, not too many levels. As it was sent, it can be."""
    if isinstance(said, str | bytes):
        return True
    if body.count(b"[") + body.count(b"{") > _DEEPEST and nests(said) > _DEEPEST:
        return False
    if not any(half in body for half in _HALVES):
        return True
    try:
        json.dumps(said, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):
        return False
    return True


def _cookies(headers: Headers, clean: Callable[[str], str]) -> list[list[str]]:
    """Name, hidden value and the rest of each cookie that is set: what the program gets in its place works as one."""
    kept = []
    for header, value in headers:
        if header.lower() == "set-cookie":
            name, _, rest = value.partition("=")
            secret, semicolon, more = rest.partition(";")
            hidden = json.loads(clean(json.dumps({"cookie": secret})))["cookie"]
            kept.append([name, hidden, semicolon + more])
    return kept


def is_answer(stored: Any) -> bool:
    """Whether a value is the stored form of an answer, and not the body of one: many bodies have a `status`, too."""
    return isinstance(stored, Mapping) and type(stored.get("status")) is int and stored.keys() <= FIELDS


def _wants_events(said: Any) -> bool:
    return isinstance(said, Mapping) and said.get("stream") is True


def _is_in_events(stored: Any) -> bool:
    """Whether an answer can be one in events, or tells why there is none. Clients pass over one that is whole."""
    return is_answer(stored) and (stored["status"] >= _BAD or isinstance(stored.get("body", b""), str | bytes))


class _Form:
    """How HTTP answers are stored."""

    def pack(
        self, head: Head, chunks: Sequence[bytes], offsets: Sequence[float], clean: Callable[[str], str]
    ) -> dict[str, Any]:
        """The stored form of an answer."""
        stored: dict[str, Any] = {"status": head.status, "body": b""}  # what people look for comes first
        stored["headers"] = list(map(list, head.headers))
        if head.get("set-cookie") is not None:
            stored["jar"] = _cookies(head.headers, clean)
        if head.version != "HTTP/1.1":
            stored["version"] = head.version
        if head.reason:
            stored["reason"] = head.reason
        missing = 0 if head.length is None else head.length - sum(map(len, chunks))
        if missing:
            stored["missing"] = missing  # it was cut off, or left, or only its head was asked for
        coding = (head.get("content-encoding") or "").strip().lower()
        said = codings.decoded(chunks, coding)
        if said is None:
            stored["raw"] = True
        elif not said[1]:
            stored["open"] = True  # its coding has not come to its end
        pieces = chunks if said is None else said[0]
        whole, sizes = b"".join(pieces), list(map(len, pieces))
        if said is not None and deltas.may_hold(whole):
            whole, sizes = _joined(whole, sizes, clean)
        # In one piece it is cleaned when it is written; in several, now, to know their sizes.
        body, cleaned = _cleaned(whole, clean if len(sizes) > 1 else str)
        stored["body"] = body
        if len(sizes) > 1:
            stored["sizes"] = sizes if cleaned is None else by_placeholders(whole, cleaned, sizes)
            stored["offsets"] = [round(each, 2) for each in offsets]
        return stored

    def unpack(self, stored: Mapping[str, Any]) -> tuple[Head, list[bytes]]:
        """Head and chunks of a stored answer; or of what a fork has put in its place: any value is the body of one."""
        if not is_answer(stored):
            stored = {"status": 200, "body": json.dumps(stored), "headers": _AS_JSON}
        elif not isinstance(stored.get("body", b""), str | bytes):
            stored = {"headers": _AS_JSON, **stored, "body": json.dumps(stored["body"])}
        get = stored.get
        kept = get("body", b"")
        body = str(kept).encode() if isinstance(kept, str) else bytes(kept)
        headers = [(name, str(value)) for name, value in get("headers", ())]
        rest = get("version", "HTTP/1.1"), get("reason", "")
        head = Head(stored["status"], headers, *rest)
        if head.get("set-cookie") is not None:
            cookies = iter(get("jar", ()))
            baked = [
                (name, "{}={}{}".format(*next(cookies, ("", value, ""))) if name.lower() == "set-cookie" else value)
                for name, value in headers
            ]
            head = Head(stored["status"], baked, *rest)
        chunks = [body]
        if sizes := get("sizes"):
            # Chunks that say nothing stay: they had their turns among others, and whoever reads passes over them.
            chunks = [body[start:end] for start, end in pairwise(accumulate(sizes, initial=0))]
        coding = head.get("content-encoding")
        if coding is not None and not get("raw"):
            chunks = codings.encoded(chunks, coding.strip().lower(), ended=not get("open"))
        if head.length is not None:  # what is stored is decoded and cleaned; the headers stay what they were
            head.length = sum(map(len, chunks)) + get("missing", 0)
        return head, chunks

    def used(self, asked: Mapping[str, Any], stored: Any) -> dict[str, Any] | None:
        """What a model's answer says that it used."""
        return providers.used(asked, stored)


FORM = _Form()


def _joined(body: bytes, sizes: list[int], clean: Callable[[str], str]) -> tuple[bytes, list[int]]:
    """A stream of events without the secrets that run through several of them, and the sizes of its chunks."""
    try:
        text = body.decode()
    except UnicodeDecodeError:  # it was cut off in a character: what there is, is looked through as it is
        return body, sizes
    after = deltas.cleaned(text, clean)
    return (body, sizes) if after == text else (after.encode(), by_lines(text, after, sizes))


def _cleaned(body: bytes, clean: Callable[[str], str]) -> tuple[str | bytes, bytes | None]:
    """A body without its secrets: text where it is text. With its bytes, if they changed."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        plain = body.decode("latin-1")
        cleaned = clean(plain)
        return (body, None) if cleaned == plain else (cleaned.encode("latin-1"), cleaned.encode("latin-1"))
    cleaned = str(clean(text))
    return cleaned, None if cleaned == text else cleaned.encode()
