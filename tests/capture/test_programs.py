"""`everstep record`, and resume, replay and fork of a program: as a person types them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep.model import Status
from tests.capture.running import environment
from tests.capture.server import ModelServer

CALLS = """
import os, sys, time
import httpx

URL = os.environ["MODEL_URL"]
client = httpx.Client()
print("args", sys.argv[1:], __name__, flush=True)
for number in range(int(os.environ.get("CALLS", "4"))):
    body = {"model": "m", "messages": [{"role": "user", "content": f"say {number}"}]}
    answer = client.post(URL + "/v1/chat/completions", json=body).json()
    print(number, answer["choices"][0]["message"]["content"], flush=True)
    time.sleep(float(os.environ.get("PAUSE", "0")))
"""


class Shell:
    """A folder with a program, a trail and a server."""

    def __init__(self, folder: Path, server: ModelServer) -> None:
        self.folder, self.server = folder, server
        self.write(CALLS)

    def write(self, text: str) -> None:
        (self.folder / "agent.py").write_text(text, "utf-8")

    def start(self, *words: str, **more: str) -> subprocess.Popen[str]:
        env = environment(self.server.url, EVERSTEP_TRAIL="trail.db", **more)
        return subprocess.Popen(
            [sys.executable, "-m", "everstep", *words], cwd=self.folder, env=env, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*words, **more)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def everstep(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """A command on the program."""
        return self.run(*words, "--", sys.executable, "agent.py", "--city", "Oslo", **more)

    def opened(self) -> Any:
        return everstep.open(self.folder / "trail.db", read_only=True)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A shell in a folder of its own."""
    with ModelServer() as server:
        yield Shell(tmp_path, server)


def test_a_program_is_recorded_and_replayed_without_a_network(shell: Shell) -> None:
    """Promise 6."""
    recorded = shell.everstep("record", "--id", "trip", "--tag", "who=me")
    assert recorded.returncode == 0, recorded.stderr
    assert recorded.stdout.startswith("args ['--city', 'Oslo'] __main__\n")
    assert len(recorded.stdout.splitlines()) == 5
    with shell.opened() as trail:
        run = trail.run("trip")
        assert (run.status, run.workflow, run.tags) == (Status.COMPLETED, "agent.py", {"who": "me"})
        assert trail.state("trip")["stdout"] == recorded.stdout
        assert trail.state("trip")["exit"] == 0
        [step] = [each for each in trail.steps("trip") if each.seq == 1]
        assert step.usage is not None
        assert (step.node_type, step.name, step.usage["provider"]) == ("model", "openai chat", "openai")
        assert step.usage["input_tokens"] > 0
        assert step.usage["output_tokens"] > 0
    asked = len(shell.server.requests)
    shell.server.stop()
    for seal in ("calls", "files"):
        replayed = shell.everstep("replay", "trip", "--seal", seal)
        assert (replayed.returncode, replayed.stdout) == (0, recorded.stdout), replayed.stderr
        assert "trip: identical: 4 steps answered from the record" in replayed.stderr
    assert len(shell.server.requests) == asked


def test_a_program_that_was_killed_goes_on_and_nothing_is_asked_twice(shell: Shell) -> None:
    """Promise 2, of a program that never heard of us."""
    process = shell.start("record", "--id", "trip", "--", sys.executable, "agent.py", PAUSE="0.1", CALLS="6")
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("2 "):
            break
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    resumed = shell.run("resume", "trip", "--", sys.executable, "agent.py", CALLS="6")
    assert resumed.returncode == 0, resumed.stderr
    answers = [line.split(" ", 1)[1] for line in resumed.stdout.splitlines()[1:]]
    assert len(set(answers)) == 6
    bodies = [request.digest for request in shell.server.requests if request.sent]
    assert len(bodies) <= 7  # the one at work when it was killed may go again
    shell.server.stop()
    replayed = shell.run("replay", "trip", "--", sys.executable, "agent.py", CALLS="6")
    assert (replayed.returncode, replayed.stdout) == (0, resumed.stdout), replayed.stderr


@pytest.mark.parametrize(
    ("ending", "status", "said"),
    [
        ("raise ValueError('no room')", 1, "ValueError: no room"),
        ("sys.exit(3)", 3, ""),
        ("sys.exit('goodbye')", 1, "goodbye"),
        ("raise SystemExit", 0, ""),
        ("sys.stdout.close()", 0, ""),
        ("sys.stdout, sys.stderr = None, None", 0, ""),
    ],
)
def test_however_a_program_ends_its_run_is_there(shell: Shell, ending: str, status: int, said: str) -> None:
    shell.write(f"{CALLS}\n{ending}\n")
    recorded = shell.everstep("record", "--id", "trip", CALLS="1")
    assert recorded.returncode == status
    assert said in recorded.stderr
    assert "everstep/" not in recorded.stderr  # a traceback is the program's own
    with shell.opened() as trail:
        assert trail.run("trip").status is (Status.FAILED if status else Status.COMPLETED)
        assert trail.state("trip")["exit"] == status
        assert said in str(trail.steps("trip")[-1].error)  # and not only that it exited with 1
    replayed = shell.everstep("replay", "trip", CALLS="1")
    assert replayed.returncode == 0, replayed.stderr


