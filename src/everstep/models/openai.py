"""Endpoints that speak as OpenAI's does: most vendors have one, and most servers for models of one's own."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from everstep.errors import ModelError, ModelUnavailableError
from everstep.model import Secret
from everstep.models.http import Exchange, asking
from everstep.models.leaf import RETRY, LeafClient
from everstep.models.prices import Prices
from everstep.models.reply import Reply
from everstep.run.retry import Retry

_PATH = "/chat/completions"
_SECONDS = 120.0
# Told elsewhere in a Reply; or new with every answer, so that no two would be the same: its id and its time.
_KNOWN = frozenset({"id", "object", "created", "model", "usage", "choices"})
_IN_MESSAGE = frozenset({"role", "content", "tool_calls"})


class OpenAIClient(LeafClient):
    """Asks an endpoint that speaks as OpenAI's does, such as `https://api.openai.com/v1`.

    The key is `api_key`, or what the environment variable `api_key_env` holds when a model is asked; without either,
    none is sent. It is never stored and in no text. `timeout` is in seconds: for a whole answer, or each piece of one.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | Secret[str] | None = None,
        api_key_env: str | None = None,
        timeout: float = _SECONDS,
        prices: Prices | None = None,
        retry: Retry = RETRY,
    ) -> None:
        super().__init__(prices=prices, retry=retry)
        parts = urlsplit(base_url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("base_url is no address of an endpoint; give one like 'https://api.openai.com/v1'")
        if "@" in parts.netloc:
            raise ValueError("base_url holds a name or a password; give the key as api_key=Secret(...)")
        if api_key is not None and api_key_env is not None:
            raise ValueError("the key is given twice; use api_key or api_key_env")
        if not timeout > 0:
            raise ValueError(f"timeout is {timeout}; give the seconds that an answer may take")
        self._url = urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") + _PATH, parts.query, ""))
        self._endpoint = urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))  # a query may hold a key
        self._key = Secret(api_key) if isinstance(api_key, str) else api_key
        self._variable = api_key_env
        self._timeout = timeout

    def ask(self, messages: list[dict[str, Any]], model: str, settings: dict[str, Any]) -> Reply:
        """The answer, from one exchange."""
        with self._asking({"model": model, "messages": messages, **settings}, "application/json") as exchange:
            return self._read(exchange.json())

    def chunks(self, messages: list[dict[str, Any]], model: str, settings: dict[str, Any]) -> Iterator[str | Reply]:
        """The pieces of the answer, as its events come in."""
        about = {"model": model, "messages": messages, "stream_options": {"include_usage": True}, **settings}
        last = Reply()
        with self._asking({**about, "stream": True}, "text/event-stream") as exchange:
            for event in exchange.events():
                piece = self._read(event, "delta")
                if piece.text:
                    yield piece.text
                last = _newer(last, piece)
            if last.finish_reason is None and not exchange.done:
                raise ModelUnavailableError(self._endpoint, "the stream was cut off", "Ask again.")
        yield last

    def _asking(self, body: dict[str, Any], accept: str) -> Any:
        try:
            data = json.dumps(body, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise ModelError(
                self._endpoint, f"what is asked has no form as JSON ({error})", "Ask with plain data."
            ) from None
        return asking(Exchange(self._endpoint, self._url, self._secret(), self._timeout), data, accept)

    def _secret(self) -> str | None:
        if self._key is None and self._variable is None:
            return None
        key = (os.environ.get(self._variable, "") if self._key is None else self._key.reveal()).strip()  # type: ignore[arg-type] # one of the two
        if not key or not key.isascii() or not key.isprintable():  # an HTTP library would show it in its error
            where = "api_key" if self._variable is None else f"the environment variable {self._variable}"
            raise ModelError(self._endpoint, f"{where} holds no key that could be sent", "Give it the key.")
        return key

    def _read(self, body: Any, part: str = "message") -> Reply:
        """What a body, or an event of a stream, says. Of a stream most say little."""
        try:
            choices = body.get("choices") or ([] if part == "delta" else [{part: None}])
            first = choices[0] if choices else {part: {}}
            said, used = first[part] or ({} if part == "delta" else first[part]), body.get("usage") or {}
            return Reply(
                text=_text(said.get("content")),
                tool_calls=tuple(dict(call) for call in said.get("tool_calls") or ()),
                model=_word(body.get("model")), finish_reason=_word(first.get("finish_reason")),
                input_tokens=_count(used.get("prompt_tokens")), output_tokens=_count(used.get("completion_tokens")),
                cached_tokens=_count((used.get("prompt_tokens_details") or {}).get("cached_tokens")),
                more=_more(body, said, choices),
            )  # fmt: skip
        except (AttributeError, KeyError, TypeError, ValueError):
            raise ModelError(
                self._endpoint, "its answer has not the form of a chat completion", "Look at what answers there."
            ) from None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._endpoint!r}>"


def _newer(last: Reply, piece: Reply) -> Reply:
    """What is known of a stream after a further piece: all but its text, which was handed on."""
    told = {
        name: getattr(piece, name) if getattr(piece, name) is not None else getattr(last, name)
        for name in ("model", "finish_reason", "input_tokens", "output_tokens", "cached_tokens")
    }
    return Reply(**told)


def _text(content: Any) -> str:
    """The text of a message: some endpoints give it in parts."""
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content)
    if content is not None and not isinstance(content, str):
        raise TypeError
    return content or ""


def _word(given: Any) -> str | None:
    return given if isinstance(given, str) else None


def _count(given: Any) -> int | None:
    return given if type(given) is int and given >= 0 else None


def _more(body: dict[str, Any], said: dict[str, Any], choices: list[Any]) -> dict[str, Any]:
    """What an answer holds beside: fields of this vendor or that, further choices, what the model refused to say."""
    found = {name: value for name, value in body.items() if name not in _KNOWN}
    found |= {name: value for name, value in said.items() if name not in _IN_MESSAGE}
    found |= {"choices": choices[1:]} if len(choices) > 1 else {}
    return {name: value for name, value in found.items() if value is not None and value != []}
