"""House rules that are invisible in review: the layers, file sizes, reasons beside exceptions, promises with tests."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

import everstep

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "everstep"

# A module may import its own layer and those before it, never those after it.
LAYERS = [
    "errors",
    "actual",
    "model",
    "codec",
    "journal",
    "policy",
    "store",
    "trail",
    "run",
    "models",
    "graph",
    "capturing",
    "testing",
    "cli",
    "__main__",
]

PUBLIC_NAMES: list[str] = [
    "AsyncModelClient",
    "AsyncRecorder",
    "AsyncRunner",
    "AsyncTrail",
    "Cache",
    "Checkpoint",
    "CheckpointKind",
    "CheckpointPolicy",
    "DamageWarning",
    "Decision",
    "END",
    "Event",
    "EverstepError",
    "Graph",
    "Kind",
    "MapResult",
    "ModelClient",
    "NodeRecord",
    "NodeStats",
    "OpenAIClient",
    "PauseInfo",
    "Recorder",
    "Redacted",
    "ReplayReport",
    "Reply",
    "Retry",
    "Rule",
    "Run",
    "RunLog",
    "RunResult",
    "Runner",
    "ScriptedClient",
    "Secret",
    "SqliteCheckpointer",
    "Status",
    "StepRecord",
    "Trail",
    "adopt_loop",
    "capture",
    "current",
    "gate",
    "interrupt",
    "node",
    "open",
    "pause",
    "register",
    "route",
    "sleep",
    "step",
    "submit",
    "unordered",
    "workflow",
]

PROMISES_KEPT = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14}

MAX_LINES = 400
LONGER_FOR_A_REASON: dict[str, str] = {"src/everstep/errors.py": "one tree, drawn and read in one place"}

# Character classes, so that these lines do not match themselves.
UNFINISHED = re.compile(r"\b(?:TO[D]O|FIX[M]E|XX[X])\b")
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:wor[k]|roo[t]|tm[p]|hom[e])(?:/|\b)")

NOQA = re.compile(r"noqa: [A-Z]+[0-9]+(?:, ?[A-Z]+[0-9]+)* +(?:-|#) *\S.{4,}")
TYPE_IGNORE = re.compile(r"type: ignore\[[a-z-]+(?:, ?[a-z-]+)*\] +# *\S.{4,}")
RULE_WITH_REASON = re.compile(r'^\s*"[A-Z]+[0-9]*",?\s+# \S.*\S$')


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# The layers


def imported(node: ast.AST, module: str, *, is_package: bool) -> Iterator[str]:
    """The full names of the everstep modules that one import statement reaches for."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "everstep")
    elif isinstance(node, ast.ImportFrom):
        parents = module.split(".")
        package = parents[: len(parents) - node.level + is_package] if node.level else []
        base = ".".join([*package, *([node.module] if node.module else [])])
        if base == "everstep":  # `from everstep import errors` names a module, not something in the root
            yield from (f"everstep.{alias.name}" for alias in node.names)
        elif base.startswith("everstep."):
            yield base


def module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_faults(root: Path) -> list[str]:
    """Imports against the arrows, imports of the lazy root, and imports of our own hidden in functions."""
    faults = []
    for path in sorted(root.rglob("*.py")):
        module = module_name(path, root)
        if module == "everstep":
            continue  # the root maps names to modules lazily; nothing below it may import it
        layer = module.split(".")[1]
        if layer not in LAYERS:
            faults.append(f"{module}: {layer!r} is in no layer")
            continue
        tree = ast.parse(path.read_text("utf-8"))
        is_package = path.name == "__init__.py"
        hidden = {
            inner
            for outer in ast.walk(tree)
            if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for inner in ast.walk(outer)
        }
        for node in ast.walk(tree):
            for target in imported(node, module, is_package=is_package):
                target_layer = (*target.split("."), "")[1]
                if target_layer not in LAYERS:
                    faults.append(f"{module} imports {target}, a name of the package's root")
                elif LAYERS.index(target_layer) > LAYERS.index(layer):
                    faults.append(f"{module} imports {target}, a later layer")
                if node in hidden:
                    faults.append(f"{module} imports {target} inside a function")
    return faults


