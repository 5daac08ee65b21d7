"""Opening trails of JSON files: how they are named, what is refused, and who may do what."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import everstep
from everstep import errors
from everstep.store.files import FilesStore
from everstep.store.files_pages import sealed
from tests.integration.support import output, small_trail
from tests.integration.test_bad_input import AS_NOBODY
from tests.places import IN_MEMORY


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory where there is such a place, that other users may enter and read."""
    with TemporaryDirectory(dir=IN_MEMORY) as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def path(folder: Path) -> Path:
    """An empty folder for a trail."""
    (folder / "trail").mkdir()
    return folder / "trail"


def test_a_trail_is_named_by_a_url_a_slash_or_a_folder_that_is_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    (folder / "there").mkdir()
    for url in (f"file://{folder}/with%20space", "new/", "there", folder / "there", "deep/er/"):
        with everstep.open(url) as trail:
            assert isinstance(trail.store, FilesStore)
    assert sorted(found.parent.name for found in folder.rglob("trail.json")) == ["er", "new", "there", "with space"]
    with everstep.open("plain") as trail:  # as ever
        assert not isinstance(trail.store, FilesStore)


def test_a_folder_of_somebody_else_is_left_alone(path: Path) -> None:
    """Promise 13."""
    for file, text in (("notes.txt", "mine"), ("trail.json", "[1, 2]"), ("trail.json", '{"everstep": "run"}')):
        (path / file).write_text(text)
        for read_only in (False, True):
            with pytest.raises(errors.NotATrailError):
                everstep.open(path, read_only=read_only)
        assert {found.name: found.read_text() for found in path.iterdir()} == {file: text}
        (path / file).unlink()
    (path / ".gitkeep").touch()
    everstep.open(path).close()


def test_a_file_is_no_folder(path: Path) -> None:
    (path / "file").write_text("mine")
    with pytest.raises(errors.NotATrailError, match="a file"):
        everstep.open(f"file://{path}/file")
    with pytest.raises(errors.UnreadableError, match="cannot be made"):
        everstep.open(f"file://{path}/file/below")


def test_a_later_format_is_refused_and_left_as_it_is(path: Path) -> None:
    small_trail(path)
    for text in (sealed({"everstep": "trail", "format": 2}), '{"everstep": "trail", "format": 3, "seal": "other"}'):
        (path / "trail.json").write_text(text)
        for read_only in (False, True):
            with pytest.raises(errors.NewerSchemaError, match="upgrade"):
                everstep.open(path, read_only=read_only)
        assert (path / "trail.json").read_text() == text


def test_reading_makes_nothing(path: Path) -> None:
    """Promise 12."""
    for place in (path, path / "none"):
        with pytest.raises(errors.UnreadableError):
            everstep.open(f"file://{place}", read_only=True)
    assert list(path.iterdir()) == []


def test_reading_needs_no_right_to_write(path: Path) -> None:
    """Promise 12."""
    small_trail(path)
    said = output(AS_NOBODY + "told(sys.argv[1], read_only=True); told(sys.argv[1])", path).splitlines()
    assert said[0] == "state {'x': 1} True"
    assert said[1].startswith("UnreadableError")
    assert "read_only=True" in said[1]


def test_a_folder_that_may_not_be_entered_is_named(path: Path) -> None:
    small_trail(path)
    path.chmod(0o700)
    tries = "told(sys.argv[1], read_only=True); told(sys.argv[1]); told('file://' + sys.argv[1] + '/below')"
    said = output(AS_NOBODY + tries, path).splitlines()
    assert len(said) == 3
    assert all(line.startswith("UnreadableError") for line in said), said


def test_a_trail_on_a_network_file_system_is_refused_for_writing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_trail(path)
    read = Path.read_text

    def told(self: Path, *args: str, **options: str) -> str:
        """What the system would tell if the folder lay there."""
        here = f"server:/x {path} nfs4 rw 0 0\n" if str(self) == "/proc/self/mounts" else None
        return here if here is not None else read(self, *args, **options)

    monkeypatch.setattr(Path, "read_text", told)
    with pytest.raises(errors.NetworkFileSystemError, match="nfs4"):
        everstep.open(path)
    with everstep.open(path, read_only=True) as trail:
        assert trail.state("r") == {"x": 1}
        with pytest.raises(errors.ReadOnlyError):
            trail.record("new")


def test_a_folder_that_was_moved_is_not_written_to(path: Path) -> None:
    """Promise 1: nobody would find what is written there."""
    with everstep.open(path) as trail:
        run = trail.record("r")
        path.rename(path.with_name("elsewhere"))
        with pytest.raises(errors.StoreError, match="moved or deleted"):
            run.step("s")
        path.with_name("elsewhere").rename(path)
        run.step("s")
        assert trail.verify().ok
