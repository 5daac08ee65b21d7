"""Folders of JSON files that were put together, or of which a part was put back, as git does."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import everstep
from everstep.errors import DamagedError
from everstep.store import files_layout
from tests.places import IN_MEMORY


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "trail"
    path.mkdir()
    with everstep.open(path) as trail:
        with trail.record("done") as run:
            run.step("s", output="d" * 70_000, output_to="document")
        trail.fork("done", 1, id="fork").step("other", output=1)
    return path


def folder_of(path: Path, run_id: str) -> Path:
    return path / "runs" / files_layout.folder_name(run_id)


def put_into(path: Path, run_id: str = "guest") -> None:
    """Add a run of another trail to this one, file by file, as a merge does."""
    with TemporaryDirectory(dir=IN_MEMORY) as other:
        with everstep.open(f"{other}/") as trail:
            trail.record(run_id).step("large", output="e" * 70_000)
        shutil.copytree(folder_of(Path(other), run_id), folder_of(path, run_id))
        shutil.copytree(f"{other}/pieces", path / "pieces", dirs_exist_ok=True)


def test_two_trails_that_were_merged_are_one(path: Path) -> None:
    put_into(path)
    before = (path / "trail.json").read_bytes()
    with everstep.open(path) as trail:
        trail.record("later").release()
        (path / "trail.json").write_bytes(before)  # as git does with what is not added yet
        trail.record("last").release()
        assert [run.id for run in trail.runs()][:2] == ["last", "later"]
        trail.drop("fork")
        assert trail.step("guest", 1).output == "e" * 70_000
        assert trail.verify().ok


def test_trails_with_runs_of_one_number_let_go_of_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise 12: a piece that is needed is never removed."""
    with everstep.open(path, read_only=True) as trail, monkeypatch.context() as clock:
        key = trail.store.run("done").key
        clock.setattr(files_layout, "after", lambda _: key)
        put_into(path)
    with everstep.open(path) as trail:
        assert trail.step("guest", 1).output == "e" * 70_000
        assert "have one key" in str(trail.verify())
        with pytest.raises(DamagedError, match="have one key"):
            trail.drop("fork")
        assert trail.step("guest", 1).output == "e" * 70_000
