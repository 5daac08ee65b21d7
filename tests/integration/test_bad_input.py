"""Everything that can be wrong with what a trail is given: one typed error each, and nothing is touched."""

from __future__ import annotations

import contextlib
import os
import socket
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import apsw
import pytest

import everstep
from everstep import errors
from everstep.store.commit import GroupCommit
from everstep.store.schema import check_library, file_system
from tests.integration.support import NOBODY, output, small_trail
from tests.places import in_each_place

# Loads all that is needed while it may still be read, then goes on as a user without rights.
AS_NOBODY = f"""
import os, sys, everstep, warnings
from everstep import errors
with everstep.open(":memory:") as warm, warm.record("r") as run:
    run.step("s", output=1, output_to="x"); warm.verify(); warm.state("r")
try:
    everstep.open("/", read_only=True)
except errors.OpenError:
    pass
if os.getuid() == 0:
    os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
def told(url, **options):
    try:
        with everstep.open(url, **options) as trail:
            print("state", trail.state("r"), trail.verify().ok)
    except errors.EverstepError as error:
        print(type(error).__name__, error)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users may enter and read."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


# Opening.


@pytest.mark.parametrize("url", ["mysql://host/db", "redis://x", "sqlite:trail.db", "sqlite://trail.db", "file://x"])
def test_a_url_of_no_store_is_refused(url: str) -> None:
    """Promise 13: nothing falls back to memory in silence."""
    with pytest.raises(errors.UnknownSchemeError, match="Use a path"):
        everstep.open(url)


@pytest.mark.parametrize("url", ["", "   "])
def test_an_empty_url_is_refused(url: str) -> None:
    with pytest.raises(errors.OpenError, match="empty"):
        everstep.open(url)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(errors.UnreadableError, match="mkdir -p"):
        everstep.open(tmp_path / "file" / "missing" / "trail.db")


def test_a_missing_file_is_not_made_by_reading(tmp_path: Path) -> None:
    with pytest.raises(errors.UnreadableError, match="does not exist"):
        everstep.open(tmp_path / "trail.db", read_only=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_of_another_kind_is_refused_and_left_as_it_is(tmp_path: Path, *, read_only: bool) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear reader, " * 500)
    with pytest.raises(errors.NotATrailError, match="another kind"):
        everstep.open(path, read_only=read_only)
    assert path.read_text() == "Dear reader, " * 500


@pytest.mark.parametrize("read_only", [False, True])
def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path, *, read_only: bool) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening, contextlib.chdir(tmp_path):
        listening.bind("socket")  # a longer path would not fit
    for path, what in (
        (tmp_path / "pipe", "a named pipe"),
        (tmp_path / "socket", "a socket"),
        ("/dev/zero", "a device"),
    ):
        with pytest.raises(errors.NotATrailError, match=f"'{path}' is not a trail but {what}"):
            everstep.open(path, read_only=read_only)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pipe", "socket"]


@pytest.mark.parametrize("read_only", [False, True])
def test_another_programs_database_is_refused_and_left_as_it_is(tmp_path: Path, *, read_only: bool) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as other:
        other.execute("create table notes(text)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(errors.NotATrailError, match="another program"):
        everstep.open(path, read_only=read_only)
    assert path.read_bytes() == before


def test_a_folder_of_somebody_else_is_no_trail(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(errors.NotATrailError, match="a folder"):
        everstep.open(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("read_only", [False, True])
def test_a_later_schema_is_refused_and_left_as_it_is(tmp_path: Path, *, read_only: bool) -> None:
    path = small_trail(tmp_path / "trail.db")
    other = apsw.Connection(str(path))
    other.execute("pragma user_version = 99")
    other.close()
    before = path.read_bytes()
    with pytest.raises(errors.NewerSchemaError, match=r"schema 99.*upgrade"):
        everstep.open(path, read_only=read_only)
    assert path.read_bytes() == before


@pytest.mark.parametrize("version", ["3.40.1", "3.51.2", "3.44.5", "3.50.6"])
def test_a_sqlite_that_can_corrupt_a_log_is_refused(version: str) -> None:
    with pytest.raises(errors.OldSqliteError, match="pip install"):
        check_library(version)


@pytest.mark.parametrize("version", ["3.51.3", "3.44.6", "3.50.7", "3.54.1", "4.0.0"])
def test_a_sqlite_without_that_fault_is_taken(version: str) -> None:
    check_library(version)


MOUNTS = r"""/dev/sda1 / ext4 rw 0 0
server:/home /srv/shared nfs4 rw 0 0
tmpfs /srv/shared/fast tmpfs rw 0 0
//box/share /mnt/two\040words cifs rw 0 0
host#/x /mnt/s fuse.sshfs rw 0 0
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/srv", "ext4"),
        ("/srv/shared", "nfs4"),
        ("/srv/shared/a/b", "nfs4"),
        ("/srv/shared-not", "ext4"),
        ("/srv/shared/fast/x", "tmpfs"),
        ("/mnt/two words/x", "cifs"),
        ("/mnt/s", "fuse.sshfs"),
    ],
)
def test_the_file_system_of_a_folder_is_known(folder: str, kind: str) -> None:
    assert file_system(folder, MOUNTS) == kind


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs"])
def test_a_trail_on_a_network_file_system_is_refused_for_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path, read = small_trail(tmp_path / "trail.db"), Path.read_text

    def told(self: Path, *args: str, **options: str) -> str:
        """What the system would tell if the folder lay there."""
        here = f"server:/x {tmp_path} {kind} rw 0 0\n" if str(self) == "/proc/self/mounts" else None
        return here if here is not None else read(self, *args, **options)

    monkeypatch.setattr(Path, "read_text", told)
    with pytest.raises(errors.NetworkFileSystemError, match=f"({kind}).*local disk"):
        everstep.open(path)
    with everstep.open(path, read_only=True) as trail:
        assert trail.state("r") == {"x": 1}


