"""The trail for event loops: the same questions, awaited, none of them on the loop's thread."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar
from collections.abc import Callable

from everstep.codec.record import StepRecord
from everstep.model import Checkpoint, Run
from everstep.policy.rules import Rule
from everstep.store.base import Counts
from everstep.trail.check import Report
from everstep.trail.compare import Change
from everstep.trail.recorder import AsyncRecorder, Recorder
from everstep.trail.trail import Runs, Trail
from everstep.trail.trail import open as open_trail

P = ParamSpec("P")
T = TypeVar("T")


def _awaited(method: Callable[P, T]) -> Callable[P, Any]:
    """The same question, answered off the loop's thread."""

    async def ask(*args: P.args, **kwargs: P.kwargs) -> T:
        twin: Any = args[0]
        return await asyncio.to_thread(partial(method, twin.sync, *args[1:], **kwargs))

    ask.__doc__ = method.__doc__
    return ask
