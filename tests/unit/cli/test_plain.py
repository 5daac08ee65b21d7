from __future__ import annotations

import json
import math
from collections import OrderedDict, deque
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import everstep
from everstep.cli import plain
from everstep.codec.encoding import Generic
from everstep.store.memory import MemoryStore
from everstep.trail.compare import MISSING, Change

NOON = datetime(2026, 11, 15, 12, 0, 0, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"a": [1, 1.5, None, True, "x"]}, {"a": [1, 1.5, None, True, "x"]}),
        ((1, (2,)), {"$type": "tuple", "value": [1, {"$type": "tuple", "value": [2]}]}),
        ({1}, {"$type": "set", "value": [1]}),
        (deque([1]), {"$type": "deque", "value": [1]}),
        (b"\x00\xff", {"$type": "bytes", "value": "AP8="}),
        (NOON, {"$type": "datetime", "value": "2026-11-15T12:00:00.000005+00:00"}),
        (Decimal("1.50"), {"$type": "Decimal", "value": "1.50"}),
        (timedelta(seconds=1), {"$type": "timedelta", "value": "0:00:01"}),
        (2**70, {"$type": "int", "value": str(2**70)}),
        (math.inf, {"$type": "float", "value": "inf"}),
        ({1: "x"}, {"$type": "dict", "value": [[1, "x"]]}),
        ({"$type": "mine"}, {"$type": "dict", "value": [["$type", "mine"]]}),
        (OrderedDict(a=1), {"a": 1}),
        (np.arange(3), {"$type": "ndarray", "value": [0, 1, 2]}),
        (np.float64(0.5), {"$type": "float64", "value": 0.5}),
        (everstep.Redacted("[redacted:key:abc]"), "[redacted:key:abc]"),
        (
            Generic("dataclass", "app:Plan", 1, {"title": "x"}),
            {"$type": "dataclass", "class": "app:Plan", "value": {"title": "x"}},
        ),
    ],
)
def test_every_value_has_a_form_in_json(value: Any, shown: Any) -> None:
    assert plain.plain(value) == shown
    assert json.loads(json.dumps(plain.plain(value), allow_nan=False)) == shown


def test_a_step_is_told_with_all_it_holds() -> None:
    trail = everstep.Trail(MemoryStore())
    run = trail.record("r")
    run.step("begin", set={"old": 1})
    run.step(
        "ask", inputs={"q": "x"}, output="y", output_to="answer", append={"log": [1]}, delete=["old"],
        splice={"log": (0, 1, [2])}, error=ValueError("no"), usage={"tokens": 3}, duration_ms=1.5, lane="a",
    )  # fmt: skip
    found = plain.step(trail.step("r", 2, view=True))
    assert json.loads(json.dumps(found)) == found
    assert found["changes"] == [
        {"op": "set", "path": ["answer"], "value": "y"},
        {"op": "append", "path": ["log"], "items": [1]},
        {"op": "delete", "path": ["old"]},
        {"op": "splice", "path": ["log"], "index": 0, "count": 1, "items": [2]},
    ]
    assert found["error"] == {"type": "ValueError", "message": "no", "traceback": None}
    assert (found["run"], found["seq"], found["usage"], found["duration_ms"]) == ("r", 2, {"tokens": 3}, 1.5)


def test_a_change_says_what_is_there_on_each_side() -> None:
    assert plain.change(Change(("a", 0), MISSING, 1)) == {"path": ["a", 0], "change": "added", "new": 1}
    assert plain.change(Change(("a",), None, MISSING)) == {"path": ["a"], "change": "removed", "old": None}
    assert plain.change(Change(("a",), 1, 2)) == {"path": ["a"], "change": "changed", "old": 1, "new": 2}


def test_times_are_in_utc_to_the_microsecond() -> None:
    assert plain.moment(NOON) == "2026-11-15T12:00:00.000005Z"
    assert plain.moment(None) is None
