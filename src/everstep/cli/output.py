"""Where a command's words go: data to stdout, talk to stderr; in colour and cut to the window when a person looks."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any, NamedTuple

from everstep.trail.late import Late

GAP = "  "
# Loaded with the first word: a command that becomes a program says nothing itself.
_PLAIN, _TEXT = Late("everstep.cli.plain"), Late("everstep.cli.text")


class Cell(NamedTuple):
    """A text with a style, which only a terminal shows. Where a window is too narrow, what is not `whole` is cut."""

    text: str
    style: str = ""
    whole: bool = False


class Column(NamedTuple):
    """A column of a table. Numbers stand to the right. A narrow window goes without the spare ones, 1 first."""

    title: str
    right: bool = False
    spare: int = 0


Row = Sequence[Cell | str]


class Output:
    """The two streams of one command."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.person = not as_json and sys.stdout is not None and sys.stdout.isatty()
        # Loaded only for a person: it costs a third of the time to the first line.
        self._terminal: Any = import_module("everstep.cli.terminal").Terminal() if self.person else None

    @property
    def unicode(self) -> bool:
        """Whether the stream can print more than ASCII."""
        return (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")

    def data(self, **parts: Any) -> None:
        """Print the one object of a command with --json. Its keys are in every answer of this version."""
        # ASCII: no stored character can reach a terminal, and no encoding of the stream can be in the way.
        _print(json.dumps({"everstep": _PLAIN.VERSION, **parts}, ensure_ascii=True, allow_nan=False))

    def table(self, columns: Sequence[Column], rows: Iterable[Row]) -> None:
        """Print rows under titles; for a program, whole and aligned, two spaces or more between columns."""
        lines = [[_cell(cell) for cell in row] for row in rows]
        if self._terminal is not None:
            self._terminal.table(columns, lines)
            return
        lines.insert(0, [Cell(column.title) for column in columns])
        widths = [max(len(line[at].text) for line in lines) for at in range(len(columns))]
        for line in lines:
            texts = [
                cell.text.rjust(width) if column.right else cell.text.ljust(width)
                for cell, column, width in zip(line, columns, widths, strict=True)
            ]
            _print(GAP.join(texts).rstrip())

    def fields(self, pairs: Iterable[tuple[str, Cell | str]]) -> None:
        """Print names and what belongs to them, one line each."""
        lines = [(name, _cell(cell)) for name, cell in pairs]
        if self._terminal is not None:
            self._terminal.fields(lines)
            return
        width = max((len(name) for name, _ in lines), default=0)
        for name, cell in lines:
            _print(f"{name.ljust(width)}{GAP}{cell.text}".rstrip())

    def line(self, *cells: Cell | str) -> None:
        """Print one line; without cells, an empty one."""
        made = [_cell(cell) for cell in cells]
        if self._terminal is not None:
            self._terminal.line(made)
        else:
            _print(GAP.join(cell.text for cell in made).rstrip())

    def talk(self, text: str) -> None:
        """Say something that is no data."""
        talk(text)

    def busy(self, text: str) -> AbstractContextManager[Any]:
        """While a block takes its time, tell a person so."""
        return nullcontext() if self._terminal is None else self._terminal.busy(text)

    def progress(self, text: str) -> AbstractContextManager[Callable[[int, int], object] | None]:
        """For a person a bar, while a block runs. It is told how much is done, and of how much."""
        return nullcontext() if self._terminal is None else self._terminal.progress(text)


def talk(text: str) -> None:
    """Say something on stderr, behind what stdout has so far."""
    if sys.stdout is not None:
        sys.stdout.flush()
    if sys.stderr is not None:
        sys.stderr.write("\n".join(_TEXT.safe(line) for line in text.split("\n")) + "\n")
        sys.stderr.flush()


def _print(line: str) -> None:
    if sys.stdout is not None:  # a process may be started without one
        sys.stdout.write(line + "\n")


def _cell(cell: Cell | str) -> Cell:
    return Cell(_TEXT.safe(cell)) if isinstance(cell, str) else cell._replace(text=_TEXT.safe(cell.text))
