"""The packages that a run was made with: they are on record, and named when they are all that changed."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

import everstep
from everstep import Graph, Trail, node, step, workflow
from everstep.run.surroundings import surroundings
from everstep.trail.versions import changed_versions, is_same_program
from tests.integration.cli_support import HOSTILE, process
from tests.integration.running import run
from tests.integration.support import environment

AGENT = """
import sys
from pathlib import Path
sys.path.append(str(Path(__file__).parent / "site-packages"))
import everstep
import wording

@everstep.step
def ask(topic):
    return f"about {topic}"

@everstep.workflow
def report(topic):
    return wording.tidy(ask(topic))
"""
WORDING = "import tide_words\n\ndef tidy(text):\n    return tide_words.loud(text)\n"
RECORD = """
import everstep, agent
with everstep.open('trail.db') as trail:
    everstep.Runner(trail).run(agent.report, 'tea', id='r')
"""


def install(place: Path, version: str, loud: str) -> None:
    """Install a package, instead of whatever version of it is there."""
    for old in place.glob("site-packages/tide_words*.dist-info/METADATA"):
        old.unlink()
        old.parent.rmdir()
    files = {
        "tide_words/__init__.py": f"__version__ = {version!r}\ndef loud(text):\n    return {loud}\n",
        f"tide_words-{version}.dist-info/METADATA": f"Name: Tide.Words\nVersion: {version}\n",
    }
    for path, text in files.items():
        (place / "site-packages" / path).parent.mkdir(parents=True, exist_ok=True)
        (place / "site-packages" / path).write_text(text)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a program of two modules, a package that the second imports, and the trail of a run."""
    for name, text in {"agent.py": AGENT, "wording.py": WORDING, "record.py": RECORD}.items():
        (tmp_path / name).write_text(text)
    install(tmp_path, "1.0.9", "text.upper()")
    subprocess.run([sys.executable, "record.py"], cwd=tmp_path, env=environment(), check=True, timeout=60)
    return tmp_path


def replayed(place: Path, *words: str, code: int) -> str:
    done = process("replay", "r", "--app", "agent", "--trail", "trail.db", *words, cwd=place)
    assert done.code == code, done.stdout + done.stderr
    return str(done.stdout)


def test_a_package_that_alone_was_changed_is_the_likely_cause(place: Path) -> None:
    """Promise 6."""
    install(place, "1.0.10", "text.title()")
    told = replayed(place, code=4)
    assert "r: diverged at r@2 ('report'): changed result" in told
    assert "likely cause: changed package version; the code is what it was" in told
    assert "note: other versions than on record: tide_words 1.0.9 -> 1.0.10\n" in told
    report = json.loads(replayed(place, "--json", code=4))["replay"]
    assert report["likely_cause"] == "changed package version"
    assert report["versions"] == [{"name": "tide_words", "old": "1.0.9", "new": "1.0.10"}]
    assert [each["cause"] for each in report["divergences"]] == ["changed result"]


@pytest.mark.parametrize(("name", "call"), [("agent.py", "tidy(ask(topic))"), ("wording.py", "loud(text)")])
def test_where_the_code_was_changed_too_the_package_is_no_more_than_a_note(place: Path, name: str, call: str) -> None:
    install(place, "1.0.10", "text.upper()")
    (place / name).write_text((place / name).read_text().replace(call, f"{call} + '!'"))
    told = replayed(place, code=4)
    assert "likely cause" not in told
    assert "tide_words 1.0.9 -> 1.0.10" in told
    assert "the code around the workflow" in told or "the workflow's code has changed" in told
    assert json.loads(replayed(place, "--json", code=4))["replay"]["likely_cause"] == "changed result"


def test_another_version_that_makes_no_difference_is_a_note(place: Path) -> None:
    install(place, "1.0.10", "text.upper()")
    told = replayed(place, code=0)
    assert "identical" in told
    assert "note: other versions than on record: tide_words 1.0.9 -> 1.0.10" in told
    assert "likely cause" not in told
    assert json.loads(replayed(place, "--json", code=0))["replay"]["likely_cause"] is None


def test_with_the_same_versions_nothing_is_said(place: Path) -> None:
    assert "note" not in replayed(place, code=0)
    assert json.loads(replayed(place, "--json", code=0))["replay"]["versions"] == []


def test_compare_names_versions_too(place: Path) -> None:
    install(place, "1.0.10", "text.upper()")
    (place / "record.py").write_text(RECORD.replace("'r'", "'s'"))
    subprocess.run([sys.executable, "record.py"], cwd=place, env=environment(), check=True, timeout=60)
    told = process("compare", "r", "s", "--trail", "trail.db", cwd=place)
    assert told.code == 0, told.stdout
    assert "note: other versions: tide_words 1.0.9 -> 1.0.10." in told.stderr


def test_they_are_kept_once_where_the_run_begins(place: Path) -> None:
    with everstep.open(place / "trail.db", read_only=True) as trail:
        start, *others = trail.steps("r")
        assert "tide_words 1.0.9" in start.metadata["packages"]
        assert [each.metadata for each in others if each.metadata] == []


# What is looked at.


