"""The command `graph`: what it prints, a recorded run over it, and what it says when the graph cannot be had."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.integration.cli_support import Done, process
from tests.integration.support import environment

FLOWS = """
import os, sys
import everstep
from everstep import END, Graph, Runner, gate, interrupt, node

print("a word of the module")

@node(output="draft")
def write(topic, style="plain"):
    if topic == "nothing":
        raise ValueError("there is nothing to say")
    return f"{topic} in {style}"

@interrupt(output="verdict", options=["yes", "no"])
def ask(draft):
    return f"Publish {draft}?"

@gate(when_true="publish", when_false=END)
def approved(verdict):
    return verdict == "yes"

@node(output="url")
def publish(draft):
    return "https://example.org"

approval = Graph([write, ask, approved, publish], name="approval")
wrapped = Graph([approval.as_node("inner")], name="wrapped")
drafts = Graph([write], name="drafts")
many = Graph([drafts.as_node("each", inputs={"topic": "topics"}, map_over="topic")], name="many")
number = 7

if __name__ == "__main__":
    trail = everstep.open("trail.db")
    graph, run_id, inputs, answers = globals()[sys.argv[1]], sys.argv[2], eval(sys.argv[3]), sys.argv[4:]
    Runner(trail).run(graph, inputs, id=run_id, error_handling="continue")
    for answer in answers:
        trail.answer(run_id, answer)
        Runner(trail).run(graph, id=run_id)
"""
TOLD = "a word of the module\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with graphs in it."""
    (tmp_path / "flows.py").write_text(FLOWS, "utf-8")
    return tmp_path


def record(place: Path, *words: str) -> None:
    """Run a graph as a program of its own."""
    subprocess.run(
        [sys.executable, "flows.py", *words], cwd=place, env=environment(), check=True, stdout=subprocess.DEVNULL
    )


def drawn(place: Path, *words: str) -> Done:
    return process("graph", *words, cwd=place)


def timeless(text: str) -> list[str]:
    return [re.sub(r"[\d.]+ ms", "<time>", line) for line in text.splitlines()]


# Without a run


@pytest.mark.parametrize("named", ["flows.py:approval", "flows:approval", "./flows.py:approval"])
def test_a_graph_is_named_by_its_file_or_its_module(place: Path, named: str) -> None:
    done = drawn(place, named)
    assert done.code == 0
    assert done.stderr == TOLD, "what a module prints is no data"
    assert done.stdout.splitlines() == [
        "approval",
        "takes  topic, style?",
        "gives  draft, verdict, url",
        "",
        "  1  write           (topic, style?) → draft",
        "  2  ask       asks  (draft) → verdict",
        "  3  approved  gate  (verdict) ⇢ yes: publish, no: END",
        "  4  publish         (draft) → url",
    ]


@pytest.mark.parametrize("named", ["lone.py", "lone", "lone:"])
def test_the_only_graph_of_a_module_need_not_be_named(place: Path, named: str) -> None:
    (place / "lone.py").write_text("from flows import drafts\nthe_same = drafts\n", "utf-8")
    done = drawn(place, named)
    assert (done.code, done.stdout.splitlines()[0]) == (0, "drafts"), done.stderr


def test_a_file_is_found_in_another_folder_with_what_lies_beside_it(place: Path) -> None:
    inner = place / "deep" / "er"
    inner.mkdir(parents=True)
    shutil.copy(place / "flows.py", inner / "parts.py")
    (inner / "my-graph.py").write_text("from parts import approval as mine", "utf-8")
    done = drawn(place, "deep/er/my-graph.py:mine")
    assert done.code == 0, done.stderr
    assert done.stdout.startswith("approval\n")


def test_the_other_forms_are_whole_and_nothing_else_is_printed(place: Path) -> None:
    svg = drawn(place, "flows.py:wrapped", "--svg")
    assert ET.fromstring(svg.stdout).tag == "{http://www.w3.org/2000/svg}svg"
    mermaid = drawn(place, "flows.py:wrapped", "--mermaid")
    assert mermaid.stdout.startswith("flowchart TD\n")
    assert '    subgraph n2 ["inner"]\n' in mermaid.stdout
    assert svg.stderr == mermaid.stderr == TOLD


def test_json_has_all_of_the_graph(place: Path) -> None:
    done = drawn(place, "flows.py:approval", "--json")
    found = json.loads(done.stdout)["graph"]
    assert {name: found[name] for name in ("name", "inputs", "required", "bound", "outputs")} == {
        "name": "approval", "inputs": ["topic", "style"], "required": ["topic"], "bound": [],
        "outputs": ["draft", "verdict", "url"],
    }  # fmt: skip
    assert found["nodes"][2] == {
        "name": "approved", "kind": "gate", "inputs": ["verdict"], "outputs": [], "targets": ["publish", "__end__"],
        "run": None,
    }  # fmt: skip
    assert [tuple(edge.values()) for edge in found["edges"]] == [
        ("write", "ask", "draft", None),
        ("write", "publish", "draft", None),
        ("ask", "approved", "verdict", None),
        ("approved", "publish", None, None),
        ("approved", "__end__", None, None),
    ]


def test_a_terminal_that_knows_ascii_only_gets_ascii(place: Path) -> None:
    text = process("graph", "flows.py:wrapped", cwd=place, PYTHONIOENCODING="ascii")
    assert text.stdout.isascii()
    assert "     |   3  approved  gate  (verdict) ~> yes: publish, no: END\n" in text.stdout
    svg = process("graph", "flows.py:wrapped", "--svg", cwd=place, PYTHONIOENCODING="ascii")
    assert svg.stdout.isascii()
    assert "→ url" in "".join(ET.fromstring(svg.stdout).itertext())