def test_imports_follow_the_layers_and_none_is_hidden_in_a_function() -> None:
    assert layer_faults(SRC) == []


@pytest.mark.parametrize(
    ("file", "line", "fault"),
    [
        ("codec/values.py", "from everstep.store import base", "a later layer"),
        ("codec/values.py", "import everstep.trail", "a later layer"),
        ("codec/values.py", "from ..store.base import Store", "a later layer"),
        ("codec/__init__.py", "from ..store import base", "a later layer"),
        ("codec/values.py", "from everstep import policy", "a later layer"),
        ("errors.py", "if True:\n    from everstep.model import Run", "a later layer"),
        ("store/base.py", "from everstep import open", "a name of the package's root"),
        ("store/base.py", "import everstep", "a name of the package's root"),
        ("store/base.py", "def f():\n    from everstep.errors import StoreError", "inside a function"),
        ("helpers.py", "x = 1", "is in no layer"),
    ],
)
def test_an_import_against_the_layers_is_seen(tmp_path: Path, file: str, line: str, fault: str) -> None:
    path = tmp_path / "everstep" / file
    path.parent.mkdir(parents=True)
    path.write_text(line, "utf-8")
    [found] = layer_faults(tmp_path / "everstep")
    assert fault in found


def missing_files(page: str) -> list[str]:
    """The Python files that a page names, by the end of their paths, and that are not there."""
    known = [f"/{relative(path)}" for path in python_files("src", "tests")]
    named = re.findall(r"`([\w/]+\.py)`", page)
    return [file for file in named if not any(path.endswith(f"/{file}") for path in known)]


def test_every_file_that_the_architecture_names_is_there() -> None:
    assert missing_files((ROOT / "ARCHITECTURE.md").read_text("utf-8")) == []
    assert missing_files("**`run/flow.py`**, `run/flows.py`, `clock.py` and `journal.py`") == [
        "run/flows.py",
        "journal.py",
    ]


# The public names


def test_the_public_names_are_the_pinned_ones_and_all_exist() -> None:
    assert dir(everstep) == PUBLIC_NAMES
    assert [name for name in PUBLIC_NAMES if not hasattr(everstep, name)] == []


def test_a_star_takes_all_names_but_those_of_python_itself() -> None:
    names: dict[str, object] = {}
    exec("from everstep import *", names)
    assert {*PUBLIC_NAMES} - names.keys() == {"open"}, "whoever opened files would open trails from then on"


def test_importing_the_package_loads_none_of_its_modules() -> None:
    code = "import everstep, sys; print(*[name for name in sys.modules if name.startswith('everstep.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


# Sizes, reasons and words


def test_no_file_is_longer_than_the_limit_without_a_reason() -> None:
    lengths = {
        relative(path): len(path.read_text("utf-8").splitlines()) for path in python_files("src", "tests", "benchmarks")
    }
    longer = {path for path, length in lengths.items() if length > MAX_LINES}
    assert longer == set(LONGER_FOR_A_REASON), "split the file by verb, or keep the list of exceptions true"


