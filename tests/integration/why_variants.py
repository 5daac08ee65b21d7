"""The same ten kinds of fault in programs of another build: recorders, child workflows, nested steps, single values."""

from __future__ import annotations

import json
from typing import Any

from everstep import Retry, step, workflow
from tests.integration.why_scenarios import Program, World, ending


def nested_bad_answer(world: World) -> Program:
    """An agent's tools run inside its turns; one answer has its data in another place."""
    count = world.rng.randint(7, 10)
    bad, topics = world.place(count), world.words(count)
    http, turn, plan, end = world.names(4)
    inner = world.rng.choice(["data", "result", "payload"])

    @step(name=http)
    def get(path: str) -> dict[str, Any]:
        rows = [{"key": world.ident(), "size": world.rng.randint(11, 99)} for _ in range(world.rng.randint(2, 4))]
        if path == f"/{topics[bad]}" and world.faulty:
            return {"status": 200, "rows": rows}
        return {"status": 200, inner: {"rows": rows, "page": 1}}

    @step(name=plan)
    def think(topic: str) -> str:
        return f"I will read about {topic} first."

    @step(name=turn)
    def take_turn(topic: str) -> dict[str, Any]:
        think(topic)
        return {"topic": topic, "answer": get(f"/{topic}")}

    def merge(turns: list[dict[str, Any]]) -> int:
        return sum(row["size"] for each in turns for row in each["answer"][inner]["rows"])

    last = ending(world, end, merge)

    @workflow(name=world.word())
    def agent(goal: str) -> Any:
        return last([take_turn(topic) for topic in topics])

    return agent, (world.word(),), (http, bad)


def forgotten_job(world: World) -> Program:
    """Jobs are queued and worked on by their number; one was never picked up."""
    count = world.rng.randint(8, 12)
    bad = world.place(count)
    queue, work, end = world.names(3)
    tickets = [world.ident() for _ in range(count)]

    @step(name=queue)
    def enqueue(number: int) -> str:
        return tickets[number]

    @step(name=work)
    def carry_out(ticket: str) -> str:
        return f"{world.word()} done"

    def collect(done: dict[str, str]) -> list[str]:
        return [done[ticket] for ticket in tickets]

    last = ending(world, end, collect)

    @workflow(name=world.word())
    def factory(day: str) -> Any:
        waiting = [enqueue(number) for number in range(count)]
        if world.faulty:
            del waiting[bad]
        return last({ticket: carry_out(ticket) for ticket in waiting})

    return factory, (world.word(),), (queue, bad)


def wrong_tool(world: World) -> Program:
    """A model says which tool answers a question; once it names the wrong one."""
    count = world.rng.randint(12, 15)
    bad = world.place(count)
    model, one, other, end = world.names(4)
    kinds = {one: world.word(), other: world.word()}
    asked = [[one, other][world.rng.randint(0, 1)] if at > 7 else [one, other][at % 2] for at in range(count)]

    @step(name=model)
    def decide(question: dict[str, Any]) -> dict[str, Any]:
        tool = asked[question["number"]]
        if question["number"] == bad:
            tool = other if tool == one else one
        return {"tool": tool, "thought": world.prose(1)}

    tools = {
        each: step(name=each)(lambda question, each=each: f"{kinds[each]} {world.ident()}") for each in (one, other)
    }

    def check(answers: list[str]) -> int:
        for at, answer in enumerate(answers):
            if not answer.startswith(kinds[asked[at]]):
                raise TypeError(f"answer {at + 1} is not usable")
        return len(answers)

    last = ending(world, end, check)

    @workflow(name=world.word())
    def quiz(title: str) -> Any:
        answers = []
        for number in range(count):
            question = {"number": number, "about": kinds[asked[number]], "text": world.prose(1)}
            answers.append(tools[decide(question)["tool"]](question))
        return last(answers)

    return quiz, (world.word(),), (model, bad)


def old_rate(world: World) -> Program:
    """Rates are single numbers; one is read from before it was changed."""
    pairs = [f"{world.word()[:3].upper()}/EUR" for _ in range(2)]
    read_name, set_name, use_name, end = world.names(4)
    rates = {pair: round(world.rng.uniform(1, 3), 4) for pair in pairs}
    before = dict(rates)
    bad, reads = world.rng.randint(4, 7) if world.faulty else -1, [0]

    @step(name=read_name)
    def read(pair: str) -> float:
        at, reads[0] = reads[0], reads[0] + 1
        return before[pair] if at == bad else rates[pair]

    @step(name=set_name)
    def change(pair: str, rate: float) -> None:
        before[pair], rates[pair] = rates[pair], rate

    @step(name=use_name)
    def convert(pair: str, amount: float, rate: float) -> float:
        return round(amount * rate, 2)

    def settle(used: list[Any]) -> None:
        for pair, rate, real in used:
            if rate != real:
                raise ValueError(f"{pair} was settled at {rate} and is {real}")

    last = ending(world, end, settle)

    @workflow(name=world.word())
    def exchange(day: str) -> Any:
        used = []
        for _ in range(5):
            for pair in pairs:
                rate = read(pair)
                used.append([pair, rate, rates[pair]])
                convert(pair, world.rng.randint(100, 900), rate)
                change(pair, round(rates[pair] + world.rng.uniform(0.01, 0.3), 4))
        return last(used)

    return exchange, (world.word(),), (read_name, bad)


