"""Trails of JSON files, used as any other: run over, shared, on a full disk, read by people and kept in git."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import everstep
from everstep import errors
from everstep.store.files import FilesStore
from everstep.store.files_layout import folder_name
from everstep.testing.pruning import prune
from everstep.testing.rows import begin, history
from tests.integration.running import Calls, crashed, run
from tests.integration.support import environment, python, small_trail
from tests.places import IN_MEMORY


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory where there is such a place."""
    with TemporaryDirectory(dir=IN_MEMORY) as name:
        yield Path(name)


@pytest.fixture
def path(folder: Path) -> Path:
    """An empty folder for a trail."""
    (folder / "trail").mkdir()
    return folder / "trail"


def names(path: Path) -> list[str]:
    return sorted(found.relative_to(path).as_posix() for found in path.rglob("[!.]*") if found.is_file())


# Running.


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_workflow_is_resumed_replayed_and_forked(path: Path, kind: str) -> None:
    """Promises 2 and 6."""
    calls = Calls()

    @everstep.step
    def plain(name: str) -> str:
        return str(calls(name))

    @everstep.step
    async def awaited(name: str) -> str:
        return str(calls(name))

    @everstep.workflow
    def flow() -> list[str]:
        return [plain(name) for name in "abc"]

    @everstep.workflow
    async def async_flow() -> list[str]:
        return [await awaited(name) for name in "abc"]

    work: Any = flow if kind == "sync" else async_flow
    calls.crash = {"c"}
    with everstep.open(path) as trail:
        crashed(trail, work, id="r")
    with everstep.open(path) as trail:
        assert run(trail, work, id="r").value == ["a", "b", "c"]
        assert calls == ["a", "b", "c", "c"]
        assert trail.replay("r", work).identical
        trail.fork("r", 2, id="other", outcome="B").finish()
        assert trail.verify().ok
    with everstep.open(path, read_only=True) as trail:
        assert trail.replay("r", work).identical
        assert [found.id for found in trail.runs()] == ["other", "r"]


def test_steps_are_found_by_their_words(path: Path) -> None:
    with everstep.open(path) as trail:
        with trail.record("r") as recorder:
            recorder.step("read", output="the quick brown fox")
            recorder.step("write", output="the lazy dog")
        assert [step.seq for step in trail.search("lazy")] == [2]


def test_the_command_line_takes_a_folder(path: Path) -> None:
    small_trail(path)
    for url in (str(path), f"file://{path}"):
        command = [sys.executable, "-m", "everstep", "runs", "--json", "--trail", url]
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
        assert [found["id"] for found in json.loads(done.stdout)["runs"]] == ["r"]
    command = [sys.executable, "-m", "everstep", "runs", "--trail", f"file://{path}/none"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode != 0, "there is no trail" in done.stderr) == (True, True)
    assert not (path / "none").exists()


# Ids.

IDS = [
    "r", "R", "..", ".", "/", "/etc/passwd", "../../x", "a/b", "a\\b", "con", "NUL.txt", "aux", "x" * 300, "ß", "ẞ",
    "SS", "é", "e\u0301", "☃", "🦊" * 80, " ", "a ", "a", "A", "trail.json", "_1", "-", "a:b", "a*?<>|", "new\nline",
    "\x00", "%2e",
]  # fmt: skip


def test_any_id_has_a_folder_of_its_own_that_every_file_system_takes(path: Path) -> None:
    """Promise 8: nothing that an id says leads out of the folder."""
    with closing(FilesStore(str(path))) as store:
        for run_id in IDS:
            begin(store, run_id, rows=1)
        for run_id in IDS:
            assert (store.run(run_id).id, len(history(store, run_id))) == (run_id, 1)
        assert store.inspect() == []
    there = [found.name for found in (path / "runs").iterdir()]
    assert len({name.casefold() for name in there}) == len(there) == len(IDS)
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9-]{0,40}-[0-9a-f]{16}", name) for name in there)
    assert sorted(found.name for found in path.parent.iterdir()) == ["trail"]


# Together.

WRITE = """
import everstep, sys
with everstep.open(sys.argv[1]) as trail:
    for number in range(12):
        with trail.record(f"{sys.argv[2]}-{number}") as run:
            run.step("s", output=number)
"""


def test_processes_write_at_once(path: Path) -> None:
    """Promise 4."""
    command = [sys.executable, "-c", WRITE, f"file://{path}"]
    at_work = [subprocess.Popen([*command, f"r{number}"], env=environment()) for number in range(3)]
    with everstep.open(path) as trail:
        with trail.record("here") as recorder:
            while any(process.poll() is None for process in at_work):
                recorder.checkpoint("point")
                assert len(trail.runs()) >= 1
        assert [process.wait() for process in at_work] == [0, 0, 0]
        assert trail.verify().ok
        runs = trail.runs(limit=100)
        assert [len(runs), len({trail.store.run(found.id).key for found in runs})] == [37, 37]


def test_whoever_reads_while_others_let_go_sees_no_damage(path: Path) -> None:
    """Promise 9: what is gone on purpose is not damage."""
    with closing(FilesStore(str(path))) as store, closing(FilesStore(str(path), read_only=True)) as reader:
        done = threading.Event()
        odd: list[BaseException] = []

        def look() -> None:
            while not done.is_set():
                try:
                    found = reader.run("fork")
                    reader.entries("fork", found.base, found.seq)
                    reader.keyframe("fork", found.seq)
                    reader.marked(None, 0, 5)
                except errors.RunError:  # it was dropped meanwhile, pruned, or made anew
                    pass
                except Exception as error:  # noqa: BLE001 - whatever it is, the test shows it
                    odd.append(error)
                    return

        looking = threading.Thread(target=look)
        looking.start()
        for _ in range(25):
            begin(store, rows=3).mark("large")
            fork = begin(store, "fork", fork=("run", 3))
            fork.write(2)
            prune(store, "fork", 4)
            store.drop("run")
            begin(store, "run", rows=5)
            store.drop("fork")
            store.drop("run")
        done.set()
        looking.join()
        assert odd == []


