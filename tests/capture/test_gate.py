"""The gate that answers to threads pass, one at a time: nobody is to stay in front of it."""

from __future__ import annotations

import sys
import threading
import time

import pytest

from everstep.capturing import stillness, threads


class _Run:
    def __init__(self, order: list[float]) -> None:
        self.stopping: str | None = None
        self.journal = self
        self._order = order

    def order(self, *, awaited: bool) -> list[float]:
        assert not awaited
        return self._order


def _passes(gate: threads.Gate, turns: list[float]) -> tuple[list[float], list[threading.Thread]]:
    passed: list[float] = []

    def come(turn: float) -> None:
        threads.away(gate.pass_recorded)(turn)
        passed.append(turn)

    coming = [threading.Thread(target=come, args=(turn,), daemon=True) for turn in turns]
    for thread in coming:
        thread.start()
        time.sleep(0.01)
    return passed, coming


def _ended(coming: list[threading.Thread]) -> bool:
    for thread in coming:
        thread.join(5)
    return not any(thread.is_alive() for thread in coming)


def test_the_gate_waits_for_an_answer_that_is_asked_for_late() -> None:
    gate = threads.Gate(_Run([1, 2, 3]), is_whole=True)  # type: ignore[arg-type] # as much of a run as it needs
    passed, coming = _passes(gate, [3, 2])
    time.sleep(0.1)
    assert passed == []
    first, more = _passes(gate, [1])
    assert _ended(coming + more)
    assert (first, passed) == ([1], [2, 3])


def test_an_answer_that_nobody_asks_for_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_PATIENCE", 0.2)
    gate = threads.Gate(_Run([1, 2, 3]), is_whole=True)  # type: ignore[arg-type] # as above
    passed, coming = _passes(gate, [3, 2])
    assert _ended(coming)
    assert passed == [2, 3]


def test_a_program_that_is_never_still_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_LAST_PATIENCE", 0.3)
    gate, over = threads.Gate(_Run([1, 2]), is_whole=True), threading.Event()  # type: ignore[arg-type] # as above

    def spin() -> None:
        while not over.is_set():
            pass

    spinning = threading.Thread(target=spin)
    spinning.start()
    _, coming = _passes(gate, [2])
    assert _ended(coming)
    over.set()
    spinning.join()


@pytest.mark.parametrize("how", ["stopped", "opened", "broken"])
def test_nobody_stays_at_a_gate_that_is_of_no_use(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = _Run([1, 2, 3])
    gate = threads.Gate(run, is_whole=True)  # type: ignore[arg-type] # as above
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    _, coming = _passes(gate, [3, 2])
    if how == "stopped":
        run.stopping = "diverged"
    elif how == "opened":
        gate.open()
    else:
        gate._tickets[0].turn = None  # type: ignore[assignment] # what it makes of that is all one
    assert _ended(coming)


def test_a_program_without_threads_passes_straight_through() -> None:
    gate = threads.Gate(_Run([2, 1]), is_whole=True)  # type: ignore[arg-type] # as above
    before = threading.active_count()
    gate.pass_recorded(1)
    gate.pass_recorded(2)
    assert threading.active_count() == before


def test_who_comes_when_the_other_threads_are_over_does_not_overtake_one_that_waits() -> None:
    gate, over = threads.Gate(_Run([]), is_whole=True), threading.Event()  # type: ignore[arg-type] # as above
    other = threading.Thread(target=over.wait)
    other.start()
    first = gate.queue(1)
    over.set()
    other.join()
    assert first is not None
    second = gate.queue(2)
    assert second is not None
    gate.drop(first)
    gate.pass_(second)
    assert gate.queue(3) is None


@pytest.mark.skipif(sys.platform != "linux", reason="it looks at threads as Linux shows them")
def test_a_program_is_still_when_none_of_its_threads_is_at_work() -> None:
    watch, over = stillness.watch(), threading.Event()
    assert isinstance(watch, stillness.ThreadsWatch)

    def spin() -> None:
        while not over.is_set():
            pass

    spinning = threading.Thread(target=spin)
    spinning.start()
    assert not any(watch.is_still() for _ in range(50))
    assert watch.used() > 0
    over.set()
    spinning.join()
    until = time.monotonic() + 10
    while not watch.is_still():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="it looks at threads as Linux shows them")
def test_what_a_thread_used_inside_a_call_is_not_the_programs_when_it_comes_back() -> None:
    worked, ends = threading.Event(), threading.Event()

    def work() -> None:
        until = time.thread_time() + 0.3
        while time.thread_time() < until:
            pass
        worked.set()
        ends.wait()

    inside = threading.Thread(target=threads.away(work), daemon=True)
    inside.start()
    worked.wait()
    watch = stillness.watch()
    used = watch.used()
    stillness.inside_call.discard(inside.native_id or 0)
    assert watch.used() - used < 0.2
    ends.set()
    inside.join()
    assert watch.used() - used < 0.2  # nor does one that is gone count


@pytest.mark.skipif(sys.platform != "linux", reason="it looks at threads as Linux shows them")
def test_a_program_is_not_still_right_after_one_of_its_threads_went_inside_a_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # It waited long for a processor; now it wakes another, which is not at work yet, and goes inside.
    times, went = {1: 0.1, 2: 0.1, 3: 0.1}, threading.Event()

    def at_work(thread: int) -> bool:
        if thread == 2 and went.is_set():
            stillness.inside_call.add(2)
            times[2] = 0.2
        return thread == 3

    monkeypatch.setattr(stillness, "inside_call", {3})
    monkeypatch.setattr(stillness, "_look", lambda: dict(times))
    monkeypatch.setattr(stillness, "_is_at_work", at_work)
    watch = stillness.ThreadsWatch()
    assert not watch.is_still()
    time.sleep(2 * sys.getswitchinterval())
    assert watch.is_still()  # whatever one does that is inside a call
    went.set()
    assert not watch.is_still()


def test_the_time_of_a_process_tells_whether_a_thread_of_it_is_at_work() -> None:
    """Where nothing better tells. It is asked many times: a machine with much to do may not let the thread work."""
    watch, over = stillness.Watch(), threading.Event()

    def work() -> None:
        while not over.is_set():
            pass

    other = threading.Thread(target=work)
    other.start()
    try:
        assert not all(watch.is_still() for _ in range(50))
    finally:
        over.set()
        other.join()
    assert any(watch.is_still() for _ in range(200))
