"""The README and the pages of docs/ cannot drift: every block in them runs, parses or names what exists."""

from __future__ import annotations

import contextlib
import doctest
import io
import json
import linecache
import os
import re
import sys
import tomllib
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import psycopg
import pytest

from tests.docs.console import can_run, commands_of, run_command, timeless
from tests.docs.endpoint import brought, endpoint
from tests.postgres import place

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))]

FILE = re.compile(r"# ([a-z_]+\.(?:py|toml))\n")  # the first line of a block that is a file
FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<language>\S*)[^`]*$")


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its text, and the line of the page that its text starts on."""

    language: str
    text: str
    line: int


def blocks_of(markdown: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order. An unclosed one is an error."""
    lines = iter(enumerate(markdown.splitlines(), 1))
    for number, line in lines:
        opening = FENCE.match(line)
        if not opening:
            continue
        indent, ticks = opening["indent"], opening["ticks"]
        inside = []
        for _, text in lines:
            if text.strip().startswith(ticks) and not text.strip().strip("`"):
                break
            inside.append(text.removeprefix(indent))
        else:
            raise AssertionError(f"the block that opens on line {number} is never closed")
        yield Block(opening["language"], "".join(f"{text}\n" for text in inside), number + 1)


def matches(expected: str, printed: str) -> bool:
    """Whether the text is what was printed; a line of three dots stands for any lines, or none."""
    lines = [line.rstrip() for line in expected.rstrip().splitlines()]
    pattern = "".join(r"(?:.*\n)*" if line.strip() == "..." else re.escape(line) + r"\n" for line in lines)
    actual = "".join(f"{line.rstrip()}\n" for line in printed.rstrip().splitlines())
    return re.fullmatch(pattern, actual) is not None


def run(block: Block, page: str, namespace: dict[str, Any]) -> str:
    """What a block of Python prints. Tracebacks point at the line of the page."""
    if block.text.lstrip().startswith(">>>"):
        test = doctest.DocTestParser().get_doctest(block.text, namespace, page, page, block.line - 1)
        runner = doctest.DebugRunner(optionflags=doctest.ELLIPSIS)
        runner.run(test, clear_globs=False)
        namespace.update(test.globs)  # doctest ran in a copy; later blocks go on with its names
        return ""
    out = io.StringIO()
    code = compile("\n" * (block.line - 1) + block.text, page, "exec", dont_inherit=True)
    with contextlib.redirect_stdout(out):
        exec(code, namespace)
    return out.getvalue()


def run_page(markdown: str, page: str) -> None:
    """Run a page: its Python, block after block in one namespace, and its commands. Compare what they print.

    A block that begins with the name of a file is written to that file.
    """
    module = types.ModuleType("page_" + re.sub(r"\W", "_", page))
    sys.modules[module.__name__] = module  # dataclasses look their module up
    linecache.cache[page] = len(markdown), None, markdown.splitlines(keepends=True), page  # as the source of a file is
    try:
        before: tuple[Block, str] | None = None
        for block in blocks_of(markdown):
            file = FILE.match(block.text)
            if file and block.language in {"python", "toml"}:
                Path(file[1]).write_text(block.text, "utf-8")
                before = None
                continue
            if block.language in {"python", "pycon"}:
                before = block, run(block, page, vars(module))
                continue
            if block.language == "text" and before:
                python, printed = before
                if (printed or "print(" in python.text) and not matches(block.text, printed):
                    raise AssertionError(f"{page}:{block.line} shows\n{block.text}\nbut what was printed is\n{printed}")
            elif block.language == "console":
                run_console(block, page)
            before = None
    finally:
        del sys.modules[module.__name__], linecache.cache[page]


def run_console(block: Block, page: str) -> None:
    """Run the commands of a block that are Python or ours, and compare what they print, but for times."""
    for command, shown in commands_of(block.text):
        if can_run(command):
            printed = run_command(command)
            if not matches(timeless(shown), timeless(printed)):
                raise AssertionError(f"{page}:{block.line}: {command!r} shows\n{shown}\nbut prints\n{printed}")


def check_data(markdown: str, page: str) -> None:
    """Parse the blocks that are TOML or JSON."""
    for block in blocks_of(markdown):
        parse = {"toml": tomllib.loads, "json": json.loads}.get(block.language)
        if parse:
            try:
                parse(block.text)
            except ValueError as error:
                raise AssertionError(f"{page}:{block.line}: this {block.language} does not parse: {error}") from error


def unknown_targets(markdown: str, makefile: str) -> list[str]:
    """The targets of `$ make ...` lines that the Makefile does not have."""
    known = set(re.findall(r"^([a-z][\w-]*):", makefile, re.MULTILINE))
    return [
        word
        for block in blocks_of(markdown)
        if block.language in {"console", "sh"}
        for command in re.findall(r"^(?:\$ )?make (.*)$", block.text, re.MULTILINE)
        for word in command.split("#")[0].split()
        if "=" not in word and word not in known
    ]


@pytest.fixture(autouse=True)
def an_empty_place(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.mktemp("temporary")))  # the place is none, for its programs
    monkeypatch.setenv("EVERSTEP_KEY_FILE", str(tmp_path / "redaction.key"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))  # for the programs that a page starts
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)  # as in an environment


