"""The command line as a process: its exit codes, its streams, and whoever stands at the other end of them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import everstep
from tests.integration.cli_support import COMMAND, HOSTILE, on_a_terminal, process, trail_to_see
from tests.integration.support import NOBODY, environment, small_trail

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COMMANDS = [
    ["runs"], ["show", "done"], ["show", "done@3"], ["steps", "done"], ["state", "done"], ["diff", "done", "other"],
    ["checkpoints"], ["search", "page"], ["verify"], ["doctor"], ["completion", "zsh"],
]  # fmt: skip


@pytest.fixture
def seen(tmp_path: Path) -> Path:
    return trail_to_see(tmp_path / "trail.db")


class TestExitCodes:
    @pytest.mark.parametrize(
        ("words", "code"),
        [
            (["runs"], 0),
            (["diff", "done", "done@6"], 0),
            (["runs", "--status", "odd"], 2),
            (["nothing"], 2),
            ([], 2),
            (["show", "nobody"], 3),
            (["state", "done", "--at", "99"], 3),
            (["steps", "nobody"], 3),
            (["diff", "done", "other"], 4),
            (["answer", "done", "yes"], 5),
            (["cancel", "done", "--yes"], 5),
        ],
    )
    def test_each_outcome_has_its_own(self, seen: Path, words: list[str], code: int) -> None:
        done = process(*words, EVERSTEP_TRAIL=str(seen))
        assert done.code == code, done
        assert "Traceback" not in done.stderr

    def test_an_owned_run_is_5(self, seen: Path) -> None:
        with everstep.open(seen) as trail:
            trail.record("left")
            done = process("answer", "left", "yes", "--pause", "2", "--trail", seen)
        assert done.code == 5
        assert "is owned by" in done.stderr

    def test_a_damaged_entry_is_6(self, seen: Path) -> None:
        """Promise 9: damage is seen, and where."""
        whole = seen.read_bytes()
        at = whole.index(b"three parts")
        seen.write_bytes(whole[:at] + b"THREE" + whole[at + 5 :])
        for words in (["verify"], ["show", "done"], ["state", "done"], ["doctor", "--verify"]):
            done = process(*words, "--trail", seen)
            assert done.code == 6, (words, done)
        found = json.loads(process("verify", "--json", "--trail", seen).stdout)["verify"]
        assert found["ok"] is False
        assert {(one["run"], one["seq"], one["intact"]) for one in found["damage"]} >= {("done", 3, 2)}
        assert process("runs", "--trail", seen).code == 0

    def test_a_torn_file_is_6_and_another_kind_of_file_is_1(self, seen: Path, tmp_path: Path) -> None:
        whole = seen.read_bytes()
        seen.write_bytes(whole[:4096] + bytes(len(whole) - 4096))
        assert process("runs", "--trail", seen).code == 6
        (tmp_path / "other").write_text("words, words, words" * 100)
        done = process("runs", "--trail", tmp_path / "other")
        assert (done.code, done.stdout) == (1, "")
        assert "is not a trail but a file of another kind" in done.stderr


class TestTheTrail:
    @pytest.mark.parametrize("words", COMMANDS[:9])
    def test_one_that_is_not_there_is_not_made(self, tmp_path: Path, words: list[str]) -> None:
        """Promise 13: nothing falls back to another place in silence."""
        done = process(*words, cwd=tmp_path)
        assert done.code == 1
        assert "there is no trail" in done.stderr
        assert "--trail" in done.stderr
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("words", [["answer", "r", "x"], ["cancel", "r", "--yes"], ["resume", "r", "--app", "x"]])
    def test_nor_do_the_commands_that_write_make_one(self, tmp_path: Path, words: list[str]) -> None:
        assert process(*words, cwd=tmp_path).code == 1
        assert list(tmp_path.iterdir()) == []

    def test_it_is_named_by_option_then_variable_then_place(self, tmp_path: Path) -> None:
        for name in ("option", "variable", ".everstep/trail"):
            path = tmp_path / f"{name}.db"
            path.parent.mkdir(exist_ok=True)
            with everstep.open(path) as trail:
                trail.record(name).finish()
        variable = {"EVERSTEP_TRAIL": "variable.db"}
        assert "option" in process("runs", "--trail", "option.db", cwd=tmp_path, **variable).stdout
        assert "option" in process("runs", "--trail", "sqlite:///option.db", cwd=tmp_path, **variable).stdout
        assert "option" in process("--trail", "option.db", "runs", cwd=tmp_path, **variable).stdout
        assert "variable" in process("runs", cwd=tmp_path, **variable).stdout
        assert ".everstep" in process("runs", cwd=tmp_path).stdout

    def test_a_url_of_no_store_and_a_trail_in_memory_are_refused(self, tmp_path: Path) -> None:
        assert "names no store" in process("runs", "--trail", "postgres://x/y", cwd=tmp_path).stderr
        done = process("runs", "--trail", ":memory:", cwd=tmp_path)
        assert (done.code, list(tmp_path.iterdir())) == (2, [])

    def test_reading_needs_no_right_to_write(self, tmp_path: Path) -> None:
        """Promise 12: reads need no write permission."""
        folder = tmp_path / "locked"
        folder.mkdir()
        trail_to_see(folder / "trail.db")
        for file in folder.iterdir():
            file.chmod(0o444)
        folder.chmod(0o555)
        for parent in (tmp_path, *tmp_path.parents[:3]):
            parent.chmod(parent.stat().st_mode | 0o005)
        before = sorted(path.name for path in folder.iterdir())
        for words in COMMANDS:
            done = subprocess.run(
                [*COMMAND, *words, "--trail", str(folder / "trail.db")], env={**environment(), "HOME": str(folder)},
                capture_output=True, text=True, check=False, user=NOBODY if os.geteuid() == 0 else None, cwd=folder,
            )  # fmt: skip
            assert done.returncode in {0, 4}, (words, done.stderr)
        folder.chmod(0o755)
        assert sorted(path.name for path in folder.iterdir()) == before


class TestStreams:
    @pytest.mark.parametrize("words", COMMANDS)
    def test_json_is_one_versioned_object_and_nothing_else(self, seen: Path, words: list[str]) -> None:
        done = process(*words, "--json", "--trail", seen)
        found = json.loads(done.stdout)
        assert found["everstep"] == 1
        assert words[0] in found
        assert done.stdout.count("\n") == 1
        assert done.stderr == ""

    @pytest.mark.parametrize("words", [["show", "nobody"], ["runs", "--status", "odd"], ["nothing"]])
    def test_an_error_is_told_in_json_too(self, seen: Path, words: list[str]) -> None:
        done = process(*words, "--json", "--trail", seen)
        found = json.loads(done.stdout)
        assert found["everstep"] == 1
        assert found["error"].keys() == {"type", "message"}
        assert found["error"]["message"] in done.stderr

    def test_a_trail_that_is_not_there_is_told_in_json_too(self, tmp_path: Path) -> None:
        found = json.loads(process("runs", "--json", cwd=tmp_path).stdout)
        assert found["error"]["type"] == "UnreadableError"

    @pytest.mark.parametrize("words", COMMANDS)
    def test_a_pipe_gets_no_colour_and_no_drawing(self, seen: Path, words: list[str]) -> None:
        done = process(*words, "--trail", seen, FORCE_COLOR="1", TERM="xterm-256color")
        assert "\x1b" not in done.stdout + done.stderr
        if words[0] != "completion":
            assert done.stdout.isascii(), "no mark, box or ellipsis of ours"

    def test_a_pipe_gets_lines_of_any_length(self, tmp_path: Path) -> None:
        with everstep.open(tmp_path / "trail.db") as trail, trail.record("r" * 150, workflow="w" * 150) as run:
            run.step("n" * 150, output="o" * 150)
        done = process("show", "r" * 150, "--trail", trail.store.where, COLUMNS="40")
        assert "n" * 150 in done.stdout
        assert f"'{'o' * 150}'" in done.stdout
        assert "w" * 150 in process("runs", "--trail", trail.store.where, COLUMNS="40").stdout

    def test_a_reader_that_has_seen_enough_is_no_error(self, tmp_path: Path) -> None:
        with everstep.open(tmp_path / "trail.db") as trail, trail.record("r") as run:
            run.step("many", output=list(range(50_000)), output_to="numbers")
        for words in (["state", "r"], ["state", "r", "--json"], ["show", "r@1"]):
            command = [*COMMAND, *words, "--trail", trail.store.where]
            with subprocess.Popen(
                command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
            ) as at_work:
                assert at_work.stdout is not None
                assert at_work.stderr is not None
                at_work.stdout.read(10)
                at_work.stdout.close()
                assert at_work.stderr.read() == b"", words
            assert at_work.returncode == 0

    def test_a_stream_that_knows_only_ascii_is_no_error(self, tmp_path: Path) -> None:
        with everstep.open(tmp_path / "trail.db") as trail, trail.record("größe") as run:
            run.step("naïve", output="日本語", output_to="x")
        for words in (["runs"], ["show", "größe"], ["state", "größe"]):
            done = process(*words, "--trail", trail.store.where, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
            assert done.code == 0, done.stderr

    def test_without_streams_a_command_still_runs(self, seen: Path) -> None:
        command = f"exec {sys.executable} -m everstep.cli runs --trail {seen} >&- 2>&-"
        assert subprocess.run(["sh", "-c", command], env=environment(), check=False).returncode == 0


class TestHostileValues:
    """Promise 8: stored bytes are data, also to a terminal."""

    @pytest.fixture
    def hostile(self, tmp_path: Path) -> Path:
        path = tmp_path / "trail.db"
        with everstep.open(path) as trail:
            run = trail.record(f"id{HOSTILE}", workflow=HOSTILE, inputs={HOSTILE: HOSTILE}, tags={HOSTILE: HOSTILE})
            run.step(HOSTILE, output=HOSTILE, output_to=HOSTILE, inputs=[HOSTILE], lane=HOSTILE, usage={"x": HOSTILE})
            run.step("bad", error=type(f"E{HOSTILE}", (Exception,), {})(HOSTILE))
            run.checkpoint(HOSTILE, metadata={"x": HOSTILE})
            run.finish(HOSTILE)
        return path

    WORDS = (
        ["runs"], ["show", f"id{HOSTILE}"], ["show", f"id{HOSTILE}@1"], ["show", f"id{HOSTILE}@2"],
        ["steps", f"id{HOSTILE}"], ["state", f"id{HOSTILE}"], ["checkpoints"], ["search", "evil"], ["doctor"],
        ["diff", f"id{HOSTILE}@0", f"id{HOSTILE}"], ["show", f"no{HOSTILE}"], ["state", f"id{HOSTILE}", HOSTILE],
    )  # fmt: skip

    @pytest.mark.parametrize("words", WORDS)
    def test_no_control_character_reaches_a_pipe(self, hostile: Path, words: list[str]) -> None:
        done = process(*words, "--trail", hostile)
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", done.stdout + done.stderr)
        asked = process(*words, "--json", "--trail", hostile)
        assert asked.stdout.isascii()
        assert "\x7f" not in asked.stdout

    @pytest.mark.parametrize("words", WORDS)
    def test_a_terminal_gets_no_control_character_but_our_colours(self, hostile: Path, words: list[str]) -> None:
        done = on_a_terminal(*words, "--trail", hostile)
        printed = re.sub(r"\r?\n", "", ANSI.sub("", done.stdout))
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", printed.replace("\r", "")), printed
        assert "\x1b[2J" not in done.stdout
        assert "\x1b]" not in done.stdout


class TestATerminal:
    def test_a_person_gets_colour_and_marks_within_the_window(self, seen: Path) -> None:
        done = on_a_terminal("show", "done", "--trail", seen, columns=60)
        assert done.code == 0
        assert ANSI.search(done.stdout)
        assert "✓" in done.stdout
        assert max(len(ANSI.sub("", line).rstrip()) for line in done.stdout.splitlines()) <= 60 + len(str(seen))
        plain = on_a_terminal("show", "done", "--trail", seen, NO_COLOR="1").stdout
        assert "\x1b[3" not in plain

    def test_a_terminal_without_unicode_gets_words(self, seen: Path) -> None:
        done = on_a_terminal("show", "done", "--trail", seen, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
        assert done.code == 0
        assert "completed" in done.stdout

    def test_long_work_shows_a_sign_of_life(self, seen: Path) -> None:
        assert "checking the trail" in on_a_terminal("verify", "--trail", seen).stdout
        assert "checking" not in process("verify", "--trail", seen).stderr

    def test_a_state_is_folded_for_a_person_and_whole_on_request(self, tmp_path: Path) -> None:
        with everstep.open(tmp_path / "trail.db") as trail, trail.record("r") as run:
            run.step("s", output=[{"n": n} for n in range(500)], output_to="rows")
        where = ["--trail", trail.store.where]
        assert "... 492 more" in on_a_terminal("state", "r", *where).stdout
        assert "rows[499].n = 499" in on_a_terminal("state", "r", "--all", *where).stdout


def test_ctrl_c_is_quiet_and_130(tmp_path: Path) -> None:
    path = small_trail(tmp_path / "trail.db")
    (tmp_path / "slow.py").write_text("import time\nprint('loaded', flush=True)\ntime.sleep(60)\n")
    with everstep.open(path) as trail:
        trail.record("open", workflow="w").release()
    at_work = subprocess.Popen(
        [*COMMAND, "resume", "open", "--app", "slow", "--trail", str(path)], cwd=tmp_path, env=environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert at_work.stdout is not None
    assert at_work.stdout.readline() == "loaded\n"
    at_work.send_signal(signal.SIGINT)
    _, said = at_work.communicate(timeout=30)
    assert (at_work.returncode, said.strip()) == (130, "")


def test_help_loads_neither_the_trail_nor_rich() -> None:
    code = (
        "import sys\nfrom everstep.cli.main import cli\ntry:\n    cli.main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(*[name for name in sys.modules if name.split('.')[0] in {'everstep', 'rich', 'apsw', 'asyncio'}])"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].split() == ["everstep", "everstep.cli", "everstep.cli.main"]


def test_a_pipe_does_not_load_rich(seen: Path) -> None:
    code = (
        "import sys\nfrom everstep.cli.main import cli\ntry:\n    cli.main(['show', 'done', '--trail', sys.argv[1]])\n"
        "except SystemExit:\n    pass\nprint('rich' in sys.modules, 'asyncio.run' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(seen)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].split()[0] == "False"


def test_an_error_of_ours_has_no_traceback_and_a_bug_says_how_to_see_one(seen: Path) -> None:
    code = (
        "import sys\nfrom everstep.cli import reading\nfrom everstep.cli.main import cli\n"
        "def broken(*_, **__):\n    raise KeyError('oh')\nreading.runs.callback = broken\ncli.main(['runs'])"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "KeyError: 'oh'. This is a bug in everstep" in done.stderr
    assert "Traceback" not in done.stderr
    command = [sys.executable, "-X", "dev", "-c", code]
    seen_at = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert "Traceback" in seen_at.stderr
