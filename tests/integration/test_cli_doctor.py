"""The doctor, and the shells that complete our commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from time import time

import pytest

import everstep
from everstep.store import schema
from everstep.store.sqlite import SqliteStore
from everstep.testing.rows import begin
from tests.integration.cli_support import data, overwrite, run, trail_to_see
from tests.integration.support import environment


@pytest.fixture(autouse=True)
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "key" / "redaction.key"
    monkeypatch.setenv("EVERSTEP_KEY_FILE", str(path))
    return path


@pytest.fixture
def seen(tmp_path: Path) -> Path:
    return trail_to_see(tmp_path / "trail.db")


class TestDoctor:
    def test_it_tells_what_is_installed_and_how_the_trail_stands(
        self, seen: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(schema, "file_system", lambda folder: "ext4")  # tests may run on one in memory
        found = data("doctor", "--trail", seen)["doctor"]
        assert found["versions"].keys() == {
            "python", "sqlite", "everstep", "apsw", "ormsgpack", "zstandard", "click", "rich", "psycopg",
            "time-machine",
        }  # fmt: skip
        trail = found["trail"]
        assert trail["path"] == str(seen)
        assert (trail["schema"], trail["journal_mode"], trail["network"]) == (1, "wal", False)
        assert trail["sizes"] == {"file": seen.stat().st_size, "wal": 0, "search": 0}
        assert trail["bytes"] == seen.stat().st_size
        assert (trail["store"], trail["dead_bytes"]) == ("sqlite", 0)
        assert trail["runs"] == {"active": 1, "failed": 1, "completed": 2}
        assert (trail["entries"], trail["growth"]["entries"]) == (18, 18)
        assert [(run["run"], run["entries"]) for run in trail["largest"]][:1] == [("done", 8)]
        assert (trail["oldest"]["id"], trail["interrupted"]) == ("done", ["left"])
        assert found["warnings"] == []

    def test_people_read_the_same(self, seen: Path) -> None:
        result = run("doctor", "--trail", seen)
        assert "runs          1 interrupted, 2 completed, 1 failed" in result.stdout
        assert "interrupted   left" in result.stdout
        assert "verified" not in result.stdout
        assert result.stderr == f"next: everstep show left --trail {seen}\n"
        assert "verified      intact: 4 runs, 25 entries" in run("doctor", "--verify", "--trail", seen).stdout

    def test_growth_and_the_largest_runs_are_shown(self, tmp_path: Path) -> None:
        path, week = tmp_path / "trail.db", int((time() - 7 * 86_400) * 1e6)
        with closing(SqliteStore(str(path))) as store:
            begin(store, "small", rows=30, created=week)
            begin(store, "large", rows=670, created=week)
        result = run("doctor", "--trail", path)
        assert re.search(
            r"^growth +\d+\.\d kB a day over the last 7 days, 100 entries a day$", result.stdout, re.MULTILINE
        )
        assert re.search(
            r"^largest runs +entries +size\nlarge +670 +\d+\.\d kB\nsmall +30 +", result.stdout, re.MULTILINE
        )
        growth = data("doctor", "--trail", path)["doctor"]["trail"]["growth"]
        assert (growth["entries"], growth["entries_a_day"]) == (700, 100)

    def test_a_server_is_told_of_as_a_file_is(self, postgres: str) -> None:
        with everstep.open(postgres) as trail:
            trail.record("done").finish()
            trail.record("left").release()
        found = data("doctor", "--trail", postgres)["doctor"]
        told = found["trail"]
        assert (told["store"], told["runs"], told["entries"]) == ("postgresql", {"active": 1, "completed": 1}, 3)
        assert (told["oldest"]["id"], told["interrupted"]) == ("done", ["left"])
        assert any(said.startswith("fsync is off") for said in found["warnings"]) == (told["fsync"] == "off")
        result = run("doctor", "--trail", postgres)
        assert re.search(r"^data_checksums +\w+$", result.stdout, re.MULTILINE)
        assert ("warning: fsync is off" in result.stderr) == (told["fsync"] == "off")

    def test_runs_that_are_held_by_others_are_not_interrupted(self, tmp_path: Path) -> None:
        with everstep.open(tmp_path / "trail.db") as trail:
            held = trail.record("held")
            trail.record("left").release()
            assert data("doctor", "--trail", tmp_path / "trail.db")["doctor"]["trail"]["interrupted"] == ["left"]
            held.release()

    def test_the_key_is_looked_at_and_not_made(self, seen: Path, key: Path) -> None:
        assert data("doctor", "--trail", seen)["doctor"]["key"]["state"] == "not made yet: the first secret makes it"
        assert not key.exists()
        with everstep.open(seen) as trail:
            trail.record("secret", inputs={"password": "hunter2"}).finish()
        assert data("doctor", "--trail", seen)["doctor"]["key"] == {
            "path": str(key),
            "state": "in order",
            "usable": True,
        }
        key.chmod(0o644)
        result = run("doctor", "--trail", seen)
        assert "warning: the redaction key" in result.stderr
        assert "others may use it" in result.stderr

    def test_a_trail_that_cannot_be_opened_is_a_finding(self, tmp_path: Path) -> None:
        (tmp_path / "other").write_text("words" * 1000)
        result = run("doctor", "--trail", tmp_path / "other")
        assert result.exit_code == 1
        assert "is not a trail" in result.stderr
        assert "sqlite" in result.stdout, "what is installed is told all the same"

    @pytest.mark.parametrize("place", ["run", "step", "step_failed"])
    def test_a_trail_whose_pages_are_damaged_is_a_finding(self, seen: Path, place: str) -> None:
        overwrite(seen, place)
        result = run("doctor", "--trail", seen)
        assert result.exit_code == 6
        assert "warning: damage: SQLite cannot read" in result.stderr
        assert "sqlite" in result.stdout, "what is installed is told all the same"
        assert data("doctor", "--trail", seen, code=6)["doctor"]["trail"]["path"] == str(seen)

    def test_a_trail_on_a_network_is_warned_of(self, seen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(schema, "file_system", lambda folder: "nfs4")
        assert "network file system (nfs4)" in run("doctor", "--trail", seen).stderr

    def test_commits_that_a_damaged_log_hides_are_told(self, tmp_path: Path) -> None:
        """Promise 9: damage is seen."""
        path = tmp_path / "trail.db"
        with everstep.open(path) as trail:
            recorder = trail.record("r")
            for number in range(20):
                recorder.step("s", output="x" * 3_000, set={"n": number})
            copy = tmp_path / "copy.db"
            copy.write_bytes(path.read_bytes())
            log = bytearray(Path(f"{path}-wal").read_bytes())
        log[len(log) // 2] ^= 0xFF
        Path(f"{copy}-wal").write_bytes(log)
        result = run("runs", "--trail", copy)
        assert "warning: the log" in result.stderr
        assert "commits behind it can no longer be read" in result.stderr
        assert "Warning:" not in result.stderr, "in our words, not in those of Python"
        assert run("verify", "--trail", copy).exit_code == 6


class TestCompletion:
    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_every_shell_gets_a_script(self, shell: str) -> None:
        result = run("completion", shell)
        assert result.exit_code == 0
        assert "_EVERSTEP_COMPLETE" in result.stdout
        assert data("completion", shell)["completion"] == {"shell": shell, "script": result.stdout.removesuffix("\n")}

    def test_another_shell_is_a_usage_error(self) -> None:
        assert run("completion", "cmd").exit_code == 2

    @pytest.mark.parametrize(
        ("line", "offered"),
        [
            ("everstep ", {"runs", "show", "resume"}),
            ("everstep sh", {"show"}),
            ("everstep show --a", {"--all"}),
            ("everstep show ", {"done", "other", "broken", "left"}),
            ("everstep resume bro", {"broken"}),
        ],
    )
    def test_commands_options_and_ids_are_offered(self, seen: Path, line: str, offered: set[str]) -> None:
        assert offered <= self.offered(line, seen)

    @pytest.mark.parametrize(
        "line", ["everstep --trail {} show ", "everstep show --trail {} ", "everstep diff --trail {} r "]
    )
    def test_ids_are_those_of_the_trail_that_is_named(self, seen: Path, tmp_path: Path, line: str) -> None:
        with everstep.open(tmp_path / "other.db") as trail:
            trail.record("elsewhere").finish()
        assert self.offered(line.format(tmp_path / "other.db"), seen) == {"elsewhere"}

    def test_without_a_trail_nothing_is_offered_and_nothing_is_made(self, tmp_path: Path) -> None:
        assert self.offered("everstep show ", tmp_path / "none.db") == set()
        assert not (tmp_path / "none.db").exists()

    @staticmethod
    def offered(line: str, trail: Path) -> set[str]:
        words = line.split(" ")
        asked = {"_EVERSTEP_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
        done = subprocess.run(
            [sys.executable, "-c", "from everstep.cli.main import main; main()"],
            env={**os.environ, **environment(), **asked, "EVERSTEP_TRAIL": str(trail)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.stderr == ""
        return {found.partition(",")[2] for found in done.stdout.splitlines() if found}