# Rights.


def test_a_file_that_may_not_be_read_is_named(folder: Path) -> None:
    small_trail(folder / "trail.db").chmod(0o600)
    assert output(AS_NOBODY + "told(sys.argv[1], read_only=True)", folder / "trail.db").startswith("UnreadableError")


def test_reading_needs_no_right_to_write(folder: Path) -> None:
    """Promise 12: neither on the file nor on its folder."""
    path = small_trail(folder / "trail.db")
    path.chmod(0o444)
    said = output(AS_NOBODY + "told(sys.argv[1], read_only=True); told(sys.argv[1])", path).splitlines()
    assert said[0] == "state {'x': 1} True"
    assert said[1].startswith("UnreadableError")
    assert "read_only=True" in said[1]


def test_a_living_log_is_read_without_the_right_to_write(folder: Path) -> None:
    """Promise 12: the writer's files beside it are there to be read, or it is said what to do."""
    path = folder / "trail.db"
    with everstep.open(path) as trail:
        trail.record("r").step("s", output=1, output_to="x")
        assert (folder / "trail.db-wal").stat().st_size > 0
        for file in folder.iterdir():
            file.chmod(0o644)
        assert output(AS_NOBODY + "told(sys.argv[1], read_only=True)", path) == "state {'x': 1} True"


def test_a_dead_writers_log_that_cannot_be_read_is_not_passed_over(folder: Path) -> None:
    """Promise 13: without the index beside it SQLite cannot read a log where it may not write."""
    path = folder / "trail.db"
    with everstep.open(path) as trail:
        trail.record("r").step("s", output=1, output_to="x")
        copy = folder / "copy"
        copy.mkdir()
        for name in ("trail.db", "trail.db-wal"):
            (copy / name).write_bytes((folder / name).read_bytes())
    said = output(AS_NOBODY + "told(sys.argv[1], read_only=True)", copy / "trail.db")
    assert said.startswith("UnreadableError")
    assert "Copy the file and its -wal" in said


