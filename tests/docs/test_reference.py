"""The reference is complete: every name that can be called, read or raised has its line; promises name real tests."""

from __future__ import annotations

import dataclasses
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

import everstep
from everstep import errors
from everstep.capturing import http
from everstep.codec.record import StepRecord
from everstep.models.scripted import Asked
from everstep.run.context import Current
from everstep.run.steps import Step
from everstep.store.base import LEASE_SECONDS
from everstep.trail.beginning import Beginning
from everstep.trail.detail import Detail
from everstep.trail.forking import Forking
from everstep.trail.replayed import Divergence, ReplayedStep, Source
from everstep.trail.supersteps import CheckpointContent
from everstep.trail.usage import ModelUsage, Usage

ROOT = Path(__file__).resolve().parents[2]
FUNCTION = type(lambda: None)


def read(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


def missing(names: list[str], page: str) -> list[str]:
    """The names that have no place of their own between backticks on the page."""
    code = " ".join(re.findall(r"`([^`\n]+)`", page))
    return [name for name in names if not re.search(rf"\b{re.escape(name)}\b", code)]


def public(cls: type, *kinds: type) -> list[str]:
    return [name for name, value in vars(cls).items() if not name.startswith("_") and isinstance(value, kinds)]


def fields(cls: type) -> list[str]:
    declared = [field.name for field in dataclasses.fields(cls)]
    return [*declared, *public(cls, property)]


def parameters(function: Callable[..., object]) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


def section(page: str, title: str) -> str:
    """The part of a page under one heading."""
    _, _, rest = page.partition(f"\n## {title}\n")
    assert rest, f"there is no section {title!r}"
    return rest.partition("\n## ")[0]


def test_every_public_name_is_in_the_reference() -> None:
    assert missing(dir(everstep), read("docs/reference/api.md")) == []


@pytest.mark.parametrize(
    ("title", "names"),
    [
        ("Trail", public(everstep.Trail, FUNCTION)),
        ("Trail", [*Beginning.__annotations__, *Forking.__annotations__]),
        ("Trail", list(inspect.signature(everstep.Trail.runs).parameters)[1:]),
        ("SqliteCheckpointer and CheckpointPolicy", parameters(everstep.SqliteCheckpointer)),
        ("SqliteCheckpointer and CheckpointPolicy", ["save_step", *fields(everstep.CheckpointPolicy)]),
        ("Trail", fields(CheckpointContent)),
        ("Recorder", public(everstep.Recorder, FUNCTION, property)),
        ("Recorder", list(Detail.__annotations__)),
        ("StepRecord", public(StepRecord, property, FUNCTION)),
        ("Run", fields(everstep.Run)),
        ("Checkpoint", fields(everstep.Checkpoint)),
        ("Event", fields(everstep.Event)),
        ("step and workflow", parameters(Step)[1:]),
        ("Runner and AsyncRunner", [*public(everstep.Runner, FUNCTION), *parameters(everstep.Runner)]),
        ("Runner and AsyncRunner", [*parameters(everstep.Runner.run), *parameters(everstep.Runner.map)]),
        ("RunResult", [*fields(everstep.RunResult), *public(everstep.RunResult, FUNCTION)]),
        ("MapResult", [*fields(everstep.MapResult), *public(everstep.MapResult, FUNCTION)]),
        ("PauseInfo", fields(everstep.PauseInfo)),
        ("RunLog, NodeRecord and NodeStats", [*fields(everstep.RunLog), *fields(everstep.NodeRecord)]),
        ("RunLog, NodeRecord and NodeStats", fields(everstep.NodeStats)),
        ("ReplayReport", [*fields(everstep.ReplayReport), *public(everstep.ReplayReport, FUNCTION)]),
        ("ReplayReport", [*fields(Divergence), *fields(ReplayedStep), *Source]),
        ("capture", parameters(everstep.capture)),
        ("Retry", fields(everstep.Retry)),
        ("Model clients", [*parameters(everstep.OpenAIClient), *fields(everstep.Reply)]),
        ("Model clients", [*parameters(everstep.ScriptedClient), *parameters(everstep.AsyncModelClient)]),
        ("Model clients", [*fields(Usage), *fields(ModelUsage), *public(ModelUsage, FUNCTION)]),
        ("Model clients", [*fields(Asked), *public(everstep.AsyncModelClient, FUNCTION)]),
        ("current", public(Current, FUNCTION, property)),
        ("pause and sleep", [*parameters(everstep.pause), *parameters(everstep.sleep)]),
        ("Words", [*everstep.Status, *everstep.Kind, *everstep.CheckpointKind]),
    ],
)
def test_every_detail_is_in_its_section_of_the_reference(title: str, names: list[str]) -> None:
    assert len(names) > 2
    assert missing([str(name) for name in names], section(read("docs/reference/api.md"), title)) == []


def test_capture_is_shown_with_the_parameters_that_it_takes_and_no_others() -> None:
    page = section(read("docs/reference/api.md"), "capture")
    [shown] = re.findall(r"everstep\.capture\(trail, ([^`]+)\) as session", page)
    listed = " ".join(re.findall(r"^\| (`[^|]+) \|", page, re.MULTILINE))
    assert ["trail", *re.findall(r"(\w+)=", shown)] == parameters(everstep.capture)
    assert sorted(re.findall(r"`(\w+)`", listed)) == sorted(parameters(everstep.capture))


def test_every_field_of_an_answer_on_record_is_in_the_format_and_no_other() -> None:
    page = section(read("docs/reference/format.md"), "Captured calls").partition("\nA fork may")[0]
    listed = " ".join(re.findall(r"^\| (`[^|]+) \|", page, re.MULTILINE))
    assert sorted(re.findall(r"`(\w+)`", listed)) == sorted(http.FIELDS)


def test_what_a_step_can_say_is_all_that_is_listed() -> None:
    _, _, part = section(read("docs/reference/api.md"), "Recorder").partition("### What a step can say\n")
    listed = re.findall(r"^\| `(\w+)` \|", part.partition("\n### ")[0], re.MULTILINE)
    assert sorted(listed) == sorted(Detail.__annotations__)


def test_the_length_of_a_lease_is_the_one_in_the_reference() -> None:
    assert f"`renew(lease={LEASE_SECONDS})`" in read("docs/reference/api.md")
    assert LEASE_SECONDS == 120, "say so in docs/how-to/several-processes.md"


def test_the_awaited_twins_have_every_call_of_the_plain_ones() -> None:
    for twin, plain in ((everstep.AsyncTrail, everstep.Trail), (everstep.AsyncRecorder, everstep.Recorder)):
        calls = public(plain, FUNCTION, property)
        assert [name for name in calls if not hasattr(twin, name)] == []


def error_tree(cls: type, indent: str = "") -> list[str]:
    """The tree of errors as it is drawn, one line each; without what other tests made of it in this process."""
    known: list[type] = cls.__subclasses__()
    children = [child for child in known if child.__module__ == cls.__module__]
    lines = []
    for child in children:
        last = child is children[-1]
        lines.append(f"{indent}{'└── ' if last else '├── '}{child.__name__}")
        lines += error_tree(child, indent + ("    " if last else "│   "))
    return lines


def test_every_error_is_in_the_tree_and_has_its_way_out() -> None:
    page = read("docs/reference/errors.md")
    assert "\n".join(["EverstepError", *error_tree(errors.EverstepError)]) in page
    ways_out = set(re.findall(r"^\| `(\w+)` \| [^|]+ \| [^|]{4,} \|$", page, re.MULTILINE))
    leaves = {line.split()[-1] for line in error_tree(errors.EverstepError)}
    branches = {"OpenError", "StoreError", "ValueRefused", "RunError", "JournalError"}
    assert ways_out == leaves - branches
    assert missing(sorted(branches), page) == []


def test_every_warning_is_in_the_reference() -> None:
    warnings = [name for name, cls in vars(errors).items() if isinstance(cls, type) and issubclass(cls, Warning)]
    assert len(warnings) > 2
    assert missing(warnings, section(read("docs/reference/errors.md"), "Warnings")) == []


def test_every_environment_variable_is_in_the_reference() -> None:
    read_here = {
        name
        for path in (ROOT / "src").rglob("*.py")
        for name in re.findall(r'os\.environ(?:\.get\(|\[)"(\w+)"', path.read_text("utf-8"))
    }
    assert read_here
    assert missing(sorted(read_here), read("docs/reference/url-and-files.md")) == []


def test_every_promise_has_a_section_and_names_tests_that_name_it() -> None:
    page = read("docs/explanation/promises.md")
    wrong = []
    for number in range(1, 15):
        found = re.search(rf"^## {number}\. .*?(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
        assert found, f"promise {number} has no section"
        files = re.findall(r"`((?:tests|src)/[\w/]+\.py)`", found[0])
        assert files or "later" in found[0].lower(), f"promise {number} is guarded by nothing"
        wrong += [f"{file} does not name promise {number}" for file in files if not names_promise(read(file), number)]
    assert wrong == []


def names_promise(source: str, number: int) -> bool:
    groups = re.findall(r"\bpromises? (\d+(?:(?:, | and )\d+)*)", source, re.IGNORECASE)
    return number in {int(found) for group in groups for found in re.findall(r"\d+", group)}


def links(page: Path) -> list[str]:
    """The relative links of a page that lead nowhere, anchors included."""
    faults = []
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        other = (page.parent / name).resolve() if name else page
        titles = re.findall(r"^#+ (.+)$", other.read_text("utf-8"), re.MULTILINE) if other.is_file() else []
        anchors = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
        if not other.exists() or (anchor and anchor not in anchors):
            faults.append(target)
    return faults


@pytest.mark.parametrize(
    "page", sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]), ids=lambda page: page.name
)
def test_every_link_leads_somewhere(page: Path) -> None:
    assert links(page) == []


