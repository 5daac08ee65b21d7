"""Pictures of graphs: what is drawn, that names cannot break it, and a run over it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

import everstep
from everstep import END, Graph, Runner, gate, interrupt, node, route
from everstep.errors import GraphError
from everstep.graph.picture import TIMES as X
from everstep.graph.picture import width
from everstep.model import Status
from everstep.run.log import RunLog


def rag(answers: int = 3) -> Graph:
    """Two loops into one node: a value that comes round, and a route that decides."""

    @node(output="docs")
    def retrieve(query: str) -> list[str]:
        return [query]

    @node(output="answer")
    def generate(docs: list[str], feedback: str = "") -> str:
        return feedback + "x"

    @node(output="feedback")
    def critique(answer: str) -> str:
        return answer

    @route(targets=["generate", END])
    def good_enough(feedback: str) -> str:
        return END if len(feedback) >= answers else "generate"

    return Graph([retrieve, generate, critique, good_enough], name="rag")


def approval() -> Graph:
    @node(output="draft")
    def write(topic: str) -> str:
        return topic

    @interrupt(output="verdict", options=["yes", "no"])
    def ask(draft: str) -> str:
        return f"Publish {draft}?"

    @gate(when_true="publish", when_false=END)
    def approved(verdict: str) -> bool:
        return verdict == "yes"

    @node(output="url")
    def publish(draft: str) -> str:
        return f"https://example.org/{draft}"

    return Graph([write, ask, approved, publish], name="approval")


def doubling() -> Graph:
    @node(output="twice")
    def double(number: int) -> int:
        if number < 0:
            raise ValueError(number)
        return 2 * number

    return Graph([double], name="doubling")


def outer() -> Graph:
    @node(output="total")
    def add(doubles: list[int]) -> int:
        return sum(doubles)

    each = doubling().as_node("each", inputs={"number": "numbers"}, outputs={"twice": "doubles"}, map_over="number")
    return Graph([each, add], name="outer")


# The text


def body(text: str) -> list[str]:
    return text.partition("\n\n")[2].splitlines()


def test_the_text_has_a_line_for_each_node_and_shows_what_comes_round() -> None:
    assert str(rag()).splitlines() == [
        "rag",
        "takes  query",
        "gives  docs, answer, feedback",
        "",
        "       1  retrieve            (query) → docs",
        "╭┄┬─▶  2  generate            (docs, feedback?) → answer",
        "┊ ╰──  3  critique            (answer) → feedback",
        "╰┄┄┄┄  4  good_enough  route  (feedback) ⇢ generate, END",
    ]


def test_a_gate_says_which_way_is_which_and_an_interrupt_that_it_asks() -> None:
    assert body(approval().to_text())[1:3] == [
        "  2  ask       asks  (draft) → verdict",
        "  3  approved  gate  (verdict) ⇢ yes: publish, no: END",
    ]


def test_what_can_run_together_has_one_number_and_what_is_inside_is_below() -> None:
    @node(output="number")
    def one() -> int:
        return 1

    @node(output="other")
    def two(client: object) -> int:
        return 2

    graph = Graph([one, two, doubling()], name="g", bind={"client": object()})
    assert str(graph).splitlines()[1:] == [
        "bound  client",
        "gives  number, other, twice",
        "",
        "  1  one              () → number",
        "     two              (client) → other",
        "  2  doubling  graph  (number) → twice",
        "     │   1  double  (number) → twice",
    ]


def test_no_line_of_a_text_is_longer_than_a_hundred_columns() -> None:
    names = [f"a_rather_long_name_of_a_value_{number}" for number in range(12)]

    nodes = [node(output=name, name=f"makes {name} 日本語" * 3)(lambda: 1) for name in names]
    scope: dict[str, Any] = {}
    exec(f"def merge({', '.join(names)}): ...", scope)
    graph = Graph([*nodes, node(output="merged", name="m" * 200)(scope["merge"])], name="n" * 300)
    assert max(width(line) for line in str(graph).splitlines()) <= 100
    assert all(name in str(graph) for name in names)


def test_a_node_that_goes_on_from_what_it_gave_is_marked() -> None:
    @node(output="total")
    def add(total: int) -> int:
        return total + 1

    @route(targets=["add", END])
    def enough(total: int) -> str:
        return END if total > 3 else "add"

    assert body(str(Graph([add, enough])))[0].split()[0] == "╭┄↻─▶"


# Mermaid

SHAPES = {
    r'\(\["(.*)"\]\)': "input", r'\[\["(.*)"\]\]': "graph", r'\[ ?"(.*)"\]': "node", r'\{\{"(.*)"\}\}': "interrupt",
    r'\{"(.*)"\}': "choice", r'\(\(\("(.*)"\)\)\)': "end",
}  # fmt: skip
EDGE = re.compile(r'(n[\d_]+) (-->|-\.->)(?:\|"([^"]*)"\|)? (n[\d_]+)')


def parsed(text: str) -> tuple[dict[str, tuple[str, str]], list[tuple[str, str, str, str]]]:
    """The nodes by id, with kind and label, and the edges by labels. Every line must be one that is known."""
    first, *lines = text.splitlines()
    assert first == "flowchart TD"
    nodes: dict[str, tuple[str, str]] = {}
    edges = []
    depth = 0
    for line in map(str.strip, lines):
        if edge := EDGE.fullmatch(line):
            source, arrow, label, target = edge.groups()
            edges.append((plain(nodes[source][1]), arrow, plain(label or ""), plain(nodes[target][1])))
        elif inside := re.fullmatch(r'subgraph (n[\d_]+) \["([^"]*)"\]', line):
            nodes[inside[1]] = "subgraph", inside[2]
            depth += 1
        elif line == "end":
            depth -= 1
        elif line != "direction TB" and not re.fullmatch(r"(linkStyle|classDef|class) [\w#:,. -]+", line):
            name, shape = re.fullmatch(r"(n[\d_]+)(\W.*)", line).groups()  # type: ignore[union-attr] # else it fails
            nodes[name] = next(
                (kind, found[1]) for form, kind in SHAPES.items() if (found := re.fullmatch(form, shape))
            )
    assert depth == 0
    return nodes, edges


def plain(label: str) -> str:
    assert re.fullmatch(rf"(?:[\w ,?·{X}]|#\d+;|<br/>)*", label), label
    return re.sub(r"#(\d+);", lambda number: chr(int(number[1])), label.replace("<br/>", " / "))


def test_mermaid_has_a_shape_for_each_kind_and_labels_on_its_edges() -> None:
    nodes, edges = parsed(approval().to_mermaid())
    assert list(nodes.values()) == [
        ("input", "topic"), ("node", "write"), ("interrupt", "ask"), ("choice", "approved"), ("node", "publish"),
        ("end", "END"),
    ]  # fmt: skip
    assert edges == [
        ("topic", "-->", "", "write"),
        ("write", "-->", "draft", "ask"),
        ("write", "-->", "draft", "publish"),
        ("ask", "-->", "verdict", "approved"),
        ("approved", "-.->", "yes", "publish"),
        ("approved", "-.->", "no", "END"),
    ]


def test_mermaid_draws_a_graph_inside_as_a_part() -> None:
    nodes, edges = parsed(outer().to_mermaid())
    assert list(nodes.values()) == [
        ("input", "numbers"), ("subgraph", "each · for each number"), ("input", "number"), ("node", "double"),
        ("node", "add"),
    ]  # fmt: skip
    assert ("number", "-->", "", "double") in edges


def test_what_one_node_gives_another_is_one_edge() -> None:
    @node(output=("low", "high"))
    def split(number: int) -> tuple[int, int]:
        return number, number

    @node(output="sum")
    def join(low: int, high: int) -> int:
        return low + high

    assert parsed(Graph([split, join]).to_mermaid())[1][1] == ("split", "-->", "low, high", "join")


HOSTILE = [
    "end", "END", 'a"b', "a]b)c}", "a\nb", "`**x**`", "1. list", "- list", "# head", "#quot;", "#35;", "<b>", "<!--",
    '%%{init: {"theme":"dark"}}%%', "a;b", "&amp;", "a|b", "a-->b", "subgraph", "click n0 call()", "日本語", "😀",
    "\x1b[31m", '"]\nend\nn0-->n1["', "]]>", "\ud800", "\u202eabc", "x" * 300, "o", "@{shape: x}", ":::x", "\x00",
]  # fmt: skip


def hostile() -> Graph:
    made = [
        node(output=f"v{number + 1}", name=name, inputs={"value": f"v{number}"}) for number, name in enumerate(HOSTILE)
    ]
    return Graph([make(lambda value: value) for make in made], name="\x1b]0;</svg>\n%%{init}")


def as_drawn(name: str) -> str:
    clean = "".join(sign if sign.isprintable() else "�" for sign in name)
    return clean if len(clean) <= 32 else clean[:31]


def test_no_name_can_break_mermaid() -> None:
    nodes, edges = parsed(hostile().to_mermaid())
    assert [plain(label)[:31] for _, label in nodes.values()] == ["v0", *(as_drawn(name)[:31] for name in HOSTILE)]
    assert len(edges) == len(HOSTILE)


def test_no_name_can_break_a_text_or_steer_a_terminal() -> None:
    lines = body(str(hostile()))
    assert len(lines) == len(HOSTILE)
    assert all(as_drawn(name) in line for name, line in zip(HOSTILE, lines, strict=True))
    assert all(line.isprintable() for line in str(hostile()).splitlines())


def test_no_name_can_break_an_svg() -> None:
    root = ET.fromstring(hostile().to_svg())
    texts = [text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert all(any(text.startswith(as_drawn(name)) for text in texts) for name in HOSTILE)
    assert root.find("{http://www.w3.org/2000/svg}title") is not None


# A run over it


def runs(text: str) -> dict[str, str]:
    """What a text says of each node's run, without the times."""
    found = {}
    for line in body(text):
        cells = re.split(r"\s{2,}", re.sub(r"^[^a-z]*(?=[a-z])", "", line))
        told = next(cell for cell in cells[1:] if cell not in {"route", "gate", "asks", "graph"})
        found[cells[0]] = re.sub(r" · [\d.]+ m?s$", " · time", told)
    return found


