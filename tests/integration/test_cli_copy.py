from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep.errors import EverstepError, OwnedError
from everstep.testing.rows import begin
from everstep.trail import transferring
from tests.integration.cli_support import COMMAND, data, on_a_terminal, process, run
from tests.integration.copying import Places, halfway, interrupt, names, notes, same, same_run
from tests.integration.support import environment


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVERSTEP_TRAIL", raising=False)
    return tmp_path


@pytest.fixture
def trail(place: Path) -> Path:
    with everstep.open(place / "a.db") as made:
        notes(made, "one", "a", "b")
        with made.record("two") as run:
            run.step("s", output="large " * 20_000, output_to="x")
    return place / "a.db"


@pytest.mark.usefixtures("trail")
def test_all_runs_go_to_a_trail_that_is_made(place: Path) -> None:
    said = run("copy", "a.db", "new/b.db")
    assert (said.exit_code, said.stdout) == (0, "")
    assert said.stderr.startswith("copied to new/b.db: 2 runs, 6 entries.\n")
    assert said.stderr.endswith("\nnext: everstep runs --trail new/b.db\n")
    assert run("runs", "--trail", "new/b.db").stdout.count("\n") == 3
    with everstep.open(place / "a.db") as source, everstep.open(place / "new/b.db") as to:
        same(source, to)
        notes(to, "one", "c")
    again = run("copy", "a.db", "new/b.db")
    assert (again.exit_code, again.stdout) == (0, "")
    assert again.stderr.startswith(
        "nothing to copy: 1 run was there already.\none has gone on there, and was left alone.\n"
    )


@pytest.mark.usefixtures("trail")
def test_the_answer_for_programs_counts_all(place: Path) -> None:
    with everstep.open(place / "b.db") as to:
        notes(to, "one", "other")
    told = data("copy", "a.db", "b.db", code=5)["copy"]
    [refused] = told.pop("refused")
    assert told.pop("bytes") > 100
    assert told == {"from": "a.db", "to": "b.db", "runs": 1, "entries": 3, "blobs": 1, "same": 0, "ahead": []}
    assert (refused["run"], refused["type"]) == ("one", "HistoryDiffersError")
    assert "another id" in refused["reason"]
    assert data("copy", "a.db", "c.db", "two")["copy"]["runs"] == 1


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["none.db", "b.db"], 1, "it does not exist"),
        (["a.db", "a.db"], 2, "itself"),
        (["a.db", "./a.db"], 2, "itself"),
        (["a.db", ":memory:"], 2, "in memory"),
        ([":memory:", "b.db"], 2, "in memory"),
        (["a.db", "redis://me:secret@host/b"], 1, "redis://me@host/b"),
        (["a.db", "b.db", "non"], 3, "no run 'non'"),
        (["a.db"], 2, "Missing argument 'TO'"),
        (["a.db", "b.db", "--trail", "c.db"], 2, "No such option"),
        (["a.db", "postgresql://me:secret@127.0.0.1:1/none?connect_timeout=2"], 1, "127.0.0.1"),
    ],
)
@pytest.mark.usefixtures("trail")
def test_what_cannot_be_done_is_said_and_nothing_is_made(place: Path, words: list[str], code: int, said: str) -> None:
    """Promises 10 and 13."""
    before = sorted(path.name for path in place.iterdir())
    result = run("copy", *words)
    assert (result.exit_code, said in result.output) == (code, True), result.output
    assert "secret" not in result.output
    made = {name for name in (path.name for path in place.iterdir()) if not name.startswith("a.db")}
    assert made == {name for name in before if not name.startswith("a.db")}


def test_a_trail_named_before_the_command_is_refused(trail: Path) -> None:
    said = run("--trail", trail, "copy", trail, "b.db")
    assert (said.exit_code, "everstep copy FROM TO" in said.output) == (2, True)


def test_a_place_that_takes_no_writes_is_told(trail: Path, postgres: str) -> None:
    """Promise 13."""
    said = run("copy", trail, f"{postgres}%20-cdefault_transaction_read_only%3Don")
    assert (said.exit_code, "takes no writes" in said.output) == (1, True)


