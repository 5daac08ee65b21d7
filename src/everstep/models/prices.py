"""What tokens cost, by a table that is the user's: none is built in, because one that is out of date lies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite

from everstep.models.reply import Reply

Prices = Mapping[str, Sequence[float]]
_MILLION = 1_000_000


class PriceTable:
    """For each model what a million tokens cost: input, output, and input that was cached, if that costs less.

    A name that ends in `*` stands for all that begin so. The whole name wins, then the longest beginning.
    """

    def __init__(self, prices: Prices | None) -> None:
        self._prices = {name: tuple(map(float, each)) for name, each in (prices or {}).items()}
        for name, each in self._prices.items():
            if len(each) not in {2, 3} or not all(isfinite(price) and price >= 0 for price in each):
                raise ValueError(
                    f"prices[{name!r}] is {each}; give what a million tokens cost: (input, output), or with a third "
                    "price for cached input"
                )

    def cost(self, reply: Reply, asked: str) -> float | None:
        """What an answer cost; None if that cannot be told: the model has no price, or the tokens were not counted."""
        price = self._price(reply.model) or self._price(asked)
        if price is None or reply.input_tokens is None or reply.output_tokens is None:
            return None
        cached = min(reply.cached_tokens or 0, reply.input_tokens) if len(price) > 2 else 0
        paid = (reply.input_tokens - cached) * price[0] + reply.output_tokens * price[1]
        return (paid + cached * price[-1]) / _MILLION if cached else paid / _MILLION

    def _price(self, model: str | None) -> tuple[float, ...] | None:
        if model is None or model in self._prices:
            return self._prices.get(model or "")
        begins = [name for name in self._prices if name.endswith("*") and model.startswith(name[:-1])]
        return self._prices[max(begins, key=len)] if begins else None
