"""What cannot be stored is named as the caller knows it."""

from __future__ import annotations

import re
from typing import Any

import pytest

import everstep
from everstep.errors import UnstorableError

CODE = object()


@pytest.mark.parametrize(
    ("detail", "path"),
    [
        ({"inputs": {"when": [CODE]}}, "inputs.when[0]"),
        ({"output": CODE}, "output"),
        ({"output": [1, CODE], "output_to": "page"}, "output[1]"),
        ({"set": {"a": 1, "page": {"x": CODE}}}, "state.page.x"),
        ({"append": {"pages": [1, CODE]}}, "state.pages[1]"),
        ({"set": {"a": {}, ("a", "b"): CODE}}, "state.a.b"),
        ({"metadata": {"why": CODE}}, "metadata.why"),
        ({"usage": {"cost": CODE}}, "usage.cost"),
    ],
)
def test_a_refused_value_is_named_by_the_word_it_was_given_under(detail: dict[str, Any], path: str) -> None:
    """Promise 7."""
    with everstep.open(":memory:") as trail:
        run = trail.record("r")
        with pytest.raises(UnstorableError) as refused:
            run.step("s", **detail)
        assert refused.value.path == path
        assert re.search(rf"at {re.escape(path)}: a \S+ cannot be stored and restored\.", str(refused.value))
        assert run.seq == 0
