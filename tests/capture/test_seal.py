"""Promise 6: what a sealed replay refuses, and what it cannot see. Both lists stand in docs/explanation/capture.md."""

from __future__ import annotations

import json
import os
import re
import socket
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

import everstep
from everstep.errors import CaptureWarning, SealedError
from tests.capture.running import CAPTURED, environment

PROGRAM = Path(__file__).with_name("reaching.py")
CALLS = [
    "socket", "name", "datagram", "asyncio", "posix_spawn", "exec", "fork", "pty", "multiprocessing", "sqlite3",
    "sqlite3 by address",
]  # fmt: skip
FILES = [
    "open", "open by flags", "append", "remove", "rename", "copy", "mkdir", "symlink", "truncate", "chmod", "touch",
    *(["attribute", "attribute removed"] if hasattr(os, "setxattr") else ()),
]  # fmt: skip
FREE = [
    "sqlite3 in memory",
    "sqlite3 shared memory",
    "sqlite3 temporary",
    "sqlite3 allowed",
    "read",
    "allowed",
    "temporary",
    "device",
    "listen",
    "chdir",
    "environ",
    "signal",
]
UNSEEN = ["libc connect", "libc creat", "apsw", "open before"]


class Place:
    """A folder with a recorded program, and a port that notes who connects."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for each in ("allowed", "temporary"):
            (folder / each).mkdir()
        (folder / "kept").write_text("kept", "utf-8")
        self.server = socket.create_server(("127.0.0.1", 0))
        self.server.settimeout(0)
        self.run("record")

    def run(self, mode: str, *ways: str, **how: object) -> dict[str, str]:
        """What became of each way that was tried."""
        said = json.dumps({"trail": str(self.folder / "trail.db"), "id": "r", "mode": mode, **how})
        port = str(self.server.getsockname()[1])
        with (self.folder / "before").open("ab") as file:
            env = environment(
                "", EVERSTEP_CAPTURE=said, REACH=",".join(ways), REACH_PORT=port, REACH_FILE=str(file.fileno()),
                TMPDIR=str(self.folder / "temporary"), PYTHONPATH=os.pathsep.join(sys.path),
            )  # fmt: skip
            done = subprocess.run(
                [*CAPTURED, str(PROGRAM)], cwd=self.folder, env=env,
                pass_fds=[file.fileno()], capture_output=True, text=True, check=False, timeout=60,
            )  # fmt: skip
        self.status, self.stderr = done.returncode, done.stderr
        found = (
            re.match(f"({'|'.join(sorted(ways, key=len, reverse=True))}) (.*)", line)
            for line in done.stdout.splitlines()
        )
        return {match[1]: match[2] for match in found if match}

    def connections(self) -> int:
        """How many connected since the last time."""
        count = 0
        with suppress(BlockingIOError):
            while True:
                self.server.accept()[0].close()
                count += 1
        return count


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A place for all tests: what is refused leaves no trace in it."""
    found = Place(tmp_path_factory.mktemp("sealed"))
    yield found
    found.server.close()


@pytest.fixture(scope="module")
def by_files(place: Place) -> dict[str, str]:
    """What became of everything that is refused, and of what is not, where files are sealed too."""
    return place.run("verify", *CALLS, *FILES, *FREE, seal="files", allow=["allowed"])


@pytest.fixture(scope="module")
def by_calls(place: Place) -> dict[str, str]:
    """The same where calls are."""
    return place.run("verify", *CALLS, *FREE, seal="calls")


@pytest.mark.parametrize("way", CALLS)
def test_a_call_that_is_not_on_record_is_refused_at_its_line(
    by_calls: dict[str, str], by_files: dict[str, str], way: str
) -> None:
    for found in (by_calls, by_files):
        assert re.match(r"SealedError .*reaching\.py:\d+ would ", found[way]), found[way]


@pytest.mark.parametrize("way", FILES)
def test_a_file_is_not_changed_in_a_sealed_replay(by_files: dict[str, str], place: Place, way: str) -> None:
    assert re.match(r"SealedError .*reaching\.py:\d+ would ", by_files[way]), by_files[way]
    assert (place.folder / "kept").read_text("utf-8") == "kept"


@pytest.mark.parametrize("way", FREE)
def test_what_changes_nothing_outside_is_let_through(by_files: dict[str, str], way: str) -> None:
    assert by_files[way] == "went through"