def test_a_link_that_leads_nowhere_is_seen(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("# A title\n[a](page.md#a-title) [b](page.md#b) [c](none.md) [d](https://d.org)")
    assert links(tmp_path / "page.md") == ["page.md#b", "none.md"]


def test_the_program_of_the_readme_prints_what_the_readme_shows(tmp_path: Path) -> None:
    """Promises 1 and 2: it is killed for real, and goes on where it was."""
    readme = read("README.md")
    [program] = re.findall(r"```python\n(# research\.py\n.*?)```", readme, re.DOTALL)
    [shown] = re.findall(r"```console\n(\$ python research\.py.*?)```", readme, re.DOTALL)
    (tmp_path / "research.py").write_text(program, "utf-8")
    printed = ""
    for command in re.findall(r"^\$ python (.*)$", shown, re.MULTILINE):
        done = subprocess.run(
            [sys.executable, "-u", *command.split()],
            cwd=tmp_path,
            env={"PYTHONPATH": str(ROOT / "src")},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        printed += f"$ python {command}\n{done.stdout}" + ("Killed\n" if done.returncode == -9 else "")
    assert printed == shown


def test_what_a_page_says_can_be_run_as_a_module_can() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    named = {name for page in pages for name in re.findall(r"-m\W+(everstep[.\w]*)", page.read_text("utf-8"))}
    assert named
    assert [name for name in sorted(named) if find_spec(f"{name}.__main__") is None] == []
