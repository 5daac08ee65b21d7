"""Numbers that callers give: steps, limits, cursors. What cannot be one is refused."""

from __future__ import annotations


def check_limit(limit: int) -> None:
    """See that a page is asked for that can hold something."""
    if limit < 1:
        raise ValueError(f"limit is {limit}; ask for at least one")


def whole(number: int) -> int:
    """A number of steps, or the seq of one."""
    if type(number) is not int:
        raise TypeError(f"{number!r:.40} is no whole number; steps are counted from 0")
    return number


def position(cursor: str | None) -> int | None:
    """Where a page begins, by the cursor of the one before."""
    if cursor is None:
        return None
    if not cursor.isdecimal() or len(cursor) > 18:
        raise ValueError(f"{cursor!r} is no cursor; pass on the one that runs() gave")
    return int(cursor)
