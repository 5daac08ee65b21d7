"""Sum up every decision in docs/adr, with a model that allows only so many calls: the next try does what is left.

    python examples/map_many.py          sums up 20 of them; for the others the model refuses
    python examples/map_many.py          sums up the others, and none a second time

Each page is a run of its own, and four are at work at the same time. Where a model would be called, the class `Model`
quotes the most telling sentence, and refuses after 20 calls as a model with a rate limit would: put yours there.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import everstep
from everstep import Graph, Runner, node

DECISIONS = Path(__file__).resolve().parent.parent / "docs" / "adr"
TRAIL = Path(".everstep/trail.db")  # where the command line looks, too


class RateLimitError(Exception):
    """The model wants no more calls for now."""


class Model:
    """Stands in for a model that can be called so many times."""

    def __init__(self, calls: int) -> None:
        self._calls = iter(range(calls))

    def sum_up(self, text: str) -> str:
        """The sentence that has most of the words that the text is about."""
        if next(self._calls, None) is None:
            raise RateLimitError("too many calls, try again later")
        about = Counter(words_of(text))
        return max(re.split(r"(?<=\.)\s+", text), key=lambda sentence: sum(about[word] for word in words_of(sentence)))


def words_of(text: str) -> list[str]:
    """The longer words."""
    return re.findall(r"[a-z]{5,}", text.lower())


# The graph for one page. `title` and `summary` need `text` only, so they are made side by side.


@node(output="text")
def read(page: str) -> str:
    """The text of a page."""
    return (DECISIONS / page).read_text("utf-8")


@node(output="title")
def name(text: str) -> str:
    """Its first line."""
    return text.splitlines()[0].removeprefix("# ")


@node(output="summary")
def sum_up(model: Model, text: str) -> str:
    """What was decided."""
    decision = text.partition("## Decision")[2].partition("##")[0]
    return " ".join(model.sum_up(decision).split())


digest = Graph([read, name, sum_up], name="digest", inputs=["page"], bind={"model": Model(calls=20)})


def main() -> None:
    """Go over all pages, or over those that are left."""
    TRAIL.parent.mkdir(exist_ok=True)
    pages = [page.name for page in sorted(DECISIONS.glob("*.md"))]
    with everstep.open(TRAIL) as trail:
        result = Runner(trail).map(
            digest, {"page": pages}, map_over="page", id="digest-1", max_concurrency=4, error_handling="continue"
        )
    for title, summary in zip(result["title"], result["summary"], strict=True):
        print(f"{title}: {summary or '(not yet)'}")
    print()
    print(result.summary())
    for failure in result.failures[:1]:
        print(f"for example {failure.run_id}: {failure.error!r}")
    print("next: run this again, for what is left" if result.failed else "next: everstep runs --workflow digest")


if __name__ == "__main__":
    main()
