"""The sizes of the chunks of a body that was changed on its way to the record, so that it comes in as many again."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise

from everstep.codec.streamed import lines_of

_PLACEHOLDER = re.compile(rb"\[redacted:[a-z0-9-]+:[0-9a-f]{16}\]")


def by_placeholders(before: bytes, after: bytes, sizes: Sequence[int]) -> list[int]:
    """Where placeholders stand for secrets; one of those is never cut."""
    spans: list[tuple[int, int, int, int]] = []  # a literal in `before`, and the same one in `after`
    done = at = 0
    for match in [*_PLACEHOLDER.finditer(after), None]:
        literal = after[at : match.start() if match else len(after)]
        found = before.find(literal, done) if match else len(before) - len(literal)
        spans.append((found, found + len(literal), at, at + len(literal)))
        done, at = found + len(literal), match.end() if match else len(after)
    ends, starts = [], [span[0] for span in spans]
    for end in accumulate(sizes):
        start, _, there, there_end = spans[max(bisect_right(starts, end) - 1, 0)]
        is_within = end <= start + there_end - there
        ends.append(min(there + end - start, there_end) if is_within else _next(spans, bisect_right(starts, start)))
    ends[-1] = len(after)
    return _between(ends)


def by_lines(before: str, after: str, sizes: Sequence[int]) -> list[int]:
    """Where lines have changed: each chunk ends with the line it ended in."""
    was = list(accumulate(len(line.encode()) for line in lines_of(before)))
    now = list(accumulate(len(line.encode()) for line in lines_of(after)))
    return _between([now[min(bisect_left(was, end), len(now) - 1)] if end else 0 for end in accumulate(sizes)])


def _next(spans: Sequence[tuple[int, int, int, int]], at: int) -> int:
    return spans[at][2] if at < len(spans) else spans[-1][3]


def _between(ends: Sequence[int]) -> list[int]:
    return [second - first for first, second in pairwise([0, *ends])]