def test_a_lock_file_of_somebody_else_is_named(folder: Path) -> None:
    path = small_trail(folder / "trail.db")
    path.chmod(0o666)
    (folder / "trail.db-lock").chmod(0o600)
    folder.chmod(0o777)
    said = output(AS_NOBODY + "told(sys.argv[1])", path)
    assert said.startswith("UnreadableError")
    assert "trail.db-lock" in said


# Values, rows, states of a trail.


def test_a_value_that_cannot_be_stored_is_named_and_nothing_is_recorded(tmp_path: Path) -> None:
    """Promise 7."""
    with everstep.open(tmp_path / "trail.db") as trail:
        run = trail.record("r")
        with pytest.raises(errors.UnstorableError, match=r"output\.when"):
            run.step("s", output={"when": object()})
        assert run.step("s").seq == 1


def test_a_damaged_row_is_named_with_the_newest_intact_point(tmp_path: Path) -> None:
    """Promise 9."""
    with everstep.open(tmp_path / "trail.db") as trail, trail.record("r") as run:
        for number in range(5):
            run.step("s", append={"log": [number]})
    other = apsw.Connection(str(tmp_path / "trail.db"))
    other.execute("update step set name = 'forged' where seq = 3")
    other.close()
    with everstep.open(tmp_path / "trail.db") as trail:
        with pytest.raises(errors.DamagedError) as told:
            trail.steps("r")
        assert (told.value.run_id, told.value.seq, told.value.intact) == ("r", 3, 2)
        assert trail.state("r", at=2) == {"log": [0, 1]}
        assert not trail.verify().ok
        assert trail.fork("r", 2, id="rescued").step("s", append={"log": ["on"]}).seq == 3


def test_more_writes_than_may_wait_are_refused() -> None:
    """The queue has a bound; who is refused can write again when it is shorter."""
    gate, arrived = threading.Event(), threading.Event()

    def commit(jobs: object) -> None:
        arrived.set()
        gate.wait(30)

    group = GroupCommit(commit, "somewhere", bound=2)
    threads = [threading.Thread(target=group.do, args=(number,)) for number in range(3)]
    threads[0].start()
    assert arrived.wait(30)
    for thread in threads[1:]:
        thread.start()
    while len(group._queue) < 2:
        gate.wait(0.001)
    with pytest.raises(errors.QueueFullError, match="2 writes wait"):
        group.do("one too many")
    gate.set()
    for thread in threads:
        thread.join(30)
    group.do("again")
    group.close()


def test_a_closed_trail_says_so_whatever_is_asked(tmp_path: Path) -> None:
    trail = everstep.open(tmp_path / "trail.db")
    run = trail.record("r")
    trail.close()
    trail.close()
    for ask in (lambda: run.step("s"), trail.runs, trail.verify, lambda: trail.record("x"), lambda: trail.search("x")):
        with pytest.raises(errors.ClosedError, match=r"everstep\.open"):
            ask()


def test_a_trail_opened_for_reading_refuses_to_write(tmp_path: Path) -> None:
    """Promise 12."""
    path = small_trail(tmp_path / "trail.db")
    before = path.read_bytes()
    with everstep.open(path, read_only=True) as trail:
        for write in (lambda: trail.record("x"), lambda: trail.fork("r"), lambda: trail.drop("r"), trail.reclaim):
            with pytest.raises(errors.ReadOnlyError):
                write()
        assert trail.state("r") == {"x": 1}
        assert trail.search("s")
    assert path.read_bytes() == before


@in_each_place()
def test_a_run_that_is_not_there_is_named_with_the_trail_that_was_looked_in(trail_url: str) -> None:
    place = urlsplit(trail_url).path.rpartition("/")[2]
    with everstep.open(trail_url) as trail:
        for look in (trail.run, trail.steps, trail.drop, lambda run_id: trail.fork(run_id, 0)):
            with pytest.raises(errors.RunNotFoundError, match=f"no run 'nobody' in '.*{place}.*'"):
                look("nobody")
