"""Finding rows by their words: a full-text index in a file of its own.

The index is a cache. It is brought up to date when somebody searches, costs writers nothing, and can be deleted. What
retention or erasure takes out of the log must not live on in it, so then it is emptied and built anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from itertools import islice
from typing import Any, Literal, get_args

import apsw

from everstep.codec import chain
from everstep.codec.chain import Entry
from everstep.codec.record import ERROR, INPUTS, OPS, OUTPUT, ops_of, read_payload
from everstep.codec.streamed import said_in
from everstep.codec.values import Generic
from everstep.errors import DamagedError

_TABLES = """
create table if not exists seen(row integer not null, generation integer not null);
create virtual table if not exists words using fts5(text, content='', contentless_delete=1, tokenize='unicode61');
"""
_FORMAT = 2  # of what is taken in of a row: an index that took in less is made anew
Field = Literal["name", "inputs", "output", "values", "error"]
_PLACES = {"inputs": INPUTS, "output": OUTPUT, "error": ERROR}
_TERM = re.compile(r'"([^"]*)"|(\S+)')


class SearchIndex:
    """The words of a log's rows. `path` may be ":memory:" where nothing may be written."""

    def __init__(self, path: str, text: Callable[[Entry], str] | None = None) -> None:
        self._text = text or text_of
        self._connection = apsw.Connection(path)
        self._connection.set_busy_timeout(10_000)
        self._connection.transaction_mode = (
            "IMMEDIATE"  # who reads before it writes is refused without being waited for
        )
        self._connection.execute("pragma secure_delete = on")
        self._connection.execute(_TABLES)

    def seen(self, generation: int) -> int:
        """The newest row that is in the index; 0 when it was made before something was taken out of the log."""
        found: list[tuple[Any, ...]] = self._connection.execute("select row, generation from seen").fetchall()
        is_current = self._connection.pragma("user_version") == _FORMAT and found and found[0][1] == generation
        return int(found[0][0]) if is_current else 0

    def add(self, rows: Iterable[tuple[int, Entry]], since: int, generation: int) -> None:
        """Take in the rows after `since`, all or none of them."""
        connection = self._connection
        with connection:
            if since == 0:
                connection.execute("insert into words(words) values('delete-all')")
            newest = since
            for row, entry in rows:
                # JSON may spell out half a character, which no database takes.
                text = self._text(entry).encode(errors="replace").decode()
                connection.execute("insert or replace into words(rowid, text) values(?, ?)", (row, text))
                newest = row
            connection.execute("delete from seen")
            connection.execute("insert into seen values(?, ?)", (newest, generation))
            connection.execute(f"pragma user_version = {_FORMAT}")

    def find(self, words: str) -> Iterator[int]:
        """Row ids that hold all the words, best first."""
        query = _query(words)
        if query:
            for (row,) in self._connection.execute(
                "select rowid from words where words match ? order by rank", (query,)
            ):
                yield row

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()


def _query(words: str) -> str:
    """The words as FTS5 wants them. Nothing a person types is syntax but "quotes" and a star at the end."""
    terms = []
    for phrase, word in _TERM.findall(words):
        text = (phrase or word.rstrip("*")).replace('"', "").replace("\0", " ")
        if text.strip():
            terms.append(f'"{text}"' + ("*" if word.endswith("*") else ""))
    return " ".join(terms)


def text_of(entry: Entry) -> str:
    """Every word that a row holds: its name, what went in and out, its error. Texts of JSON and of events are read."""
    words = [entry.name]
    if not chain.is_erased(entry):
        try:
            payload = read_payload(entry, None)
        except DamagedError:
            return entry.name  # verify tells of it; a search over the rest still helps
        _gather([payload[at] for at in (INPUTS, OUTPUT, OPS, ERROR) if at < len(payload)], words)
    return "\n".join(words)


def found_among(
    rows: list[tuple[str, Entry]], words: str, limit: int | None = None, text: Callable[[Entry], str] | None = None
) -> list[tuple[str, Entry]]:
    """Those of some rows that hold all the words, best first, by an index that is made for this and thrown away."""
    with closing(SearchIndex(":memory:", text)) as index:
        index.add(enumerate((entry for _, entry in rows), 1), 0, 0)
        return [rows[row - 1] for row in islice(index.find(words), limit)]


def held_in(field: Field, words: str, hits: list[tuple[str, Entry]]) -> list[tuple[str, Entry]]:
    """Those of the hits that hold all the words in one part, best first: that part alone is searched again."""
    if field not in get_args(Field):
        raise ValueError(f"field={field!r}: use one of {', '.join(get_args(Field))}")
    return found_among(hits, words, text=partial(_part_of, field))


def _part_of(field: Field, entry: Entry) -> str:
    """The words of one part of a row; `values` are what it put into the state."""
    if field == "name" or chain.is_erased(entry):
        return entry.name if field == "name" else ""
    try:
        payload = read_payload(entry, None)
    except DamagedError:
        return ""  # as above
    words: list[str] = []
    place = _PLACES.get(field)
    _gather(ops_of(payload) if place is None else payload[place : place + 1], words)
    return "\n".join(words)


def _gather(value: Any, words: list[str]) -> None:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            words.append(item)
            stack.append(said_in(item))
        elif isinstance(item, dict):
            stack += [part for pair in item.items() for part in pair]
        elif isinstance(item, list | tuple | set | frozenset):
            stack += item
        elif isinstance(item, Generic):
            stack.append(item.fields)
        elif isinstance(item, int | float) and not isinstance(item, bool):
            words.append(str(item))
