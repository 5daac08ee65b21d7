"""The commands compare and bisect, on a real trail."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import everstep
from tests.integration.cli_support import COMMAND, HOSTILE, data, on_a_terminal, process, run
from tests.integration.support import environment

RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")
COLOURS = re.compile(r"\x1b\[[0-9;]*m|\r(?=\n)")


@pytest.fixture
def trail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs to compare: `a` and `same` are, `b` has a step more and one changed; `long` and `longer` are long."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "trail.db"
    monkeypatch.setenv("EVERSTEP_TRAIL", str(path))
    with everstep.open(path) as opened:
        for run_id, steps in {
            "a": ["plan", "read", "write"],
            "same": ["plan", "read", "write"],
            "b": ["plan", "look", "read", "write!"],
            "long": [f"turn{at}" for at in range(200)],
            "longer": [f"turn{at}" if at != 150 else "other!" for at in range(200)],
        }.items():
            with opened.record(run_id, workflow="w") as made:
                for number, name in enumerate(steps):
                    usage = {"input_tokens": 5, "output_tokens": 1}
                    made.step(name.strip("!"), output=name, output_to="last", set={"n": number}, usage=usage)
    return path


def lines(*words: object, code: int = 0) -> list[str]:
    result = run(*words)
    assert result.exit_code == code, result.output
    return result.stdout.splitlines()


class TestCompare:
    def test_equal_runs_exit_with_0_and_different_ones_with_4(self, trail: Path) -> None:
        same = run("compare", "a", "same")
        assert (same.exit_code, "identical: 3 steps" in same.stderr) == (0, True)
        assert run("compare", "a", "b").exit_code == 4
        assert run("compare", "a", "none").exit_code == 3

    def test_runs_are_not_identical_if_runs_inside_them_differ_and_it_says_which(self, trail: Path) -> None:
        answer = {"now": "yes"}
        ask = everstep.step(name="ask")(lambda x: answer["now"] if x == 2 else "always")

        @everstep.workflow
        def look(x: int) -> None:
            ask(x)

        @everstep.workflow
        def parent() -> None:
            look(1)
            look(2)

        with everstep.open(trail) as opened:
            runner = everstep.Runner(opened)
            for now, run_id, last in (("yes", "one", 3), ("yes", "two", 3), ("no", "other", 4)):
                answer["now"] = now
                runner.run(parent, id=run_id)
                runner.map(look, {"x": [1, 2, last]}, map_over="x", id=f"map {run_id}", progress=False)
            assert opened.compare("one", "two").identical
            assert opened.compare("map one", "map two").identical
            assert opened.compare("one/look#1", "two/look#1").summary().endswith(": identical, 1 step")
            assert opened.compare("one", "other").children == (("one/look#1", "other/look#1"),)
            inside = opened.compare("map one", "map other").children
            assert sorted((two.a is None, two.b is None) for two in inside) == [
                (False,) * 2,
                (False, True),
                (True, False),
            ]
            assert not opened.compare("map one@0", "map other@0").children, "they came later"
            opened.drop("other/look#1")
            assert "'other/look#1' was dropped" in opened.compare("one", "other").notes[0]
        found = run("compare", "map one", "map other")
        assert (found.exit_code, found.stdout.count("child run")) == (4, 3)
        [hint] = [line for line in found.stderr.splitlines() if line.startswith("next: everstep compare ")]
        assert run(*shlex.split(hint)[2:]).exit_code == 4

    def test_runs_that_are_said_to_be_inside_themselves_are_compared_and_each_two_once(self) -> None:
        depth = 20
        with everstep.open(":memory:") as opened:
            for name in ("x", "y"):
                for level in range(depth):
                    below = f"{name}{(level + 1) % depth}"
                    with opened.record(f"{name}{level}") as recorder:
                        recorder.step("ask", child_run_id=below)
                        recorder.step("ask again", child_run_id=below)
            assert opened.compare("x0", "y0").identical
            with opened.record("z") as recorder:
                recorder.step("ask", child_run_id="y1", output="other")
                recorder.step("ask again", child_run_id="x1")
            with opened.record("w") as recorder:
                recorder.step("ask", child_run_id="x0")
                recorder.step("ask again", child_run_id="z")
            assert opened.compare("x0", "w").children == (("x1", "z"),)

    def test_it_shows_figures_the_first_divergence_the_steps_and_the_state(self, trail: Path) -> None:
        found = [" ".join(line.split()) for line in lines("compare", "a", "b", code=4)]
        assert "tokens 18 24" in found
        assert "first look (-/2) inserted" in found
        assert "+ 2 look 'look'" in found
        assert "~ 3 4 write output: 'write' -> 'write!'" in found
        assert "state.n: 2 -> 3" in found

    def test_it_says_what_to_type_next(self, trail: Path) -> None:
        talk = run("compare", "a@1", "longer@1").stderr
        assert "next: everstep show a@1" in talk
        assert "next: everstep show b@2" in run("compare", "a", "b").stderr

    def test_of_long_runs_only_what_differs_is_shown_with_a_little_around_it(self, trail: Path) -> None:
        found = [" ".join(line.split()) for line in lines("compare", "long", "longer", code=4)]
        steps = found[found.index("a b step") + 1 :]
        assert steps[:6] == [
            "... 150 are the same",
            "150 150 turn149 'turn149'",
            "- 151 turn150 'turn150'",
            "+ 151 other 'other!'",
            "152 152 turn151 'turn151'",
            "... 49 are the same",
        ]
        assert len(lines("compare", "long", "longer", "--all", code=4)) > 200

    def test_many_differences_are_cut_and_told_to_be(self, trail: Path) -> None:
        found = lines("compare", "a", "long", code=4)
        assert any("differ" in line and "more steps" in line for line in found)
        assert len(found) < 80

    def test_points_are_compared_by_their_addresses(self, trail: Path) -> None:
        found = data("compare", "a@1", "a@3", code=4)["compare"]
        assert [(pair["verdict"], pair["name"]) for pair in found["steps"]] == [
            ("inserted", "read"),
            ("inserted", "write"),
        ]

    def test_json_has_what_differs_and_with_all_every_step(self, trail: Path) -> None:
        found = data("compare", "a", "b", code=4)["compare"]
        assert found["identical"] is False
        assert found["first"]["name"] == "look"
        assert [pair["verdict"] for pair in found["steps"]] == ["inserted", "changed", "changed"]
        assert found["steps"][2]["differences"] == {
            "output": [{"path": [], "change": "changed", "old": "write", "new": "write!"}],
            "state": [{"path": ["set n"], "change": "changed", "old": 2, "new": 3}],
        }
        assert {change["path"][0] for change in found["changes"]} == {"n", "last"}
        assert len(data("compare", "a", "b", "--all", code=4)["compare"]["steps"]) == 6
        assert data("compare", "a", "same")["compare"]["steps"] == []

    def test_reading_needs_no_right_to_write(self, trail: Path) -> None:
        before = trail.read_bytes()
        run("compare", "a", "b")
        assert trail.read_bytes() == before

    @pytest.mark.parametrize("person", [False, True])
    def test_nothing_that_was_recorded_acts_on_a_terminal(self, tmp_path: Path, *, person: bool) -> None:
        path = tmp_path / "hostile.db"
        long = f"{HOSTILE} and many words more that are the same on both sides {HOSTILE}"
        with everstep.open(path) as opened:
            for number in range(2):
                with opened.record(f"{HOSTILE}{number}", workflow=HOSTILE, inputs={HOSTILE: number}) as made:
                    made.step(HOSTILE, output=f"{long} {number}", output_to=HOSTILE, usage={HOSTILE: number})
                    made.step(f"{HOSTILE}{number}", set={HOSTILE: {HOSTILE: number}}, metadata={HOSTILE: number})
        words = ["compare", f"{HOSTILE}0", f"{HOSTILE}1", "--all", "--trail", str(path)]
        done = on_a_terminal(*words, cwd=tmp_path) if person else process(*words)
        assert done.code == 4
        printed = COLOURS.sub("", done.stdout + done.stderr)
        assert "evil" in printed
        assert RAW.findall(printed) == []


def check(tmp_path: Path, code: str) -> str:
    """A command that tests a state: `values` is what it got, `code` ends with its verdict."""
    path = tmp_path / "check.py"
    path.write_text(f"import json, os, sys, time\nvalues = json.load(sys.stdin)\n{code}\n", "utf-8")
    return shlex.join([sys.executable, str(path)])


class TestBisect:
    def test_it_names_the_step_shows_what_it_changed_and_what_to_type_next(self, trail: Path, tmp_path: Path) -> None:
        result = run("bisect", "long", "--test", check(tmp_path, "sys.exit(values.get('n', 0) >= 100)"))
        assert result.exit_code == 0, result.output
        found = [" ".join(line.split()) for line in result.stdout.splitlines()]
        assert found[:2] == ["step long@101", "name turn100"]
        assert "state.n: 99 -> 100" in found
        assert "step 201: bad" in result.stderr
        assert "next: everstep fork long --at 100" in result.stderr

    def test_the_test_is_told_the_run_and_the_step(self, trail: Path, tmp_path: Path) -> None:
        code = "print(os.environ['EVERSTEP_RUN'], os.environ['EVERSTEP_SEQ'], values)\nsys.exit(values.get('n') == 2)"
        result = run("bisect", "a@3", "--test", check(tmp_path, code))
        assert "a 3 {'last': 'write', 'n': 2}" in result.stderr
        assert "write" not in result.stdout.splitlines()[-1:]

    @pytest.mark.parametrize(
        ("code", "exit_code", "said"),
        [
            ("sys.exit(1)", 3, "bad at the start"),
            ("sys.exit(0)", 3, "never bad"),
            ("sys.exit(125)", 3, "cannot tell"),
            ("sys.exit(126)", 1, "it exited with 126"),
            ("os.kill(os.getpid(), 9)", 1, "it was ended by signal 9"),
            ("time.sleep(60)", 1, "it took longer than 1.5 s"),
        ],
    )
    def test_what_does_not_name_a_step_is_said(
        self, trail: Path, tmp_path: Path, code: str, exit_code: int, said: str
    ) -> None:
        result = run("bisect", "a", "--test", check(tmp_path, code), "--timeout", "1.5")
        assert result.exit_code == exit_code
        assert said in result.stderr

    def test_a_command_that_is_none_is_said_to_be_so(self, trail: Path) -> None:
        assert "cannot be started" in run("bisect", "a", "--test", "no-such-program").stderr
        assert run("bisect", "a", "--test", "python 'x").exit_code == 2
        assert run("bisect", "a", "--test", "  ").exit_code == 2
        assert run("bisect", "a").exit_code == 2

    def test_a_test_that_does_not_read_what_it_is_given_is_no_error(self, trail: Path, tmp_path: Path) -> None:
        with everstep.open(trail) as opened, opened.record("large") as made:
            made.step("load", set={"text": "x" * 1_000_000})
        path = tmp_path / "deaf.py"
        path.write_text("import os, sys\nsys.exit(int(os.environ['EVERSTEP_SEQ']) > 0)", "utf-8")
        result = run("bisect", "large", "--test", shlex.join([sys.executable, str(path)]), "--json")
        assert result.exit_code == 0, result.output

    def test_json_has_the_step_and_the_changes(self, trail: Path, tmp_path: Path) -> None:
        found: dict[str, Any] = data("bisect", "a", "--test", check(tmp_path, "sys.exit(values.get('n', 0) >= 1)"))
        assert (found["bisect"]["seq"], found["bisect"]["name"], found["bisect"]["good"]) == (2, "read", 1)
        assert found["bisect"]["changes"][0] == {"path": ["last"], "change": "changed", "old": "plan", "new": "read"}

    def test_what_a_test_prints_does_not_act_on_the_terminal(self, trail: Path, tmp_path: Path) -> None:
        code = f"print({HOSTILE!r})\nsys.exit(values.get('n', 0) >= 1)"
        done = process("bisect", "a", "--test", check(tmp_path, code), EVERSTEP_TRAIL=str(trail))
        assert "evil" in done.stderr
        assert RAW.findall(done.stdout + done.stderr) == []

    def test_ctrl_c_ends_the_test_too(self, trail: Path, tmp_path: Path) -> None:
        code = "open('pid', 'w').write(str(os.getpid()))\nos.rename('pid', 'ready')\ntime.sleep(600)"
        words = [*COMMAND, "bisect", "a", "--test", check(tmp_path, code), "--timeout", "600"]
        with subprocess.Popen(words, cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True) as bisecting:
            ready = tmp_path / "ready"
            while not ready.exists():
                assert bisecting.poll() is None
            bisecting.send_signal(signal.SIGINT)
            assert bisecting.wait(60) == 130
        pid = int(ready.read_text())
        assert not Path(f"/proc/{pid}").exists()
