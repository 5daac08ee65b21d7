"""A graph in the language of Mermaid, which many pages draw where they find it."""

from __future__ import annotations

from collections.abc import Iterator

from everstep.graph.picture import NOT_REACHED, TIMES, Box, Picture, Wire, shown

_NAME = 60  # letters
_PLAIN = frozenset(" _,?·" + TIMES)  # beside letters and digits; any other sign is written as its number
_SHAPES = {
    "input": '(["{}"])', "node": '["{}"]', "route": '{{"{}"}}', "gate": '{{"{}"}}', "interrupt": '{{{{"{}"}}}}',
    "graph": '[["{}"]]', "end": '((("{}")))',
}  # fmt: skip
_STYLES = {  # lines only: the page chooses what is dark and what is light
    "completed": "stroke:#1a7f37,stroke-width:2px",
    "failed": "stroke:#cf222e,stroke-width:3px",
    "paused": "stroke:#bf8700,stroke-width:3px",
    "restored": "stroke:#0969da,stroke-width:2px",
    "cached": "stroke:#0e7490,stroke-width:2px",
    NOT_REACHED: "stroke-dasharray:4 3,opacity:0.6",
}


def to_mermaid(picture: Picture) -> str:
    """The picture as the text of a flowchart."""
    lines = ["flowchart TD", *_inner(picture, "n", "    ")]
    edges = list(_edges(picture, "n"))
    lines += (f"    {line}" for line, _ in edges)
    taken = [str(number) for number, (_, wire) in enumerate(edges) if wire.taken]
    lines += [f"    linkStyle {','.join(taken)} stroke-width:3px"] * bool(taken)
    by_status: dict[str, list[str]] = {}
    for name, box in _all(picture, "n"):
        if box.visits is not None and box.visits.status in _STYLES:
            by_status.setdefault(box.visits.status, []).append(name)
    for status, names in by_status.items():
        word = status.replace(" ", "_")
        lines += [f"    classDef {word} {_STYLES[status]}", f"    class {','.join(names)} {word}"]
    return "\n".join([*lines, ""])


def _all(picture: Picture, prefix: str) -> Iterator[tuple[str, Box]]:
    """Every box, with its name in the text. It is made of numbers, so that no name of a node can be a word of it."""
    for place, box in enumerate(picture.boxes):
        yield f"{prefix}{place}", box
        if box.inside is not None:
            yield from _all(box.inside, f"{prefix}{place}_")


def _inner(picture: Picture, prefix: str, indent: str) -> Iterator[str]:
    for place, box in enumerate(picture.boxes):
        name = f"{prefix}{place}"
        if box.inside is None:
            yield f"{indent}{name}{_SHAPES[box.kind].format(_text(box))}"
        else:
            yield f'{indent}subgraph {name} ["{_text(box, " · ")}"]'
            yield f"{indent}    direction TB"
            yield from _inner(box.inside, f"{name}_", f"{indent}    ")
            yield f"{indent}end"


def _text(box: Box, between: str = "<br/>") -> str:
    words = [escaped(box.name) + "?" * box.optional]
    over = ", ".join(getattr(box.node, "map_over", ()))
    words += [escaped(f"for each {over}")] * bool(over)
    words += [escaped(str(box.visits))] * (box.visits is not None)
    return between.join(words)


def _edges(picture: Picture, prefix: str) -> Iterator[tuple[str, Wire]]:
    """The lines of the wires, in the order in which they count."""
    together: dict[tuple[int, int, str], list[Wire]] = {}  # what one node gives another is one line
    for wire in picture.wires:
        for target in wire.targets:
            together.setdefault((wire.source, target, wire.kind), []).append(wire)
    for (source, target, _), wires in together.items():
        label = escaped(", ".join(filter(None, map(str, wires))))
        arrow = ("-.->" if wires[0].kind == "choice" else "-->") + (f'|"{label}"|' if label else "")
        yield f"{prefix}{source} {arrow} {prefix}{target}", wires[0]
    for place, box in enumerate(picture.boxes):
        if box.inside is not None:
            yield from _edges(box.inside, f"{prefix}{place}_")


def escaped(text: str) -> str:
    """A text that is nothing but text: whatever could mean something there is written as its number."""
    return "".join(sign if sign.isalnum() or sign in _PLAIN else f"#{ord(sign)};" for sign in shown(text, _NAME))
