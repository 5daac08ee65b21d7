"""Agents as they run in production: thirty steps, and on the way all that goes wrong harmlessly."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from everstep import Retry, step, workflow
from tests.integration.why_scenarios import Program, World, ending

_ROUNDS = 13
_BAD = 7  # the round in which the tool's answer is step 14


def booking_agent(world: World) -> Program:
    """A model and a tool take turns; the answer at step 14 is malformed, the booking at step 27 of 30 fails."""
    hotels = world.words(_ROUNDS)
    model, tool, book, confirm, mail, tidy = world.names(6)
    form = world.rng.randint(0, 3)
    key = world.rng.choice(["rate", "price", "per_night"])

    @step(name=model)
    def think(history: int, hotel: str) -> str:
        return f"{world.prose(1)} I look at {hotel} next."

    @step(name=tool)
    def offer(hotel: str) -> Any:
        answer: dict[str, Any] = {
            "hotel": hotel,
            key: round(world.rng.uniform(60, 240), 2),
            "rooms": world.rng.randint(1, 9),
        }
        if world.rng.random() < 0.3:
            answer["remark"] = world.prose(1)
        if hotels.index(hotel) + 1 != _BAD or not world.faulty:
            return json.dumps(answer) if form == 3 else answer
        text = json.dumps(answer)
        return [{"hotel": hotel, "offers": []}, text, {**answer, key: f"{answer[key]} EUR"}, text[: len(text) // 2]][
            form
        ]

    def choose(offers: list[Any]) -> Any:
        known = [json.loads(each) if form == 3 else each for each in offers]
        return min(known, key=lambda each: float(each[key]) if form != 2 else each[key] + 0)

    booking = ending(world, book, choose)
    later = [step(name=name)(lambda booked: booked) for name in (confirm, mail, tidy)]

    @workflow(name=world.word())
    def agent(city: str) -> Any:
        offers = []
        for number, hotel in enumerate(hotels):
            think(number, hotel)
            offers.append(offer(hotel))
        booked = booking(offers)
        for each in later:
            booked = each(booked)
        return booked

    return agent, (world.word(),), (tool, _BAD - 1)


def _with_noise(  # noqa: C901 - one program, read from top to bottom
    world: World, fault: Callable[[int, dict[str, Any]], Any]
) -> Program:
    """Turns of search, read and note, with failures that were dealt with, gaps, repetitions and one large number."""
    count = 10
    topics = world.words(count)
    search, read, note, lookup, keep, end = world.names(6)
    refused, unknown, large, none = world.rng.sample([at for at in range(count) if at not in {4, 5}], 4)
    tries = {"count": 0}
    known = world.words(6)

    @step(name=search)
    def find(topic: str) -> list[str]:
        return [f"{topic}/{each}" for each in known[: world.rng.randint(3, 6)]]

    @step(name=read, retry=Retry(attempts=2, backoff=0.0))
    def fetch(page: str) -> Any:
        at = topics.index(page.partition("/")[0])
        if at == refused:
            tries["count"] += 1
            if tries["count"] == 1:
                raise ConnectionError(f"{page} was reset")
        size = world.rng.randint(300, 900) * (50 if at == large else 1)
        good = {"page": page, "views": size, "text": world.prose(2)}
        return fault(at, good)

    @step(name=lookup)
    def author(page: str) -> str | None:
        at = topics.index(page.partition("/")[0])
        if at == unknown:
            raise LookupError(f"nobody is known for {page}")
        return None if at == none else world.word().title()

    @step(name=keep)
    def relevant(pages: list[str]) -> list[str]:
        return pages[: world.rng.randint(2, len(pages))]

    @step(name=note)
    def write(topic: str, author: str | None) -> str:
        return world.prose(1)

    def compile_(found: list[Any]) -> list[Any]:
        return [each["text"].split()[0] + str(each["views"] // 2) for each in found]

    last = ending(world, end, compile_)

    @workflow(name=world.word())
    def agent(goal: str) -> Any:
        found = []
        for topic in topics:
            pages = relevant(find(topic))
            found.append(fetch(pages[0]))
            try:
                who = author(pages[0])
            except LookupError:
                who = None
            write(topic, who)
        return last(found)

    return agent, (world.word(),), (read, 4)


def noisy_agent(world: World) -> Program:
    """An answer without its text, among much that is odd and harmless; or only that, and a bug."""

    def fault(at: int, good: dict[str, Any]) -> Any:
        return {"page": good["page"], "views": good["views"], "title": "?"} if at == 4 and world.faulty else good

    return _with_noise(world, fault)


def noisy_agent_with_a_number_as_text(world: World) -> Program:
    """The same, where a number came as text."""

    def fault(at: int, good: dict[str, Any]) -> Any:
        return {**good, "views": str(good["views"])} if at == 4 and world.faulty else good

    return _with_noise(world, fault)
