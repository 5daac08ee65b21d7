"""Runs worth exporting, one of each kind, and the workflows that made them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import everstep
from everstep import Graph, Runner, Trail, node, pause, route, step, workflow
from everstep.run.workflows import Workflow

SECRET = "sk-proj-Abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"


@dataclass
class Offer:
    hotel: str
    price: int


@step
def search(city: str) -> list[Offer]:
    return [Offer("A", 90), Offer(f"B in {city}", 70)]


@step
def pay(offer: Offer) -> str:
    if offer.price < 80:
        raise ConnectionError("the card was declined")
    return f"paid {offer.price}"


@workflow
def booking(city: str, cheap: bool = True) -> str:  # noqa: FBT001, FBT002 - what a workflow is given
    return pay((min if cheap else max)(search(city), key=lambda offer: offer.price))


@workflow
def journey(cities: list[str]) -> list[str]:
    return [booking(city, cheap=False) for city in cities]


@step
def think(text: str) -> str:
    return text.upper()


@workflow
def approval(text: str) -> str:
    word = pause(f"send {text}?", options=["yes", "no"])
    return think(f"{text}: {word}")


@step
async def fetch(number: int) -> int:
    await asyncio.sleep(0)
    return number * number


@workflow
async def squares(count: int) -> int:
    return sum(await asyncio.gather(*(fetch(number) for number in range(count))))


@node(output="draft")
def write(topic: str) -> str:
    return f"about {topic}"


@route(targets=["polish", everstep.END])
def enough(draft: str) -> str:
    return "polish" if len(draft) < 20 else everstep.END


@node(output="text")
def polish(draft: str) -> str:
    return draft + ", polished"


essay = Graph([write, enough, polish], name="essay")


@node(output="title")
def name(text: str) -> str:
    return text.title()


book = Graph([essay.as_node(), name], name="book")


@step
def document(name: str) -> dict[str, Any]:
    return {"name": name, "body": "large " * 20_000}


@workflow
def library(name: str) -> int:
    return len(document(name)["body"]) + len(document(name)["body"])


def functions(trail: Trail) -> str:
    return Runner(trail).run(booking, "Rome", cheap=False, id="function", tags={"user": "ada"}).run_id


def failed(trail: Trail) -> str:
    with suppress(ConnectionError):
        Runner(trail).run(booking, "Rome", id="failed")
    return "failed"


def children(trail: Trail) -> str:
    return Runner(trail).run(journey, ["Rome", "Oslo"], id="children").run_id


def paused(trail: Trail) -> str:
    return Runner(trail).run(approval, "it", id="paused").run_id


def answered(trail: Trail) -> str:
    Runner(trail).run(approval, "it", id="answered")
    return Runner(trail).run(approval, id="answered", answer="yes").run_id


def awaited(trail: Trail) -> str:
    return Runner(trail).run(squares, 5, id="awaited").run_id


def graph(trail: Trail) -> str:
    return Runner(trail).run(essay, topic="tides", id="graph").run_id


def nested(trail: Trail) -> str:
    return Runner(trail).run(book, topic="tides", id="nested").run_id


def fork(trail: Trail) -> str:
    children(trail)
    trail.fork("children", 1, id="fork", inputs={"cities": ["Rome", "Bern"]}).release()
    return Runner(trail).run(journey, id="fork").run_id


def large(trail: Trail) -> str:
    return Runner(trail).run(library, "x", id="large").run_id


def cut_off(trail: Trail) -> str:
    with trail.record("whole", workflow="booking", inputs={"city": "Rome", "cheap": True}) as run:
        run.step("something", output=1)
    return trail.fork("whole", 0, id="cut off").run_id


KINDS: dict[str, tuple[Callable[[Trail], str], Workflow[..., Any]]] = {
    "function": (functions, booking),
    "failed": (failed, booking),
    "children": (children, journey),
    "paused": (paused, approval),
    "answered": (answered, approval),
    "awaited": (awaited, squares),
    "graph": (graph, essay),
    "nested": (nested, book),
    "fork": (fork, journey),
    "large": (large, library),
    "cut off": (cut_off, booking),
}
