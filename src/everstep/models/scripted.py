"""A model that says what it is told to: for tests and demonstrations."""

from __future__ import annotations

import copy
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from everstep.errors import ModelError
from everstep.models.leaf import RETRY, LeafClient
from everstep.models.prices import Prices
from everstep.models.reply import Reply
from everstep.run.retry import Retry

Line = str | Reply | Exception
Script = Iterable[Line] | Mapping[str, Line] | Callable[..., Line]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a model was asked."""

    messages: list[dict[str, Any]]
    model: str
    settings: dict[str, Any]


class ScriptedClient(LeafClient):
    """Answers from a script: in order; by the text of the last message; or by a function of what is asked.

    A line is a text, a Reply, or an exception that is raised. `asked` holds what it was asked, the oldest first.
    """

    def __init__(self, script: Script, *, prices: Prices | None = None, retry: Retry = RETRY) -> None:
        super().__init__(prices=prices, retry=retry)
        self._script = script if callable(script) or isinstance(script, Mapping) else list(script)
        self._lock = threading.Lock()
        self.asked: list[Asked] = []

    def ask(self, messages: list[dict[str, Any]], model: str, settings: dict[str, Any]) -> Reply:
        """The next line of the script."""
        line = self._line(Asked(*copy.deepcopy((messages, model, settings))))
        if isinstance(line, Exception):
            raise line
        return line if isinstance(line, Reply) else Reply(text=line, model=model, finish_reason="stop")

    def chunks(self, messages: list[dict[str, Any]], model: str, settings: dict[str, Any]) -> Iterator[str | Reply]:
        """The next line of the script, word by word."""
        reply = self.ask(messages, model, settings)
        yield from re.findall(r"\S+\s*|\s+", reply.text)
        yield reply

    def _line(self, asked: Asked) -> Line:
        with self._lock:
            number = len(self.asked)
            self.asked.append(asked)
        script, what = self._script, f"question {number + 1}"
        if callable(script):
            return script(asked.messages, model=asked.model, **asked.settings)
        if isinstance(script, Mapping):
            last = asked.messages[-1].get("content") if asked.messages else None
            if isinstance(last, str) and last in script:
                return script[last]
            what = f"a conversation that ends with {last!r:.80}"
        elif number < len(script):
            return script[number]
        raise ModelError("the script", f"it has no line for {what}", "Give ScriptedClient an answer for it.")
