from __future__ import annotations

import math
from typing import Any

import pytest

from everstep import Reply
from everstep.models.prices import PriceTable


def cost(
    prices: dict[str, Any] | None, asked: str = "gpt-x", model: str | None = None, cached: int | None = None
) -> Any:
    reply = Reply(model=model, input_tokens=1_000_000, output_tokens=100_000, cached_tokens=cached)
    return PriceTable(prices).cost(reply, asked)


def test_a_cost_is_what_the_tokens_cost() -> None:
    assert cost({"gpt-x": (2, 10)}) == 3.0
    assert cost({"gpt-x": (2, 10)}, cached=500_000) == 3.0, "without a price of their own cached ones cost the same"
    assert cost({"gpt-x": (2, 10, 1)}, cached=500_000) == 2.5
    assert cost({"gpt-x": (2, 10, 0)}, cached=5_000_000) == 1.0, "no more can be cached than there were"
    assert cost({"gpt-x": (0, 0)}) == 0.0


def test_what_is_not_known_is_no_cost_of_nothing() -> None:
    assert cost(None) is None
    assert cost({"gpt": (1, 1)}) is None, "a name is the whole name"
    table = PriceTable({"gpt-x": (1, 1)})
    assert table.cost(Reply(input_tokens=5), "gpt-x") is None
    assert table.cost(Reply(output_tokens=5), "gpt-x") is None


def test_the_whole_name_wins_then_the_longest_beginning_and_who_answered_over_who_was_asked() -> None:
    table = {"gpt-*": (1, 0), "gpt-x-*": (2, 0), "gpt-x-mini": (3, 0), "*": (9, 0)}
    assert [cost(table, asked) for asked in ("gpt-4", "gpt-x-2026", "gpt-x-mini", "claude")] == [1, 2, 3, 9]
    assert cost({"gpt-x": (1, 0), "gpt-x-2026": (2, 0)}, model="gpt-x-2026") == 2
    assert cost({"gpt-x": (1, 0)}, model="gpt-x-2026") == 1


@pytest.mark.parametrize(
    "price", [(1,), (1, 2, 3, 4), (-1, 0), (math.nan, 1), (math.inf, 1), 5, "12", None, ("1", "2")]
)
def test_a_price_that_makes_no_sense_is_refused(price: Any) -> None:
    with pytest.raises(ValueError, match=r"prices\['m'\]"):
        PriceTable({"m": price})


def test_what_is_no_table_of_prices_is_refused() -> None:
    with pytest.raises(ValueError, match="prices is"):
        PriceTable([("m", (1, 2))])  # type: ignore[arg-type] # on purpose