def test_a_person_sees_a_bar_and_a_password_is_never_shown(trail: Path, postgres: str) -> None:
    """Promise 10."""
    url = postgres.replace("postgres@", "postgres:hunter2@")
    shown = on_a_terminal("copy", trail, url, columns=160)
    assert shown.code == 0
    assert "6/6" in shown.stdout
    assert "copied to" in shown.stdout
    assert "hunter2" not in shown.stdout
    assert "hunter2" not in json.dumps(data("copy", trail, url))


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "files"])
def test_half_of_a_run_is_shown_as_that_with_how_to_finish_it(
    places: Places, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Promise 13: it is not taken for a run at work."""
    monkeypatch.setattr(transferring, "_ROWS", 50)
    source, url = places.open("sqlite"), places.url(kind)
    notes(source, "a", *map(str, range(70)))
    with pytest.raises(KeyboardInterrupt):
        halfway(source, places.opened(url), interrupt).once()
    finish = f"to finish it: {shlex.join(['everstep', 'copy', 'FROM', url, 'a'])}, with the trail"
    shown = run("show", "a", "--trail", url)
    [status] = [line for line in shown.stdout.splitlines() if line.startswith("status")]
    assert "half copied (a copy by " in status
    assert "for another" not in status
    for told in (shown, run("why", "a", "--trail", url)):
        assert (finish in told.stderr, "next: " in told.stderr) == (True, False)
    for words in (["runs"], ["show", "a", "--tree"]):
        assert "half copied" in run(*words, "--trail", url).stdout
    assert data("runs", "--trail", url)["runs"][0]["half_copied"] is True
    assert data("show", "a", "--trail", url)["show"]["run"]["half_copied"] is True
    assert data("doctor", "--trail", url)["doctor"]["trail"]["half_copied"] == ["a"]
    told = run("doctor", "--trail", url)
    assert "half copied" in told.stdout
    assert f"next: {shlex.join(['everstep', 'show', 'a', '--trail', url])}" in told.stderr
    assert run("copy", source.store.where, url, "a").exit_code == 0
    assert data("runs", "--trail", url)["runs"][0]["half_copied"] is False
    assert "half copied" not in run("doctor", "--trail", url).stdout


# Processes.


def until(found: Callable[[], Any], patience: float = 60.0) -> Any:
    """What is found at last."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        with suppress(EverstepError):  # it is not there yet
            if result := found():
                return result
        time.sleep(0.005)
    raise AssertionError("it did not happen")


@contextmanager
def started(*words: object) -> Iterator[subprocess.Popen[str]]:
    """The command, at work; whatever the test finds, it is not left behind."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*COMMAND, *map(str, words)], env=environment(), stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as copying:
        try:
            yield copying
        finally:
            copying.kill()


def head(path: Path, run_id: str) -> int:
    if not path.exists():
        return -1
    with everstep.open(path, read_only=True) as trail:
        return trail.store.run(run_id).seq


def test_a_copy_that_is_killed_goes_on_where_it_stopped(place: Path) -> None:
    """Promises 1 and 2: what was written is there, and nobody takes half a run for the whole."""
    source, to = place / "a.db", place / "b.db"
    with everstep.open(source) as trail:
        begin(trail.store, "long", rows=25_000, lease=0.0)
    with started("copy", source, to) as copying:
        until(lambda: head(to, "long") > 2_000)
        copying.kill()
        assert copying.wait() == -signal.SIGKILL
    reached = head(to, "long")
    assert 2_000 < reached < 24_999
    with everstep.open(to) as there, pytest.raises(OwnedError, match="Copy it again"):
        there.record("long")
    told = data("copy", source, to)["copy"]
    assert (told["runs"], told["entries"]) == (1, 24_999 - reached)
    with everstep.open(source) as here, everstep.open(to) as there:
        same_run(here, there, "long")
        assert there.verify().ok


def test_a_trail_that_is_followed_is_copied_as_it_grows(place: Path) -> None:
    """What is at work, what is new, what is reopened; and an end that tells all."""
    source, to = place / "a.db", place / "b.db"
    with everstep.open(source) as trail:
        notes(trail, "kept", "a")
        trail.record("done").finish()
        with started("copy", source, to, "--follow", "--json") as copying:
            assert copying.stderr is not None
            assert copying.stderr.readline().startswith(f"following {source}")
            worker = trail.record("worker")
            for number in range(3):
                worker.step("s", output=number)
                until(lambda: head(to, "worker") == trail.run("worker").head)
            worker.finish("well")
            notes(trail, "kept", "b")
            trail.fork("worker", 2, id="fork").release()
            trail.record("quick").finish()
            wanted = {run.id: trail.store.run(run.id).hash for run in trail.runs()}
            until(lambda: all(_hash(to, run_id) == link for run_id, link in wanted.items()))
            os.kill(copying.pid, signal.SIGINT)
            out, said = copying.communicate(timeout=60)
            assert copying.returncode == 0, said
        told = json.loads(out)["copy"]
        assert (told["runs"], told["refused"]) == (5, [])
        with everstep.open(to) as there:
            assert list(names(there, "kept")) == ["start", "a", "b"]
            same(trail, there)


def _hash(path: Path, run_id: str) -> bytes:
    with everstep.open(path, read_only=True) as trail:
        return trail.store.run(run_id).hash


def test_of_a_trail_that_is_followed_one_run_can_be_named(place: Path) -> None:
    source, to = place / "a.db", place / "b.db"
    with everstep.open(source) as trail:
        notes(trail, "wanted", "a")
        notes(trail, "other", "b")
        with started("copy", source, to, "wanted", "--follow") as copying:
            until(lambda: head(to, "wanted") == 1)
            trail.record("child", parent="wanted").finish()
            notes(trail, "wanted", "c")
            until(lambda: head(to, "wanted") == 2 and head(to, "child") == 1)
            os.kill(copying.pid, signal.SIGTERM)
            assert copying.wait(60) == 0
    with everstep.open(to) as there:
        assert {run.id for run in there.runs()} == {"wanted", "child"}


def test_an_interrupt_says_how_it_goes_on(place: Path) -> None:
    source, to = place / "a.db", place / "b.db"
    with everstep.open(source) as trail:
        begin(trail.store, "long", rows=25_000, lease=0.0)
    with started("copy", source, to) as copying:
        until(lambda: head(to, "long") > 2_000)
        os.kill(copying.pid, signal.SIGINT)
        _, said = copying.communicate(timeout=60)
    assert (copying.returncode, "the same command goes on" in said) == (130, True)
    assert process("copy", source, to).code == 0
