"""A recorded program is the main module that Python would make of it, whatever it is started as."""

from __future__ import annotations

import subprocess
import sys
import zipapp
from pathlib import Path

import pytest

from everstep.capturing.program import Target
from everstep.errors import CaptureError
from tests.capture.running import environment
from tests.capture.server import ModelServer

LOOKS = """
import inspect, os, sys

def tool():
    return "a tool"

def shown(value):
    return type(value).__name__ if hasattr(value, "get_source") else str(value)

for name in sorted(each for each in globals() if each.startswith("__") and each not in {"__builtins__", "__spec__"}):
    print(name, shown(globals()[name]))
print(__builtins__, __spec__ and __spec__.name, sys.argv, sys.path[:2], sys.modules["__main__"].tool is tool)
os.chdir("/")
print(inspect.getsource(tool), inspect.getfile(tool))
"""
CALLS = """
import os, urllib.request
print(urllib.request.urlopen(os.environ["MODEL_URL"] + "/plain").status)
"""
FAILS = """
if "fail" in sys.argv:
    raise ValueError("on purpose")
"""


class Folder:
    """A folder with a program in many forms."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        (folder / "app").mkdir()
        for file in ("agent.py", "app/__main__.py"):
            (folder / file).write_text(LOOKS + CALLS + FAILS, "utf-8")
        (folder / "linked").mkdir()
        (folder / "linked" / "other.py").symlink_to(folder / "agent.py")
        zipapp.create_archive(folder / "app", folder / "app.pyz", "/usr/bin/env python3")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        env = environment(self.url, EVERSTEP_TRAIL=str(self.folder / "trail.db"))
        return subprocess.run(
            [sys.executable, *words], cwd=self.folder, env=env, capture_output=True, text=True, check=False, timeout=60
        )

    def everstep(self, command: str, *words: str) -> subprocess.CompletedProcess[str]:
        said = ("--id", "x", "--quiet") if command == "record" else ("x",)
        return self.run("-m", "everstep", command, *said, "--", sys.executable, *words)


@pytest.mark.parametrize(
    "words",
    [["agent.py", "one"], ["./agent.py"], ["linked/other.py"], ["-P", "agent.py"], ["app"], ["app/", "two"],
     ["-P", "app"], ["app.pyz", "x"], ["-m", "agent", "one"], ["-m", "app"]],
    ids=" ".join,
)  # fmt: skip
def test_a_program_finds_itself_as_in_python(tmp_path: Path, words: list[str]) -> None:
    with ModelServer() as server:
        folder = Folder(tmp_path, server.url)
        plain = folder.run(*words)
        assert plain.returncode == 0, plain.stderr
        recorded = folder.everstep("record", *words)
        assert (recorded.stdout, recorded.stderr) == (plain.stdout, "")
    replayed = folder.everstep("replay", *words)
    assert (replayed.returncode, replayed.stdout) == (0, plain.stdout), replayed.stderr


@pytest.mark.parametrize("words", [["agent.py"], ["app"], ["app.pyz"], ["-m", "agent"]], ids=" ".join)
def test_a_program_that_fails_prints_what_python_prints_and_can_be_resumed(tmp_path: Path, words: list[str]) -> None:
    with ModelServer() as server:
        folder = Folder(tmp_path, server.url)
        plain = folder.run(*words, "fail")
        recorded = folder.everstep("record", *words, "fail")
        asked = len(server.requests)
        assert _places(recorded.stderr) == _places(plain.stderr)
        assert "ValueError: on purpose" in plain.stderr
        resumed = folder.everstep("resume", *words, "fail")
        assert (resumed.returncode, resumed.stdout) == (1, plain.stdout), resumed.stderr
        assert len(server.requests) == asked


def _places(trace: str) -> list[str]:
    """A traceback without the lines themselves, which not every Python finds in an archive."""
    return [line for line in trace.splitlines() if not line.startswith("    ")]


def test_code_of_the_command_line_is_a_main_module_as_in_python(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "")
    code = "import sys; print({**globals(), 'sys': sys.path[0]}, sys.argv)"
    assert folder.everstep("record", "-c", code, "a").stdout == folder.run("-c", code, "a").stdout


def test_a_compiled_program_runs(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "")
    (tmp_path / "small.py").write_text("print(__loader__, __file__)", "utf-8")
    compiled = f"import py_compile; py_compile.compile({str(tmp_path / 'small.py')!r}, cfile='small.pyc')"
    assert folder.run("-c", compiled).returncode == 0
    recorded, plain = folder.everstep("record", "small.pyc"), folder.run("small.pyc")
    assert recorded.stdout.split(" object at ")[0] == plain.stdout.split(" object at ")[0], recorded.stderr


def test_a_folder_without_a_main_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="name the file in it"):
        Target([str(tmp_path)])
