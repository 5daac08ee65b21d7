from __future__ import annotations

import dataclasses
import functools
import logging
import threading
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from everstep.errors import HandlerWarning
from everstep.trail.events import NAMES, Event, Events

DONE = Event("step_completed", "r-1", "research")


@pytest.fixture
def events() -> Events:
    return Events()


def collect(into: list[Event]) -> Callable[[Event], None]:
    return into.append


# Who is told


def test_a_handler_is_told_of_what_it_asked_for_and_of_nothing_else(events: Events) -> None:
    got: list[Event] = []
    events.on("step_completed", "run_failed", handler=got.append)
    for name in NAMES:
        events.emit(Event(name, "r-1", "w"))
    assert [event.name for event in got] == ["run_failed", "step_completed"]


def test_without_names_a_handler_is_told_of_everything(events: Events) -> None:
    got: list[Event] = []
    events.on(handler=got.append)
    for name in NAMES:
        events.emit(Event(name, "r-1", "w"))
    assert [event.name for event in got] == list(NAMES)


def test_it_is_a_decorator_that_leaves_the_function_as_it_was(events: Events) -> None:
    got: list[str] = []

    @events.on("run_started")
    def begun(event: Event) -> str:
        got.append(event.run_id)
        return "called"

    events.emit(Event("run_started", "r-1", "w"))
    assert got == ["r-1"]
    assert begun(Event("run_started", "r-2", "w")) == "called"


def test_handlers_are_called_in_the_order_they_came(events: Events) -> None:
    got: list[int] = []
    for number in range(5):
        events.on("checkpoint", handler=functools.partial(lambda number, _: got.append(number), number))
    events.emit(Event("checkpoint", "r", "w"))
    assert got == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("names", [("step_done",), ("run_started", ""), (3,), (print,)])
def test_an_unknown_name_is_refused_and_the_known_ones_are_listed(events: Events, names: Any) -> None:
    with pytest.raises(ValueError, match="there is no event") as refused:
        events.on(*names, handler=print)
    assert all(name in str(refused.value) for name in NAMES)
    assert not events


def generator(event: Event) -> Iterator[None]:
    yield


async def async_generator(event: Event) -> Any:
    yield


@pytest.mark.parametrize("handler", ["print", 3, generator, async_generator])
def test_what_a_call_would_not_run_is_no_handler(events: Events, handler: Any) -> None:
    with pytest.raises(TypeError, match="handler"):
        events.on("run_started", handler=handler)
    assert not events


def test_a_stopped_handler_is_not_called_again_and_others_are(events: Events) -> None:
    gone: list[Event] = []
    stays: list[Event] = []
    first = events.on("step_completed", "checkpoint", handler=gone.append)
    events.on("step_completed", handler=stays.append)
    first.stop()
    first.stop()
    events.emit(DONE)
    assert (gone, stays) == ([], [DONE])
    assert events


def test_stopping_a_decorator_stops_what_it_decorated(events: Events) -> None:
    watching = events.on("step_completed")
    got: list[Event] = []
    watching(got.append)
    watching(collect(got))
    events.emit(DONE)
    watching.stop()
    events.emit(DONE)
    assert len(got) == 2
    assert not events


def test_the_same_handler_twice_is_called_twice_and_stopped_once_at_a_time(events: Events) -> None:
    got: list[Event] = []
    handler = collect(got)
    first, _second = events.on("step_completed", handler=handler), events.on("step_completed", handler=handler)
    events.emit(DONE)
    first.stop()
    events.emit(DONE)
    assert len(got) == 3


def test_a_handler_may_stop_itself_and_emit_further_events(events: Events) -> None:
    got: list[str] = []

    def once(event: Event) -> None:
        got.append(event.name)
        watching.stop()
        events.emit(Event("checkpoint", "r", "w"))

    watching = events.on("step_completed", handler=once)
    events.on("checkpoint", handler=lambda event: got.append(event.name))
    events.emit(DONE)
    events.emit(DONE)
    assert got == ["step_completed", "checkpoint"]


def test_handlers_come_and_go_from_many_threads(events: Events) -> None:
    def come_and_go() -> None:
        for _ in range(200):
            watching = events.on("step_completed", handler=lambda _: None)
            events.emit(DONE)
            watching.stop()

    threads = [threading.Thread(target=come_and_go) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not events
    assert events.failures == 0


def test_events_are_true_only_while_somebody_listens(events: Events) -> None:
    assert not events
    watching = events.on(handler=print)
    assert events
    watching.stop()
    assert not events


def test_an_event_is_frozen_and_its_time_is_aware() -> None:
    before = datetime.now(UTC)
    event = Event("run_failed", "r", "w", error="ValueError: bad")
    assert before <= event.at <= datetime.now(UTC)
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.name = "other"  # type: ignore[misc]  # the point of the test


# Failures


def fails(event: Event) -> None:
    raise ValueError("no such table")


def test_a_handler_that_fails_is_seen_and_harms_nothing(events: Events) -> None:
    """Promise 13."""
    got: list[Event] = []
    events.on("step_completed", handler=fails)
    events.on("step_completed", handler=got.append)
    with pytest.warns(HandlerWarning) as told:
        events.emit(DONE)
    assert (got, events.failures) == ([DONE], 1)
    [warning] = told
    for part in ("handler fails ", "of step_completed", "'r-1'", "ValueError: no such table", "The run went on"):
        assert part in str(warning.message)


def test_where_warnings_are_errors_the_run_still_goes_on_and_the_log_tells(
    events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    """Promise 13."""
    got: list[Event] = []
    events.on("step_completed", handler=fails)
    events.on("step_completed", handler=got.append)
    with warnings.catch_warnings(), caplog.at_level(logging.ERROR, "everstep"):
        warnings.simplefilter("error")
        events.emit(DONE)
    assert (got, events.failures) == ([DONE], 1)
    assert "no such table" in caplog.text


class Unspeakable(Exception):  # noqa: N818 - it is about its text
    def __str__(self) -> str:
        raise RuntimeError("not even this")


class Nameless:
    def __call__(self, event: Event) -> None:
        raise Unspeakable

    def __getattr__(self, name: str) -> None:
        raise RuntimeError("nor this") if name == "__qualname__" else AttributeError


@pytest.mark.parametrize(
    "handler",
    [Nameless(), functools.partial(fails), lambda event: event.nothing],
    ids=["nameless", "partial", "lambda"],
)
def test_any_failing_callable_can_be_told_of(events: Events, handler: Any) -> None:
    events.on("step_completed", handler=handler)
    with pytest.warns(HandlerWarning, match="failed: (Unspeakable|ValueError|AttributeError)"):
        events.emit(DONE)


def test_a_person_can_still_interrupt(events: Events) -> None:
    def interrupted(event: Event) -> None:
        raise KeyboardInterrupt

    events.on("step_completed", handler=interrupted)
    with pytest.raises(KeyboardInterrupt):
        events.emit(DONE)
