"""What a workflow or graph is mapped over: lists, and the inputs of each item made from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, Literal

from everstep.errors import GraphInputError
from everstep.run.given import check_word

Mode = Literal["zip", "product"]


class Items:
    """The inputs of each item: those mapped over, one of each list, and the others as they are.

    Each is made when it is asked for. With "zip" the lists go side by side; with "product" every item of one meets
    every item of the others, the last list being the quickest. Raises GraphInputError.
    """

    def __init__(self, where: str, given: Mapping[str, Any], map_over: Sequence[str], mode: Mode = "zip") -> None:
        check_word("mode", mode, Mode)
        if not map_over:
            raise GraphInputError(where, "is to go over nothing", "Name the inputs that are lists of items.")
        self._lists = {name: _items(where, given, name) for name in map_over}
        self._rest = {name: value for name, value in given.items() if name not in self._lists}
        self._mode = mode
        lengths = {name: len(items) for name, items in self._lists.items()}
        if mode == "zip" and len(set(lengths.values())) > 1:
            said = ", ".join(f"{name!r} has {length}" for name, length in lengths.items())
            raise GraphInputError(where, f"goes over lists of different lengths: {said}", "Give each the same number.")
        self._length = prod(lengths.values()) if mode == "product" else next(iter(lengths.values()))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, at: int) -> dict[str, Any]:
        if not 0 <= at < self._length:
            raise IndexError(at)
        if self._mode == "zip":
            return {**self._rest, **{name: items[at] for name, items in self._lists.items()}}
        chosen: dict[str, Any] = {}
        for name, items in reversed(self._lists.items()):
            at, place = divmod(at, len(items))
            chosen[name] = items[place]
        return {**self._rest, **chosen}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return map(self.__getitem__, range(self._length))


def _items(where: str, given: Mapping[str, Any], name: str) -> list[Any]:
    if name not in given:
        raise GraphInputError(where, f"is to go over {name!r}, which it was not given", "Give it a list of items.")
    found = given[name]
    if isinstance(found, str | bytes | Mapping) or not hasattr(found, "__iter__"):
        raise GraphInputError(
            where, f"is to go over {name!r}, which is a {type(found).__name__}", "Give it a list of items."
        )
    return list(found)
