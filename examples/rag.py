"""Ask Everstep's own documentation: retrieve, answer, and retrieve more until the answer covers the question.

    python examples/rag.py "how do I keep secrets out of a trail?"

It needs no network. The search is a real one, BM25 over the sections of docs/. Where a model would be called, the
function `complete` quotes what was found: put your model there.
"""

from __future__ import annotations

import asyncio
import math
import re
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import everstep
from everstep import END, AsyncRunner, Decision, Graph, node, route

DOCS = Path(__file__).resolve().parent.parent / "docs"
TRAIL = Path(".everstep/trail.db")  # where the command line looks, too
QUESTION = "How does a run wait for a person, and what if two processes answer?"
SMALL_WORDS = {
    "and", "are", "can", "does", "for", "from", "happens", "how", "not", "that", "the", "was", "what", "when", "where",
    "which", "who", "why", "with", "you",
}  # fmt: skip


@dataclass(frozen=True)
class Passage:
    """A section of a page."""

    source: str
    text: str


# The search, and what stands in for a model.


def words_of(text: str) -> list[str]:
    """The words that carry a meaning, without the ending of a plural or a past tense."""
    found = re.findall(r"[a-z]{3,}", text.lower())
    return [re.sub(r"(?:ed|(?<=ss)es|(?<!s)s)$", "", word) for word in found if word not in SMALL_WORDS]


class Library:
    """The sections of the pages of a folder, to be searched."""

    def __init__(self, folder: Path) -> None:
        self.passages = [
            Passage(f"{page.relative_to(folder.parent)}, {title}", text)
            for page in sorted([*folder.glob("how-to/*.md"), *folder.glob("explanation/*.md")])
            for title, text in re.findall(r"^#+ (.+)\n([^#]+)", _prose(page.read_text("utf-8")), re.MULTILINE)
            if len(text) > 80
        ]
        self._counts = [Counter(words_of(f"{each.source} {each.text}")) for each in self.passages]
        self._seen_in = Counter(word for count in self._counts for word in count)
        self._usual_length = sum(count.total() for count in self._counts) / len(self._counts)

    def search(self, words: set[str], limit: int) -> list[Passage]:
        """The passages that fit best, by BM25."""
        ranked = sorted(range(len(self.passages)), key=lambda place: -self._score(words, place))
        return [self.passages[place] for place in ranked[:limit]]

    def _score(self, words: set[str], place: int) -> float:
        count = self._counts[place]
        length = 0.25 + 0.75 * count.total() / self._usual_length
        return sum(
            math.log(1 + len(self._counts) / self._seen_in[word]) * count[word] / (count[word] + 1.5 * length)
            for word in words & count.keys()
        )


def _prose(markdown: str) -> str:
    """A page without its code, tables and marks."""
    text = re.sub(r"^```.*?^```|^\|.*?$|^- ", "", markdown, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).replace("**", "")


async def complete(question: str, passages: list[Passage]) -> list[str]:
    """Stands in for a model: from each passage, the sentence that has most words of the question."""
    asked, lines = set(words_of(question)), []
    for passage in passages:
        sentences = re.split(r"(?<=\.)\s+", passage.text)
        best = max(sentences, key=lambda sentence: len(asked & set(words_of(sentence))))
        lines.append(f"{' '.join(best.split())} [{passage.source}]")
    return lines


def not_covered(question: str, answer: list[str]) -> set[str]:
    """The words of the question that the answer says nothing about."""
    return set(words_of(question)) - set(words_of(" ".join(answer)))


# The graph. A node takes the values that its parameters are named after, and gives its `output`.


@node(output="passages")
def retrieve(
    library: Library, question: str, answer: list[str] | None = None, passages: list[Passage] | None = None
) -> list[Passage]:
    """Two passages more, on what the answer does not cover yet."""
    known = passages or []
    found = library.search(not_covered(question, answer or []), len(known) + 2)
    return known + [each for each in found if each not in known][:2]


@node(output="answer")
async def generate(question: str, passages: list[Passage]) -> list[str]:
    """Answer from what was found."""
    return await complete(question, passages)


@route(targets=["retrieve", END])
def good_enough(question: str, answer: list[str]) -> Decision:
    """Retrieve again while something is missing, three times at most."""
    missing = ", ".join(sorted(not_covered(question, answer)))
    if missing and len(answer) < 6:
        return Decision("retrieve", f"nothing yet on: {missing}")
    return Decision(END, f"found nothing on: {missing}" if missing else "every word is covered")


rag = Graph([retrieve, generate, good_enough], name="rag", inputs=["question"], bind={"library": Library(DOCS)})


async def main(question: str) -> None:
    """Answer a question. Asked again, the trail answers: nothing is searched or generated a second time."""
    TRAIL.parent.mkdir(exist_ok=True)
    run_id = "-".join(["rag", *re.findall(r"\w+", question.lower())])
    with everstep.open(TRAIL) as trail:
        result = await AsyncRunner(trail).run(rag, question=question, id=run_id)
        print(question, *result["answer"], sep="\n- ")
        print()
        for entry in trail.steps(run_id):
            if entry.decision is not None:
                print(f"superstep {entry.superstep}: {entry.name}? {entry.metadata['reason']}")
        print(result.summary())
    print(f"next: everstep show {run_id}\n  or: everstep graph {__file__}:rag --run {run_id}")


if __name__ == "__main__":
    asyncio.run(main(" ".join(sys.argv[1:]) or QUESTION))
