"""The page of the command line is complete: every command, exit code, mark and key of JSON has its place there.

That the help and the examples on it are what is printed is seen by running the page, as all pages are.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import everstep
from everstep.cli import exits, plain
from everstep.cli.branches import _MARKS
from everstep.cli.group import _COMMANDS
from everstep.cli.showing import _node
from everstep.store.memory import MemoryStore
from everstep.trail.outline import outline

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "cli.md").read_text("utf-8")


def section(title: str) -> str:
    _, _, rest = PAGE.partition(f"# {title}\n")
    assert rest, f"there is no section {title!r}"
    return re.split(r"^#+ ", rest, maxsplit=1, flags=re.MULTILINE)[0]


@pytest.mark.parametrize("command", _COMMANDS)
def test_every_command_has_a_section_with_its_help_and_a_line_on_its_json(command: str) -> None:
    assert f"\n$ everstep {command} --help\n" in section(command)
    assert re.search(rf"^\| [^|]*`{command}`", section("JSON"), re.MULTILINE)


def test_every_exit_code_is_there() -> None:
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", section("Exit codes"), re.MULTILINE)}
    assert listed == {value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}


def test_every_mark_is_there() -> None:
    listed = re.findall(r"^\| `(.)` \| `(\w+)` \|", section("show"), re.MULTILINE)
    assert {word: mark for mark, word in listed} == _MARKS


def test_every_key_of_a_run_and_a_step_is_there() -> None:
    trail = everstep.Trail(MemoryStore())
    with trail.record("r") as run:
        run.step("s")
    row = trail.step("r", 1, view=True)
    [node] = outline([row]).steps
    of_runs = plain.run(trail.run("r"), interrupted=False).keys()
    assert of_runs == set(re.findall(r"`(\w+)`", section("A run")))
    entry, shown = section("A step").split("In `show`")
    assert plain.step(row).keys() <= set(re.findall(r"`(\w+)`", entry))
    assert _node(0, node).keys() == set(re.findall(r"`(\w+)`", shown))
