"""`everstep why`: the page for people, the object for programs, and nothing that a terminal would act on."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep.model import Kind
from tests.integration.cli_support import HOSTILE, as_a_person, data, on_a_terminal, run


def failed_run(path: Path, word: str = "size") -> Path:
    """A closed trail with a run that failed because its fifth page has no size."""
    with everstep.open(path) as trail, pytest.raises(LookupError), trail.record("r", workflow="reader") as recorded:
        for number in range(8):
            page = {"page": f"p-{number}", word: 300 + number}
            if number == 4:
                del page[word]
            recorded.step(f"read{word if word != 'size' else ''}", inputs={"number": number}, output=page)
        raise KeyError(word) if word == "size" else LookupError(f"there is no {word}")
    return path


def test_it_prints_the_failure_the_suspects_and_commands_that_work_here(tmp_path: Path) -> None:
    path = failed_run(tmp_path / "t.db")
    shown = run("why", "r", "--trail", path)
    assert shown.exit_code == 0
    assert shown.stdout.startswith("r failed between two steps, with KeyError: 'size'\n")
    assert "     5  read                      high: it gave no size, which the 7 others have" in shown.stdout
    assert "\n" + " " * 34 + "its result was available to the code that failed\n" in shown.stdout
    assert "last good: r@4 (step read)" in shown.stdout
    commands = [line.removeprefix("next: everstep ") for line in shown.stderr.splitlines()]
    assert commands[0] == f"show r@5 --trail {path}"
    for command in commands:
        assert run(*command.split()).exit_code in {0, 4}, command


@pytest.mark.parametrize("output", ["offer", None])
def test_a_difference_is_offered_where_there_is_one_and_another_outcome_where_it_can_be_given(
    tmp_path: Path, output: str | None
) -> None:
    @everstep.step(output=output)
    def offer(number: int) -> dict[str, Any]:
        return {"name": f"n-{number}"} | ({} if number == 4 else {"rate": 80 + number})

    @everstep.workflow
    def travel() -> object:
        return min(offer(number)["rate"] for number in range(7))

    with everstep.open(tmp_path / "t.db") as trail:
        with pytest.raises(KeyError):
            everstep.Runner(trail).run(travel, id="r")
        found = trail.why("r")
    assert ("everstep diff r@4 r@5" in found.next) == (output is not None)
    assert "everstep fork r --outcome 5=VALUE" in found.next
    assert not [line for line in found.next if "--at" in line]
    path = tmp_path / "t.db"
    forked = run("fork", "r", "--outcome", '5={"name": "n-4", "rate": 84}', "--id", "f", "--trail", path)
    assert forked.exit_code == 0, forked.stderr


def test_what_set_the_same_value_again_has_no_difference_to_show(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "t.db") as trail, pytest.raises(LookupError), trail.record("r") as recorded:
        for number in range(8):
            recorded.step("read", output={} if number == 4 else {"page": f"p-{number}"}, set={"kept": 1})
        raise KeyError("page")
    with everstep.open(tmp_path / "t.db") as trail:
        found = trail.why("r").next
    assert "everstep state r@4" in found
    assert not [line for line in found if "diff" in line]


def test_a_run_with_an_unknown_outcome_is_told_to_be_answered_and_not_resumed(tmp_path: Path) -> None:
    """Promise 3: resumed, it would only fail with the same again."""
    path = tmp_path / "t.db"
    with everstep.open(path) as trail:
        charged = trail.record("r", workflow="shop", metadata={"code": "as a runner notes it"})
        charged.step("charge", kind=Kind.INTENT, external=True)
        charged.finish(error=everstep.errors.UnknownOutcomeError("r", "charge", 1))
    for command in ("show", "why"):
        lines = run(command, "r", "--trail", path).stderr.splitlines()
        nexts = [line for line in lines if line.split()[2] not in {"show", "why"}]  # what only looks
        assert nexts == [f"next: everstep answer r {how} --trail {path}" for how in ("VALUE", "--retry")]


def test_a_run_that_was_cut_off_is_interrupted_as_everywhere(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with everstep.open(path) as trail:
        trail.record("cut", workflow="shop").release()
        held = trail.record("held", workflow="shop")
        assert run("why", "cut", "--trail", path).stdout.startswith("cut was interrupted: no process is working on it")
        assert run("why", "held", "--trail", path).stdout.startswith("held is at work")
        assert data("why", "cut", "--trail", path)["why"]["interrupted"] is True
        held.finish()


def test_with_json_it_is_one_object(tmp_path: Path) -> None:
    path = failed_run(tmp_path / "t.db")
    found = data("why", "r", "--trail", path)["why"]
    assert found["failure"]["error"] == "KeyError: 'size'"
    assert [(each["seq"], each["confidence"]) for each in found["suspects"]][:1] == [(5, "high")]
    assert found["next"][0] == f"everstep show r@5 --trail {path}"
    told = run("why", "r", "--trail", path).stderr.splitlines()
    assert [f"next: {line}" for line in found["next"]] == told  # which work as they are


def test_a_person_sees_the_same_in_colour_and_within_the_window(tmp_path: Path) -> None:
    path = failed_run(tmp_path / "t.db")
    assert "high: it gave no size" in as_a_person("why", "r", "--trail", path)
    printed = on_a_terminal("why", "r", "--trail", path, NO_COLOR="1").stdout
    assert max(len(line.rstrip()) for line in printed.splitlines() if not line.startswith("next:")) <= 100


@pytest.mark.parametrize("columns", [30, 80, 200])
def test_in_a_narrow_window_sentences_go_on_below_and_nothing_is_cut(tmp_path: Path, columns: int) -> None:
    path = failed_run(tmp_path / "t.db")
    printed = on_a_terminal("why", "r", "--trail", path, columns=columns, NO_COLOR="1").stdout
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", printed)
    page = [line.rstrip() for line in plain.splitlines() if not line.startswith("next:")]
    assert max(map(len, page)) <= min(columns, 100)
    assert not [line for line in page if line.endswith("\u2026")]
    words = " ".join(" ".join(page).split())
    for sentence in ("it gave no size, which the 7 others have: {'page': 'p-4'}", "last good: r@4 (step read)"):
        assert sentence in words


def test_a_run_that_failed_before_its_first_step_is_told_so(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "t.db") as trail:
        trail.record("r").finish(error=KeyError("price"))
        assert trail.why("r").summary().startswith("r failed before its first step, with KeyError: 'price'")


def test_signs_that_take_two_columns_are_counted_so(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "t.db") as trail:
        trail.record("r").finish(error=ValueError("\u6771\u4eac " * 30))
        lines = list(trail.why("r").lines(width=60))
    assert max(sum(2 if sign > "\u3000" else 1 for sign in line) for line in lines) <= 60


def test_a_run_that_is_not_there_is_exit_code_3(tmp_path: Path) -> None:
    assert run("why", "nobody", "--trail", failed_run(tmp_path / "t.db")).exit_code == 3


def test_nothing_hostile_gets_out_raw(tmp_path: Path) -> None:
    path = failed_run(tmp_path / "t.db", HOSTILE)
    shown = run("why", "r", "--trail", path)
    assert shown.exit_code == 0
    with everstep.open(path, read_only=True) as trail:
        found = trail.why("r")
    for text in (shown.output, str(found), found.summary(), run("why", "r", "--trail", path, "--json").stdout):
        assert "\u202e" not in text
        assert all(unicodedata.category(sign) != "Cc" for sign in text.replace("\n", ""))
