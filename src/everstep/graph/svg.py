"""A graph as an SVG that stands alone: no scripts, no fonts from elsewhere, for light and for dark."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from everstep.graph.layout import Layout, Point, Route, Span
from everstep.graph.picture import Box, Picture, Wire, shown, signature, width
from everstep.graph.straight import Size

_SIGN, _SMALL = 7.9, 6.6  # the width of a letter of a name, and of a smaller text
_LINE = 15.0  # from one small line to the next
_MARGIN, _PAD, _TITLE = 24.0, 18.0, 34.0
_NAME, _WORDS = 40, 48  # letters
_TIP = 14.0  # how far the pointed sides of what chooses reach out
_BEND = 8.0

_LIGHT = {
    "page": "#ffffff", "ink": "#1f2328", "soft": "#59636e", "line": "#8c959f", "faint": "#d0d7de",
    "node": "#f6f8fa", "choice": "#fff6e0", "choosing": "#9a6700", "ask": "#f5eefe", "asking": "#8250df",
    "inner": "#eef6ff", "graph": "#0969da", "end": "#1f2328",
    "completed": "#1a7f37", "failed": "#cf222e", "paused": "#9a6700", "restored": "#0969da", "cached": "#0e7490",
}  # fmt: skip
_DARK = {
    "page": "#0d1117", "ink": "#e6edf3", "soft": "#9198a1", "line": "#6e7681", "faint": "#30363d",
    "node": "#161b22", "choice": "#272115", "choosing": "#d29922", "ask": "#211830", "asking": "#ab7df8",
    "inner": "#111d2e", "graph": "#4493f8", "end": "#e6edf3",
    "completed": "#3fb950", "failed": "#f85149", "paused": "#d29922", "restored": "#4493f8", "cached": "#39c5cf",
}  # fmt: skip
_RULES = (
    (".page", "fill", "page"), ("text", "fill", "ink"), (".words", "fill", "soft"),
    (".wire", "stroke", "line"), (".tip", "fill", "line"), (".label", "fill", "page"),
    (".choice .wire", "stroke", "choosing"), (".choice .tip", "fill", "choosing"),
    (".choice text", "fill", "choosing"), (".value text", "fill", "soft"), (".untaken .wire", "stroke", "faint"),
    (".untaken .tip", "fill", "faint"), (".untaken text", "fill", "soft"),
    (".box", "fill", "node"), (".box", "stroke", "line"), (".graph .label", "fill", "inner"),
    (".route > .box,.gate > .box", "fill", "choice"), (".route > .box,.gate > .box", "stroke", "choosing"),
    (".interrupt > .box", "fill", "ask"), (".interrupt > .box", "stroke", "asking"),
    (".graph > .box", "fill", "inner"), (".graph > .box", "stroke", "graph"),
    (".input > .box", "fill", "page"), (".input > .box", "stroke", "faint"), (".input > text", "fill", "soft"),
    (".end > .box", "fill", "end"), (".end > .box", "stroke", "end"), (".end > text", "fill", "page"),
    *((f".{status} > .box", "stroke", status) for status in ("completed", "failed", "paused", "restored", "cached")),
    *((f".{status} > .run", "fill", status) for status in ("completed", "failed", "paused", "restored", "cached")),
    (".not-reached > .box", "stroke", "faint"), (".not-reached > text", "fill", "soft"),
)  # fmt: skip
_ALWAYS = (
    ".everstep text{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
    "text-anchor:middle}"
    ".everstep .name{font-size:13px;font-weight:600}.everstep .words,.everstep .run,.everstep .wired{font-size:11px}"
    ".everstep .head{text-anchor:start}.everstep .box{stroke-width:1.25}"
    ".everstep .wire{fill:none;stroke-width:1.5}.everstep .choice .wire{stroke-dasharray:5 4}"
    ".everstep .taken .wire{stroke-width:2.5}.everstep .optional > .box{stroke-dasharray:3 3}"
    ".everstep .failed > .box,.everstep .paused > .box,.everstep .completed > .box{stroke-width:2}"
    ".everstep .not-reached > .box{stroke-dasharray:4 3}"
)


def to_svg(picture: Picture) -> str:
    """The picture as SVG text."""
    drawing = _Drawing(picture)
    name, run = shown(picture.name, _NAME), shown(picture.summary, 90)
    title = escape(" · ".join(filter(None, [name, run])))
    wide = round(max(drawing.width, width(name) * _SIGN, width(run) * _SMALL) + 2 * _MARGIN)
    top = _MARGIN + _TITLE + (_LINE if run else 0)
    high = round(drawing.height + _MARGIN + top)
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" viewBox="0 0 {wide} {high}"',
        f' class="everstep" role="img" aria-label="{title}">',
        f"<title>{title}</title>",
        f"<style>{_ALWAYS}{_css(_LIGHT)}@media (prefers-color-scheme:dark){{{_css(_DARK)}}}</style>",
        f'<rect class="page" width="{wide}" height="{high}" rx="10"/>',
        f'<text class="head name" x="{_n(_MARGIN)}" y="{_n(_MARGIN + 6)}">{escape(name)}</text>',
        *[f'<text class="head words" x="{_n(_MARGIN)}" y="{_n(_MARGIN + 6 + _LINE)}">{escape(run)}</text>'] * bool(run),
        *drawing.drawn((wide - drawing.width) / 2, top),
        "</svg>\n",
    ])  # fmt: skip


def _css(colours: dict[str, str]) -> str:
    return "".join(
        f"{','.join(f'.everstep {one}' for one in where.split(','))}{{{what}:{colours[colour]}}}"
        for where, what, colour in _RULES
    )


class _Drawing:
    """One graph: how large it is, and its elements. A graph inside of it is another."""

    def __init__(self, picture: Picture) -> None:
        self._picture = picture
        self._inside = [None if box.inside is None else _Drawing(box.inside) for box in picture.boxes]
        self._lines = [_lines(box) for box in picture.boxes]
        self._sizes = [self._size(place) for place in range(len(picture.boxes))]
        spans = [Span(wire.source, wire.targets, _label_size(wire)) for wire in picture.wires]
        self._layout = Layout(self._sizes, picture.layers, spans)
        self.width = self._layout.right - self._layout.left
        self.height = self._layout.bottom

    def _size(self, place: int) -> Size:
        box, lines, inside = self._picture.boxes[place], self._lines[place], self._inside[place]
        wide = max(width(box_name(box)) * _SIGN, *(width(words) * _SMALL for _, words in lines), 0.0)
        if box.kind in {"input", "end"}:
            return Size(round(wide) + 26, 26)
        high = 26 + _LINE * len(lines) + (10 if not lines else 4)
        if inside is not None:
            return Size(max(round(wide), inside.width) + 2 * _PAD, high + inside.height + 1.75 * _PAD)
        if box.kind in {"route", "gate"}:
            return Size(max(round(wide) + 44, 90), high + 4, _TIP)
        return Size(max(round(wide) + 32, 90), high)

    def drawn(self, left: float, top: float) -> Iterator[str]:
        """The elements, from what lies below to what lies on top."""
        left -= self._layout.left
        wires = self._picture.wires
        for untaken in (True, False):  # what the run took lies on top
            for route in self._layout.routes:
                if (wires[route.span].taken == 0) is untaken:
                    yield _wire(wires[route.span], route, left, top)
        for number, middle in self._layout.labels:
            yield _label(wires[number], Point(middle.x + left, middle.y + top))
        for place in range(len(self._picture.boxes)):
            middle = self._layout.box(place)
            yield from self._box(place, Point(middle.x + left, middle.y + top))

    def _box(self, place: int, middle: Point) -> Iterator[str]:
        box, size, lines, inside = (
            self._picture.boxes[place], self._sizes[place], self._lines[place], self._inside[place],
        )  # fmt: skip
        run = "" if box.visits is None else f" {box.visits.status.replace(' ', '-')}"
        yield f'<g class="{box.kind}{run}{" optional" if box.optional else ""}">'
        yield f"<title>{escape(_tooltip(box))}</title>"
        yield _shape(box, size, middle)
        top = middle.y - size.height / 2
        y = (
            middle.y + 4.5
            if box.kind in {"input", "end"}
            else top + (22.5 if lines or inside else size.height / 2 + 4.5)
        )
        kind = "" if box.kind in {"input", "end"} else ' class="name"'
        yield f'<text{kind} x="{_n(middle.x)}" y="{_n(y)}">{escape(box_name(box))}</text>'
        for kind, words in lines:
            y += _LINE
            yield f'<text class="{kind}" x="{_n(middle.x)}" y="{_n(y)}">{escape(words)}</text>'
        if inside is not None:
            yield from inside.drawn(middle.x - inside.width / 2, y + _PAD)
        yield "</g>"


def box_name(box: Box) -> str:
    """The name as it is drawn."""
    return shown(box.name, _NAME) + "?" * box.optional


def _lines(box: Box) -> list[tuple[str, str]]:
    """What stands below the name, and in which style."""
    lines = []
    over = ", ".join(getattr(box.node, "map_over", ()))
    words = {"node": "", "interrupt": "asks a person", "graph": f"for each {over}" if over else "graph"}
    first = [] if box.node is None else [words.get(box.kind, box.kind)]
    given = " ".join(filter(None, [*first, f"→ {', '.join(box.results)}" if box.results else ""]))
    if given:
        lines.append(("words", shown(given, _WORDS)))
    if box.visits is not None:
        lines.append(("run", str(box.visits)))
    return lines


def _tooltip(box: Box) -> str:
    if box.kind == "end":
        return "the run ends"
    if box.kind == "input":
        return f"a run {'may' if box.optional else 'must'} be given {shown(box.name, _NAME)}"
    return f"{box.kind} {shown(box.name, _NAME)}{signature(box)}"


def _shape(box: Box, size: Size, middle: Point) -> str:
    x, y = middle.x - size.width / 2, middle.y - size.height / 2
    if box.kind in {"route", "gate"}:
        right, bottom = x + size.width, y + size.height
        inner = x + _TIP, right - _TIP
        corners = [
            (x, middle.y), (inner[0], y), (inner[1], y), (right, middle.y), (inner[1], bottom), (inner[0], bottom),
        ]  # fmt: skip
        return f'<polygon class="box" points="{" ".join(f"{_n(a)},{_n(b)}" for a, b in corners)}"/>'
    round_ = size.height / 2 if box.kind in {"input", "end"} else 20 if box.kind == "interrupt" else 8
    rect = f'<rect class="box" x="{_n(x)}" y="{_n(y)}" width="{_n(size.width)}" height="{_n(size.height)}" '
    return rect + f'rx="{_n(min(round_, size.height / 2))}"/>'


# Wires.


def _label_size(wire: Wire) -> Size | None:
    text = str(wire)
    return Size(width(shown(text, _NAME)) * _SMALL + 12, 18) if text else None


def _label(wire: Wire, middle: Point) -> str:
    text = shown(str(wire), _NAME)
    wide = width(text) * _SMALL + 8
    return (
        f'<g class="{_classes(wire)}"><rect class="label" x="{_n(middle.x - wide / 2)}" y="{_n(middle.y - 9)}" '
        f'width="{_n(wide)}" height="18" rx="5"/>'
        f'<text class="wired" x="{_n(middle.x)}" y="{_n(middle.y + 4)}">{escape(text)}</text></g>'
    )


def _classes(wire: Wire) -> str:
    return wire.kind + ("" if wire.taken is None else " taken" if wire.taken else " untaken")


def _wire(wire: Wire, route: Route, left: float, top: float) -> str:
    points = [Point(x + left, y + top) for x, y in route.points]
    way = _bent(points) if route.at_side else _curved(points)
    end, before = points[-1], points[-2]
    if route.at_side and before.y == end.y:  # from the right
        tip = f"M{_n(end.x)},{_n(end.y)}l7,-4v8z"
    else:
        tip = f"M{_n(end.x)},{_n(end.y)}l-4,-7h8z"
    return (
        f'<g class="{_classes(wire)}" data-from="{wire.source}" data-to="{route.target}">'
        f'<path class="wire" d="{way}"/><path class="tip" d="{tip}"/></g>'
    )


def _curved(points: list[Point]) -> str:
    """Down through both ends of each vertical part, with curves between the parts."""
    parts = [f"M{_n(points[0].x)},{_n(points[0].y)}"]
    for (x0, y0), (x1, y1) in zip(points[1::2], points[2::2], strict=False):
        if abs(x0 - x1) > 0.05:  # else it is one straight line
            middle = _n((y0 + y1) / 2)
            parts.append(f"V{_n(y0)}C{_n(x0)},{middle} {_n(x1)},{middle} {_n(x1)},{_n(y1)}")
    return "".join([*parts, f"V{_n(points[-1].y)}"])


def _bent(points: list[Point]) -> str:
    """Along corners, each of them rounded."""
    parts = [f"M{_n(points[0].x)},{_n(points[0].y)}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        start, end = _towards(corner, before), _towards(corner, after)
        parts.append(f"L{_n(start.x)},{_n(start.y)}Q{_n(corner.x)},{_n(corner.y)} {_n(end.x)},{_n(end.y)}")
    return "".join([*parts, f"L{_n(points[-1].x)},{_n(points[-1].y)}"])


def _towards(corner: Point, other: Point) -> Point:
    """A little way from a corner to its neighbour."""
    dx, dy = other.x - corner.x, other.y - corner.y
    far = max(abs(dx), abs(dy))
    part = min(_BEND, far / 2) / far if far else 0.0
    return Point(corner.x + dx * part, corner.y + dy * part)


def _n(number: float) -> str:
    """A number with no more digits than anybody sees."""
    return f"{number:.1f}".rstrip("0").rstrip(".")
