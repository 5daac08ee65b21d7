"""Chance that a process has one source of for all: `random`, the numbers in UUIDs, names of temporary files.

A captured program has one of its own while it lasts, in the place of that of the process. Where a stretch of a process
is captured, there is code beside it, which draws from that of the process, and perhaps other stretches, each with its
own: whose is in place is exchanged when another draws. A name that was imported before (`from random import choice`)
draws from whichever is.
"""

from __future__ import annotations

import functools
import os
import random
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from everstep.run.lanes import here

_OF_UUIDS = ("getnode", "uuid1", "uuid6", "uuid7")  # what else draws from them; the last two from Python 3.14 on
_OF_NAMES = ("_get_candidate_names",)

_lock = threading.RLock()
_kept: dict[Any, tuple[Any, ...]] = {}  # of those whose is not in place, by run; None has that of the process
_placed: Any = None  # whose is
_is_exchanged = False


@contextmanager
def own(run: Any, start: Callable[[], None]) -> Iterator[None]:
    """While this lasts the program of a run has its own, as `start` sets it."""
    global _placed
    with _lock:
        before = _placed
        if before is not None or not run.captured.is_whole:
            _exchange_when_drawn()
        _kept[before], _placed = _state(), run
        start()
    try:
        yield
    finally:
        with _lock:
            if _placed is run:
                _place(before if before in _kept else None)
            _kept.pop(run, None)


def _state() -> tuple[Any, ...]:
    return _instance().getstate(), of_uuids(), vars(tempfile)["_name_sequence"]


def _place(whose: Any) -> None:
    global _placed  # noqa: PLW0603 - a process has one of each
    if whose is _placed:
        return
    _kept[_placed] = _state()
    state, of_uuids, names = _kept.pop(whose)
    _placed = whose
    _instance().setstate(state)
    vars(uuid).update(of_uuids)
    vars(tempfile)["_name_sequence"] = names


def of_uuids() -> dict[str, Any]:
    """The number of the machine, and what was given last: each is another than that."""
    return {name: value for name, value in vars(uuid).items() if name == "_node" or name.startswith("_last_")}


def _instance() -> Any:
    return vars(random)["_inst"]


# Where others draw as well.


def _exchange_when_drawn() -> None:
    """Wrap what draws. Once: to unwrap would race with others who wrap it."""
    global _is_exchanged  # noqa: PLW0603 - once in a process
    if _is_exchanged:
        return
    _is_exchanged = True
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
    drawing = {name for name, each in vars(random).items() if getattr(each, "__self__", None) is _instance()}
    for module, names in ((random, {*drawing, "seed"}), (uuid, _OF_UUIDS), (tempfile, _OF_NAMES)):
        for name in filter(vars(module).__contains__, names):
            _wrap(module, name)


def _wrap(module: ModuleType, name: str) -> None:
    plain = getattr(module, name)

    @functools.wraps(plain)
    def drawn(*args: Any, **named: Any) -> Any:
        with _lock:
            _place(_whose())
            return plain(*args, **named)

    drawn.__module__, drawn.__qualname__ = module.__name__, name  # by which it is pickled, for another process
    setattr(module, name, drawn)


def _whose() -> Any:
    """The run whose code draws, if it has its own."""
    lane = here()
    run = None if lane is None else lane.run
    return run if run is _placed or run in _kept else None
