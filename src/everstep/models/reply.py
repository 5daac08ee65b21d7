"""What a model answers, and what code that asks one needs to know of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from everstep.codec.registry import register

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer. What the endpoint did not tell is None: no count is made up."""

    text: str = ""
    tool_calls: tuple[dict[str, Any], ...] = ()  # as the endpoint gave them, to be handed back with its message
    model: str | None = None  # the one that answered, which may be called otherwise than the one that was asked
    finish_reason: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None  # those of the input that the endpoint had in its cache
    more: dict[str, Any] = field(default_factory=dict)  # what else the answer held, as plain data

    @property
    def message(self) -> dict[str, Any]:
        """The answer as a message, to go on with the conversation."""
        calls = {"tool_calls": [dict(call) for call in self.tool_calls]} if self.tool_calls else {}
        return {"role": "assistant", "content": self.text or None if calls else self.text, **calls}


register(Reply, name="everstep:Reply")  # a name of its own: where the class stands may change


class ModelClient(Protocol):
    """What code that asks a model needs: it does not say whose model it is."""

    def complete(self, messages: Sequence[Message], *, model: str, **settings: Any) -> Reply:
        """The answer to a conversation. Raises ModelError."""

    def stream(self, messages: Sequence[Message], *, model: str, **settings: Any) -> Iterator[str]:
        """The text of the answer, piece by piece. Raises ModelError."""
