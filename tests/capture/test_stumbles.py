"""What newcomers tried with recorded programs, and what they were told."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import httpx
import pytest

import everstep
from everstep.errors import DivergenceError
from everstep.model import Kind
from tests.capture.server import ModelServer
from tests.integration.cli_support import COMMAND, at_work, run


@pytest.mark.parametrize(
    ("failure", "raised"),
    [
        ("timed out", RuntimeError("timed out")),
        ("httpx.ConnectTimeout: timed out", httpx.ConnectTimeout("timed out")),
        ("TimeoutError: it's late: 12", TimeoutError("it's late: 12")),
        ("note: it is late", RuntimeError("note: it is late")),
    ],
)
def test_a_call_can_have_failed_with_any_error(tmp_path: Path, failure: str, raised: Exception) -> None:
    with ModelServer() as server, everstep.open(tmp_path / "trail.db") as trail:
        with everstep.capture(trail, "trip"):
            httpx.get(f"{server.url}/plain/a")
        forked = run("fork", "trip", "--failure", f"1={failure}", "--id", "other", "--trail", tmp_path / "trail.db")
        assert forked.exit_code == 0, forked.output
        with everstep.capture(trail, "other"), pytest.raises(type(raised)) as found:
            httpx.get(f"{server.url}/plain/a")
        assert (type(found.value), str(found.value)) == (type(raised), str(raised))
        assert len(server.requests) == 1


def test_calls_to_one_host_are_told_apart(tmp_path: Path) -> None:
    with ModelServer() as server, everstep.open(tmp_path / "trail.db") as trail, everstep.capture(trail, "trip"):
        httpx.get(f"{server.url}/plain/a?key=1")
        httpx.post(f"{server.url}/plain/{'b' * 60}")
    found = run("show", "trip", "--trail", tmp_path / "trail.db").stdout
    assert " GET 127.0.0.1/plain/a " in found
    assert f" POST 127.0.0.1/plain/{'b' * 30}... " in found


def test_processes_of_one_program_are_told_apart_and_one_is_shown_with_what_it_was_started_with(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "trail.db") as trail, everstep.capture(trail, "shell"):
        subprocess.run("printf two; exit 3", shell=True, capture_output=True, check=False)
        subprocess.run(["/bin/sh", "-c", "echo it is"], capture_output=True, check=True)
    lines = run("show", "shell", "--trail", tmp_path / "trail.db").stdout.splitlines()
    assert ["  run printf two; exit 3  " in lines[-2], lines[-2].endswith("  exit 3 'two'")] == [True, True]
    assert ["  run sh -c 'echo it is'  " in lines[-1], lines[-1].endswith("  'it is\\n'")] == [True, True]
    assert "inputs.args = 'printf two; exit 3'" in run("show", "shell@2", "--trail", tmp_path / "trail.db").stdout
    found = json.loads(run("show", "shell@4", "--trail", tmp_path / "trail.db", "--json").stdout)
    assert found["show"]["step"]["inputs"]["args"] == ["/bin/sh", "-c", "echo it is"]


def test_a_command_that_begins_with_a_secret_is_found_on_record_again(tmp_path: Path) -> None:
    """Promise 10: its first word is its name."""
    key = f"sk-ant-api03-{'b' * 80}"
    with everstep.open(tmp_path / "trail.db") as trail:
        for mode in ("record", "verify"):
            with everstep.capture(trail, "shell", mode=mode) as session:
                subprocess.run(f"API_KEY={key} true", shell=True, capture_output=True, check=True)
        assert session.report is not None
        assert session.report.identical
        assert key not in "".join(step.name for step in trail.steps("shell"))


def test_who_wants_the_run_of_a_program_as_a_test_is_led_to_one(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "everstep", "record", "--id", "trip", "--", sys.executable, "-c", "print()"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    refused = run("export", "trip", "--as-test", "--trail", tmp_path / ".everstep" / "trail.db")
    assert refused.exit_code == 2
    assert "One to copy: docs/how-to/turn-a-failed-run-into-a-test.md" in refused.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["two.py"], "is one of the program 'one.py', not of 'two.py'. Give the one that was recorded"),
        (["one.py", "more"], "was started with other inputs"),
        (["none.py"], "none.py cannot be read"),
    ],
)
def test_a_fork_is_not_made_for_another_program_than_the_recorded_one(
    tmp_path: Path, words: list[str], said: str
) -> None:
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text("print()")
    everstep_ = [sys.executable, "-m", "everstep"]
    record = [*everstep_, "record", "--id", "trip", "--trail", "t.db", "--", sys.executable, "one.py"]
    subprocess.run(record, cwd=tmp_path, capture_output=True, check=True)
    fork = [*everstep_, "fork", "trip", "--at", "0", "--trail", "t.db", "--", sys.executable, *words]
    refused = subprocess.run(fork, cwd=tmp_path, capture_output=True, check=False, text=True)
    assert refused.returncode != 0
    assert said in refused.stderr
    with everstep.open(tmp_path / "t.db") as trail:
        assert [run.id for run in trail.runs()] == ["trip"]


def test_how_an_answer_travelled_is_no_difference_between_runs_and_what_it_said_is(tmp_path: Path) -> None:
    with ModelServer() as server, everstep.open(tmp_path / "trail.db") as trail:
        for run_id in ("one", "two"):
            with everstep.capture(trail, run_id):
                subprocess.run([sys.executable, "-c", "print('same')"], capture_output=True, check=True)
                httpx.head(f"{server.url}/plain/a")  # its headers have a number that grows
                httpx.get(f"{server.url}/plain/a")  # and of this one the body, too
        one, two = ([step.output for step in trail.steps(run_id) if step.node_type] for run_id in ("one", "two"))
        assert one[0]["pid"] != two[0]["pid"]
        assert one[1]["headers"] != two[1]["headers"]
        found = trail.compare("one", "two")
        assert [str(pair.verdict) for pair in found.steps if pair.kind is Kind.STEP] == ["same", "same", "changed"]


@pytest.mark.parametrize(
    ("number", "code", "ends"),
    [(signal.SIGINT, -signal.SIGINT, ["KeyboardInterrupt"]), (signal.SIGTERM, 128 + signal.SIGTERM, [])],
)
@pytest.mark.parametrize(
    "form",
    [
        "import time\nprint('ready', flush=True)\ntime.sleep(60)\n",
        # Ready when its loop is: asyncio leaves a half-made loop behind that complains of itself as it is freed.
        "import asyncio\nasync def go():\n print('ready', flush=True)\n await asyncio.sleep(60)\nasyncio.run(go())\n",
    ],
    ids=["plain", "async"],
)
def test_a_program_that_is_told_to_end_says_how_to_go_on_and_shows_its_own_lines_alone(
    tmp_path: Path, number: int, code: int, ends: list[str], form: str
) -> None:
    (tmp_path / "agent.py").write_text(form)
    program = ["--", sys.executable, "agent.py"]
    with at_work([*COMMAND, "record", "--id", "trip", "--trail", "t.db", *program], tmp_path, "ready") as recording:
        recording.send_signal(number)
        _, told = recording.communicate(timeout=60)
    *shown, last = told.splitlines()
    resume = f"everstep resume trip --trail t.db -- {sys.executable} agent.py"
    assert (recording.returncode, last) == (code, f"everstep: trip was interrupted. Go on with it: {resume}")
    assert shown[-1:] == ends
    assert "everstep/" not in "\n".join(shown)


def test_a_lenient_replay_compares_all_that_threads_ask_for(tmp_path: Path) -> None:
    with ModelServer() as server, everstep.open(tmp_path / "trail.db") as trail:

        def program(word: str) -> None:
            def ask(number: int) -> None:
                for turn in range(4):
                    urllib.request.urlopen(f"{server.url}/plain/{word}-{number}-{turn}").read()

            threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        with everstep.capture(trail, "trip"):
            program("old")
        with everstep.capture(trail, "trip", mode="lenient") as session:
            program("new")
        assert session.report is not None
        assert [each.cause for each in session.report.divergences] == ["changed argument"] * 16, str(session.report)


def test_a_replay_whose_result_differs_says_so_and_in_what(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "trail.db") as trail:
        with pytest.raises(ValueError, match="once"), everstep.capture(trail, "trip"):
            raise ValueError("once")
        with pytest.raises(DivergenceError) as caught, everstep.capture(trail, "trip", mode="verify"):
            raise ValueError("twice")
    said = str(caught.value)
    assert said.startswith(
        "run 'trip' diverged at step 1, changed result: 'program' gave another result than on record. Changed: error: "
    )
    assert "'ValueError: once'" in said
    assert "not executed" not in said


def everstep_of(folder: Path, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "agent.py").write_text(program)
    command = [*COMMAND, *words, "--trail", "t.db", "--", sys.executable, "agent.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


FAILS = """
import httpx, os
for page in "abc":
    httpx.get(os.environ["MODEL_URL"] + "/plain/" + page)
