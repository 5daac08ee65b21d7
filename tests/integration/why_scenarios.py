"""Programs that fail long after something went wrong, and programs that only have a bug at their end.

Each makes a world from a seed (names, values, sizes, the place of the fault) and is run for real. It says which step
was at fault by name and number; whoever looks for the cause sees the record alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from everstep import END, Graph, node, route, step, workflow

_SYLLABLES = ["ka", "lo", "mi", "ren", "su", "tor", "vel", "zan", "bri", "da", "fen", "gol", "har", "ix", "jun", "nor"]
_VERBS = ["fetch", "look_up", "ask", "query", "get", "pull", "call", "load", "request"]
_NOUNS = ["rows", "page", "record", "offer", "entry", "sheet", "note", "report", "ticket"]
_PROSE = [
    "the harbour opens early", "nobody had counted the boxes", "prices rose again in spring",
    "the committee met twice", "rain delayed every second train", "a new bridge was planned",
    "the archive holds older letters", "two witnesses remember the night", "the figures were checked by hand",
]  # fmt: skip

Culprit = tuple[str, int]  # the name of a step, and which of that name, from 0


@dataclass
class World:
    """What a program is made of."""

    rng: Random
    faulty: bool = True

    def word(self) -> str:
        return "".join(self.rng.sample(_SYLLABLES, 3))

    def words(self, count: int) -> list[str]:
        found: dict[str, None] = {}
        while len(found) < count:
            found[self.word()] = None
        return list(found)

    def name(self) -> str:
        return f"{self.rng.choice(_VERBS)}_{self.rng.choice(_NOUNS)}_{self.rng.choice(_SYLLABLES)}"

    def names(self, count: int) -> list[str]:
        found: dict[str, None] = {}
        while len(found) < count:
            found[self.name()] = None
        return list(found)

    def ident(self) -> str:
        return f"{self.rng.choice('ABCDEFGH')}-{self.rng.randint(1_000, 99_999)}"

    def place(self, count: int) -> int:
        """Where the fault is among so many; nowhere in a healthy world."""
        return self.rng.randint(count // 3, 2 * count // 3) if self.faulty else -1

    def prose(self, sentences: int) -> str:
        chosen = [self.rng.choice(_PROSE) for _ in range(sentences)]
        return " ".join(f"{each[0].upper()}{each[1:]} near {self.word().title()}." for each in chosen)


Program = tuple[Any, Any, Culprit]  # what is run, its inputs, who is at fault


def bug(rng: Random, world: World) -> Callable[[Any], Any]:
    """A plain mistake in code, whatever it is given."""
    table = {"limit": world.rng.randint(2, 9)}
    bugs: list[Callable[[Any], Any]] = [
        lambda given: table["limits"],
        lambda given: given.total_amount,
        lambda given: len(given) + "1",  # type: ignore[operator] # the bug
        lambda given: len(given) / (table["limit"] - table["limit"]),
        lambda given: int("n/a"),
        lambda given: [1, 2, 3][table["limit"] + 10],
        lambda given: undefined_name,  # type: ignore[name-defined] # noqa: F821 - the bug
        lambda given: json.loads("settings = none"),
        lambda given: (_ for _ in ()).throw(RuntimeError("the printer is on fire")),
        lambda given: max([]),
    ]
    return rng.choice(bugs)


def ending(world: World, name: str, check: Callable[..., Any]) -> Any:
    """The last step: the check, or a bug where nothing else went wrong."""
    return step(name=name)(check if world.faulty else bug(world.rng, world))


# A tool that gives a bad answer.


def bad_answer(world: World) -> Program:
    """An agent collects offers; one answer has another form, and the sum at the end needs all of them."""
    count = world.rng.randint(8, 12)
    bad, items = world.place(count), world.words(count)
    tool, think, write, end = world.names(4)
    amount, style = world.rng.choice(["price", "cost", "fee", "amount"]), world.rng.randint(0, 3)
    prices = [world.rng.randint(20, 900) for _ in items]

    @step(name=tool)
    def look(item: str) -> Any:
        at = items.index(item)
        if at == bad:
            answers: list[Any] = [
                {"item": item, "message": "not offered in your region"},
                f"<html><body>{world.word()} gateway</body></html>",
                {"item": item, "offers": []},
                None,
            ]
            return answers[style]
        extra = {"note": world.word()} if at % 3 == 0 else {}
        return {"item": item, amount: prices[at], "currency": "EUR", **extra}

    @step(name=think)
    def reason(item: str, round_: int) -> str:
        return f"Next I compare {item} with what is known after round {round_}."

    @step(name=write)
    def outline(items: list[str]) -> str:
        return world.prose(2)

    def total(offers: list[Any]) -> int:
        return sum(offer[amount] for offer in offers)

    last = ending(world, end, total)

    @workflow(name=world.word())
    def agent(topic: str) -> Any:
        offers = []
        for at, item in enumerate(items):
            reason(item, at)
            offers.append(look(item))
        outline(items)
        return last(offers)

    return agent, (world.word(),), (tool, bad)


# A message that gets lost.


def lost_message(world: World) -> Program:
    """Batches go through a relay; one item of one batch does not come out."""
    rounds = world.rng.randint(6, 9)
    bad = world.place(rounds)
    poll, relay, apply, end = world.names(4)
    batches = [
        [{"id": world.ident(), "qty": world.rng.randint(1, 9)} for _ in range(world.rng.randint(3, 5))]
        for _ in range(rounds)
    ]
    gone = world.rng.randint(0, 2)

    @step(name=poll)
    def take(number: int) -> list[dict[str, Any]]:
        return batches[number]

    @step(name=relay)
    def pass_on(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        out = [{**each, "via": "relay"} for each in messages]
        if batches.index(messages) == bad:
            del out[gone]
        return out

    @step(name=apply)
    def carry_out(messages: list[dict[str, Any]]) -> int:
        return sum(each["qty"] for each in messages)

    def reconcile(expected: list[str], seen: list[str]) -> None:
        missing = sorted(set(expected) - set(seen))
        if missing:
            raise RuntimeError(f"{len(missing)} of {len(expected)} orders were not carried out, first {missing[0]}")

    last = ending(world, end, reconcile)

    @workflow(name=world.word())
    def shop(day: str) -> Any:
        seen: list[str] = []
        for number in range(rounds):
            passed = pass_on(take(number))
            carry_out(passed)
            seen += [each["id"] for each in passed]
        expected = [each["id"] for batch in batches for each in batch]
        return last(expected, seen) if world.faulty else last(seen)

    return shop, (world.word(),), (relay, bad)


# A route that is wrong.


def wrong_route(world: World) -> Program:
    """Tickets are sorted by their subject; one goes the wrong way, and what is made of it does not hold in the end."""
    count = world.rng.randint(10, 13)
    bad = world.place(count)
    left, right, tail, take, sort = world.names(5)
    subjects = {left: world.word(), right: world.word()}
    ways = [left, right] * count
    tickets = [
        {"id": world.ident(), "subject": subjects[ways[at]], "text": world.prose(1)} for at in range(count)
    ]  # fmt: skip

    def choose(ticket: dict[str, Any]) -> str:
        right_way = left if ticket["subject"] == subjects[left] else right
        wrong_way = right if right_way == left else left
        return wrong_way if ticket["id"] == tickets[bad]["id"] and world.faulty else right_way

    def check(ledger: list[dict[str, Any]]) -> int:
        for entry in ledger:
            if entry["by"] != (left if entry["subject"] == subjects[left] else right):
                raise ValueError(f"entry {entry['ticket']} cannot be closed")
        return len(ledger)

    def entry(ticket: dict[str, Any], by: str) -> dict[str, Any]:
        return {"ticket": ticket["id"], "subject": ticket["subject"], "by": by}

    if world.rng.random() < 0.5:
        sorter = step(name=sort)(choose)
        handlers = {way: step(name=way)(lambda ticket, way=way: entry(ticket, way)) for way in (left, right)}
        last = ending(world, tail, check)

        @workflow(name=world.word())
        def desk(day: str) -> Any:
            return last([handlers[sorter(ticket)](ticket) for ticket in tickets])

        return desk, (world.word(),), (sort, bad)

    def next_ticket(ledger: list[dict[str, Any]]) -> dict[str, Any]:
        return tickets[len(ledger)] if len(ledger) < count else {"id": "", "subject": "", "text": ""}

    def way_of(ticket: dict[str, Any]) -> str:
        return choose(ticket) if ticket["id"] else tail

    nodes = [
        node(output="ticket", name=take)(next_ticket),
        route(targets=[left, right, tail, END], name=sort)(way_of),
        *(
            node(output="ledger", name=way)(_handler(entry, way))
            for way in (left, right)
        ),
        node(output="closed", name=tail)(check if world.faulty else _of_ledger(bug(world.rng, world))),
    ]  # fmt: skip
    return Graph(nodes, name=world.word()), ({"ledger": []},), (sort, bad)


def _handler(entry: Callable[..., Any], way: str) -> Callable[..., Any]:
    def handle(ticket: dict[str, Any], ledger: list[Any]) -> list[Any]:
        return [*ledger, entry(ticket, way)]

    return handle


def _of_ledger(broken: Callable[[Any], Any]) -> Callable[..., Any]:
    def last(ledger: list[Any]) -> Any:
        return broken(ledger)

    return last


# A value that is old.


def stale_value(world: World) -> Program:
    """Stock is read, changed and read again; one read comes from a copy that lags behind."""
    goods, rounds = world.words(3), 4
    reader, writer, end = world.names(3)
    field = world.rng.choice(["stock", "left", "free", "units"])
    stock = {each: world.rng.randint(200, 900) for each in goods}
    older: dict[str, int] = dict(stock)
    bad, reads = world.rng.randint(5, 9) if world.faulty else -1, [0]

    @step(name=reader)
    def read(good: str) -> dict[str, Any]:
        at, reads[0] = reads[0], reads[0] + 1
        return {"good": good, field: older[good] if at == bad else stock[good]}

    @step(name=writer)
    def change(good: str, amount: int) -> dict[str, Any]:
        older[good], stock[good] = stock[good], stock[good] - amount
        return {"good": good, field: stock[good]}

    def settle(counts: list[Any]) -> None:
        for good, seen, real in counts:
            if seen != real:
                raise RuntimeError(f"{good}: planned with {seen}, there are {real}")

    last = ending(world, end, settle)

    @workflow(name=world.word())
    def store(day: str) -> Any:
        counts = []
        for _ in range(rounds):
            for good in goods:
                found = read(good)
                counts.append([good, found[field], stock[good]])
                change(good, world.rng.randint(3, 40))
        return last(counts)

    return store, (world.word(),), (reader, bad)


# An error that was caught.


def swallowed_error(world: World) -> Program:
    """One page could not be had; the code goes on without it, and misses it at the end."""
    count = world.rng.randint(9, 12)
    bad, pages = world.place(count), world.words(count)
    tool, digest, end = world.names(3)
    error = world.rng.choice([ConnectionError, OSError, PermissionError, ValueError])

    @step(name=tool)
    def fetch(page: str) -> str:
        if pages.index(page) == bad:
            raise error(f"{world.word()} closed the line")
        return world.prose(3)

    @step(name=digest)
    def shorten(text: str) -> str:
        return text.partition(".")[0] + "."

    def bind(book: dict[str, str]) -> str:
        return "\n".join(book[page] for page in pages)

    last = ending(world, end, bind)

    @workflow(name=world.word())
    def editor(title: str) -> Any:
        book = {}
        for page in pages:
            try:
                book[page] = shorten(fetch(page))
            except error:
                continue
        return last(book)

    return editor, (world.word(),), (tool, bad)