def error_as_text(world: World) -> Program:
    """A tool says in its answer that it could not; the answers are only read at the end."""
    count = world.rng.randint(8, 11)
    bad, cities = world.place(count), world.words(count)
    tool, model, end = world.names(3)
    said = world.rng.choice(["Error: upstream did not answer", "Service Unavailable (request 7)", "rate limit reached"])

    @step(name=tool)
    def weather(city: str) -> str:
        if cities.index(city) == bad:
            return said
        return f"{city}: {world.rng.randint(-5, 30)} degrees, wind {world.rng.randint(1, 60)} km/h"

    @step(name=model)
    def comment(city: str) -> str:
        return world.prose(1)

    def table(answers: list[str]) -> list[int]:
        return [int(each.split(": ")[1].split(" ")[0]) for each in answers]

    last = ending(world, end, table)

    @workflow(name=world.word())
    def forecast(day: str) -> Any:
        answers = []
        for city in cities:
            answers.append(weather(city))
            comment(city)
        return last(answers)

    return forecast, (world.word(),), (tool, bad)


def second_attempt(world: World) -> Program:
    """A source times out, and gives nothing when it is asked again."""
    count = world.rng.randint(8, 11)
    bad, sources = world.place(count), world.words(count)
    tool, note, end = world.names(3)
    tries = {"count": 0}

    @step(name=tool, retry=Retry(attempts=2, backoff=0.0))
    def ask(source: str) -> list[str]:
        if sources.index(source) == bad:
            tries["count"] += 1
            if tries["count"] == 1:
                raise TimeoutError(f"{source} did not answer")
            return []
        return world.words(3)

    @step(name=note)
    def keep(source: str, number: int) -> str:
        return f"{source} gave {number}"

    def best(found: list[list[str]]) -> list[str]:
        return [each[0] for each in found]

    last = ending(world, end, best)

    @workflow(name=world.word())
    def gather(topic: str) -> Any:
        found = []
        for source in sources:
            found.append(ask(source))
            keep(source, len(found[-1]))
        return last(found)

    return gather, (world.word(),), (tool, bad)


def one_of_many_rows(world: World) -> Program:
    """Every page is a list of rows; in one of them a number is missing from one row."""
    count = world.rng.randint(7, 10)
    bad, row = world.place(count), world.rng.randint(0, 4)
    reader, note, end = world.names(3)
    field = world.rng.choice(["total", "net", "sum", "gross"])

    @step(name=reader)
    def page(number: int) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = [
            {"invoice": world.ident(), field: round(world.rng.uniform(30, 400), 2)} for _ in range(5)
        ]
        if number == bad:
            rows[row][field] = None
        return rows

    @step(name=note)
    def keep(number: int) -> str:
        return world.prose(1)

    def add(pages: list[list[dict[str, Any]]]) -> Any:
        return sum(each[field] for rows in pages for each in rows)

    last = ending(world, end, add)

    @workflow(name=world.word())
    def audit(year: str) -> Any:
        pages = []
        for number in range(count):
            pages.append(page(number))
            keep(number)
        return last(pages)

    return audit, (world.word(),), (reader, bad)


def cut_off_in_a_child(world: World) -> Program:
    """Each part is written by a workflow of its own, and one is cut off."""
    count = world.rng.randint(6, 9)
    bad, topics = world.place(count), world.words(count)
    model, end = world.names(2)

    @step(name=model)
    def answer(topic: str) -> str:
        text = json.dumps({"topic": topic, "text": world.prose(2)})
        return text if topics.index(topic) != bad else text[: int(len(text) * world.rng.uniform(0.5, 0.9))]

    @workflow(name=world.word())
    def part(topic: str) -> str:
        return answer(topic)

    def join(parts: list[str]) -> list[str]:
        return [json.loads(each)["text"] for each in parts]

    last = ending(world, end, join)

    @workflow(name=world.word())
    def book(title: str) -> Any:
        return last([part(topic) for topic in topics])

    return book, (world.word(),), (part.name, bad)


def sent_twice(world: World) -> Program:
    """A list of receivers holds one of them twice, and what is sent is sent twice."""
    count = world.rng.randint(8, 12)
    bad = world.place(count)
    people = [f"{name}@example.org" for name in world.words(count)]
    lookup, send, end = world.names(3)
    groups = [people[at : at + 3] for at in range(0, count, 3)]
    at_fault = max(1, bad // 3)
    if world.faulty:
        groups[at_fault].append(groups[at_fault - 1][0])

    @step(name=lookup)
    def members(group: int) -> list[str]:
        return groups[group]

    @step(name=send)
    def mail(to: str, text: str) -> str:
        return f"sent {world.ident()}"

    def close(receivers: list[str]) -> None:
        if len(set(receivers)) != len(receivers):
            raise RuntimeError("somebody got more than one letter")

    last = ending(world, end, close)

    @workflow(name=world.word())
    def letters(month: str) -> Any:
        receivers = []
        for group in range(len(groups)):
            for person in members(group):
                mail(person, "Dear reader")
                receivers.append(person)
        return last(receivers)

    return letters, (world.word(),), (lookup, at_fault)


def seconds_and_milliseconds(world: World) -> Program:
    """Durations are single numbers; one is in another unit."""
    count = world.rng.randint(7, 12)
    bad, tasks = world.place(count), world.words(count)
    tool, plan, end = world.names(3)
    times = [world.rng.randint(15, 90) for _ in tasks]

    @step(name=tool)
    def estimate(task: str) -> int:
        at = tasks.index(task)
        return times[at] * 1000 if at == bad else times[at]

    @step(name=plan)
    def slot(task: str, seconds: int) -> dict[str, Any]:
        return {"task": task, "until": seconds}

    def fit(slots: list[dict[str, Any]]) -> Any:
        total = sum(each["until"] for each in slots)
        if total > 90 * count:
            raise OverflowError("the plan does not fit the day")
        return total

    last = ending(world, end, fit)

    @workflow(name=world.word())
    def day(name: str) -> Any:
        return last([slot(task, estimate(task)) for task in tasks])

    return day, (world.word(),), (tool, bad)
