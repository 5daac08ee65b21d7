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
_INDENT = 4  # of what goes on below
_NOTHING = frozenset({"", "-", "0"})
_CHUNK = 500  # lines that are printed at once
_PROGRESS = Late("rich.progress")  # loaded with the first bar: few commands have one


class Terminal:
    """A window of some width. Nothing in a text is markup."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, markup=False, emoji=False)

    def table(self, columns: Sequence[Column], lines: list[list[Cell]]) -> None:
        """Print rows under titles. What does not fit: spare columns are left out, then the widest are cut.

        What is whole is not cut. In the last column it goes on below.
        """
        columns, lines = _without_spare(columns, lines, self._console.width)
        lines = [[Cell(column.title, "dim") for column in columns], *lines]
        widths = _widths(lines, self._console.width)
        shown = [text for line in lines for text in self._rows(line, columns, widths)]
        cut = not any(line[0].whole for line in lines)
        for first in range(0, len(shown), _CHUNK):
            self._print(Text("\n").join(shown[first : first + _CHUNK]), cut=cut)

    def _rows(self, line: list[Cell], columns: Sequence[Column], widths: list[int]) -> Iterator[Text]:
        """The lines that one of a table takes: one, unless what stands last in it is whole and too long for one."""
        last = line[-1]
        if not last.whole or cell_len(last.text) <= widths[-1]:
            yield _line(line, columns, widths)
            return
        for text in Text(last.text).wrap(self._console, widths[-1]):
            yield _line([*line[:-1], Cell(text.plain.rstrip(), last.style)], columns, widths)
            line = [Cell("")] * len(line)

    def fields(self, lines: list[tuple[str, Cell]]) -> None:
        """Print names and what belongs to them; what is long goes on below."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, cell in lines:
            grid.add_row(Text(name), Text(cell.text, cell.style))
        self._console.print(grid)

    def line(self, cells: list[Cell]) -> None:
        """Print one line, cut to the window; if something in it is whole, it goes on below."""
        text = Text(GAP).join(Text(cell.text, cell.style) for cell in cells)
        if not any(cell.whole for cell in cells) or text.cell_len <= self._console.width:
            self._print(text)
            return
        indent = len(text.plain) - len(text.plain.lstrip()) + _INDENT
        first, *rest = text.wrap(self._console, max(_LEAST, self._console.width - indent))
        first.rstrip()
        for more in rest:
            more.rstrip()
            more.pad_left(indent)
        self._print(Text("\n").join([first, *rest]))

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

    def _print(self, text: Text, *, cut: bool = True) -> None:
        self._console.print(text, no_wrap=True, overflow="ellipsis" if cut else "ignore", crop=cut)


def _natural(lines: list[list[Cell]]) -> list[int]:
    """How wide each column is where nothing is cut."""
    return [max(cell_len(line[at].text) for line in lines) for at in range(len(lines[0]))]


def _without_spare(
    columns: Sequence[Column], lines: list[list[Cell]], width: int
) -> tuple[Sequence[Column], list[list[Cell]]]:
    """The table without the spare columns that a window has no room for: first those with nothing in them."""
    widths = _natural([[Cell(column.title) for column in columns], *lines])
    widths[-1] = min(widths[-1], _LAST)
    spare = [at for at, column in enumerate(columns) if column.spare]
    spare.sort(key=lambda at: (any(line[at].text not in _NOTHING for line in lines), columns[at].spare))
    kept = list(range(len(columns)))
    for at in spare:
        if sum(widths[each] for each in kept) + len(GAP) * (len(kept) - 1) > width:
            kept.remove(at)
    return [columns[at] for at in kept], [[line[at] for at in kept] for line in lines]


def _widths(lines: list[list[Cell]], width: int) -> list[int]:
    """How wide each column is in a window: the widest are cut, down to what stands whole in them."""
    widths, last = _natural(lines), len(lines[0]) - 1
    least = [max([_LEAST, *(cell_len(line[at].text) for line in lines if line[at].whole)]) for at in range(last)]
    least.append(_LEAST)
    room = width - len(GAP) * last
    widths[-1] = max(min(widths[-1], room - sum(widths[:-1])), min(widths[-1], _LAST))
    while sum(widths) > room and (loose := [at for at in range(last + 1) if widths[at] > least[at]]):
        widths[max(loose, key=widths.__getitem__)] -= 1
    return widths


def _line(line: list[Cell], columns: Sequence[Column], widths: list[int]) -> Text:
    found = Text()
    for at, (cell, column, width) in enumerate(zip(line, columns, widths, strict=True)):
        text = Text(cell.text, cell.style)
        if at < len(columns) - 1 or column.right or cell_len(cell.text) > width:
            text.truncate(width, overflow="ellipsis")
            text.align("right" if column.right else "left", width)
        found.append_text(text)
        if at < len(columns) - 1:
            found.append(GAP)
    return found
