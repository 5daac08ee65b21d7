"""The other half of the programs of `why_scenarios`: time, types, texts, doubles and units."""

from __future__ import annotations

import json
import threading
from typing import Any

from everstep import Graph, node, route, step, workflow
from everstep.errors import StepTimeoutError
from tests.integration.why_scenarios import Program, World, ending


def timeout(world: World) -> Program:
    """One source does not answer in time; what is known of it stays empty, and is needed at the end."""
    count = world.rng.randint(8, 11)
    bad, sources = world.place(count), world.words(count)
    tool, rank, end = world.names(3)
    never = threading.Event()

    @step(name=tool, timeout=0.05)
    def ask(source: str) -> list[dict[str, Any]]:
        if sources.index(source) == bad:
            never.wait(0.5)
        return [{"source": source, "score": world.rng.randint(30, 99), "title": world.word()} for _ in range(3)]

    @step(name=rank)
    def order(found: list[dict[str, Any]]) -> list[str]:
        return [each["title"] for each in sorted(found, key=lambda each: each["score"])]

    def choose(best: dict[str, list[str]]) -> list[str]:
        return [titles[0] for titles in best.values()]

    last = ending(world, end, choose)

    @workflow(name=world.word())
    def search(topic: str) -> Any:
        best = {}
        for source in sources:
            try:
                found = ask(source)
            except StepTimeoutError:
                found = []
            best[source] = order(found)
        return last(best)

    return search, (world.word(),), (tool, bad)


def type_change(world: World) -> Program:
    """A sensor gives text instead of a number once; the mean at the end cannot be had."""
    count = world.rng.randint(9, 14)
    bad, sensors = world.place(count), world.words(count)
    probe, log, end = world.names(3)
    field = world.rng.choice(["value", "reading", "level", "celsius"])
    values = [round(world.rng.uniform(12, 31), 1) for _ in sensors]

    @step(name=probe)
    def measure(sensor: str) -> dict[str, Any]:
        at = sensors.index(sensor)
        value: Any = values[at] if at != bad else str(values[at]).replace(".", ",")
        return {"sensor": sensor, field: value, "at": f"2026-03-{at + 1:02}"}

    @step(name=log)
    def keep(line: str) -> int:
        return len(line)

    def mean(readings: list[dict[str, Any]]) -> Any:
        return sum(each[field] for each in readings) / len(readings)

    if world.rng.random() < 0.4:
        return _measured_by_a_graph(world, sensors, probe, end, bad, measure.function, mean)
    last = ending(world, end, mean)

    @workflow(name=world.word())
    def plant(day: str) -> Any:
        readings = []
        for sensor in sensors:
            readings.append(measure(sensor))
            keep(f"{sensor} was read")
        return last(readings)

    return plant, (world.word(),), (probe, bad)


def _measured_by_a_graph(
    world: World, sensors: list[str], probe: str, end: str, bad: int, measure: Any, mean: Any
) -> Program:
    """The same in a graph that reads one sensor each time round."""
    finish = ending(world, end, mean).function
    head, gather, turn = world.names(3)

    @node(output="sensor", name=head)
    def pick(readings: list[Any]) -> str:
        return sensors[len(readings)] if len(readings) < len(sensors) else ""

    @route(targets=[probe, end], name=turn)
    def go_on(sensor: str) -> str:
        return probe if sensor else end

    @node(output="reading", name=probe)
    def read(sensor: str) -> Any:
        return measure(sensor)

    @node(output="readings", name=gather)
    def add(reading: Any, readings: list[Any]) -> list[Any]:
        return [*readings, reading]

    @node(output="mean", name=end)
    def last(readings: list[Any]) -> Any:
        return finish(readings)

    nodes = [pick, go_on, read, add, last]
    return Graph(nodes, name=world.word()), ({"readings": []},), (probe, bad)


