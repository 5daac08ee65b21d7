"""The command line as a process: its exit codes, its streams, and whoever stands at the other end of them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import everstep
from everstep.cli.group import _COMMANDS
from tests.integration.cli_support import COMMAND, as_a_person, at_work, data, on_a_terminal, process, run, trail_to_see
from tests.integration.support import NOBODY, environment, output, small_trail

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COMMANDS = [
    ["runs"], ["show", "done"], ["show", "done@3"], ["steps", "done"], ["state", "done"], ["diff", "done", "other"],
    ["checkpoints"], ["search", "page"], ["verify"], ["doctor"], ["completion", "zsh"],
]  # fmt: skip

# Loads all that is needed while it may still be read, then goes on as a user without rights.
AS_NOBODY = f"""
import json, os, sys
from everstep.cli.group import cli
def tried(words):
    try:
        cli.main(words)
    except SystemExit as left:
        return left.code
trail, warm, *commands = json.loads(sys.argv[1])
for words in commands:
    tried([*words, "--trail", warm])
os.chdir(os.path.dirname(trail))
if os.getuid() == 0:
    os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
codes = [tried([*words, "--trail", trail]) for words in commands]
print("\\n" + json.dumps(codes))
"""


@pytest.fixture
def seen(tmp_path: Path) -> Path:
    return trail_to_see(tmp_path / "trail.db")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users may enter and read."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


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
        result = run(*words, env={"EVERSTEP_TRAIL": str(seen)})
        assert result.exit_code == code, result.output

    def test_a_process_ends_with_it(self, seen: Path) -> None:
        for words, code in ((["runs"], 0), (["show", "nobody"], 3), (["diff", "done", "other"], 4)):
            done = process(*words, EVERSTEP_TRAIL=str(seen))
            assert done.code == code, done
            assert "Traceback" not in done.stderr

    def test_an_owned_run_is_5(self, seen: Path) -> None:
        with everstep.open(seen) as trail:
            trail.record("left")
            result = run("answer", "left", "yes", "--pause", "2", "--trail", seen)
        assert result.exit_code == 5
        assert "is owned by" in result.stderr

    def test_a_damaged_entry_is_6(self, seen: Path) -> None:
        """Promise 9: damage is seen, and where."""
        whole = seen.read_bytes()
        at = whole.index(b"three parts")
        seen.write_bytes(whole[:at] + b"THREE" + whole[at + 5 :])
        for words in (["verify"], ["show", "done"], ["state", "done"], ["doctor", "--verify"]):
            result = run(*words, "--trail", seen)
            assert result.exit_code == 6, (words, result.output)
        found = data("verify", "--trail", seen, code=6)["verify"]
        assert found["ok"] is False
        assert {(one["run"], one["seq"], one["intact"]) for one in found["damage"]} >= {("done", 3, 2)}
        assert run("runs", "--trail", seen).exit_code == 0
        assert process("state", "done", "--trail", seen).code == 6

    def test_a_torn_file_is_6_and_another_kind_of_file_is_1(self, seen: Path, tmp_path: Path) -> None:
        whole = seen.read_bytes()
        seen.write_bytes(whole[:4096] + bytes(len(whole) - 4096))
        assert run("runs", "--trail", seen).exit_code == 6
        (tmp_path / "other").write_text("words, words, words" * 100)
        result = run("runs", "--trail", tmp_path / "other")
        assert (result.exit_code, result.stdout) == (1, "")
        assert "is not a trail but a file of another kind" in result.stderr


class TestTheTrail:
    @pytest.fixture(autouse=True)
    def empty_place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("EVERSTEP_TRAIL", raising=False)

    @pytest.mark.parametrize(
        "words",
        [*COMMANDS[:9], ["answer", "r", "x"], ["cancel", "r", "--yes"], ["resume", "r", "--app", "x"], ["doctor"]],
    )
    def test_one_that_is_not_there_is_not_made(self, tmp_path: Path, words: list[str]) -> None:
        """Promise 13: nothing falls back to another place in silence."""
        result = run(*words)
        assert result.exit_code == 1
        assert "there is no trail" in result.stderr
        assert "--trail" in result.stderr
        assert list(tmp_path.iterdir()) == []

    def test_it_is_named_by_option_then_variable_then_place(self, tmp_path: Path) -> None:
        for name in ("option", "variable", ".everstep/trail"):
            path = tmp_path / f"{name}.db"
            path.parent.mkdir(exist_ok=True)
            with everstep.open(path) as trail:
                trail.record(name).finish()
        variable = {"EVERSTEP_TRAIL": "variable.db"}
        assert "option" in run("runs", "--trail", "option.db", env=variable).stdout
        assert "option" in run("runs", "--trail", "sqlite:///option.db", env=variable).stdout
        assert "option" in run("--trail", "option.db", "runs", env=variable).stdout
        assert "variable" in run("runs", env=variable).stdout
        assert ".everstep" in run("runs").stdout

    def test_a_url_of_no_store_and_a_trail_in_memory_are_refused(self, tmp_path: Path) -> None:
        assert "names no store" in run("runs", "--trail", "redis://x/y").stderr
        assert run("runs", "--trail", ":memory:").exit_code == 2
        assert list(tmp_path.iterdir()) == []

    def test_reading_needs_no_right_to_write(self, folder: Path, tmp_path: Path) -> None:
        """Promise 12: neither on the file nor on its folder."""
        path, warm = trail_to_see(folder / "trail.db"), trail_to_see(tmp_path / "warm.db")
        path.chmod(0o444)
        folder.chmod(0o555)
        before = sorted(path.name for path in folder.iterdir())
        printed = output(AS_NOBODY, json.dumps([str(path), str(warm), *COMMANDS]))
        folder.chmod(0o755)
        assert json.loads(printed.splitlines()[-1]) == [4 if words[0] == "diff" else 0 for words in COMMANDS]
        assert sorted(path.name for path in folder.iterdir()) == before


class TestStreams:
    @pytest.mark.parametrize("words", COMMANDS)
    def test_json_is_one_versioned_object_and_nothing_else(self, seen: Path, words: list[str]) -> None:
        result = run(*words, "--json", "--trail", seen)
        found = json.loads(result.stdout)
        assert found["everstep"] == 1
        assert words[0] in found
        assert result.stdout.count("\n") == 1
        assert result.stderr == ""

    @pytest.mark.parametrize("words", [["show", "nobody"], ["runs", "--status", "odd"], ["nothing"]])
    def test_an_error_is_told_in_json_too(self, seen: Path, words: list[str]) -> None:
        result = run(*words, "--json", "--trail", seen)
        found = json.loads(result.stdout)
        assert found["everstep"] == 1
        assert found["error"].keys() == {"type", "message"}
        assert found["error"]["message"] in result.stderr

    def test_a_trail_that_is_not_there_is_told_in_json_too(self, tmp_path: Path) -> None:
        found = json.loads(run("runs", "--json", "--trail", tmp_path / "none.db").stdout)
        assert found["error"]["type"] == "UnreadableError"

    @pytest.mark.parametrize("words", COMMANDS)
    def test_a_pipe_gets_no_colour_and_no_drawing(self, seen: Path, words: list[str]) -> None:
        result = run(*words, "--trail", seen, env={"FORCE_COLOR": "1", "TERM": "xterm-256color"})
        assert "\x1b" not in result.output
        assert result.stdout.isascii(), "no mark, box or ellipsis of ours"

    def test_a_pipe_gets_lines_of_any_length(self, tmp_path: Path) -> None:
        with everstep.open(tmp_path / "trail.db") as trail, trail.record("r" * 150, workflow="w" * 150) as recorder:
            recorder.step("n" * 150, output="o" * 150)
        shown = run("show", "r" * 150, "--trail", trail.store.where, env={"COLUMNS": "40"}).stdout
        assert "n" * 150 in shown
        assert f"'{'o' * 150}'" in shown
        assert "w" * 150 in run("runs", "--trail", trail.store.where, env={"COLUMNS": "40"}).stdout

    def test_a_reader_that_has_seen_enough_is_no_error(self, tmp_path: Path) -> None:
        with everstep.open(tmp_path / "trail.db") as trail, trail.record("r") as recorder:
            recorder.step("many", output=list(range(50_000)), output_to="numbers")
        pipe = subprocess.PIPE
        for words in (["state", "r"], ["state", "r", "--json"], ["show", "r@1"]):
            command = [*COMMAND, *words, "--trail", trail.store.where]
            with subprocess.Popen(command, env=environment(), stdout=pipe, stderr=pipe) as telling:
                assert telling.stdout is not None
                assert telling.stderr is not None
                telling.stdout.read(10)
                telling.stdout.close()
                assert telling.stderr.read() == b"", words
            assert telling.returncode == 0

    def test_a_stream_that_knows_only_ascii_is_no_error(self, tmp_path: Path) -> None:
        with everstep.open(tmp_path / "trail.db") as trail, trail.record("größe") as recorder:
            recorder.step("naïve", output="日本語", output_to="x")
        done = process("show", "größe", "--trail", trail.store.where, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
        assert done.code == 0, done.stderr
        assert "gr\\xf6\\xdfe" in done.stdout

    def test_without_streams_a_command_still_runs(self, seen: Path) -> None:
        command = f"exec {sys.executable} -m everstep runs --trail {seen} >&- 2>&-"
        assert subprocess.run(["sh", "-c", command], env=environment(), check=False).returncode == 0


class TestATerminal:
    def test_a_person_gets_colour_and_marks_within_the_window(self, seen: Path) -> None:
        done = on_a_terminal("show", "done", cwd=seen.parent, columns=60, EVERSTEP_TRAIL="trail.db")
        assert done.code == 0
        assert ANSI.search(done.stdout)
        assert "✓" in done.stdout
        assert max(len(ANSI.sub("", line).rstrip()) for line in done.stdout.splitlines()) <= 60

    def test_a_person_who_wants_no_colour_gets_none(self, seen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.delenv("NO_COLOR", raising=False)
        assert "\x1b[32m" in as_a_person("show", "done", "--trail", seen)
        monkeypatch.setenv("NO_COLOR", "1")
        assert "\x1b[32m" not in as_a_person("show", "done", "--trail", seen)

    def test_a_terminal_without_unicode_gets_words(self, seen: Path) -> None:
        done = on_a_terminal("show", "done", "--trail", seen, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
        assert done.code == 0
        assert "completed" in done.stdout

    def test_long_work_shows_a_sign_of_life(self, seen: Path) -> None:
        assert "checking the trail" in on_a_terminal("verify", "--trail", seen).stdout
        assert "checking" not in run("verify", "--trail", seen).output

    def test_a_state_is_folded_for_a_person_and_whole_on_request(self, tmp_path: Path) -> None:
        with everstep.open(tmp_path / "trail.db") as trail, trail.record("r") as recorder:
            recorder.step("s", output=[{"n": n} for n in range(500)], output_to="rows")
        where = ["--trail", trail.store.where]
        assert "... 494 more" in as_a_person("state", "r", *where)
        assert "rows[499].n = 499" in as_a_person("state", "r", "--all", *where)

    @pytest.mark.parametrize("words", COMMANDS)
    def test_every_command_has_something_to_show(self, seen: Path, words: list[str]) -> None:
        assert "bug in everstep" not in as_a_person(*words, "--trail", seen)
        assert len(as_a_person(*words, "--trail", seen)) > 10


def test_ctrl_c_is_quiet_and_130(tmp_path: Path) -> None:
    path = small_trail(tmp_path / "trail.db")
    (tmp_path / "slow.py").write_text("import time\nprint('loaded', flush=True)\ntime.sleep(60)\n")
    with everstep.open(path) as trail:
        trail.record("open", workflow="w").release()
    with at_work([*COMMAND, "resume", "open", "--app", "slow", "--trail", str(path)], tmp_path, "loaded") as resuming:
        resuming.send_signal(signal.SIGINT)
        _, said = resuming.communicate(timeout=30)
    assert (resuming.returncode, said.strip()) == (130, "")


def test_every_command_has_its_line_in_the_help(seen: Path) -> None:
    listed = run("--help").stdout
    for name, (_, what) in _COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(what)}$", listed, re.MULTILINE)
        assert run(name, "--help").exit_code == 0
        options = {"--json"} if name == "copy" else {"--trail", "--json"}  # which has two trails, and names both
        assert options <= set(run(name, "--help").stdout.split())


def last_line(code: str, *args: object) -> list[str]:
    """The words of the last line that a program prints."""
    command = [sys.executable, "-c", code, *map(str, args)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1].split()


def test_help_loads_neither_the_trail_nor_rich() -> None:
    code = """
import sys
from everstep.cli.group import cli
try:
    cli.main(["--help"])
except SystemExit:
    print(*[name for name in sys.modules if name.split(".")[0] in {"everstep", "rich", "apsw", "asyncio"}])
"""
    assert last_line(code) == ["everstep", "everstep.cli", "everstep.cli.group"]


def test_a_pipe_does_not_load_rich(seen: Path) -> None:
    code = """
import sys
from everstep.cli.group import cli
try:
    cli.main(["show", "done", "--trail", sys.argv[1]])
except SystemExit:
    print("rich" in sys.modules)
"""
    assert last_line(code, seen) == ["False"]


def test_a_bug_has_no_traceback_and_says_how_to_see_one() -> None:
    code = """
from everstep.cli import reading
from everstep.cli.group import cli
def broken(*_, **__):
    raise KeyError("oh")
reading.runs.callback = broken
cli.main(["runs"])
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "KeyError: 'oh'. This is a bug in everstep" in done.stderr
    assert "Traceback" not in done.stderr
    command.insert(1, "-Xdev")
    assert "Traceback" in subprocess.run(command, env=environment(), capture_output=True, text=True, check=False).stderr
