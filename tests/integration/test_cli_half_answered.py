"""A run with several questions of which some are answered: show, why and answer tell one story."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import everstep
from everstep import AsyncRunner, workflow
from tests.integration.cli_support import data, run


@workflow
async def both() -> object:
    async def ask(prompt: str) -> object:
        return await everstep.pause(prompt)

    return list(await asyncio.gather(ask("A ok?"), ask("B ok?")))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A trail with the run q, which has two open questions, in steps 1 and 2."""
    with everstep.open(tmp_path / "t.db") as trail:
        assert asyncio.run(AsyncRunner(trail).run(both, id="q")).paused
    return tmp_path / "t.db"


def commands(shown: str) -> list[str]:
    return [line.split(" --trail ")[0] for line in shown.splitlines() if line.startswith("next: ")]


TO_ANSWER, TO_RESUME = "next: everstep answer q VALUE", "next: everstep resume q --app MODULE"


def test_of_some_that_are_answered_the_others_come_first(path: Path) -> None:
    taken = run("answer", "q", "yes", "--pause", 1, "--trail", path)
    assert commands(taken.stderr) == [TO_ANSWER, TO_RESUME]
    explained = run("why", "q", "--trail", path)
    assert explained.stdout.startswith("q waits: 1 of 2 questions is answered.\n")
    assert commands(explained.stderr) == ["next: everstep show q@2", TO_ANSWER, TO_RESUME]
    shown = run("show", "q", "--trail", path)
    assert "status     answered in part: no process is working on it\n" in shown.stdout
    assert "answered   1 of 2 questions\nwaits for  B ok?\n" in shown.stdout
    assert commands(shown.stderr) == [TO_ANSWER, TO_RESUME]
    assert data("why", "q", "--trail", path)["why"]["answered"] == 1


def test_when_all_are_answered_it_is_to_be_resumed(path: Path) -> None:
    run("answer", "q", "yes", "--pause", 1, "--trail", path)
    taken = run("answer", "q", "no", "--trail", path)
    assert commands(taken.stderr) == [TO_RESUME]
    explained = run("why", "q", "--trail", path)
    assert explained.stdout.startswith("q is answered, and to be resumed: no process is working on it.\n")
    assert commands(explained.stderr) == [TO_RESUME]
    with everstep.open(path) as trail:
        assert asyncio.run(AsyncRunner(trail).run(both, id="q")).value == ["yes", "no"]
