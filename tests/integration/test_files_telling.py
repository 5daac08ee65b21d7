"""Damage in a trail of JSON files is told once by a command, a report or a write, however many calls meet it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from fcntl import LOCK_EX, flock
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import everstep
from everstep.errors import DamagedError, RebuiltWarning
from everstep.store.files import FilesStore
from everstep.store.files_layout import folder_name
from everstep.testing.rows import begin
from tests.integration.cli_support import data, run
from tests.places import IN_MEMORY


@pytest.fixture
def path() -> Iterator[Path]:
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        path = Path(folder) / "trail"
        path.mkdir()
        with everstep.open(path) as trail:
            for name in ("done", "other"):
                with trail.record(name) as recorder:
                    for number in range(4):
                        recorder.step(f"s{number}", append={"rows": [number]})
        yield path


def tear(path: Path) -> None:
    """Damage the file of a run, and take that of the trail away."""
    page(path, "run.json").write_text("{")
    (path / "trail.json").unlink()


def page(path: Path, name: str) -> Path:
    return path / "runs" / folder_name("done") / name


@pytest.mark.parametrize("words", [["runs"], ["show", "done"], ["state", "done"], ["replay", "done"], ["doctor"]])
def test_a_command_warns_of_each_damage_once(path: Path, words: list[str]) -> None:
    tear(path)
    said = run(*words, "--trail", path).stderr
    assert said.count("warning: trail.json was not as it was written") == 1
    assert said.count("run.json was not as it was written") == 1


def test_the_doctor_has_in_its_json_what_it_says_to_people(path: Path) -> None:
    """Promise 13."""
    tear(path)
    told = [text for text in data("doctor", "--trail", path)["doctor"]["warnings"] if "as it was written" in text]
    assert [text.partition(" was")[0].rpartition("/")[2] for text in told] == ["trail.json", "run.json"]


def test_verify_counts_each_damage_once_and_says_it_in_its_report_alone(path: Path) -> None:
    """Promise 9."""
    tear(path)
    page(path, "steps/000004.json").unlink()
    found = data("verify", "--trail", path, code=6)["verify"]["damage"]
    assert [each["what"].split()[0].rpartition("/")[2] for each in found] == ["trail.json", "run.json"]
    told = run("verify", "--trail", path)
    assert "2 places damaged" in told.stdout
    assert told.stderr == "next: restore the folder from a backup, or with git, if it is kept there.\n"
    *_, damage = data("verify", "done", "--trail", path, code=6)["verify"]["damage"]
    assert "run.json was not as it was written" in damage["what"]


def test_verify_leads_to_the_newest_intact_step(path: Path) -> None:
    """Promise 9."""
    page(path, "steps/000003.json").unlink()
    told = run("verify", "--trail", path)
    assert told.stdout.count("000003.json") == 1
    assert told.stderr.startswith(f"next: everstep fork done --at 2 --trail {path}\n  or: restore the folder")


def test_a_run_is_not_forked_over_a_step_whose_file_is_missing(path: Path) -> None:
    """Promise 9: the newest intact point is offered, and can be forked at."""
    with everstep.open(path) as trail:
        trail.fork("done", 4, id="fork").step("mine")
        page(path, "steps/000002.json").unlink()
        for source in ("done", "fork"):
            with pytest.raises(DamagedError, match=r"000002.json: it is missing.*step 1: fork there") as told:
                trail.fork(source, 4)
            assert (told.value.run_id, told.value.seq, told.value.intact) == (source, 2, 1)
        assert trail.fork("done", 1, id="again").step("mine").seq == 2


def test_a_run_that_is_copied_from_its_steps_is_not_said_to_be_left_behind(path: Path) -> None:
    tear(path)
    copied = run("copy", path, path.with_name("trail.db"))
    assert copied.exit_code == 0
    assert copied.stderr.count("run.json was not as it was written") == 1
    assert "copied to" in copied.stderr
    assert "not copied" not in copied.stderr


def test_what_an_append_mends_is_told_once(path: Path) -> None:
    """Promise 13: by the next write, or when the trail is closed."""
    for again in (True, False):
        store = FilesStore(str(path))
        writer = begin(store, f"mine {again}", rows=1)
        (path / "trail.json").unlink()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            writer.write()
            assert (path / "trail.json").exists()
            if again:
                writer.write()
                assert len(said) == 1
            store.close()
        [warning] = said
        assert warning.category is RebuiltWarning


def test_looking_over_a_trail_keeps_no_writer_waiting(path: Path) -> None:
    store = FilesStore(str(path), read_only=True, patience=0.1)
    folder = os.open(path, os.O_RDONLY)
    flock(folder, LOCK_EX)  # as a writer at work does
    try:
        assert store.inspect() == []
    finally:
        os.close(folder)
        store.close()
