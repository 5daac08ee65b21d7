"""A graph that is called where no run is: as a workflow, it is then what it would be without Everstep."""

from __future__ import annotations

import asyncio

import pytest

from everstep import Graph, interrupt, node
from everstep.errors import GraphInputError, JournalError


@node(output="double")
def double(number: int) -> int:
    return 2 * number


@node(output="more")
async def one_more(double: int) -> int:
    return double + 1


@interrupt(output="verdict")
def ask(number: int) -> str:
    return f"{number}?"


def test_called_outside_of_a_run_a_graph_gives_its_values() -> None:
    graph = Graph([double], name="plain")
    assert graph(number=2) == graph({"number": 2}) == {"double": 4}


def test_awaited_outside_of_a_run_a_graph_gives_its_values() -> None:
    async def main() -> object:
        return await Graph([double, one_more], name="awaited")(number=2)

    assert asyncio.run(main()) == {"double": 4, "more": 5}


def test_called_outside_of_a_run_a_graph_cannot_ask_anybody() -> None:
    with pytest.raises(JournalError, match="Give the runner a trail"):
        Graph([ask], name="asking")(number=2)


def test_called_outside_of_a_run_a_graph_checks_what_it_is_given() -> None:
    with pytest.raises(GraphInputError, match="needs 'number'"):
        Graph([double], name="plain")()
