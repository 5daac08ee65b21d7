"""The commands that a command on a program ends with: typed as they stand, they work."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import everstep
from tests.capture.running import environment
from tests.capture.server import ModelServer
from tests.integration.cli_support import COMMAND

BESIDE = """
import asyncio, httpx, os, sys
async def main(version):
    async with httpx.AsyncClient(base_url=os.environ["MODEL_URL"]) as web:
        paths = f"/slow?s=0.3&v={version}", f"/plain/{version}"
        print([(await each).status_code for each in [asyncio.create_task(web.get(path)) for path in paths]])
asyncio.run(main(VERSION))
"""


class Folder:
    """Where a program is."""

    def __init__(self, path: Path, server: ModelServer) -> None:
        self.path, self.server = path, server

    def write(self, program: str) -> None:
        (self.path / "agent.py").write_text(program)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of ours."""
        return subprocess.run(
            [*COMMAND, *words], cwd=self.path, env=environment(self.server.url), capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip

    def on_program(self, *words: str, of: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        return self.run(*words, "--trail", "t.db", "--", sys.executable, "agent.py", *of)

    def goes_on(self, told: str) -> subprocess.CompletedProcess[str]:
        """What the last command that was told of does."""
        return self.run(*shlex.split(told.splitlines()[-1])[1:])


def test_the_fork_that_a_lenient_replay_names_shares_no_step_that_is_another(tmp_path: Path) -> None:
    with ModelServer() as server:
        folder = Folder(tmp_path, server)
        folder.write(BESIDE.replace("VERSION", "1"))
        assert folder.on_program("record", "--id", "trip").returncode == 0
        folder.write(BESIDE.replace("VERSION", "2"))
        replayed = folder.on_program("replay", "trip", "--mode", "lenient")
        assert (replayed.returncode, "diverged at trip@1" in replayed.stderr) == (4, False), replayed.stderr
        assert [line.partition(" with")[0] for line in replayed.stderr.splitlines() if "was called" in line] == [
            "trip@3: 'GET 127.0.0.1' was called",
            "trip@1: 'GET 127.0.0.1' was called",
        ]
        forked = folder.goes_on(replayed.stderr)
        assert (forked.returncode, forked.stdout) == (0, "[200, 200]\n"), forked.stderr


def test_a_replay_with_other_words_names_a_recording_of_these(tmp_path: Path) -> None:
    with ModelServer() as server:
        folder = Folder(tmp_path, server)
        folder.write(BESIDE.replace("VERSION", "sys.argv[1]"))
        assert folder.on_program("record", "--id", "trip", of=("1",)).returncode == 0
        replayed = folder.on_program("replay", "trip", of=("2",))
        assert "called with other words than on record: command[1]: '1' -> '2'" in replayed.stderr
        recorded = folder.goes_on(replayed.stderr)
        assert (recorded.returncode, recorded.stdout) == (0, "[200, 200]\n"), recorded.stderr
        with everstep.open(tmp_path / "t.db", read_only=True) as trail:
            assert len(trail.runs()) == 2


def test_a_run_whose_end_could_not_be_written_is_told_to_be_gone_on_with(tmp_path: Path) -> None:
    with ModelServer() as server:
        folder = Folder(tmp_path, server)
        folder.write(f"""
import httpx, os
from everstep.errors import DiskFullError
from everstep.store import sqlite
web = httpx.Client(base_url={server.url!r})
print(web.get("/plain/a").status_code)
if os.path.exists("full"):
    def transact(store, jobs, guarded):
        raise DiskFullError("t.db")
    sqlite.SqliteStore._transact = transact
print(web.get("/plain/b").status_code)
""")
        (tmp_path / "full").touch()
        recorded = folder.on_program("record", "--id", "trip")
        assert (recorded.returncode, "everstep: trip has not ended. Go on with it: " in recorded.stderr) == (1, True), (
            recorded.stderr
        )
        (tmp_path / "full").unlink()
        resumed = folder.run(*shlex.split(recorded.stderr.splitlines()[-1].partition("with it: ")[2])[1:])
        assert (resumed.returncode, resumed.stdout) == (0, "200\n200\n"), resumed.stderr


def test_a_replay_opens_the_trail_for_reading(tmp_path: Path) -> None:
    with ModelServer() as server:
        folder = Folder(tmp_path, server)
        folder.write(BESIDE.replace("VERSION", "1"))
        assert folder.on_program("record", "--id", "trip").returncode == 0
        (there := tmp_path / "there").mkdir()
        shutil.copy(tmp_path / "t.db", there)
        replayed = folder.run("replay", "trip", "--trail", "there/t.db", "--", sys.executable, "agent.py")
        locks = [each.name for each in there.iterdir() if each.name.endswith("lock")]  # who writes makes one
        assert (replayed.returncode, locks) == (0, []), replayed.stderr


def test_a_change_that_is_the_same_in_many_steps_is_told_once_with_where_it_is(tmp_path: Path) -> None:
    with ModelServer() as server:
        folder = Folder(tmp_path, server)
        body = {"model": "m", "messages": [{"role": "user", "content": "PROMPT"}]}
        asks = f"import httpx\nfor _ in range(12): httpx.post('{server.url}/v1/chat/completions', json={body})\n"
        folder.write(asks)
        assert folder.on_program("record", "--id", "trip").returncode == 0
        folder.write(asks.replace("PROMPT", "another"))
        told = folder.on_program("replay", "trip", "--mode", "lenient").stderr
        steps = ", ".join(f"trip@{seq}" for seq in range(1, 9))
        assert told.splitlines()[1:3] == [
            f"{steps}, 4 more: 'openai chat' was called with different arguments.",
            "  ~ body.messages[0].content: 'PROMPT' -> 'another'",
        ]


def test_of_a_program_that_failed_before_its_first_call_nothing_is_said_of_what_was_before(tmp_path: Path) -> None:
    with ModelServer() as server:
        folder = Folder(tmp_path, server)
        folder.write("import nowhere\n")
        assert folder.on_program("record", "--id", "trip").returncode == 1
        told = folder.run("why", "trip", "--trail", "t.db").stdout
    assert told.startswith("trip failed before its first step, with ModuleNotFoundError: No module named 'nowhere'")
    assert "looks odd" not in told


CANCELLED = """
import httpx, os, subprocess, sys, time
subprocess.run([sys.executable, "-m", "everstep", "cancel", "trip", "--yes", "--trail", "t.db"], check=True)
for _ in range(500):  # it is noticed before that
    httpx.get(os.environ["MODEL_URL"] + "/plain/a")
    time.sleep(0.1)
"""


def test_a_program_that_was_cancelled_says_how_to_go_on(tmp_path: Path) -> None:
    with ModelServer() as server:
        folder = Folder(tmp_path, server)
        folder.write(CANCELLED)
        cancelled = folder.on_program("record", "--id", "trip")
        assert "was not taken: run 'trip' was cancelled." in cancelled.stderr
        again = shlex.join(["everstep", "resume", "trip", "--trail", "t.db", "--", sys.executable, "agent.py"])
        assert cancelled.stderr.splitlines()[-1] == f"next: {again}"


@pytest.mark.parametrize(
    "words",
    [
        ("replay", "trip", "--rerun", "ask"), ("replay", "trip", "--app", "agent"),
        ("resume", "trip", "--app", "agent"), ("fork", "trip", "--set", "stdout=x"),
    ],
)  # fmt: skip
def test_an_option_that_does_nothing_for_a_program_is_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    with ModelServer() as server:
        folder = Folder(tmp_path, server)
        folder.write("print('once')")
        assert folder.on_program("record", "--id", "trip").returncode == 0
        refused = folder.on_program(*words)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert words[2] in refused.stderr
        assert "leave " in refused.stderr


def test_who_records_under_an_id_that_is_taken_or_resumes_with_other_words_is_led_to_the_run(tmp_path: Path) -> None:
    with ModelServer() as server:
        folder = Folder(tmp_path, server)
        folder.write("raise KeyError")
        assert folder.on_program("record", "--id", "trip").returncode == 1
        for words, of in ((("record", "--id", "trip"), ()), (("resume", "trip"), ("Oslo",))):
            told = folder.on_program(*words, of=of).stderr
            shown = folder.run(*shlex.split(told.split("`")[1])[1:])
            assert "everstep resume trip --trail t.db -- " in shown.stderr, (told, shown)


@pytest.mark.parametrize(
    "words",
    [("replay", "--sealed"), ("replay", "--mode", "lenient", "--seal", "hard", "--allow", "a b"),
     ("resume", "--unknown", "retry"), ("resume", "--children")],
)  # fmt: skip
def test_the_command_that_names_a_forgotten_program_has_what_was_asked_for(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    with ModelServer() as server:
        folder = Folder(tmp_path, server)
        folder.write("raise KeyError")
        assert folder.on_program("record", "--id", "trip").returncode == 1
        told = folder.run(words[0], "trip", *words[1:], "--trail", "t.db").stderr
        wanted = ["everstep", words[0], "trip", *words[1:], "--trail", "t.db", "--", sys.executable, "agent.py"]
        assert shlex.split(told.rpartition("say which one: ")[2]) == wanted


def test_who_changes_the_outcome_of_the_row_where_a_process_begins_is_told_of_its_outcome(tmp_path: Path) -> None:
    with ModelServer() as server:
        folder = Folder(tmp_path, server)
        folder.write("import subprocess\nprint(subprocess.check_output(['echo', 'one'], text=True))")
        assert folder.on_program("record", "--id", "trip").returncode == 0
        told = folder.on_program("fork", "trip", "--outcome", "1=two").stderr
        assert "where step 'run echo' begins" in told
        assert told.endswith("its outcome is trip@2: say 2.\n")