LATER = """
import atexit, threading
from concurrent.futures import ThreadPoolExecutor

def later(name):
    print(name, client.get(f"{URL}/plain/{name}").json()["counter"], flush=True)

def thread():
    time.sleep(0.1)
    later("thread")

atexit.register(later, "exit")
pool = ThreadPoolExecutor(2)  # nobody shuts it down
pool.submit(later, "pool").result()
threading.Thread(target=thread).start()
"""


@pytest.mark.parametrize(("ending", "status"), [("", 0), ("sys.exit(2)", 2), ("raise ValueError('no room')", 1)])
def test_what_python_does_at_the_end_belongs_to_the_run(shell: Shell, ending: str, status: int) -> None:
    """Threads and exit handlers call, too, when the main module is through: however it ended."""
    shell.write(f"{CALLS}\n{LATER}\n{ending}\n")
    recorded = shell.everstep("record", "--id", "trip", CALLS="1")
    assert recorded.returncode == status, recorded.stderr
    assert [line.split()[0] for line in recorded.stdout.splitlines()[2:]] == ["pool", "thread", "exit"]
    shell.server.stop()
    replayed = shell.everstep("replay", "trip", CALLS="1")
    assert (replayed.returncode, replayed.stdout) == (0, recorded.stdout), replayed.stderr


def test_a_thread_that_nobody_waits_for_may_be_in_a_call_at_the_end(shell: Shell) -> None:
    slow = "threading.Thread(target=client.get, args=(URL + '/slow?s=20',), daemon=True).start(); time.sleep(0.2)"
    shell.write(f"{CALLS}\nimport threading\n{slow}\nclient.get(URL + '/plain/last')\n")
    recorded = shell.everstep("record", "--id", "trip", CALLS="1")
    assert recorded.returncode == 0, recorded.stderr
    with shell.opened() as trail:
        assert trail.run("trip").status is Status.COMPLETED


STUBBORN = """
import asyncio, os, threading, time
import httpx

def ask():
    while True:
        try:
            text = os.environ.get("PROMPT", "hello")
            url = os.environ["MODEL_URL"] + "/v1/chat/completions"
            body = {"model": "m", "messages": [{"role": "user", "content": text}]}
            return httpx.post(url, json=body).json()["id"]
        except BaseException:
            time.sleep(0.01)

async def tasks():
    while True:
        try:
            return await asyncio.to_thread(ask)
        except BaseException:
            await asyncio.sleep(0.01)

print(HOW)
"""


@pytest.mark.parametrize("how", ["ask()", "asyncio.run(tasks())"])
def test_a_program_that_tries_again_for_ever_is_ended(shell: Shell, how: str) -> None:
    shell.write(STUBBORN.replace("HOW", how))
    assert shell.everstep("record", "--id", "trip").returncode == 0
    replayed = shell.everstep("replay", "trip", PROMPT="other")
    assert replayed.returncode == 4
    assert "diverged at trip@1" in replayed.stderr
    assert len(shell.server.requests) == 1


def test_a_program_that_is_not_there_leaves_no_run(shell: Shell) -> None:
    refused = shell.run("record", "--id", "trip", "--", sys.executable, "agnet.py")
    assert (refused.returncode, refused.stderr) == (
        1,
        "everstep: agnet.py cannot be read: No such file or directory.\n",
    )
    assert shell.everstep("record", "--id", "trip", CALLS="1").returncode == 0


def test_a_program_finds_its_file_wherever_it_goes(shell: Shell) -> None:
    shell.write("import os\nos.chdir('/')\nprint(open(__file__).readline())\n")
    recorded = shell.everstep("record", "--id", "trip")
    assert recorded.stdout.startswith("import os"), recorded.stderr