def test_nothing_that_was_refused_has_happened(
    by_calls: dict[str, str], by_files: dict[str, str], place: Place
) -> None:
    assert by_calls
    assert by_files
    assert place.connections() == 0
    left = {path.name for path in place.folder.iterdir() if not path.name.startswith("trail.db")}
    assert left == {"allowed", "temporary", "kept", "before"}


def test_files_may_be_written_where_only_calls_are_sealed(tmp_path: Path) -> None:
    place = Place(tmp_path)
    assert set(place.run("verify", "open", "mkdir", "copy", seal="calls").values()) == {"went through"}
    place.server.close()


@pytest.fixture(scope="module")
def unseen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Place, dict[str, str]]]:
    """What native code and others do behind Python's back, in a replay that is sealed."""
    place = Place(tmp_path_factory.mktemp("unseen"))
    yield place, place.run("verify", *UNSEEN, seal="files")
    place.server.close()


@pytest.mark.parametrize("way", UNSEEN)
def test_the_seal_does_not_see_what_python_is_not_asked_for(unseen: tuple[Place, dict[str, str]], way: str) -> None:
    """The day one of these is refused, correct the list in docs/explanation/capture.md."""
    assert unseen[1][way] == "went through"


def test_what_was_not_seen_has_happened(unseen: tuple[Place, dict[str, str]]) -> None:
    place, _ = unseen
    assert place.connections() == 1  # by libc
    assert (place.folder / "by-libc").exists()
    assert (place.folder / "by-apsw").exists()
    assert (place.folder / "before").read_bytes() == b"x"


def test_a_hard_seal_keeps_native_code_from_the_network(place: Place) -> None:
    found = place.run("verify", "libc connect", seal="hard")
    if found:
        assert found["libc connect"].startswith("OSError")
    else:
        assert "cannot be given a network of its own" in place.stderr  # as some kernels are set up: it does not pretend
    assert place.connections() == 0


def test_a_refusal_that_the_program_swallows_counts_all_the_same(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "trail.db") as trail:
        with everstep.capture(trail, "r"):
            pass
        with (
            pytest.raises(SealedError) as caught,
            everstep.capture(trail, "r", mode="verify") as session,
            suppress(Exception),
        ):
            socket.create_connection(("127.0.0.1", 9))
        assert session.report is not None
        assert not session.report.identical
        assert "If it does no harm, replay it without a seal: --seal off" in str(session.report), "nobody saw the error"
        line, text = caught.value.where.rpartition(":")[2], Path(__file__).read_text("utf-8").splitlines()
        assert "socket.create_connection" in text[int(line) - 1]


def test_a_refusal_names_the_folder_that_would_have_to_be_allowed(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("elsewhere")))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (out := tmp_path / "my out").mkdir()
    tries: list[tuple[Callable[[], object], str]] = [
        (lambda: Path("out.txt").write_text("a"), "--allow ."),
        (lambda: out.chmod(0o700), f"--allow '{out}'"),
        ((out / "a").mkdir, f"--allow '{out / 'a'}'"),
        (lambda: Path("made/below").mkdir(parents=True), "--allow made"),  # not all that is here
        (lambda: sqlite3.connect("/nowhere/at/a.db"), "--allow /nowhere"),
        (lambda: sqlite3.connect("file:///nowhere/a.db?mode=ro", uri=True), "--allow /nowhere"),
        (lambda: socket.create_connection(("127.0.0.1", 9)), "--seal off"),
    ]
    with everstep.open(tmp_path / "trail.db") as trail:
        with everstep.capture(trail, "r"):
            pass
        for attempt, way_out in tries:
            with pytest.raises(SealedError) as caught, everstep.capture(trail, "r", mode="verify", seal="files"):
                attempt()
            assert str(caught.value).endswith(way_out)


def test_a_database_in_an_allowed_folder_is_let_be_where_files_are_not_looked_at(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("elsewhere")))
    with everstep.open(tmp_path / "trail.db") as trail:
        with everstep.capture(trail, "r"):
            pass
        with everstep.capture(trail, "r", mode="verify", seal="calls", allow=[str(tmp_path)]):
            sqlite3.connect(tmp_path / "own.db").close()
        with pytest.raises(SealedError), everstep.capture(trail, "r", mode="verify", seal="calls"):
            sqlite3.connect(tmp_path / "own.db")


def test_what_changes_nothing_is_not_refused(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("elsewhere")))
    (own := tmp_path / "own").mkdir(0o700)
    with everstep.open(tmp_path / "trail.db") as trail:
        with everstep.capture(trail, "r"):
            pass
        with everstep.capture(trail, "r", mode="verify", seal="files"):
            own.mkdir(0o700, exist_ok=True)
            own.chmod(0o700)
        for path, mode in ((own, 0o755), (tmp_path / "gone", 0o700)):
            with pytest.raises(SealedError), everstep.capture(trail, "r", mode="verify", seal="files"):
                path.chmod(mode)
    assert stat.S_IMODE(own.stat().st_mode) == 0o700


