"""Faults that came to mind when the others were found: another form of a date, another currency, an id made up."""

from __future__ import annotations

from datetime import date
from typing import Any

from everstep import step, workflow
from tests.integration.why_scenarios import Program, World, ending


def another_date(world: World) -> Program:
    """One flight has its day written in the way of another country."""
    count = world.rng.randint(7, 9)
    bad = world.place(count)
    tool, end = world.names(2)

    @step(name=tool)
    def flight(number: int) -> dict[str, Any]:
        day = date(2026, world.rng.randint(1, 12), world.rng.randint(1, 28))
        return {"flight": world.ident(), "day": f"{day:%d/%m/%Y}" if number == bad else f"{day:%Y-%m-%d}"}

    def order(flights: list[dict[str, Any]]) -> list[date]:
        return sorted(date.fromisoformat(each["day"]) for each in flights)

    last = ending(world, end, order)

    @workflow(name=world.word())
    def trip(city: str) -> Any:
        return last([flight(number) for number in range(count)])

    return trip, (world.word(),), (tool, bad)


def another_currency(world: World) -> Program:
    """One price is in another currency than all others."""
    count = world.rng.randint(8, 12)
    bad = world.place(count)
    tool, end = world.names(2)

    @step(name=tool)
    def price(number: int) -> dict[str, Any]:
        currency = "USD" if number == bad else "EUR"
        return {"sku": world.ident(), "amount": world.rng.randint(10, 90), "currency": currency}

    def total(prices: list[dict[str, Any]]) -> Any:
        if len({each["currency"] for each in prices}) > 1:
            raise ValueError("prices of two currencies have no sum")
        return sum(each["amount"] for each in prices)

    last = ending(world, end, total)

    @workflow(name=world.word())
    def basket(user: str) -> Any:
        return last([price(number) for number in range(count)])

    return basket, (world.word(),), (tool, bad)


def made_up_id(world: World) -> Program:
    """A model picks one of the ids that a search gave; once it names one that does not exist."""
    count = world.rng.randint(7, 10)
    bad, ids, ghost = world.place(count), [world.ident() for _ in range(count)], world.ident()
    search, pick, end = world.names(3)

    @step(name=search)
    def find(number: int) -> list[dict[str, Any]]:
        return [{"id": ids[number], "title": world.word()}]

    @step(name=pick)
    def choose(hits: list[dict[str, Any]]) -> Any:
        return ghost if hits[0]["id"] == ids[bad] and world.faulty else hits[0]["id"]

    def load(chosen: list[str]) -> list[int]:
        return [ids.index(each) for each in chosen]

    last = ending(world, end, load)

    @workflow(name=world.word())
    def answer(question: str) -> Any:
        return last([choose(find(number)) for number in range(count)])

    return answer, (world.word(),), (pick, bad)
