"""What tokens cost, by a table that is the user's: none is built in, because one that is out of date lies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from everstep.models.reply import Reply

Prices = Mapping[str, Sequence[float]]
_MILLION = 1_000_000
_COUNTS = ("input_tokens", "output_tokens", "cached_tokens")


class PriceTable:
    """For each model what a million tokens cost: input, output, and input that was cached, if that costs less.

    A name that ends in `*` stands for all that begin so. The whole name wins, then the longest beginning.
    """

    def __init__(self, prices: Prices | None) -> None:
        if not isinstance(prices, Mapping | None):
            raise ValueError(f"prices is {prices!r:.80}; give a table of models, each with its prices")  # noqa: TRY004 - a setting may be wrong in kind
        self.prices = {name: _checked(name, each) for name, each in (prices or {}).items()}

    def cost(self, reply: Reply, asked: str) -> float | None:
        """What an answer cost; None if that cannot be told: the model has no price, or the tokens were not counted."""
        price = self._price(reply.model) or self._price(asked)
        if price is None or reply.input_tokens is None or reply.output_tokens is None:
            return None
        cached = min(reply.cached_tokens or 0, reply.input_tokens) if len(price) > 2 else 0
        paid = (reply.input_tokens - cached) * price[0] + reply.output_tokens * price[1]
        return (paid + cached * price[-1]) / _MILLION if cached else paid / _MILLION

    def priced(self, used: dict[str, Any]) -> dict[str, Any]:
        """What a call used, with its cost, if that can be told."""
        counts: dict[str, Any] = {name: used.get(name) for name in _COUNTS}
        reply = Reply(model=used.get("model"), **counts)
        cost = self.cost(reply, str(used.get("model")))
        return used if cost is None else {**used, "cost": cost}

    def _price(self, model: str | None) -> tuple[float, ...] | None:
        if model is None or model in self.prices:
            return self.prices.get(model or "")
        begins = [name for name in self.prices if name.endswith("*") and model.startswith(name[:-1])]
        return self.prices[max(begins, key=len)] if begins else None


def _checked(name: str, given: Sequence[float]) -> tuple[float, ...]:
    is_list = isinstance(given, Sequence) and not isinstance(given, str)
    if is_list and len(given) in {2, 3} and all(isinstance(each, int | float) for each in given):
        found = tuple(map(float, given))
        if all(isfinite(price) and price >= 0 for price in found):
            return found
    hint = ". In TOML a name with a dot stands in quotes" if isinstance(given, Mapping) else ""
    raise ValueError(
        f"prices[{name!r}] is {given!r:.80}; give what a million tokens cost: [input, output], or with a third price "
        f"for cached input{hint}"
    )
