"""What `show` tells of the values of a graph: what went into a node, what came out of it, and how large both are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import END, Graph, Runner, node, route
from tests.integration.cli_support import data, run


@node(output="messages")
def think(topic: str, messages: list[str] = []) -> list[str]:  # noqa: B006 - never changed
    return [*messages, f"thought {len(messages)} on {topic}"]


@node(output="notes")
def note(messages: list[str], notes: dict[str, str] = {}) -> dict[str, str]:  # noqa: B006 - never changed
    return {**notes, f"note {len(messages)}": messages[-1][:9]}


@node(output=("first", "last"))
def ends(messages: list[str], notes: dict[str, str]) -> tuple[str, str]:
    return messages[0], messages[-1]


@route(targets=["think", END])
def enough(last: str, notes: dict[str, str]) -> str:
    return END if len(notes) > 1 else "think"


CHAT = Graph([think, note, ends, enough], name="chat")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("values") / "trail.db"
    with everstep.open(place) as trail:
        Runner(trail).run(CHAT, topic="tides", id="c")
    return place


def rows(path: Path, *words: str) -> list[str]:
    """The lines of the table of steps."""
    shown = run("show", "c", *words, "--trail", path).stdout
    return shown.split("\n\n", 1)[1].splitlines()


def line(path: Path, name: str, number: int) -> str:
    """The line of the n-th call of a node."""
    return [row for row in rows(path) if f"  {name}  " in row][number]


def steps(path: Path, name: str) -> list[dict[str, Any]]:
    return [step for step in data("show", "c", "--trail", path)["show"]["steps"] if step["name"] == name]


def test_what_a_node_gave_is_shown_and_not_only_that_it_gave_something(path: Path) -> None:
    assert line(path, "think", 0).endswith("messages = ['thought 0 on tides']")
    assert line(path, "think", 1).endswith("messages + ['thought 1 on tides']")
    assert line(path, "note", 0).endswith("notes = {'note 1': 'thought 0'}")
    assert line(path, "note", 1).endswith("notes['note 2'] = 'thought 1'")
    assert line(path, "ends", 1).endswith("first = 'thought 0 on tides', last = 'thought 1 on tides'")
    listed = run("steps", "c", "--trail", path).stdout
    assert "messages + ['thought 1 on tides']" in listed


def test_a_long_value_is_cut_and_each_of_several_is_seen(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "t.db") as trail, trail.record("r") as recorder:
        recorder.step("long", set={"pages": ["x" * 1_000], "title": "The tides", "facts": list(range(1_000))})
        recorder.step("gone", set={"title": "Waves"}, delete=["pages"])
    shown = run("show", "r", "--trail", tmp_path / "t.db").stdout
    [long] = [line for line in shown.splitlines() if "  long  " in line]
    assert "pages = ['xxx" in long
    assert "title = 'The tides'" in long
    assert "facts = [0, 1, 2" in long
    assert len(long) < 300
    assert "title = 'Waves', pages removed" in shown


def test_what_went_in_is_named_with_its_size_and_so_is_what_came_out(path: Path) -> None:
    assert rows(path)[0].split() == ["seq", "superstep", "step", "took", "in", "out", "result"]
    assert "  topic 7 B  " in line(path, "think", 0)
    size = len('["thought 0 on tides"]')
    assert f"  topic 7 B, messages {size} B  " in line(path, "think", 1)
    assert f"  {size} B  messages + " in line(path, "think", 1)
    assert f"  messages {2 * size} B, notes " in line(path, "note", 1)


def test_json_has_the_sizes_of_what_went_in_and_came_out_and_no_contents(path: Path) -> None:
    with everstep.open(path, read_only=True) as trail:
        state = trail.state("c")
    exact = {name: len(json.dumps(value)) for name, value in state.items()}
    assert steps(path, "enough")[-1]["input_sizes"] == {"last": exact["last"], "notes": exact["notes"]}
    assert steps(path, "ends")[-1]["input_sizes"] == {"messages": exact["messages"], "notes": exact["notes"]}
    assert steps(path, "note")[1]["sizes"] == {"notes['note 2']": len('"thought 1"')}
    assert "thought" not in run("show", "c", "--trail", path, "--json").stdout


def test_one_step_of_a_graph_is_shown_with_the_values_that_it_took(path: Path) -> None:
    seq = steps(path, "note")[1]["seq"]
    shown = run("show", f"c@{seq}", "--trail", path).stdout
    assert "inputs.messages[1] = 'thought 1 on tides'" in shown
    assert "inputs.notes['note 1'] = 'thought 0'" in shown
    assert "note 2']  = " not in shown.partition("changes")[0]
    found = data("show", f"c@{seq}", "--trail", path)["show"]["step"]
    assert found["input_sizes"]["messages"] == len('["thought 0 on tides", "thought 1 on tides"]')
    assert found["inputs"] == {
        "messages": ["thought 0 on tides", "thought 1 on tides"],
        "notes": {"note 1": "thought 0"},
    }
    first = steps(path, "think")[0]["seq"]
    assert "inputs.topic = 'tides'" in run("show", f"c@{first}", "--trail", path).stdout


def test_a_step_whose_inputs_were_pruned_says_so(tmp_path: Path) -> None:
    with everstep.SqliteCheckpointer(tmp_path / "t.db", retention="windowed", window=2) as trail:
        Runner(trail).run(CHAT, topic="tides", id="c")
        oldest = trail.run("c").oldest
    shown = run("show", f"c@{oldest}", "--trail", tmp_path / "t.db")
    assert shown.exit_code == 0, shown.output
    assert run("show", "c", "--trail", tmp_path / "t.db").exit_code == 0