def truncated_text(world: World) -> Program:
    """A model's answer is cut off once: JSON that cannot be read at the end, or a section without an end."""
    count = world.rng.randint(8, 12)
    bad, topics = world.place(count), world.words(count)
    model, review, end = world.names(3)
    as_json = world.rng.random() < 0.6

    @step(name=model)
    def answer(topic: str) -> str:
        text = world.prose(world.rng.randint(3, 5))
        if as_json:
            text = json.dumps({"topic": topic, "text": text, "sources": world.words(2)})
        return (
            text if topics.index(topic) != bad else text[: int(len(text) * world.rng.uniform(0.5, 0.85))].rstrip(". ")
        )

    @step(name=review)
    def rate(topic: str) -> int:
        return world.rng.randint(1, 5)

    def publish(answers: list[str]) -> int:
        if as_json:
            return len([json.loads(each) for each in answers])
        for number, each in enumerate(answers, 1):
            if not each.endswith("."):
                raise ValueError(f"part {number} has no end")
        return len(answers)

    last = ending(world, end, publish)

    @workflow(name=world.word())
    def book(title: str) -> Any:
        answers = []
        for topic in topics:
            answers.append(answer(topic))
            rate(topic)
        return last(answers)

    return book, (world.word(),), (model, bad)


def duplicate_delivery(world: World) -> Program:
    """An event is delivered twice, and booked twice; the books do not balance at the end."""
    count = world.rng.randint(9, 13)
    events: list[dict[str, Any]] = [
        {"id": world.ident(), "amount": world.rng.randint(100, 999), "from": world.word()} for _ in range(count)
    ]
    bad = world.place(count)
    total = sum(each["amount"] for each in events)
    if world.faulty:
        events.insert(bad, events[bad - world.rng.randint(1, 2)])
    receive, book, end = world.names(3)
    in_batches = world.rng.random() < 0.4
    size = 3

    @step(name=receive)
    def take(number: int) -> Any:
        return events[number * size : (number + 1) * size] if in_batches else events[number]

    @step(name=book)
    def enter(event: dict[str, Any]) -> Any:
        return event["amount"]

    def close(sums: list[int]) -> None:
        if sum(sums) != total:
            raise AssertionError(f"the books say {sum(sums)}, the bank says {total}")

    last = ending(world, end, close)

    @workflow(name=world.word())
    def bank(day: str) -> Any:
        sums = []
        for number in range(-(-len(events) // size) if in_batches else len(events)):
            got = take(number)
            sums += [enter(event) for event in (got if in_batches else [got])]
        return last(sums)

    return bank, (world.word(),), (receive, bad // size if in_batches else bad)


def wrong_unit(world: World) -> Program:
    """One leg comes in metres, or one price in cents; the sum is far beyond what there is."""
    count = world.rng.randint(8, 14)
    bad, legs = world.place(count), world.words(count)
    tool, check, end = world.names(3)
    field = world.rng.choice(["distance", "length", "weight", "price"])
    factor = world.rng.choice([100, 1000])
    lengths = [round(world.rng.uniform(4, 60), 1) for _ in legs]

    @step(name=tool)
    def measure(leg: str) -> dict[str, Any]:
        at = legs.index(leg)
        return {
            "leg": leg,
            field: round(lengths[at] * (factor if at == bad else 1), 1),
            "stops": world.rng.randint(0, 4),
        }

    @step(name=check)
    def weather(leg: str) -> str:
        return world.rng.choice(["dry", "wet", "windy"])

    def plan(total: float) -> float:
        if total > 60 * count:
            raise ValueError(f"{total:.0f} is more than can be done")
        return total

    last = ending(world, end, plan)

    @workflow(name=world.word())
    def trip(name: str) -> Any:
        total = 0.0
        for leg in legs:
            weather(leg)
            total += measure(leg)[field]
        return last(total) if world.faulty else last([total])

    return trip, (world.word(),), (tool, bad)