def test_a_call_that_failed_as_unknown_fails_again_in_a_replay(shell: Shell) -> None:
    dies = "os.kill(os.getpid(), 9) if 'CRASH' in os.environ else None"
    hooks = f"event_hooks={{'response': [lambda _: {dies}]}}"
    shell.write(f"import os, httpx\nhttpx.Client({hooks}).post(os.environ['MODEL_URL'] + '/plain/order')\n")
    assert shell.everstep("record", "--id", "trip", CRASH="1").returncode == -signal.SIGKILL
    resumed = shell.everstep("resume", "trip", "--unknown", "fail")
    assert "UnknownOutcomeError" in resumed.stderr
    replayed = shell.everstep("replay", "trip")
    assert replayed.returncode == 0, replayed.stderr
    assert len(shell.server.requests) == 1


def test_a_program_that_failed_is_taken_up_where_it_failed(shell: Shell) -> None:
    shell.write(CALLS + "client.get(URL + '/flaky?key=k').raise_for_status()\nprint('through')\n")
    assert shell.everstep("record", "--id", "trip").returncode == 1
    resumed = shell.everstep("resume", "trip")
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout.endswith("through\n")
    assert len(shell.server.requests) == 6


def test_a_fork_goes_on_live_from_its_step(shell: Shell) -> None:
    recorded = shell.everstep("record", "--id", "trip")
    forked = shell.everstep("fork", "trip", "--at", "2", "--id", "other")
    assert forked.returncode == 0, forked.stderr
    before, after = recorded.stdout.splitlines(), forked.stdout.splitlines()
    assert before[:3] == after[:3]
    assert not set(before[3:]) & set(after[3:])
    assert len(shell.server.requests) == 6
    replayed = shell.everstep("replay", "other")
    assert (replayed.returncode, replayed.stdout) == (0, forked.stdout), replayed.stderr
    made = shell.run("fork", "trip", "--at", "2", "--id", "later")
    assert f"next: everstep resume later -- {sys.executable} agent.py --city Oslo\n" in made.stderr


def test_what_if_a_call_had_been_answered_otherwise(shell: Shell) -> None:
    shell.everstep("record", "--id", "trip")
    answer = json.dumps({"choices": [{"message": {"content": "something else"}}]})
    forked = shell.everstep("fork", "trip", "--outcome", f"2={answer}", "--id", "other")
    assert forked.stdout.splitlines()[2] == "1 something else", forked.stderr


def test_a_changed_program_is_told_where_it_parts_and_what_to_do(shell: Shell) -> None:
    process = shell.start("record", "--id", "trip", "--", sys.executable, "agent.py", PAUSE="0.2")
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("1 "):
            break
    process.kill()
    process.communicate()
    shell.write(CALLS.replace("say {number}", "tell {number}"))
    resumed = shell.run("resume", "trip", "--trail", "trail.db", "--", sys.executable, "agent.py")
    assert resumed.returncode == 4
    assert "Changed: body.messages[0].content: 'say 0' -> 'tell 0'" in resumed.stderr
    assert f"next: everstep fork trip --at 0 --trail trail.db -- {sys.executable} agent.py" in resumed.stderr
    found: dict[str, Any] = json.loads(shell.run("replay", "trip", "--json", "--", sys.executable, "agent.py").stdout)
    assert found["replay"]["identical"] is False


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["record", "--", "ls"], 1, "'ls' is no Python program"),
        (["record", "--", "python", "-E", "agent.py"], 1, "with -E Python ignores"),
        (["record", "--", "python"], 1, "there is no program after Python's options"),
        (["record"], 2, "Missing argument"),
        (["record", "--", "python", "missing.py"], 1, "missing.py cannot be read"),
        (["record", "--id", "trip", "--", "python", "agent.py"], 5, "a run 'trip' exists already"),
        (["resume", "trip", "--", "python", "agent.py", "--city", "Rome"], 1, "other inputs"),
        (["resume", "nope", "--", "python", "agent.py"], 3, "nope"),
        (["replay", "trip", "--mode", "verify"], 2, "say which one: everstep replay trip --"),
        (["resume", "trip"], 2, "say which one: everstep resume trip --"),
        (["resume", "trip", "--app", "agent"], 2, "say which one: everstep resume trip --"),
        (["replay", "trip", "--app", "agent"], 2, "say which one: everstep replay trip --"),
        (["export", "trip", "--as-test", "--app", "agent"], 2, "have a test run everstep replay trip --"),
    ],
)
def test_what_cannot_be_done_is_said_with_the_way_out(shell: Shell, words: list[str], code: int, said: str) -> None:
    if {"trip", "nope"} & set(words):
        shell.everstep("record", "--id", "trip", CALLS="0")
    done = shell.run(*[sys.executable if word == "python" else word for word in words])
    assert (done.returncode, said in done.stderr, done.stdout) == (code, True, ""), done.stderr  # and nothing was run