print(httpx.get(os.environ["MODEL_URL"] + "/nothing").json()["rate"])
"""


def test_the_commands_that_go_on_with_a_program_name_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ModelServer() as server:
        monkeypatch.setenv("MODEL_URL", server.url)
        assert everstep_of(tmp_path, FAILS, "record", "--id", "trip").returncode == 1
    said = run("why", "trip", "--trail", tmp_path / "t.db").stderr.splitlines()
    program = f"-- {sys.executable} agent.py"
    assert [line.split()[2] for line in said if line.endswith(program)] == ["fork", "resume"]


def test_a_program_that_is_resumed_until_it_is_done_is_done(tmp_path: Path) -> None:
    assert everstep_of(tmp_path, "print('once')", "record", "--id", "trip").returncode == 0
    again = everstep_of(tmp_path, "print('once')", "resume", "trip")
    assert (again.returncode, again.stdout) == (0, "")
    assert again.stderr.startswith("everstep: trip had completed before: nothing was executed. ")
    told = json.loads(everstep_of(tmp_path, "print('once')", "resume", "trip", "--json").stdout)
    assert (told["record"]["status"], told["record"]["exit"]) == ("completed", 0)
    assert told["record"].keys() == {"run", "status", "exit", "entries"}


def test_a_program_that_failed_is_told_how_to_find_out_why(tmp_path: Path) -> None:
    failed = everstep_of(tmp_path, "import json\njson.loads('{')", "record", "--id", "trip")
    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1] == "everstep: trip failed. Find out why: everstep why trip --trail t.db"


def test_a_warning_of_ours_is_one_line_and_others_are_as_python_shows_them(tmp_path: Path) -> None:
    program = "import warnings, os\nos.posix_spawn('/bin/true', ['true'], {})\nwarnings.warn('theirs')\n"
    told = everstep_of(tmp_path, program, "record", "--id", "trip").stderr.splitlines()
    assert told[0].startswith("everstep: warning: run 'trip' starts a process by os.posix_spawn, which is not recorded")
    assert told[1].endswith("agent.py:3: UserWarning: theirs")


def test_of_a_long_output_that_differs_only_what_differs_is_shown(tmp_path: Path) -> None:
    program = "import os\nprint('line\\n' * 500, 'process', os.getpid(), 'line\\n' * 500)\n"
    everstep_of(tmp_path, program, "record", "--id", "trip")
    told = everstep_of(tmp_path, program, "replay", "trip").stderr.splitlines()
    (line,) = [each for each in told if each.startswith("  ~ stdout: ")]
    assert " process [-" in line
    assert len(line) < 400


def test_a_program_that_becomes_another_is_told_how_to_record_that(tmp_path: Path) -> None:
    program = "import os\nos.execlp('true', 'true')\n"
    told = everstep_of(tmp_path, program, "record", "--id", "trip").stderr.splitlines()
    assert told[0].startswith("everstep: warning: run 'trip' becomes another program by os.execv")
    assert "everstep record -- python agent.py" in told[0]
    refused = everstep_of(tmp_path, program, "replay", "--sealed", "trip").stderr
    assert "agent.py:2 would become another program by os.execv" in refused
    assert "everstep record -- python agent.py" in refused


WAITS = """
import os, queue, threading, time
import httpx
jobs = queue.Queue()
def work():
    while True:
        jobs.get()
        httpx.post(os.environ["MODEL_URL"] + "/plain/a", json={"took": time.perf_counter()})
        jobs.task_done()