# A run over it


def test_a_recorded_run_is_drawn_over_it(place: Path) -> None:
    record(place, "approval", "a-1", "{'topic': 'tides'}")
    waits = drawn(place, "flows.py:approval", "--run", "a-1", "--trail", "trail.db")
    assert timeless(waits.stdout)[1] == "a-1: 2 steps in <time>, slowest write (<time>)"
    assert timeless(waits.stdout)[5:] == [
        "  1  write           1× · <time>  (topic, style?) → draft",  # noqa: RUF001 - the sign that is drawn
        "  2  ask       asks  paused         (draft) → verdict",
        "  3  approved  gate  not reached    (verdict) ⇢ yes: publish, no: END",
        "  4  publish         not reached    (draft) → url",
    ]
    record(place, "approval", "a-2", "{'topic': 'tides'}", "yes")
    done = drawn(place, "flows.py:approval", "--run", "a-2", "--trail", "trail.db", "--json")
    found = json.loads(done.stdout)["graph"]
    assert [node["run"]["status"] for node in found["nodes"]] == ["completed"] * 4
    assert [edge["taken"] for edge in found["edges"][-2:]] == [1, 0]


def test_a_graph_inside_that_waits_is_drawn_as_it_stands(place: Path) -> None:
    record(place, "wrapped", "w-1", "{'topic': 'tides'}")
    text = drawn(place, "flows.py:wrapped", "--run", "w-1", "--trail", "trail.db").stdout
    assert re.search(r"inner  graph  paused ", text)
    assert re.search(r"│   1  write           1. · [\d.]+ ms ", text)
    assert re.search(r"│   2  ask       asks  paused ", text)


def test_runs_inside_are_added_up_those_that_failed_too(place: Path) -> None:
    record(place, "many", "m-1", "{'topics': ['a', 'b']}")
    assert re.search(
        r"│   1  write  2. · [\d.]+ ms", drawn(place, "flows:many", "--run", "m-1", "--trail", "trail.db").stdout
    )
    record(place, "many", "m-2", "{'topics': ['a', 'nothing']}")
    text = drawn(place, "flows:many", "--run", "m-2", "--trail", "trail.db").stdout
    assert re.search(r"  1  each  graph  failed · 1. ", text)
    assert re.search(r"│   1  write  failed · 2. ", text)


def test_what_the_graph_no_longer_has_is_told(place: Path) -> None:
    record(place, "approval", "a-1", "{'topic': 'tides'}")
    changed = (
        FLOWS.replace("def write(", "def compose(")
        .replace("[write, ask", "[compose, ask")
        .replace("[write]", "[compose]")
    )
    (place / "flows.py").write_text(changed, "utf-8")
    done = drawn(place, "flows.py:approval", "--run", "a-1", "--trail", "trail.db")
    assert done.stderr == f"{TOLD}not drawn, as the graph has no such node any more: 'write'.\n"
    assert re.search(r"compose +not reached", done.stdout)


# What cannot be drawn


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["flows.py:nothing"], 3, "'flows.py' has no 'nothing'. Its graphs: approval, wrapped, drafts, many."),
        (["flows.py:number"], 1, "'flows.py:number' is no graph but of type int."),
        (["gone.py:approval"], 3, "there is no file 'gone.py'."),
        (["gone:approval"], 1, "cannot load 'gone': there is no such module in "),
        (["flows"], 2, "'flows' has 4 graphs. Name one: flows:approval, flows:wrapped, flows:drafts, flows:many."),
        (["flows.py:"], 2, "'flows.py' has 4 graphs. Name one: flows.py:approval, flows.py:wrapped, "),
        (["empty.py"], 3, "'empty.py' has no graph. Name the file, or the module, that has one."),
        ([":approval"], 2, "':approval' names no graph; give FILE:NAME, or MODULE:NAME."),
        (["flows.py:approval", "--svg", "--json"], 2, "--svg prints no JSON; give one of the two."),
        (["flows.py:approval", "--run", "x"], 1, ".everstep/trail.db': there is no trail."),
        (["broken.py:g"], 1, "cannot load 'broken': GraphError: graph 'g' has no nodes. Give it at least one."),
        (["syntax.py:g"], 1, "cannot load 'syntax': SyntaxError: "),
        (["script.py:g"], 1, "cannot load 'script': SystemExit: 0."),
        (["in/json.py:g"], 1, "cannot load 'in/json.py': Python finds another module under the name of the file."),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_told_in_a_sentence(place: Path, words: list[str], code: int, said: str) -> None:
    (place / "broken.py").write_text("from everstep import Graph\ng = Graph([], name='g')", "utf-8")
    (place / "syntax.py").write_text("def", "utf-8")
    (place / "script.py").write_text("raise SystemExit(0)", "utf-8")
    (place / "empty.py").write_text("import everstep", "utf-8")
    (place / "in").mkdir()
    (place / "in" / "json.py").write_text("g = 1", "utf-8")
    done = drawn(place, *words)
    assert done.code == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_run_of_another_graph_or_none_is_refused(place: Path) -> None:
    record(place, "drafts", "d-1", "{'topic': 'tides'}")
    done = drawn(place, "flows.py:approval", "--run", "d-1", "--trail", "trail.db")
    assert done.code == 4
    assert "run 'd-1' is one of 'drafts', not of graph 'approval'" in done.stderr
    assert drawn(place, "flows.py:approval", "--run", "d-2", "--trail", "trail.db").code == 3