def module(name: str, folder: Path, **names: Any) -> Any:
    """A module with a function `go`, as if it had been imported from a folder."""
    made = ModuleType(name)
    made.__file__ = str(folder / f"{name}.py")
    folder.mkdir(parents=True, exist_ok=True)
    Path(made.__file__).write_text(f"# {name}\n")
    vars(made).update(names, __builtins__=__builtins__)
    exec("def go(): pass\nclass Client: pass\n", vars(made))
    return made


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A package whose name as a module is another one than that of its distribution."""
    made = module("tidalyaml", tmp_path / "site-packages", __version__="6.1")
    monkeypatch.setitem(sys.modules, "tidalyaml", made)
    return made


@pytest.mark.parametrize("how", ["module", "function", "class", "instance", "step"])
def test_a_package_is_found_by_whatever_of_it_stands_in_the_module(tmp_path: Path, installed: Any, how: str) -> None:
    found = {
        "module": installed, "function": installed.go, "class": installed.Client, "instance": installed.Client(),
        "step": step(installed.go),
    }[how]  # fmt: skip
    main = module("program", tmp_path, what=found)
    assert "tidalyaml 6.1" in surroundings([main.go])["packages"]
    assert "tidalyaml 6.1" in surroundings([partial(main.go)])["packages"]
    assert surroundings([module("alone", tmp_path).go])["packages"] == [f"everstep {_version_of_ours()}"]


def _version_of_ours() -> str:
    import importlib.metadata  # noqa: PLC0415 - as the package does

    return importlib.metadata.version("everstep")


def test_an_import_that_comes_later_is_found_then(tmp_path: Path, installed: Any) -> None:
    main = module("late", tmp_path)
    assert "tidalyaml 6.1" not in surroundings([main.go])["packages"]
    main.tidalyaml = installed
    assert "tidalyaml 6.1" in surroundings([main.go])["packages"]


def test_what_was_looked_for_is_not_looked_for_again(tmp_path: Path) -> None:
    main = module("cached", tmp_path)
    assert surroundings([main.go]) is surroundings([main.go])


def test_the_nodes_of_a_graph_are_looked_at(tmp_path: Path, installed: Any) -> None:
    main = module("of_a_graph", tmp_path, tidalyaml=installed)
    told = FunctionType(main.go.__code__, vars(main), "told")
    inner = Graph([node(output="word")(told)], name="inner")
    assert "tidalyaml 6.1" in Graph([inner], name="outer").fingerprint()["packages"]


def test_an_object_that_resists_is_passed_over(tmp_path: Path, installed: Any) -> None:
    class Proxy:
        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError("outside of a request")

        @property
        def __dict__(self) -> Any:  # type: ignore[override] # what is tested
            raise RuntimeError("outside of a request")

    main = module("proxied", tmp_path, proxy=Proxy(), numbered=type("Odd", (), {"__module__": 5}), tidalyaml=installed)
    assert "tidalyaml 6.1" in surroundings([main.go])["packages"]


def test_a_program_whose_text_is_not_known_is_not_said_to_be_the_same(tmp_path: Path) -> None:
    main = module("typed_in", tmp_path)
    now = surroundings([main.go])
    assert is_same_program(now, now)
    main = module("typed_in", tmp_path)
    del main.__file__
    now = surroundings([main.go])
    assert now["sources"] is None
    assert not is_same_program(now, now)


# What is on record.


@pytest.mark.parametrize(
    "was",
    [
        {}, {"python": "3.11.2"}, {"packages": None}, {"packages": 5}, {"packages": {"numpy": "1"}},
        {"packages": [None, 5, ["numpy 1"], "", "numpy", "numpy " + "1" * 500]},
    ],
)  # fmt: skip
def test_a_record_of_an_earlier_version_or_of_a_stranger_is_read(was: dict[str, Any]) -> None:
    now = {"code": "c", "python": "3.11.2", "sources": "s", "packages": ["numpy 2.0"]}
    assert changed_versions(was, now) == ()
    assert not is_same_program(was, now)


@workflow
def versioned() -> str:
    return str(_word())


@step
def _word() -> str:
    return "tea"


def test_a_run_from_before_packages_were_kept_is_replayed(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "trail.db") as trail:
        _recorded_with(trail, {"code": None, "python": "3.2.0"})
        report = trail.replay("r", versioned)
        assert [str(each).partition(" -> ")[0] for each in report.versions] == ["Python 3.2.0"]
        assert report.first is not None
        assert report.likely_cause == report.first.cause  # whether the code is the same is not known


def test_another_python_alone_is_the_likely_cause(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "trail.db") as trail:
        _recorded_with(trail, {**versioned.fingerprint(), "python": "3.2.0"})
        assert trail.replay("r", versioned).likely_cause == "changed Python version"


def test_a_hostile_version_is_told_without_harm(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "trail.db") as trail:
        _recorded_with(trail, {"python": HOSTILE})
    path = tmp_path / "trail.db"
    told = process("replay", "r", "--app", f"{__name__}:versioned", "--trail", path, cwd=Path.cwd())
    assert "Python" in told.stdout
    assert "\x1b" not in told.stdout


def _recorded_with(trail: Trail, about: dict[str, Any]) -> None:
    """A run that gave something else than it does today, with this said of it."""
    with trail.record("r", workflow="versioned", inputs={}, metadata=about) as recorder:
        recorder.step("_word", output="coffee")
        recorder.finish("cocoa")


def test_recording_a_run_keeps_them(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "trail.db") as trail:
        run(trail, versioned, id="r")
        assert trail.step("r", 0).metadata["packages"] == versioned.fingerprint()["packages"]
        assert trail.replay("r", versioned).hints == ()
