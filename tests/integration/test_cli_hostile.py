"""What is stored is data, also to a terminal: whatever an agent recorded, no control character of it gets out raw."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import everstep
from everstep.model import Kind
from tests.integration.cli_support import HOSTILE, as_a_person, on_a_terminal, run

RUN = f"id{HOSTILE}"
RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")
OURS = re.compile(r"\x1b\[(?:[0-9;]*m|\?25[lh]|1A|2K)|\r(?=\x1b)")  # colours, and what a sign of life is drawn with
WORDS = [
    ["runs"], ["show", RUN], ["show", RUN, "--all"], ["show", f"{RUN}@1"], ["show", f"{RUN}@2"], ["show", f"{RUN}@4"],
    ["steps", RUN], ["state", RUN], ["state", RUN, "--all"], ["checkpoints"], ["search", "evil"], ["doctor"],
    ["diff", f"{RUN}@0", RUN], ["show", f"no{HOSTILE}"], ["state", RUN, HOSTILE], ["cancel", RUN, "--yes"],
    ["answer", RUN, HOSTILE], ["resume", RUN, "--app", f"no{HOSTILE}"], ["runs", "--status", HOSTILE],
]  # fmt: skip


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    path = tmp_path / "trail.db"
    with everstep.open(path) as trail:
        run = trail.record(RUN, workflow=HOSTILE, inputs={HOSTILE: HOSTILE}, tags={HOSTILE: HOSTILE})
        run.step(HOSTILE, output=HOSTILE, output_to=HOSTILE, inputs=[HOSTILE], lane=HOSTILE, usage={"x": HOSTILE})
        run.step("bad", error=type(f"E{HOSTILE}", (Exception,), {})(HOSTILE))
        run.checkpoint(HOSTILE, metadata={"x": HOSTILE})
        run.step(HOSTILE, kind=Kind.PAUSE, status="paused", pause={"prompt": HOSTILE, "options": [HOSTILE]})
        run.step(HOSTILE, kind=Kind.INTENT, external=True, child_run_id=HOSTILE)
        run.finish(HOSTILE)
    return path


@pytest.mark.parametrize("words", WORDS, ids=lambda words: words[0])
def test_no_control_character_reaches_a_pipe(hostile: Path, words: list[str]) -> None:
    """Promise 8: stored bytes are data."""
    result = run(*words, "--trail", hostile)
    assert len(result.output) > 20
    assert "bug in everstep" not in result.output
    assert not RAW.search(result.output)


@pytest.mark.parametrize("words", WORDS, ids=lambda words: words[0])
def test_json_is_ascii(hostile: Path, words: list[str]) -> None:
    """Promise 8: stored bytes are data."""
    result = run(*words, "--json", "--trail", hostile)
    assert result.stdout.isascii()
    assert not RAW.search(result.stdout)


@pytest.mark.parametrize("words", WORDS, ids=lambda words: words[0])
def test_a_terminal_gets_no_control_character_but_our_colours(hostile: Path, words: list[str]) -> None:
    """Promise 8: stored bytes are data."""
    shown = as_a_person(*words, "--trail", hostile)
    assert len(shown) > 20
    assert not RAW.search(OURS.sub("", shown))


def test_nor_does_a_real_terminal(hostile: Path) -> None:
    """Promise 8: stored bytes are data."""
    shown = on_a_terminal("show", RUN, "--trail", hostile).stdout
    assert "evil" in shown
    assert not RAW.search(OURS.sub("", shown).replace("\r\n", ""))
