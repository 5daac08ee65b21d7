"""What a seam says of a call to the outside, and what is kept of the answer.

A call is a step whose outcome comes in two parts: a head, when the other side begins to answer, and chunks. What both
are is the business of the seam (`Form`); the rest of this package never looks inside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class Form(Protocol):
    """How the answers of one kind of call are stored."""

    def pack(self, head: Any, chunks: Sequence[Any], offsets: Sequence[float], clean: Callable[[str], str]) -> Any:
        """The stored form of an answer: plain data. `offsets` are the milliseconds from the head to each chunk.

        `clean` gives a text without its secrets. Whatever is given back is cleaned once more.
        """

    def unpack(self, stored: Any) -> tuple[Any, Sequence[Any]]:
        """Head and chunks of a stored answer."""

    def used(self, request: Mapping[str, Any], stored: Any) -> dict[str, Any] | None:
        """What the call used, as far as its answer tells: model, tokens, cost. Most tell nothing."""
        del request, stored
        return None


class Nothing:
    """Where there are no chunks."""

    def __next__(self) -> Any:
        raise StopIteration

    async def __anext__(self) -> Any:
        raise StopAsyncIteration

    def close(self) -> None:
        """Nothing to close either."""

    async def aclose(self) -> None:
        """As above."""


def _never(_: BaseException) -> bool:
    return False


@dataclass(slots=True)
class Call:
    """One call, as it is recorded and compared. To the engine it is a step."""

    name: str
    request: dict[str, Any]  # what is asked: compared with the record, and shown
    form: Form
    revive: Callable[[str, str], BaseException]  # an exception from its type's name and its text
    external: bool = False  # it changes the world, so it is announced, and never repeated unasked
    output: str | None = None  # where the outcome of a step goes in the state: that of a call goes nowhere
    node_type: str | None = None
    is_hidden: Callable[[], bool] | None = None  # whether a placeholder stands in it, of a secret in an earlier answer
    is_temporary: Callable[[Any], bool] | None = None  # whether an answer says that to ask later may help
    is_whole: Callable[[Any, Sequence[Any]], bool] | None = None  # whether head and chunks are all of an answer
    is_fit: Callable[[Any], bool] | None = None  # whether what a fork has put in the place of an answer is as asked for
    may_have_been: Callable[[BaseException], bool] = (
        _never  # whether it may have taken effect though it failed with this
    )
    is_telemetry: bool = False  # it is no step: sent where calls are live, and not recorded
    is_late: bool = False  # what is asked, and answered, can be looked at later
    tells_when_sent: bool = False  # its seam calls `sent` then, if there is one, to use the wait for the answer
    sent: Callable[[], None] | None = None