def test_a_run_shows_how_often_each_node_ran_and_what_was_decided() -> None:
    result = Runner().run(rag(), {"query": "q"})
    text = rag().to_text(result)
    assert runs(text) == {
        "retrieve": f"1{X} · time",
        "generate": f"3{X} · time",
        "critique": f"3{X} · time",
        "good_enough": f"3{X} · time",
    }
    assert f"⇢ generate {X}2, END {X}1" in text
    assert text == rag().to_text(result.log)
    assert f"\n{result.run_id}: 10 steps in " in text
    mermaid = rag().to_mermaid(result)
    assert [edge[2] for edge in parsed(mermaid)[1] if edge[1] == "-.->"] == [f"{X}2", f"{X}1"]
    assert "linkStyle 5,6 stroke-width:3px" in mermaid
    assert "class n1,n2,n3,n4 completed" in mermaid


def test_a_run_that_waits_shows_where_and_what_it_has_not_reached(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "trail.db") as trail:
        graph, runner = approval(), Runner(trail)
        waits = runner.run(graph, {"topic": "tides"}, id="a")
        told = runs(graph.to_text(waits))
        assert told == {"write": f"1{X} · time", "ask": "paused", "approved": "not reached", "publish": "not reached"}
        trail.answer("a", "no")
        done = runner.run(graph, id="a")
        text = graph.to_text(done)
        assert runs(text)["write"] == f"restored · 1{X}"
        assert runs(text)["publish"] == "not reached"
        assert f"yes: publish, no: END {X}1" in text
        again = runner.run(graph, id="a")
        assert set(runs(graph.to_text(again)).values()) == {f"restored · 1{X}", "not reached"}


