"""Opening trails of JSON files: how they are named, what is refused, and who may do what."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import everstep
from everstep import errors
from everstep.store.files import FilesStore
from everstep.store.files_pages import sealed
from tests.integration.cli_support import run
from tests.integration.support import output, python, small_trail
from tests.integration.test_bad_input import AS_NOBODY
from tests.places import IN_MEMORY

# The first time as somebody who may load what the command needs.
RUNS = """
from everstep.cli.group import cli
def runs(url):
    try:
        cli.main(["runs", "--trail", url])
    except SystemExit:
        pass
runs("/nowhere/")
"""


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


@pytest.mark.parametrize("url", ["file:x", "file:x/", "file:some/where", "file://some/where", "postgres:x", "sqlite:x"])
def test_a_url_without_its_slashes_is_no_path(folder: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Promise 13: no file of that name is made."""
    monkeypatch.chdir(folder)
    with pytest.raises(errors.UnknownSchemeError, match="'file:///path/to/folder'"):
        everstep.open(url)
    assert "file:///path/to/folder" in run("runs", "--trail", url).stderr
    assert list(folder.iterdir()) == []


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


@pytest.mark.parametrize("name", ["trail.json", "runs", "runs/r-454349e422f05297/run.json"])
def test_a_file_that_may_not_be_read_is_named(path: Path, name: str) -> None:
    """Promise 13: whoever opens it, or reads, is told which and what to do."""
    small_trail(path)
    (path / name).chmod(0)
    for line in output(AS_NOBODY + "told(sys.argv[1], read_only=True)", path).splitlines():
        assert line.split()[0] in {"UnreadableError", "StoreError"}
        assert f"{path / name}" in line
        assert "the right to" in line


WRITES = """
with everstep.open(sys.argv[1]) as trail:
    run = trail.record("new")
    for name in ("trail.json", "runs"):
        place = os.path.join(sys.argv[1], name)
        mode = os.stat(place).st_mode
        os.chmod(place, 0)
        try:
            run.step("s")
        except errors.StoreError as error:
            print(place in str(error), "the right to" in str(error))
        os.chmod(place, mode)
    run.step("s")
    print(trail.verify().ok)
"""


def test_a_file_that_may_not_be_used_any_more_is_named_to_whoever_writes(folder: Path) -> None:
    """Promise 13: and it goes on when that is mended."""
    folder.chmod(0o777)
    assert output(AS_NOBODY + WRITES, f"{folder}/mine/").splitlines() == ["True True", "True True", "True"]


@pytest.mark.parametrize("name", ["trail/", "trail", "trail.db"])
def test_a_place_in_a_folder_that_may_not_be_entered_is_named(path: Path, name: str) -> None:
    """Promise 13: it is not taken for one that is not there; on the command line neither."""
    small_trail(path)
    path.parent.chmod(0o700)
    tries = "told(sys.argv[1], read_only=True); told(sys.argv[1]); runs(sys.argv[1])"
    done = python(RUNS + AS_NOBODY + tries, f"{path.parent}/{name}")
    said = [*done.stdout.splitlines(), *done.stderr.splitlines()[1:]]
    assert len(said) == 3, said
    assert all("cannot open" in line and "you may not" in line and "the right to" in line for line in said), said


def test_a_clone_with_other_ends_of_lines_is_the_same_trail(path: Path) -> None:
    """Promise 9: git leaves all bytes as they are, whatever its settings say."""
    with everstep.open(path) as trail, trail.record("r") as recorder:
        recorder.step("large", output="line\nby\nline\n" * 6_000, output_to="x")
    clone = path.with_name("clone")
    for command in (
        ["init", "-q", path],
        ["-C", path, "add", "."],
        ["-C", path, "-c", "user.name=x", "-c", "user.email=x@y", "commit", "-q", "-m", "runs"],
        ["-c", "core.autocrlf=true", "clone", "-q", path, clone],
    ):
        subprocess.run(["git", *map(str, command)], check=True)
    with everstep.open(clone, read_only=True) as trail:
        assert trail.verify().damage == ()
        assert trail.state("r")["x"].startswith("line\nby\n")


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
