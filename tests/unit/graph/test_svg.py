"""The drawing itself: nothing covers anything, wires end at their boxes, and large graphs are drawn too."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep import Graph, node
from everstep.graph.picture import Box, BoxKind, Picture, Wire, WireKind, picture
from everstep.graph.svg import to_svg
from tests.unit.graph.test_picture import approval, outer, rag

NAMESPACE = "{http://www.w3.org/2000/svg}"
TOLERANCE = 0.6  # numbers are rounded to a tenth
Place = tuple[float, float]


class Shape(NamedTuple):
    """The outline of a box, corner by corner."""

    corners: list[Place]

    @property
    def edges(self) -> tuple[float, float, float, float]:
        xs, ys = zip(*self.corners, strict=True)
        return min(xs), min(ys), max(xs), max(ys)

    def distance(self, place: Place) -> float:
        """From a place to the nearest point of the outline."""
        pairs = zip(self.corners, [*self.corners[1:], self.corners[0]], strict=True)
        return min(_distance(place, one, other) for one, other in pairs)

    def holds(self, place: Place) -> bool:
        left, top, right, bottom = self.edges
        inset = TOLERANCE if len(self.corners) == 4 else 14  # the tips of what chooses are no part of its middle
        return left + inset < place[0] < right - inset and top + TOLERANCE < place[1] < bottom - TOLERANCE


def _distance(place: Place, one: Place, other: Place) -> float:
    (x, y), (x0, y0), (x1, y1) = place, one, other
    length = (x1 - x0) ** 2 + (y1 - y0) ** 2
    part = max(0.0, min(1.0, ((x - x0) * (x1 - x0) + (y - y0) * (y1 - y0)) / length)) if length else 0.0
    return float(((x - x0 - part * (x1 - x0)) ** 2 + (y - y0 - part * (y1 - y0)) ** 2) ** 0.5)


def rectangle(element: ET.Element) -> Shape:
    x, y, wide, high = (float(element.get(name, "0")) for name in ("x", "y", "width", "height"))
    return Shape([(x, y), (x + wide, y), (x + wide, y + high), (x, y + high)])


def shape(element: ET.Element) -> Shape:
    if element.tag == f"{NAMESPACE}rect":
        return rectangle(element)
    return Shape([tuple(map(float, corner.split(","))) for corner in element.get("points", "").split()])  # type: ignore[misc] # two numbers


def outline_of(path: str) -> list[Place]:
    """Points along a path, its ends among them."""
    points: list[Place] = []
    for command, rest in re.findall(r"([MVLCQ])([^MVLCQ]*)", path):
        numbers = [float(number) for number in re.findall(r"-?[\d.]+", rest)]
        if command == "V":
            numbers = [points[-1][0], *numbers]
        through = [(numbers[at], numbers[at + 1]) for at in range(0, len(numbers), 2)]
        if command == "M":
            points += through
        else:
            points += list(_bezier([points[-1], *through]))
    return points


def _bezier(points: list[Place]) -> list[Place]:
    found = []
    for step in range(1, 21):
        part, level = step / 20, points
        while len(level) > 1:
            level = [(a[0] + part * (b[0] - a[0]), a[1] + part * (b[1] - a[1])) for a, b in itertools.pairwise(level)]
        found += level
    return found


def check(svg: str) -> ET.Element:
    """No box or label covers another, every wire ends at its boxes and passes through none, all is on the page."""
    root = ET.fromstring(svg)
    page = Shape(
        [(0, 0), (float(root.get("width", "")), 0), (float(root.get("width", "")), float(root.get("height", "")))]
    )
    for level in root.iter():
        groups = level.findall(f"{NAMESPACE}g")
        boxes = [shape(box) for group in groups if (box := _part(group, "box")) is not None]
        labels = [shape(label) for group in groups if (label := _part(group, "label")) is not None]
        for one, other in itertools.combinations([*boxes, *labels], 2):
            assert not _overlap(one, other), (one, other)
        for group in groups:
            wire = _part(group, "wire")
            if wire is None:
                continue
            points = outline_of(wire.get("d", ""))
            source, target = int(group.get("data-from", "")), int(group.get("data-to", ""))
            assert boxes[source].distance(points[0]) < TOLERANCE
            assert boxes[target].distance(points[-1]) < TOLERANCE
            for each in boxes:
                assert not any(each.holds(point) for point in points), (group.attrib, each)
        for each in [*boxes, *labels]:
            assert 0 <= each.edges[0] < each.edges[2] <= page.edges[2]
            assert 0 <= each.edges[1] < each.edges[3] <= page.edges[3]
    return root


def _part(group: ET.Element, name: str) -> ET.Element | None:
    return next((each for each in group if each.get("class") == name), None)


def _overlap(one: Shape, other: Shape) -> bool:
    a, b = one.edges, other.edges
    return min(a[2], b[2]) - max(a[0], b[0]) > TOLERANCE and min(a[3], b[3]) - max(a[1], b[1]) > TOLERANCE


@pytest.mark.parametrize("make", [rag, approval, outer])
def test_nothing_covers_anything_in_the_usual_graphs(make: type) -> None:
    check(make().to_svg())


def test_a_box_for_each_input_node_and_end_and_a_wire_for_each_pair() -> None:
    root = check(rag().to_svg())
    kinds = [group.get("class") for group in root.iter(f"{NAMESPACE}g") if _part(group, "box") is not None]
    assert kinds == ["input", "node", "node", "node", "route", "end"]
    wires = [group for group in root.iter(f"{NAMESPACE}g") if _part(group, "wire") is not None]
    ends = sorted((group.get("data-from"), group.get("data-to"), group.get("class")) for group in wires)
    assert ends == [
        ("0", "1", "input"), ("1", "2", "value"), ("2", "3", "value"), ("3", "2", "value"), ("3", "4", "value"),
        ("4", "2", "choice"), ("4", "5", "choice"),
    ]  # fmt: skip
    labels = [text.text for text in root.iter(f"{NAMESPACE}text") if text.get("class") == "wired"]
    assert sorted(map(str, labels)) == ["answer", "docs", "feedback", "feedback"]


def test_an_svg_needs_nothing_from_elsewhere_and_knows_the_dark() -> None:
    svg = rag().to_svg()
    assert set(re.findall(r"https?://[^\"]+", svg)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<script|@import|url\(|href|\son\w+=", svg)
    assert "@media (prefers-color-scheme:dark)" in svg
    assert "<title>rag</title>" in svg


KINDS: tuple[BoxKind, ...] = ("node", "node", "route", "gate", "interrupt")


@st.composite
def pictures(draw: st.DrawFn, depth: int = 2) -> Picture:
    """Any picture: wires go anywhere, back and to themselves too."""
    count = draw(st.integers(1, 9))
    boxes = []
    for number in range(count):
        inside = draw(pictures(depth=depth - 1)) if depth and draw(st.integers(0, 5)) == 0 else None
        name = "x" * draw(st.integers(1, 30))
        kind = "graph" if inside is not None else draw(st.sampled_from(KINDS))
        results = ("r" * draw(st.integers(1, 40)),) if draw(st.booleans()) else ()
        boxes.append(Box(kind, f"{name}{number}", results=results, inside=inside))
    place = st.integers(0, count - 1)
    targets = st.sets(place, min_size=1, max_size=4).map(sorted).map(tuple)
    kinds: st.SearchStrategy[WireKind] = st.sampled_from(("value", "choice"))
    wires = st.builds(Wire, kinds, place, targets, st.text("v", max_size=12))
    drawn = draw(st.lists(wires, max_size=14))
    return Picture("any", tuple(boxes), tuple(drawn), (), None)


@given(pictures())
def test_nothing_covers_anything_whatever_the_graph(drawn: Picture) -> None:
    check(to_svg(drawn))


def test_a_thousand_nodes_that_also_all_take_an_input_are_drawn() -> None:
    def following(value: int, settings: int) -> int:
        return value + settings

    chain = [
        node(output=f"v{number + 1}", name=f"n{number}", inputs={"value": f"v{number}"})(following)
        for number in range(1000)
    ]
    graph = Graph(chain)
    assert max(picture(graph).layers) == 1000
    assert len(graph.to_svg()) < 2_000_000
    assert len(graph.to_mermaid().splitlines()) == 1 + 1002 + 2000
    assert len(str(graph).splitlines()) > 1000


def test_the_picture_in_the_docs_is_what_its_graph_looks_like() -> None:
    docs = Path(__file__).resolve().parents[3] / "docs"
    [program] = re.findall(
        r"```python\n(# flow\.py\n.*?)```", (docs / "how-to/draw-a-graph.md").read_text("utf-8"), re.DOTALL
    )
    namespace: dict[str, Any] = {"__name__": "flow"}
    exec(compile(program, "flow.py", "exec", dont_inherit=True), namespace)
    assert namespace["rag"].to_svg() == (docs / "images/rag.svg").read_text("utf-8")
