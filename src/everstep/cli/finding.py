"""What a search found in a step: the part that holds the words, with a little around them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Any, NamedTuple

from everstep.cli.text import innermost, leaves, path_text, whole
from everstep.codec.record import StepRecord
from everstep.codec.streamed import said_in
from everstep.errors import DamagedError, ErasedError

_AROUND = 40  # characters that are shown on both sides of a match
_TERM = re.compile(r'"([^"]*)"|(\S+)')
_SPELLED_OUT = re.compile(r"\\.")  # the end of a line in a text, and its like: it parts words


class Match(NamedTuple):
    """Where the words stand, as a path that begins with inputs, output, changes or error, and what stands there."""

    where: str
    text: str


def match_of(row: StepRecord, words: str) -> Match | None:
    """The part of a step that holds the most of the words; None where only its name does."""
    patterns = [_pattern(phrase or word) for phrase, word in _TERM.findall(words) if (phrase or word).strip('*" ')]
    best, most = None, 0
    for where, text in _parts(row):
        folded = "".join(map(_plain, _SPELLED_OUT.sub("  ", text)))
        found = [match for pattern in patterns if (match := pattern.search(folded)) is not None]
        if len(found) > most:
            best, most = Match(where, _excerpt(text, found[0])), len(found)
            if most == len(patterns):
                break
    return best


def _pattern(term: str) -> re.Pattern[str]:
    """A word, or several that stand together, as the index takes them: whole words, however they are parted."""
    inner = r"\W+".join(re.escape(part) for part in re.findall(r"\w+", "".join(map(_plain, term))))
    return re.compile(rf"(?<!\w){inner}" + ("" if term.endswith("*") else r"(?!\w)"))


def _plain(sign: str) -> str:
    """A character without accents and case, as one character: what is found has the place that it has in the text."""
    return unicodedata.normalize("NFKD", sign)[0].casefold()[:1]


def _parts(row: StepRecord) -> Iterator[tuple[str, str]]:
    try:
        yield from _leaves("inputs", row.inputs)
        yield from _leaves("output", row.output)
        for op in row.ops:
            yield from _leaves(f"changes.{path_text(op[1])}", op[-1] if len(op) > 2 else None)
        if row.error is not None:
            yield "error", str(row.error)
    except (ErasedError, DamagedError):  # of what is gone nothing can be shown
        return


def _leaves(title: str, value: Any) -> Iterator[tuple[str, str]]:
    """The values inside, each with its path; of a text that is JSON, or a stream of events, what stands in it first."""
    for where, item in innermost(value, title) if value is not None else ():
        if isinstance(item, str) and (held := said_in(item)) is not None:
            yield from ((where, text) for _, text in leaves(held, ""))
        yield where, whole(item)


def _excerpt(text: str, match: re.Match[str]) -> str:
    first, last = max(0, match.start() - _AROUND), min(len(text), match.end() + _AROUND)
    return ("..." if first else "") + text[first:last] + ("..." if last < len(text) else "")
