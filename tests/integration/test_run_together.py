"""Several who want the same run at the same time: one gets it, the others are told so, or given what it came to."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path

import pytest

import everstep
from everstep import Runner, step, workflow
from everstep.errors import OwnedError

LOCK = threading.Lock()
TAKEN: Counter[str] = Counter()


@step
def brief(name: str) -> str:
    with LOCK:
        TAKEN[name] += 1
    time.sleep(0.002)
    return name


@workflow
def short(name: str) -> str:
    return brief(name)


def test_two_who_begin_one_run_at_once_are_told_of_each_other_or_get_its_result(tmp_path: Path) -> None:
    """Promises 2 and 4: whoever comes second neither doubles a step nor meets an error that is about something else."""
    path = tmp_path / "trail.db"
    everstep.open(path).close()
    TAKEN.clear()
    answers: Counter[str] = Counter()

    def want(name: str, ready: threading.Barrier) -> None:
        with everstep.open(path) as trail:
            ready.wait()
            while True:
                try:
                    result = Runner(trail).run(short, name, id=name)
                except OwnedError:
                    continue
                with LOCK:
                    answers[result.value] += 1
                return

    for number in range(25):
        ready = threading.Barrier(3)
        threads = [threading.Thread(target=want, args=(f"run {number}", ready)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == {f"run {number}": 3 for number in range(25)}
    assert set(TAKEN.values()) == {1}


def test_to_go_on_with_a_run_that_is_not_there_says_so() -> None:
    with pytest.raises(TypeError, match=r"there is no run 'nope' to go on with, and a new one needs inputs: .*name"):
        Runner(everstep.open(":memory:")).run(short, id="nope")