threading.Thread(target=work, daemon=True).start()
jobs.put("job")
jobs.join()
"""


def test_a_program_that_waits_for_a_thread_that_was_taken_out_of_the_run_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ModelServer() as server:
        monkeypatch.setenv("MODEL_URL", server.url)
        assert everstep_of(tmp_path, WAITS, "record", "--id", "trip").returncode == 0
        replayed = everstep_of(tmp_path, WAITS, "replay", "trip")
    assert replayed.returncode == 4
    assert "trip: diverged at trip@1 ('POST 127.0.0.1'): changed argument" in replayed.stderr


def test_a_replay_that_finds_the_download_of_the_recording_is_told_of_files(tmp_path: Path) -> None:
    kept = tmp_path / "kept"

    def program() -> None:
        if not kept.exists():
            kept.write_bytes(httpx.get(f"{server.url}/plain/a").content)
        httpx.get(f"{server.url}/plain/b")

    with ModelServer() as server, everstep.open(tmp_path / "trail.db") as trail:
        with everstep.capture(trail, "trip"):
            program()
        with everstep.capture(trail, "trip", mode="verify") as session:
            program()
        assert "note: if the code is what it was, the program depends on something that is not recorded (files" in str(
            session.report
        )
        kept.unlink()
        with everstep.capture(trail, "trip", mode="verify") as session:
            program()
        assert "note" not in str(session.report)


@pytest.mark.parametrize(
    "before",
    [
        "assert importlib.util.find_spec('httpx').loader.get_filename('httpx')",  # is it there? asked of many a package
        """