@pytest.fixture
def a_model(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What the programs on a page ask, where their environment says."""
    with endpoint() as server:
        monkeypatch.setenv("MODEL_URL", server.url)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-reader")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield


@pytest.fixture
def a_server(postgres_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A PostgreSQL server with a database `trails`, found without being named."""
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        with contextlib.suppress(psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation):
            connection.execute("create database trails")
        found = connection.info.get_parameters()
    names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD"}
    for parameter, variable in names.items():
        if parameter in found:
            monkeypatch.setenv(variable, found[parameter])
    with place("postgresql:///trails") as url:
        monkeypatch.setenv("PGOPTIONS", unquote(url.partition("options=")[2]))
        yield


def read(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


@pytest.mark.usefixtures("a_model")
@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_the_page_runs_and_prints_what_it_shows(
    page: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "postgresql:///trails" in read(page):
        request.getfixturevalue("a_server")
    servers = [block.text for block in blocks_of(read(page)) if block.text.startswith("# server.py\n")]
    with contextlib.ExitStack() as stack:
        for server in servers:  # what its readers ask is what is tested
            monkeypatch.setenv("MODEL_URL", stack.enter_context(brought(server)))
        run_page(read(page), page)


@pytest.mark.parametrize("page", PAGES)
def test_the_data_on_the_page_parses_and_its_make_targets_exist(page: str) -> None:
    check_data(read(page), page)
    assert unknown_targets(read(page), read("Makefile")) == []


# The checks themselves can fail


def fenced(*blocks: tuple[str, str]) -> str:
    return "\n".join(f"Words.\n\n```{language}\n{text}\n```\n" for language, text in blocks)


def test_blocks_of_a_page_share_their_names() -> None:
    run_page(fenced(("python", "x = 1"), ("python", ">>> x += 1\n>>> x\n2"), ("python", "assert x == 2")), "page.md")


def test_a_class_on_a_page_can_be_a_dataclass() -> None:
    source = "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass A:\n    x: int"
    run_page(fenced(("python", source), ("python", "assert A(1).x == 1")), "page.md")


def test_a_failing_block_is_reported_with_its_line_on_the_page() -> None:
    page = fenced(("python", "x = 1"), ("python", "\n1 / 0"))
    with pytest.raises(ZeroDivisionError) as caught:
        run_page(page, "page.md")
    last = caught.traceback[-1]
    assert str(last.path).endswith("page.md")
    assert page.splitlines()[last.lineno] == "1 / 0"


def test_a_wrong_doctest_fails() -> None:
    with pytest.raises(doctest.DocTestFailure):
        run_page(fenced(("python", ">>> 1 + 1\n3")), "page.md")


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("one\ntwo", "one\ntwo\n", True),
        ("one  \ntwo\n\n", "one\ntwo  \n", True),
        ("one\n...\nthree", "one\n2\n2\nthree\n", True),
        ("one\n...", "one\n", True),
        ("one", "one\ntwo\n", False),
        ("one...", "one and more\n", False),
        ("o.e", "one\n", False),
    ],
)
def test_shown_output_must_be_what_is_printed(shown: str, printed: str, *, same: bool) -> None:
    assert matches(shown, printed) is same
    page = fenced(("python", f"print({printed!r}, end='')"), ("text", shown))
    with contextlib.nullcontext() if same else pytest.raises(AssertionError, match="but what was printed is"):
        run_page(page, "page.md")


def test_text_that_shows_no_output_is_left_alone() -> None:
    run_page(fenced(("python", "x = 1"), ("text", "a drawing")), "page.md")
    run_page(fenced(("python", "print(1)"), ("json", "{}"), ("text", "a drawing")), "page.md")


def test_a_page_can_bring_a_file_and_run_it() -> None:
    program = ("python", "# program.py\nimport sys\nprint('hello', *sys.argv[1:])")
    run_page(fenced(program, ("console", "$ python program.py you  # words\nhello you")), "page.md")
    with pytest.raises(AssertionError, match="but prints\nhello you"):
        run_page(fenced(program, ("console", "$ python program.py you\nhello me")), "page.md")


def test_a_command_that_is_killed_says_so_and_others_are_left_alone() -> None:
    program = ("python", "# program.py\nimport os\nprint('before')\nos.kill(os.getpid(), 9)")
    run_page(fenced(program, ("console", "$ rm -r everything\n$ python program.py\nbefore\nKilled")), "page.md")


def test_a_command_can_be_given_variables() -> None:
    program = ("python", "# program.py\nimport os\nprint(os.environ['WORD'])")
    run_page(fenced(program, ("console", "$ WORD='a b' python program.py\na b")), "page.md")


@pytest.mark.usefixtures("a_model")
def test_a_page_can_ask_a_model_which_numbers_its_answers() -> None:
    asks = """# program.py
import os, urllib.request
body = b'{"model": "m", "messages": [{"content": "how are you"}]}'
for _ in range(2):
    print(urllib.request.urlopen(os.environ["MODEL_URL"] + "/v1/chat/completions", body).read().count(b"answer 2"))"""
    run_page(fenced(("python", asks), ("console", "$ python program.py\n0\n1")), "page.md")


def test_our_own_command_is_run_too() -> None:
    with pytest.raises(AssertionError, match="shows\nnothing"):
        run_page(fenced(("console", "$ everstep runs --trail none.db\nnothing")), "page.md")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("took  195 ms", "took    2 ms", True),
        ("started  2026-11-15T15:06:13Z (3 min ago)", "started  2027-01-01T00:00:00Z (12 s ago)", True),
        ("ask  completed  0.005", "ask  completed  1,234.567", True),
        ("r-1  3 min ago", "r-1  now", True),
        ("4 steps", "5 steps", False),
        ("run  r-1", "run  r-2", False),
    ],
)
def test_times_do_not_count_and_all_else_does(one: str, other: str, *, same: bool) -> None:
    assert (timeless(one) == timeless(other)) is same


def test_an_unclosed_block_is_an_error() -> None:
    with pytest.raises(AssertionError, match="line 3 is never closed"):
        run_page("Words.\n\n```python\nx = 1\n", "page.md")


@pytest.mark.parametrize(("language", "text"), [("toml", "a = "), ("json", "{a: 1}")])
def test_data_that_does_not_parse_is_an_error(language: str, text: str) -> None:
    with pytest.raises(AssertionError, match="does not parse"):
        check_data(fenced((language, text)), "page.md")


def test_a_make_target_that_does_not_exist_is_seen() -> None:
    page = fenced(("console", "$ make demo\nhello\n$ make tset PYTHON=python3  # words"), ("sh", "make nothing"))
    assert unknown_targets(page, "demo: .venv/.ready ## words\ntest:\n") == ["tset", "nothing"]