def test_what_is_relative_to_an_open_folder_is_judged_by_that_folder(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
    for name in ("allowed", "outside"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text("kept")
    monkeypatch.chdir(tmp_path / "allowed")
    outside = os.open(tmp_path / "outside", os.O_RDONLY)
    tries: list[Callable[[], object]] = [
        lambda: os.unlink("a.txt", dir_fd=outside),
        lambda: os.rename("a.txt", "b.txt", dst_dir_fd=outside),
        lambda: os.mkdir("new", dir_fd=outside),
        lambda: os.open("new.txt", os.O_CREAT | os.O_WRONLY, dir_fd=outside),
        lambda: os.chmod("a.txt", 0o600, dir_fd=outside),
    ]
    with everstep.open(tmp_path / "trail.db") as trail:
        with everstep.capture(trail, "r"):
            pass
        sealed = partial(everstep.capture, trail, "r", mode="verify", seal="files")
        for attempt in tries:
            with pytest.raises(SealedError, match=f"--allow {tmp_path}/outside"), sealed(allow=["."]):
                attempt()
        monkeypatch.chdir(tmp_path)  # nothing here is allowed, but for temporary folders
        os.close(outside)
        with sealed(), pytest.raises(OSError, match="Bad file descriptor"):
            os.open("a.txt", os.O_RDONLY, dir_fd=outside)
        with sealed(), tempfile.TemporaryDirectory() as folder:
            Path(folder, "a.txt").write_text("soon gone")
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["a.txt"]


def test_outside_of_a_replay_nothing_is_sealed(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "trail.db") as trail, socket.create_server(("127.0.0.1", 0)) as server:
        with everstep.capture(trail, "r"):
            with pytest.warns(CaptureWarning, match=r"connects to 127.*test_seal\.py"):  # it is not recorded
                socket.create_connection(server.getsockname()).close()
            socket.create_connection(server.getsockname()).close()  # once is enough
        with everstep.capture(trail, "r", mode="verify", seal="off"):
            socket.create_connection(server.getsockname()).close()
        socket.create_connection(server.getsockname()).close()


SENDS: dict[str, Callable[[socket.socket, tuple[str, int]], int]] = {
    "sendto": lambda sending, to: sending.sendto(b"a", to),
    "sendmsg": lambda sending, to: sending.sendmsg([b"a"], [], 0, to),
}


@pytest.mark.parametrize("name", SENDS)
def test_a_datagram_that_is_not_recorded_is_told_of(tmp_path: Path, name: str) -> None:
    with everstep.open(tmp_path / "trail.db") as trail, socket.socket(type=socket.SOCK_DGRAM) as heard:
        heard.bind(("127.0.0.1", 0))
        heard.settimeout(5)
        with everstep.capture(trail, name), socket.socket(type=socket.SOCK_DGRAM) as sending:
            with pytest.warns(CaptureWarning, match=r"sends to 127.*test_seal\.py"):
                SENDS[name](sending, heard.getsockname())
            SENDS[name](sending, heard.getsockname())  # once is enough
        assert [heard.recv(9) for _ in range(2)] == [b"a", b"a"]


SWALLOWS = """
import os, socket, threading

for _ in range(2):
    try:
        socket.create_connection(("127.0.0.1", 9))
    except Exception:
        pass
if "WAITS" in os.environ:
    threading.Event().wait()
"""


def test_a_refusal_that_a_library_swallows_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(SWALLOWS, "utf-8")
    env = environment("", EVERSTEP_TRAIL="trail.db")
    words = [sys.executable, "-m", "everstep"]
    program = ["--", sys.executable, "agent.py"]
    subprocess.run([*words, "record", "--id", "r", *program], cwd=tmp_path, env=env, check=True, capture_output=True)
    with subprocess.Popen(
        [*words, "replay", "r", *program], cwd=tmp_path, env={**env, "WAITS": "yes"}, stderr=subprocess.PIPE, text=True
    ) as replaying:
        assert replaying.stderr is not None
        told = replaying.stderr.readline()  # while the program waits for what never comes
        assert told == "everstep: agent.py:6 would connect 127.0.0.1:9, which the seal of this replay refuses.\n"
        replaying.kill()
        assert replaying.stderr.read() == ""  # once for each place