class Old:  # as finders once were
    find_module = lambda *_: None
sys.meta_path.append(Old())
try:
    import primp
except ImportError:
    pass
""",
        "sys.modules['idna'] = None\ntry:\n import httpx\nexcept ImportError:\n del sys.modules['idna']",
    ],
)
def test_a_library_that_was_looked_for_or_failed_to_load_is_recorded_when_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    program = f"import importlib.util, os, sys\n{before}\nimport httpx\nhttpx.get(os.environ['MODEL_URL'] + '/plain/a')"
    with ModelServer() as server:
        monkeypatch.setenv("MODEL_URL", server.url)
        told = everstep_of(tmp_path, program, "record", "--id", "trip")
    assert (told.returncode, "warning" in told.stderr) == (0, False), told.stderr
    with everstep.open(tmp_path / "t.db") as trail:
        assert [step.name for step in trail.steps("trip") if step.node_type] == ["GET 127.0.0.1"]


REFUSED = """
import asyncio
import ssl
import aiohttp
import httpx
import urllib3

NOBODY = "http://127.0.0.1:1/"

def asked_by_aiohttp():
    async def ask():
        async with aiohttp.ClientSession() as session:
            await session.get(NOBODY)
    asyncio.run(ask())

def chain(call):
    try:
        call()
    except Exception as error:
        while error is not None:
            yield type(error).__name__
            error = error.__cause__

print(*chain(asked_by_aiohttp))
print(*chain(lambda: httpx.get(NOBODY)))
print(*chain(lambda: urllib3.request("GET", NOBODY, retries=False)))
"""


def test_a_connection_that_was_refused_is_refused_in_another_process_for_the_same_reason(tmp_path: Path) -> None:
    """Promise 6: with what it was raised from, and nothing of what aiohttp's error holds is in the way."""
    recorded = everstep_of(tmp_path, REFUSED, "record", "--id", "r")
    reason = "ConnectionRefusedError"
    said = f"ClientConnectorError {reason}\nConnectError ConnectError\nNewConnectionError {reason}\n"
    assert (recorded.returncode, recorded.stdout) == (0, said), recorded.stderr
    replayed = everstep_of(tmp_path, REFUSED, "replay", "r", "--sealed")
    assert (replayed.returncode, said in replayed.stdout) == (0, True), replayed.stderr


JOBS = """
import os
from concurrent.futures import ThreadPoolExecutor
import httpx
def ask(number):
    httpx.get(os.environ["MODEL_URL"] + "/plain/" + os.environ["PAGE"])
with ThreadPoolExecutor(1) as pool:
    for number in range(24):
        pool.submit(ask, number).exception()
print("through")
"""


def test_a_program_that_is_told_in_each_of_many_jobs_that_it_diverged_comes_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ModelServer() as server:
        monkeypatch.setenv("MODEL_URL", server.url)
        monkeypatch.setenv("PAGE", "a")
        assert everstep_of(tmp_path, JOBS, "record", "--id", "trip").returncode == 0
        monkeypatch.setenv("PAGE", "b")
        replayed = everstep_of(tmp_path, JOBS, "replay", "trip")
    assert (replayed.returncode, replayed.stdout) == (4, "through\n")