def test_a_forked_child_writes_too_and_leaves_no_lock_behind(path: Path) -> None:
    """Promise 4."""
    with everstep.open(path) as trail:
        trail.record("parent").step("s")
        child = os.fork()
        if child == 0:
            try:
                trail.record("child").finish()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        trail.record("after").finish()
        assert {found.id for found in trail.runs()} == {"parent", "child", "after"}


FULL = """
import everstep, os, sys
from pathlib import Path
from everstep.errors import DiskFullError
from everstep.store.files_layout import folder_name
trail = everstep.open(sys.argv[1])
run = trail.record("r")
run.step("before")
home = Path(sys.argv[1]) / "runs" / folder_name("r")
for name in ("steps/000002.json", "run.json.new", "../../pieces/x"):
    spoiled = home / name
    if name.endswith("x"):
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    else:
        spoiled.symlink_to("/dev/full")
    try:
        run.step("into it", output=os.urandom(70_000))
    except DiskFullError as error:
        print("full", trail.run("r").head)
    if name.endswith("x"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.getrlimit(resource.RLIMIT_FSIZE)[1],) * 2)
    else:
        spoiled.unlink(missing_ok=True)
print(run.step("after", output=b"x" * 70_000).seq, trail.verify().ok)
"""


def test_a_disk_that_is_full_is_told_and_the_next_write_works(path: Path) -> None:
    """Promises 1 and 13: a step's file, a run's and a piece."""
    done = python(FULL, path)
    assert done.stdout.splitlines() == ["full 1", "full 1", "full 1", "2 True"], done.stderr


# For people, and for git.


def test_a_step_can_be_read_without_us(path: Path) -> None:
    small_trail(path)
    step = json.loads((path / "runs" / folder_name("r") / "steps" / "000001.json").read_text("utf-8"))
    assert (step["step"], step["name"], step["output"]) == (1, "s", 1)
    run_page = json.loads((path / "runs" / folder_name("r") / "run.json").read_text("utf-8"))
    assert (run_page["run"], run_page["status"], run_page["head"]) == ("r", "completed", 2)


def test_what_did_not_change_is_not_written_again(path: Path) -> None:
    """Promise 11: and a comparison shows what is new alone."""
    small_trail(path)
    before = {name: ((path / name).read_bytes(), (path / name).stat().st_ino) for name in names(path)}
    with everstep.open(path) as trail:
        trail.verify()
        trail.state("r")
        assert {name: ((path / name).read_bytes(), (path / name).stat().st_ino) for name in names(path)} == before
        trail.record("new").step("s", output=1)
    changed = [name for name in names(path) if (path / name).read_bytes() != before.get(name, (b"", 0))[0]]
    new = folder_name("new")
    assert changed == [
        f"runs/{new}/begin.json",
        f"runs/{new}/run.json",
        f"runs/{new}/steps/000000.json",
        f"runs/{new}/steps/000001.json",
        "trail.json",
    ]


def test_every_page_is_lines_of_json_that_end_in_a_newline_and_hide_nothing(path: Path) -> None:
    with everstep.open(path) as trail, trail.record("r", tags={"b": "\u202e1", "a": "\x1b[2J"}) as recorder:
        recorder.step("s\u202e\x1b", output="\x00\u200b", metadata={"z": 1, "a": 2})
    for name in names(path):
        text = (path / name).read_text("utf-8")
        assert text.endswith("}\n")
        assert json.dumps(json.loads(text), indent=2).count("\n") == text.count("\n") - 1
        assert not re.search("[\x00-\x09\x0b-\x1f\u200b\u202e]", text)
    with everstep.open(path, read_only=True) as trail:
        assert trail.run("r").tags == {"b": "\u202e1", "a": "\x1b[2J"}
        assert trail.verify().ok


def test_a_trail_that_was_cloned_reads_as_before(folder: Path, path: Path) -> None:
    """Git keeps no empty folders, and gives every file another time and number."""
    with everstep.open(path) as trail:
        trail.record("empty")
        trail.record("r").step("s", output="d" * 70_000, output_to="x")
        trail.drop("empty")
        trail.record("empty")
    for name in names(path):
        copy = folder / "clone" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((path / name).read_bytes())
    with everstep.open(folder / "clone") as trail:
        assert trail.verify().ok
        assert trail.state("r") == {"x": "d" * 70_000}
        assert trail.run("empty").head == 0
        trail.record("new").finish()


def test_what_a_killed_writer_left_is_reclaimed_and_what_others_put_there_is_no_damage(tmp_path: Path) -> None:
    store = FilesStore(str(tmp_path / "trail"))
    begin(store, "mine", rows=2)
    left = [
        tmp_path / "trail" / "runs" / folder_name("mine") / "steps" / "000099.json.new",
        tmp_path / "trail" / "pieces" / f"{'ab' * 16}.new",
    ]
    stranger = tmp_path / "trail" / "pieces" / ".DS_Store"
    for file in (*left, stranger):
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"half")
    assert store.inspect() == []
    store.reclaim()
    assert [file.exists() for file in (*left, stranger)] == [False, False, True]
    assert store.inspect() == []
    store.close()