def test_a_run_shows_what_failed() -> None:
    failed = Runner().run(outer(), {"numbers": [1, -2, 3]}, error_handling="continue")
    told = runs(outer().to_text(failed))
    assert told["each"] == f"failed · 1{X} · time"
    assert told["add"] == "not reached"
    assert 'class="graph failed"' in outer().to_svg(failed)


def test_of_a_node_that_ran_for_many_items_the_worst_is_shown_and_all_are_counted() -> None:
    inner = [
        RunLog.of("doubling", None, 1.0, [("double", 0, 2.0, status, "1")])
        for status in (Status.COMPLETED, Status.FAILED, Status.RESTORED)
    ]
    items = [
        ("doubling", None, 1.0, Status.COMPLETED, f"{n}", None, False, None, log, "9") for n, log in enumerate(inner)
    ]
    log = RunLog.of("outer", "r", 5.0, [*items, ("each", 0, 4.0, Status.FAILED, "9")])
    assert f"double  failed · 3{X} · 1 restored · 4.0 ms" in outer().to_text(log)


def test_a_cached_node_is_shown_as_such(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "trail.db") as trail:
        graph = Graph([node(output="b", name="slow", cache=True)(lambda a: a + 1)], name="g")
        Runner(trail).run(graph, {"a": 1}, id="first")
        again = Runner(trail).run(graph, {"a": 1}, id="second")
        assert runs(graph.to_text(again)) == {"slow": f"cached · 1{X} · time"}


def test_the_log_of_another_graph_is_refused() -> None:
    log = Runner().run(doubling(), {"number": 1}).log
    with pytest.raises(GraphError, match="was given the log of a run of 'doubling' to draw"):
        rag().to_svg(log)


def test_a_notebook_shows_the_svg() -> None:
    assert rag()._repr_svg_() == rag().to_svg()


def test_a_step_inside_a_node_is_no_run_of_the_node_that_is_named_like_it() -> None:
    @everstep.step(name="add")
    def inner(number: int) -> int:
        return number

    @node(output="number")
    def add(start: int) -> int:
        return sum(inner(each) for each in range(start))

    graph = Graph([add], name="g")
    assert runs(graph.to_text(Runner().run(graph, {"start": 3}))) == {"add": f"1{X} · time"}
