"""Conversations as steps: what either side said, and how much had been said before each answer.

A whole conversation is one step, from its opening to its end: whether an answer can be had without what was said
before it, only the other side knows. So one that was cut off in the middle is no step that could be resumed; if it goes
again at all, then from its opening. Served from the record, an answer is given out as soon as the program has said as
much as it had said then, and what the program says is compared with what it said.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from everstep.capturing import calling as driver
from everstep.capturing import deltas, threads, turns
from everstep.capturing.calls import Call, Form
from everstep.capturing.exchange import Exchange, inside
from everstep.codec.values import encode, view
from everstep.run.lanes import Lane
from everstep.run.rehearsal import Rehearsal
from everstep.trail.compare import Change, changes

T = TypeVar("T")
PATIENCE = 60.0  # seconds until an answer counts as asked for too early: another thread may be about to say something
TOO_FEW = 1.0  # seconds until something counts as left unsaid: the same
CLOSE = "close"  # the channel of what the end gave
CLOSED: Any = object()  # heard when the conversation is over


class Opening:
    """How a conversation began, and what the program has said in it."""

    def __init__(self, opened: Any, said: list[dict[str, Any]] | None = None) -> None:
        self.opened = opened
        self.said = [] if said is None else said


class _Form(Form):
    """How conversations are stored."""

    def pack(
        self, head: Opening, chunks: Sequence[dict[str, Any]], offsets: Sequence[float], clean: Callable[[str], str]
    ) -> dict[str, Any]:
        """The stored form of a conversation. Secrets that one message holds are taken out by whoever stores it."""
        heard = [{**chunk, "at": round(at, 2)} for chunk, at in zip(_hidden(chunks, clean), offsets, strict=True)]
        return {"opened": head.opened, "said": head.said, "heard": heard}

    def unpack(self, stored: Mapping[str, Any]) -> tuple[Opening, list[dict[str, Any]]]:
        """The opening and what was heard."""
        return Opening(stored["opened"], list(stored["said"])), list(stored["heard"])


def _hidden(chunks: Sequence[dict[str, Any]], clean: Callable[[str], str]) -> Sequence[dict[str, Any]]:
    """What was heard, without the secrets that were said in several messages."""
    items = [item if isinstance(item := chunk.get("item"), dict) else {} for chunk in chunks]
    places = [(at, name) for at, item in enumerate(items) for name in item if isinstance(item[name], str)]
    lines = [items[at][name] for at, name in places]
    after = deltas.cleaned_lines(lines, clean)
    if after is lines:
        return chunks
    for (at, name), line in zip(places, after, strict=True):
        items[at] = {**items[at], name: line}
    return [{**chunk, "item": item} if item else chunk for chunk, item in zip(chunks, items, strict=True)]


FORM = _Form()
Connection = TypeVar("Connection")


class Sides(Generic[Connection]):
    """A conversation: what the two ways to wait share (the other one is `duplex_awaited`)."""

    def __init__(self, exchange: Exchange, opening: Opening, connection: Connection | None, heard: list[Any]) -> None:
        self.exchange = exchange
        self.opened = opening.opened
        self.connection = connection  # None where it is served from the record
        self._said = opening.said
        self._count = 0  # of what the program has said
        self._thread = threading.get_ident()
        self._heard: dict[str, deque[tuple[int, dict[str, Any]]]] = defaultdict(deque)
        for part, entry in enumerate(heard, 1):
            self._heard[entry.get("channel", "")].append((part, entry))

    @property
    def served(self) -> bool:
        """Whether it is answered from the record."""
        return self.connection is None

    # Live.

    def _saying(self, item: Any) -> dict[str, Any]:
        """Note what is about to be said: before it is, so that no answer to it can come first."""
        entry = {"item": item}
        self._said.append(entry)
        self._count += 1
        return entry

    def _entry(self, channel: str, **about: Any) -> dict[str, Any]:
        return {"after": self._count, **({"channel": channel} if channel else {}), **about}

    # On record.

    def _repeated(self, item: Any) -> None:
        """Compare what the program says. Raises what was raised then, and Halted."""
        at = self._count
        if at >= len(self._said):
            raise self._diverged("inserted", "what it said last", "more to be said", ())
        entry = self._said[at]
        gate = None if self.exchange.run.trail is None else self.exchange.run.trail.gate
        now = item if gate is None else view(gate.gate(item))
        if encode(now) != encode(entry["item"]):
            name = f"message {at + 1}"
            halted = self._diverged("changed argument", name, name, tuple(_sides(entry["item"], now, name)))
            if halted is not None:
                raise halted
        if "error" in entry:
            raise self.exchange.call.revive(*entry["error"])

    def _given(self, entry: Mapping[str, Any]) -> Any:
        if "error" in entry:
            raise self.exchange.call.revive(*entry["error"])
        return entry["item"]

    def _let_rest_go(self) -> None:
        """Have nobody wait for what was heard then and is not any more: it came when all was over."""
        recorded = self.exchange.ask.recorded
        if recorded is not None:
            self.exchange.run.turnstile.leave(recorded)
            for turn in recorded.turns:
                self.exchange.session.gate.went(turn)

    def _alone(self) -> bool:
        """Whether nobody else could say or close anything while this code waits."""
        return threading.get_ident() == self._thread and self.exchange.run.turnstile.lanes <= 1

    def _diverged(self, cause: str, recorded: str, requested: str, sides: tuple[Change, ...]) -> Any:
        """What to raise, as the code and the record part in this conversation. None if that is only to be noted."""
        run, name, was = self.exchange.run, self.exchange.call.name, self.exchange.run.divergence
        told = "; ".join(str(side)[2:].removeprefix("state.") for side in sides[:3])
        noted = self.exchange.diverged(
            cause, f"{name}, {recorded}", f"{name}, {requested}", f" Changed: {told}." if told else ""
        )
        if isinstance(run, Rehearsal):
            if was is None:
                run.found[-1] = replace(run.found[-1], changes=sides)
            if run.lenient and cause == "changed argument":
                run.divergence, run.stopping = was, None
                return None
        return self.exchange.halted(noted)


def _sides(was: Any, now: Any, name: str) -> list[Change]:
    """What differs between two messages, by field where they are JSON."""
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        return changes({key: _read(value) for key, value in was.items()}, {k: _read(value) for k, value in now.items()})
    return changes({name: _read(was)}, {name: _read(now)})


def _read(said: Any) -> Any:
    try:
        return json.loads(said)
    except (TypeError, ValueError):
        return said


class Talk(Sides[Connection]):
    """A conversation whose program waits for answers. Its threads may speak and listen at the same time."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._moved = threading.Condition()

    @threads.away
    def say(self, item: Any, live: Callable[[], T]) -> T | None:
        """Say something, as plain data; `live` does so. What `live` gives, or None where it is on record."""
        with self._moved:
            if self.served:
                try:
                    self._repeated(item)
                finally:
                    self._count += 1
                    self._moved.notify_all()
                return None
            entry = self._saying(item)
        try:
            with inside(self.exchange):
                return live()
        except Exception as error:  # whatever it is, the program gets it in a replay too
            entry["error"] = [type(error).__name__, str(error)]
            raise

    @threads.away
    def hear(self, live: Callable[[], Any], channel: str = "") -> Any:
        """What the other side says next, as plain data; CLOSED if nothing, as the record has it."""
        if self.served:
            return self._served(channel)
        try:
            with inside(self.exchange):
                item = live()
        except Exception as error:  # as above
            self._keep(channel, error=[type(error).__name__, str(error)])
            raise
        except BaseException as error:  # an exit is noted too
            driver.settle(self.exchange, self.exchange.end(error), error)
            raise
        self._keep(channel, item=item)
        return item

    def _keep(self, channel: str, **about: Any) -> None:
        if self.exchange.over:
            return
        turns.part_came(self.exchange)
        with self._moved:
            self.exchange.keep(self._entry(channel, **about))

    def _served(self, channel: str) -> Any:
        with self._moved:
            heard = self._heard[channel]
            if not heard:
                self._wait(lambda: self.exchange.over)
                return CLOSED
            part, entry = heard.popleft()
            self._wait(lambda: self._count >= entry["after"] or self.exchange.over)
        turns.part_due(self.exchange, part)
        return self._given(entry)

    def ended(self) -> None:
        """Wait, on record, until the program has ended it."""
        if self.served:
            with self._moved:
                self._wait(lambda: self.exchange.over)

    def _wait(self, until: Callable[[], bool]) -> None:
        if not until() and (self._alone() or not self._moved.wait_for(until, PATIENCE)):
            raise self._diverged("inserted", "what it heard then", "to hear more", ())

    @threads.away
    def close(self, live: Callable[[], Any]) -> Any:
        """End the conversation; `live` does so. What that gives, as plain data. The outcome is on record then."""
        exchange = self.exchange
        if exchange.over:
            return None if self.served else live()
        if not self.served:
            try:
                return self.hear(live, CLOSE)
            finally:
                driver.settle(exchange, exchange.end())
        with self._moved:
            if not self._moved.wait_for(lambda: self._count >= len(self._said), 0 if self._alone() else TOO_FEW):
                raise self._diverged("removed", f"message {self._count + 1}", "its end", ())
            last = self._heard[CLOSE].popleft() if self._heard[CLOSE] else None
        if last is not None:
            turns.part_due(exchange, last[0])
        exchange.left()
        self._let_rest_go()
        with self._moved:
            self._moved.notify_all()
        return None if last is None else self._given(last[1])


def open(lane: Lane, asked: Call, live: Callable[[], tuple[Any, Connection]]) -> Talk[Connection]:  # noqa: A001 - of a module that is named when it is used
    """Begin a conversation. `live` does so, and gives what there is to know of it, and the connection."""
    connections: list[Connection] = []

    def begun() -> tuple[Opening, None]:
        opened, connection = live()
        connections.append(connection)
        return Opening(opened), None

    opening, chunks = driver.call(lane, asked, begun)
    if connections:
        return Talk(chunks.exchange, opening, connections[0], [])
    assert isinstance(chunks, driver.RecordedChunks)  # noqa: S101 - it was not made
    return Talk(chunks.exchange, opening, None, list(chunks.rest))