def test_no_key_reaches_the_trail(shell: Shell) -> None:
    """Promise 10."""
    key = "sk-abcdefghijklmnopqrstuvwxyz0123456789"
    shell.write(
        "import os, httpx\n"
        f"client = httpx.Client(headers={{'Authorization': 'Bearer {key}', 'x-api-key': 'k-123456'}})\n"
        "url = os.environ['MODEL_URL']\n"
        f"client.post(url + '/echo?api_key={key}', json={{'password': 'hunter2hunter2', 'note': 'key {key}'}})\n"
        "print(client.get(url + '/cookie').status_code)\n"
    )
    recorded = shell.everstep("record", "--id", "trip", "--quiet")
    assert recorded.returncode == 0, recorded.stderr
    stored = b"".join(path.read_bytes() for path in shell.folder.glob("trail.db*"))
    for secret in (key, "k-123456", "hunter2hunter2"):
        assert secret.encode() not in stored
    shell.server.stop()
    assert shell.everstep("replay", "trip").returncode == 0


def test_a_secret_that_an_answer_gave_is_not_sent_as_a_placeholder(shell: Shell) -> None:
    """Promise 10: it was not stored, so a resumed program has none; what stands for it is not sent in silence."""
    shell.write(
        "import os, sys, httpx\n"
        "client, url = httpx.Client(), os.environ['MODEL_URL']\n"
        "token = client.post(url + '/echo', json={'access_token': 'opensesame-' + 'q7' * 9}).json()\n"
        "print(client.get(url + '/flaky?key=f').status_code, flush=True)\n"
        "if 'die' in os.environ.get('HOW', ''):\n"
        "    os.kill(os.getpid(), 9)\n"
        "print(client.get(url + '/plain/x', headers={'authorization': f'Bearer {token}'}).status_code)\n"
    )
    assert shell.everstep("record", "--id", "trip", HOW="die").returncode == -signal.SIGKILL
    asked = len(shell.server.requests)
    resumed = shell.everstep("resume", "trip")
    assert resumed.returncode == 1
    assert "would be sent with a placeholder in it" in resumed.stderr
    assert len(shell.server.requests) == asked


def test_what_a_program_failed_with_is_what_its_run_failed_with(shell: Shell) -> None:
    shell.write("def book():\n    raise LookupError('no room in Oslo')\n\n\nbook()\n")
    recorded = shell.everstep("record", "--id", "trip")
    assert recorded.returncode == 1
    assert recorded.stderr.startswith("Traceback (most recent call last):\n")
    shown = shell.run("show", "trip")
    assert "LookupError: no room in Oslo" in shown.stdout
    assert f"next: everstep resume trip -- {sys.executable} agent.py --city Oslo" in shown.stderr
    assert shell.everstep("replay", "trip").returncode == 0


def test_what_a_seal_refuses_is_the_first_that_is_told(shell: Shell) -> None:
    shell.write(CALLS)
    shell.everstep("record", "--id", "trip", CALLS="1")
    shell.write(f"{CALLS}\nopen('report.md', 'w')\n")
    (shell.folder / "temporary").mkdir()
    replayed = shell.everstep("replay", "trip", "--sealed", CALLS="1", TMPDIR=str(shell.folder / "temporary"))
    assert replayed.returncode == 4
    assert "agent.py:14 would write report.md" in replayed.stderr.split("trip: diverged at", 1)[1]


def test_a_daemon_thread_that_was_never_answered_does_not_stop_a_replay(shell: Shell) -> None:
    shell.write(
        "import os, threading, time, httpx\n"
        "url = os.environ['MODEL_URL']\n"
        "threading.Thread(target=httpx.get, args=(url + '/slow?s=20',), daemon=True).start(); time.sleep(0.3)\n"
        "print(httpx.get(url + '/plain/last').json())\n"
    )
    recorded = shell.everstep("record", "--id", "trip")
    assert recorded.returncode == 0, recorded.stderr
    shell.server.stop()
    replayed = shell.everstep("replay", "trip")
    assert (replayed.returncode, replayed.stdout) == (0, recorded.stdout), replayed.stderr


def test_threads_that_are_taken_out_of_a_replay_say_nothing(shell: Shell) -> None:
    shell.write(
        "import os, threading, httpx\n"
        "url = os.environ['MODEL_URL'] + '/plain/' + os.environ.get('PATH_OF', 'a')\n"
        "threads = [threading.Thread(target=httpx.get, args=(url,)) for _ in range(3)]\n"
        "[thread.start() for thread in threads], [thread.join() for thread in threads]\n"
    )
    assert shell.everstep("record", "--id", "trip").returncode == 0
    replayed = shell.everstep("replay", "trip", PATH_OF="b")
    assert replayed.returncode == 4
    assert replayed.stderr.startswith("trip: diverged at"), replayed.stderr