def comments(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def reason_missing(comment: str) -> bool:
    """Whether a comment silences a checker without saying which rule and why."""
    silences_ruff = re.search(r"#\s*(?:ruff:\s*)?noqa\b", comment, re.IGNORECASE)
    silences_mypy = re.search(r"#\s*type:\s*ignore|#\s*mypy:", comment)
    return bool(silences_ruff and not NOQA.search(comment)) or bool(silences_mypy and not TYPE_IGNORE.search(comment))


def test_every_silenced_rule_has_a_code_and_a_reason() -> None:
    missing = [
        f"{relative(path)}:{line}: {comment}"
        for path in python_files("src", "tests", "benchmarks")
        for line, comment in comments(path.read_text("utf-8"))
        if reason_missing(comment)
    ]
    assert missing == []


@pytest.mark.parametrize(
    ("comment", "missing"),
    [
        ("# noqa", True),
        ("# noqa: N818", True),
        ("# ruff: noqa", True),
        ("# noqa: N818 - the root of a branch", False),
        ("# noqa: N818, A001 - the root of a branch", False),
        ("# type: ignore", True),
        ("# type: ignore[arg-type]", True),
        ("# mypy: ignore-errors", True),
        ("# type: ignore[arg-type]  # the point of the test", False),
        ("# type: ignore[arg-type]  # noqa: A001", True),
        ("# type: ignore[arg-type]  # noqa: A001 - the point of the test", False),
        ("# a comment on noqa", False),
    ],
)
def test_a_silenced_rule_without_a_reason_is_seen(comment: str, *, missing: bool) -> None:
    assert reason_missing(comment) is missing


def rules_without_reason(pyproject: str) -> list[str]:
    """The lines of ruff's ignore lists that do not end in a reason."""
    faults, inside = [], False
    for line in pyproject.splitlines():
        opens = re.match(r'^(?:(?:extend-)?ignore|"[^"]+") = \[', line)
        if opens and not line.rstrip().endswith("["):
            faults.append(line)  # several rules on one line cannot each have a reason
        elif opens:
            inside = True
        elif line.strip() == "]":
            inside = False
        elif inside and not RULE_WITH_REASON.match(line):
            faults.append(line)
    return faults


def test_every_rule_that_ruff_ignores_has_a_reason_on_its_line() -> None:
    assert rules_without_reason((ROOT / "pyproject.toml").read_text("utf-8")) == []
    assert rules_without_reason('ignore = [\n    "D203",\n]') == ['    "D203",']
    assert rules_without_reason('ignore = ["D203"]  # why') == ['ignore = ["D203"]  # why']
    assert rules_without_reason('"tests/**" = [\n    "S",  # why\n    "D1",\n]') == ['    "D1",']


def faulty_lines(pattern: re.Pattern[str], *folders: str) -> list[str]:
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".md"}]
    return [
        f"{relative(path)}:{number}: {line.strip()}"
        for path in sorted([*paths, *ROOT.glob("*.md"), ROOT / "Makefile", ROOT / "pyproject.toml"])
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if pattern.search(line)
    ]


def test_nothing_is_marked_unfinished() -> None:
    assert faulty_lines(UNFINISHED, "src", "tests", "benchmarks", "examples", "docs") == []
    assert UNFINISHED.search("# TO" + "DO: later")


def test_no_path_of_one_machine_is_written_down() -> None:
    assert faulty_lines(MACHINE_PATH, "src", "benchmarks", "examples", "docs") == []
    assert [
        MACHINE_PATH.search(text) is not None for text in ("at /wor" + "k/x", '"/tm' + 'p"', "frame/work", "a/tm" + "p")
    ] == [
        True,
        True,
        False,
        False,
    ]


# The promises


def promises_named(source: str) -> set[int]:
    """The numbers of the promises that the docstrings of tests name."""
    found: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name.lower().startswith(
            "test"
        ):
            text = ast.get_docstring(node) or ""
            for numbers in re.findall(r"\bpromises? (\d+(?:(?:, | and )\d+)*)", text, re.IGNORECASE):
                found.update(int(number) for number in re.findall(r"\d+", numbers))
    return found


def test_every_kept_promise_is_named_by_a_test() -> None:
    named = set().union(*(promises_named(path.read_text("utf-8")) for path in python_files("tests")))
    assert named >= PROMISES_KEPT, f"no test names the promises {sorted(PROMISES_KEPT - named)}"


def test_a_promise_counts_only_in_the_docstring_of_a_test() -> None:
    assert promises_named('def test_a():\n    """Keeps (promise 7)."""') == {7}
    assert promises_named('def test_a():\n    """Promises 1, 4 and 14."""') == {1, 4, 14}
    assert promises_named('def helper():\n    """promise 7"""\n# promise 8\nx = "promise 9"') == set()
