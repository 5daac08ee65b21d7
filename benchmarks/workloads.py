"""The data of the workloads: the same bytes in every run, word-like, and cheap to ask for.

Constant characters would compress to nothing and flatter a store that compresses. These words do not:
deflate takes the document to a little under half, as it does with prose.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from typing import Any

SEED = 20_260_801
CONTENT_CHARS = 470
DOCUMENT_CHARS = 200_000
UNIQUE_TEXTS = 20_000  # later texts are earlier ones, rotated, so that 100,000 steps cost no time to prepare
TEXTS_PER_BLOCK = 1_000

_LETTERS = "etaoinshrdlucmfwypvbgk"
_WEIGHTS = (12, 9, 8, 8, 7, 7, 6, 6, 6, 4, 4, 3, 3, 2, 2, 2, 2, 2, 1, 1, 2, 1)
_ROLES = ("user", "assistant", "tool")


@cache
def _vocabulary() -> list[str]:
    rng = random.Random(SEED)
    lengths = rng.choices((2, 3, 4, 5, 6, 7, 8, 9, 10), weights=(3, 8, 12, 12, 10, 8, 5, 3, 2), k=6_000)
    return ["".join(rng.choices(_LETTERS, weights=_WEIGHTS, k=length)) for length in lengths]


def words(characters: int, seed: int) -> str:
    """Word-like text of exactly this length; the same for the same seed."""
    rng = random.Random(SEED + seed)
    vocabulary = _vocabulary()
    # The square favours the front of the list: some words are common, as in any language.
    picked = (vocabulary[int(len(vocabulary) * rng.random() ** 2)] for _ in range(characters // 3))
    return " ".join(picked)[:characters]


@cache
def _texts(block: int) -> list[str]:
    text = words(TEXTS_PER_BLOCK * CONTENT_CHARS, seed=1 + block)
    return [text[start : start + CONTENT_CHARS] for start in range(0, len(text), CONTENT_CHARS)]


def content(step: int) -> str:
    """The 470 characters that step number `step` says."""
    lap, index = divmod(step, UNIQUE_TEXTS)
    block, place = divmod(index, TEXTS_PER_BLOCK)
    text = _texts(block)[place]
    turn = lap * 7 % CONTENT_CHARS
    return text[turn:] + text[:turn]


def message(step: int) -> dict[str, Any]:
    """The message that a step appends, about 500 bytes."""
    return {"role": _ROLES[step % 3], "content": content(step), "id": f"m{step:07d}"}


def scratchpad(step: int) -> dict[str, Any]:
    """The small value that a step replaces, about 160 bytes as JSON."""
    text = content(step + 3)
    return {
        "step": step,
        "goal": text[:48],
        "next": text[48:72],
        "done": [step - 2, step - 1],
        "budget": {"tokens": 128_000 - step % 128_000, "seconds": step % 97 / 8},
        "retry": step % 11 == 0,
    }


@cache
def document() -> str:
    """The constant document that the state of W1 carries, 200 KB."""
    return words(DOCUMENT_CHARS, seed=0)


def w1(steps: int) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """What each step of W1 changes: the message it appends and the scratchpad it sets. Prepared before the first."""
    for block in range(min(steps + 3, UNIQUE_TEXTS) // TEXTS_PER_BLOCK + 1):
        _texts(block % (UNIQUE_TEXTS // TEXTS_PER_BLOCK))
    return ((message(step), scratchpad(step)) for step in range(steps))
