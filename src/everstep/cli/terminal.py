"""What a person sees: colour, and columns that fit the window."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from everstep.cli.output import GAP, Cell, Column
from everstep.trail.late import Late

_LEAST = 12  # what no column is cut below
_LAST = 24  # what the last one is not cut below while another is wider
_CHUNK = 500  # lines that are printed at once
_PROGRESS = Late("rich.progress")  # loaded with the first bar: few commands have one


class Terminal:
    """A window of some width. Nothing in a text is markup."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, markup=False, emoji=False)

    def table(self, columns: Sequence[Column], lines: list[list[Cell]]) -> None:
        """Print rows under titles, the widest columns cut where they do not fit."""
        titles = [Cell(column.title, "dim") for column in columns]
        widths = [max(cell_len(line[at].text) for line in [titles, *lines]) for at in range(len(columns))]
        room = self._console.width - len(GAP) * (len(columns) - 1)
        widths[-1] = max(min(widths[-1], room - sum(widths[:-1])), min(widths[-1], _LAST))
        while sum(widths) > room and max(widths) > _LEAST:
            widths[widths.index(max(widths))] -= 1
        shown = [_line(line, columns, widths) for line in [titles, *lines]]
        for first in range(0, len(shown), _CHUNK):
            self._print(Text("\n").join(shown[first : first + _CHUNK]))

    def fields(self, lines: list[tuple[str, Cell]]) -> None:
        """Print names and what belongs to them; what is long goes on below."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, cell in lines:
            grid.add_row(Text(name), Text(cell.text, cell.style))
        self._console.print(grid)

    def line(self, cells: list[Cell]) -> None:
        """Print one line, cut to the window."""
        self._print(Text(GAP).join(Text(cell.text, cell.style) for cell in cells))

    def busy(self, text: str) -> AbstractContextManager[object]:
        """A sign of life on stderr while a block runs."""
        return self._beside().status(Text(text))

    @contextmanager
    def progress(self, text: str) -> Iterator[Callable[[int, int], object]]:
        """A bar on stderr while a block runs, which it is moved by."""
        parts = _PROGRESS.BarColumn(), _PROGRESS.MofNCompleteColumn(), _PROGRESS.TimeRemainingColumn()
        what = _PROGRESS.TextColumn("{task.description}", markup=False)
        beside = self._beside()
        with _PROGRESS.Progress(what, *parts, console=beside, transient=True, disable=beside.is_dumb_terminal) as bar:
            task = bar.add_task(text, total=None)
            yield lambda done, total: bar.update(task, completed=min(done, total), total=total)

    @staticmethod
    def _beside() -> Console:
        return Console(stderr=True, highlight=False, markup=False, emoji=False)

    def _print(self, text: Text) -> None:
        self._console.print(text, no_wrap=True, overflow="ellipsis", crop=True)


def _line(line: list[Cell], columns: Sequence[Column], widths: list[int]) -> Text:
    found = Text()
    for at, (cell, column, width) in enumerate(zip(line, columns, widths, strict=True)):
        text = Text(cell.text, cell.style)
        if at < len(columns) - 1 or column.right:
            text.truncate(width, overflow="ellipsis")
            text.align("right" if column.right else "left", width)
        found.append_text(text)
        if at < len(columns) - 1:
            found.append(GAP)
    return found
