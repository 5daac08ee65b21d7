from __future__ import annotations

import re
from pathlib import Path

import pytest

import everstep
from everstep.codec.values import decode, encode, view
from tests.corpus.make import EXPECTED, stored
from tests.corpus.runs import LARGE, RUN, make
from tests.corpus.same import same

STORED = stored()


def test_every_value_of_the_corpus_is_on_file_and_nothing_was_lost() -> None:
    assert list(STORED) == list(EXPECTED)


@pytest.mark.parametrize("name", STORED)
def test_stored_bytes_decode_to_exactly_the_value_they_were_made_of(name: str) -> None:
    """Promise 7."""
    assert same(decode(STORED[name]), EXPECTED[name])


@pytest.mark.parametrize("name", STORED)
def test_todays_encoder_writes_the_bytes_on_file(name: str) -> None:
    assert encode(EXPECTED[name]) == STORED[name]
    assert encode(view(STORED[name])) == STORED[name]


def test_a_run_that_an_earlier_version_exported_is_read_and_exported_the_same(tmp_path: Path) -> None:
    """Promise 7."""
    trail = everstep.open(tmp_path / "trail.db")
    run = trail.import_run(RUN)
    assert (run.id, run.workflow, run.status, run.tags) == ("kept", "all", "completed", {"user": "ada", "téam": "☃"})
    steps = {step.name: step for step in trail.steps("kept") if step.name in EXPECTED}
    assert len(steps) > 25
    assert [name for name, step in steps.items() if not same(step.output, EXPECTED[name])] == []
    assert trail.state("kept") == {"text": "short", "plan": None}
    assert [step.output for step in trail.steps("kept") if step.name == "again"] == [LARGE]
    assert trail.step("corpus/child#0", 1).output == [1, 2, 3]
    assert trail.verify().ok
    assert trail.export("kept", tmp_path / "again.everstep").read_bytes() == RUN.read_bytes()


def test_what_is_exported_today_has_the_readable_part_on_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERSTEP_KEY_FILE", str(tmp_path / "key"))
    make(tmp_path / "run.everstep")
    was, now = (_readable(path) for path in (RUN, tmp_path / "run.everstep"))
    assert len(was) > 40
    assert was - now == set()  # what is exported today may have further values


def _readable(path: Path) -> set[str]:
    """What is readable of the steps in a file, but for their numbers and for digests that have a key of their own."""
    lines = path.read_text("utf-8").splitlines()
    steps = [line for line in lines if line.startswith('{"step"') and "redacted:" not in line]
    return {re.sub(r'"(step|parent)": \d+', "", line) for line in steps}
