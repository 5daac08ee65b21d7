"""Processes of captured programs: recorded once, then played without any process."""

from __future__ import annotations

import asyncio
import io
import multiprocessing
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path
from typing import Any

import anyio
import pytest

import everstep
from everstep.capturing.session import capture
from everstep.errors import CaptureWarning, DivergenceError, UnknownOutcomeError
from tests.capture.running import AGENTS, ROOT, environment
from tests.capture.server import ModelServer

PIPE = subprocess.PIPE
PYTHON = [sys.executable, "-I", "-S", "-u", "-c"]
CHANCE = [*PYTHON, "import os; print(os.urandom(4).hex())"]
ECHO = [*PYTHON, "import os, sys\nfor line in sys.stdin: print(line.strip(), os.urandom(2).hex(), flush=True)"]
DRIPS = [*PYTHON, "import os, time\nfor n in range(5): os.write(1, os.urandom(40 + 900 * n)); time.sleep(0.005)"]
SLEEPS = [*PYTHON, "import os, time; print(os.urandom(2).hex(), flush=True); time.sleep(60)"]
Program = Callable[[], list[Any]]


def ways_to_run() -> list[Any]:
    said: list[Any] = [subprocess.run(CHANCE, capture_output=True, text=True, check=True).stdout]
    said += [subprocess.check_output(CHANCE), subprocess.call(["false"]), subprocess.getoutput("echo $$")]
    said += [subprocess.getstatusoutput("echo $$; exit 4"), os.system("exit 3")]
    with os.popen("echo $$") as pipe:
        said.append(pipe.read())
    with pytest.raises(subprocess.CalledProcessError) as failed:
        subprocess.run("echo $$ >&2; exit 7", shell=True, capture_output=True, check=True)
    with pytest.raises(subprocess.CalledProcessError):
        subprocess.check_call(["false"])
    return [*said, failed.value.returncode, failed.value.stderr]


def streams() -> list[Any]:
    merged = [*PYTHON, "import os, sys; print('out', flush=True); print('err', os.urandom(2).hex(), file=sys.stderr)"]
    said: list[Any] = [subprocess.run(merged, stdout=PIPE, stderr=subprocess.STDOUT, check=True).stdout]
    said += [subprocess.run(merged, stderr=PIPE, stdout=subprocess.DEVNULL, check=True, encoding="utf-8").stderr]
    whole = subprocess.run(["cat"], input="é\r\n" * 200_000, capture_output=True, text=True, check=True).stdout
    binary = subprocess.check_output([*PYTHON, "import os; os.writev(1, [os.urandom(50_000)] * 100)"])
    digests = [blake2b(each).hexdigest() for each in (whole.encode(), binary)]
    first = subprocess.Popen(CHANCE, stdout=PIPE)
    with subprocess.Popen(["cat"], stdin=first.stdout, stdout=PIPE) as second:
        assert first.stdout is not None
        first.stdout.close()
        said += [second.communicate()[0], first.wait()]
    return [*said, len(whole), len(binary), *digests]


def conversation() -> list[Any]:
    with subprocess.Popen(ECHO, stdin=PIPE, stdout=PIPE, text=True, bufsize=1) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        said: list[Any] = ["begin"]
        for number in range(5):
            process.stdin.write(f"{number} {said[-1]}\n")
            said.append(process.stdout.readline().strip())
        process.stdin.close()
        return [*said, process.wait(), process.stdout.read(), process.pid, process.args == ECHO]


def pieces() -> list[Any]:
    said: list[Any] = []
    for size in (-1, 0):
        with subprocess.Popen(DRIPS, stdout=PIPE, bufsize=size) as process:
            stdout: Any = process.stdout
            while piece := stdout.read1(700) if size else stdout.read(700):
                said.append(piece)
    with subprocess.Popen(DRIPS, stdout=PIPE) as process:
        found, stdout = b"", process.stdout
        while select.select([stdout], [], []) and (piece := os.read(stdout.fileno(), 4000)):
            found += piece
        return [*said, found, process.wait(), isinstance(stdout, io.BufferedReader)]


def timeouts() -> list[Any]:
    said: list[Any] = []
    with pytest.raises(subprocess.TimeoutExpired) as late:
        subprocess.run(SLEEPS, capture_output=True, timeout=0.5, check=False)
    said += [late.value.output, late.value.stderr, late.value.timeout]
    with pytest.raises(subprocess.TimeoutExpired) as late:
        subprocess.run(SLEEPS, stdout=subprocess.DEVNULL, timeout=0.1, check=False)
    process, said = subprocess.Popen(SLEEPS, stdout=subprocess.DEVNULL), [*said, str(late.value)]
    with pytest.raises(subprocess.TimeoutExpired) as late:
        process.wait(0.05)
    said += [process.poll(), process.returncode, str(late.value)]
    process.kill()
    said += [process.wait(), process.poll()]
    looks, process = 0, subprocess.Popen([*PYTHON, "import time; time.sleep(0.1)"])
    while process.poll() is None:
        looks += 1
        time.sleep(0.01)
    return [*said, looks, process.returncode]


def signals() -> list[Any]:
    said: list[Any] = []
    for send in (
        subprocess.Popen.terminate,
        lambda process: process.send_signal(2),
        lambda process: os.kill(process.pid, 9),
        lambda process: os.killpg(os.getpgid(process.pid), 15),
    ):
        with subprocess.Popen(SLEEPS, stdout=PIPE, stderr=PIPE, start_new_session=True) as process:
            assert process.stdout is not None
            said.append(process.stdout.readline())
            send(process)
            said += [process.communicate()[0], process.returncode]
    return said


def trouble() -> list[Any]:
    said: list[Any] = []
    for words, folder in ((["/no/such/program"], None), (CHANCE, "no-such-folder")):
        with pytest.raises(FileNotFoundError) as missing:
            subprocess.run(words, cwd=folder, capture_output=True, check=False)
        said += [missing.value.errno, missing.value.filename, str(missing.value)]
    with subprocess.Popen(["yes"], stdout=PIPE) as process:
        assert process.stdout is not None
        said.append(process.stdout.readline())
        process.stdout.close()
        said.append(process.wait())
    with subprocess.Popen(["true"], stdin=PIPE, stdout=PIPE) as process:
        said += [process.communicate(b"nobody reads this" * 100_000), process.returncode]
    with subprocess.Popen("echo a; sleep 0.5 & exit 5", shell=True, stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        return [*said, process.wait(), process.stdout.read()]


def threads() -> list[Any]:
    def ask(number: int) -> list[Any]:
        return [number, subprocess.check_output(CHANCE)]

    with ThreadPoolExecutor(3) as pool:
        return list(pool.map(ask, range(6)))


def awaited() -> list[Any]:
    async def one(number: int, said: list[Any]) -> None:
        process = await asyncio.create_subprocess_exec(*CHANCE, stdout=PIPE)
        said.append([number, (await process.communicate())[0], process.returncode])

    async def talk(said: list[Any]) -> None:
        process = await asyncio.create_subprocess_exec(*ECHO, stdin=PIPE, stdout=PIPE)
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(4):
            process.stdin.write(f"{number} {said[-1]}\n".encode())
            await process.stdin.drain()
            said.append((await process.stdout.readline()).decode().strip())
        process.stdin.close()
        said += [await process.wait(), process.pid]

    async def rest(said: list[Any]) -> None:
        process = await asyncio.create_subprocess_shell("echo $$; echo $$ >&2; exit 2", stdout=PIPE, stderr=PIPE)
        said += [await process.communicate(), process.returncode]
        process = await asyncio.create_subprocess_exec(*DRIPS, stdout=PIPE)
        assert process.stdout is not None
        while piece := await process.stdout.read(700):
            said.append(piece)
        process = await asyncio.create_subprocess_exec(*SLEEPS, stdout=PIPE)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(process.communicate(), 0.3)
        process.kill()
        said += [await process.wait(), process.returncode]
        with pytest.raises(FileNotFoundError):
            await asyncio.create_subprocess_exec("/no/such/program")
        said.append((await anyio.run_process(["rev"], input=b"abc")).stdout)
        said.append(await asyncio.to_thread(subprocess.check_output, CHANCE))

    async def main() -> list[Any]:
        said: list[Any] = []
        await asyncio.gather(*(one(number, said) for number in range(5)))
        await talk(said)
        await rest(said)
        return said

    return asyncio.run(main())


PROGRAMS = [ways_to_run, streams, conversation, pieces, timeouts, signals, trouble, threads, awaited]


@pytest.fixture
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From now on no process can be started."""

    def started(*_: Any) -> int:
        raise AssertionError("a process was started")

    def forbid() -> None:
        monkeypatch.setenv("PATH", "")
        monkeypatch.setattr(subprocess, "_fork_exec", started)
        monkeypatch.setattr(os, "posix_spawn", started)

    return forbid


def recorded(trail: Any, program: Program, **more: Any) -> list[Any]:
    with capture(trail, "run", **more):
        return program()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_what_a_program_sees_of_its_processes_is_the_same_in_replay(
    program: Program, trail: Any, nothing_starts: Callable[[], None]
) -> None:
    first = recorded(trail, program)
    nothing_starts()
    for _ in range(3):
        assert recorded(trail, program, mode="verify") == first


@pytest.mark.torture
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_replays_of_processes_are_identical_20_of_20(
    program: Program, trail: Any, nothing_starts: Callable[[], None]
) -> None:
    first = recorded(trail, program)
    nothing_starts()
    assert [recorded(trail, program, mode="verify") for _ in range(20)] == [first] * 20


def test_a_second_recording_gets_other_answers(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "one.db") as one, everstep.open(tmp_path / "two.db") as two:
        first, second = recorded(one, ways_to_run), recorded(two, ways_to_run)
    assert len(first) == len(second)
    assert first != second


def test_the_agent_replays_without_path_or_server(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "everstep"]
    agent = ["--", sys.executable, str(AGENTS / "subprocess_agent.py")]
    with ModelServer() as server:
        env = environment(server.url, EVERSTEP_TRAIL="trail.db", PYTHONPATH=str(ROOT / "src"))
        made = subprocess.run(
            [*command, "record", "--id", "run", *agent], cwd=tmp_path, env=env, capture_output=True, text=True,
            check=True,
        )  # fmt: skip
    again = subprocess.run(
        [*command, "replay", "run", *agent], cwd=tmp_path, env={**env, "PATH": ""}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert again.stdout.startswith(made.stdout)


# What differs.


def asks(*lines: str, words: list[str] = ECHO) -> Program:
    def program() -> list[Any]:
        with subprocess.Popen(words, stdin=PIPE, stdout=PIPE, text=True, bufsize=1) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            said = []
            for line in lines:
                process.stdin.write(line)
                said.append(process.stdout.readline())
            return said

    return program


@pytest.mark.parametrize("changed", [asks("one\n", "six\n"), asks("one\n", "two"), asks("one\n", words=["cat"])])
def test_another_input_or_command_is_a_divergence_at_the_process(trail: Any, changed: Program) -> None:
    recorded(trail, asks("one\n", "two\n"))
    with pytest.raises(DivergenceError, match=r"step \d+.*run (python|cat)"):
        recorded(trail, changed, mode="verify")


def test_another_input_to_an_awaited_process_is_a_divergence(trail: Any) -> None:
    def program(text: bytes) -> list[Any]:
        async def main() -> list[Any]:
            process = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE)
            return [(await process.communicate(text))[0]]

        return asyncio.run(main())

    assert recorded(trail, lambda: program(b"one")) == [b"one"]
    with pytest.raises(DivergenceError, match=r"run cat << one.*run cat << two"):
        recorded(trail, lambda: program(b"two"), mode="verify")


def test_the_environment_and_the_place_of_the_interpreter_are_no_part_of_what_is_asked(
    trail: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def program() -> list[Any]:
        env = {**os.environ, "KEY": os.environ["KEY"]}
        return [subprocess.check_output([sys.executable, "-I", "-S", "-c", "print(1)"], env=env)]

    monkeypatch.setenv("KEY", "one")
    recorded(trail, program)
    monkeypatch.setenv("KEY", "two")
    monkeypatch.setattr(sys, "executable", "/elsewhere/bin/python")
    assert recorded(trail, program, mode="verify") == [b"1\n"]


def test_secrets_in_what_goes_in_and_out_are_not_kept(trail: Any, tmp_path: Path) -> None:
    secret = "sk-proj-" + "a1B2c3D4e5F6g7H8" * 2

    def program() -> list[Any]:
        got = subprocess.run(["cat"], input=f"key {secret} end", capture_output=True, text=True, check=True).stdout
        return [secret in got, got.startswith("key "), got.endswith(" end")]

    assert recorded(trail, program) == [True, True, True]
    assert recorded(trail, program, mode="verify") == [False, True, True]
    trail.close()
    assert not any(secret.encode() in path.read_bytes() for path in tmp_path.iterdir())


# After a crash.

CRASHES = """
import os, subprocess, sys
import everstep
from everstep.capturing.session import capture

with everstep.open(sys.argv[1]) as trail, capture(trail, "run"):
    print(subprocess.check_output([sys.executable, "-c", "print(1)"]))
    process = subprocess.Popen([sys.executable, "-c", "print(2)"], stdout=subprocess.PIPE)
    process.stdout.read()
    os._exit(9)
"""


def test_a_process_that_was_started_and_not_seen_to_end_is_asked_about(tmp_path: Path) -> None:
    path = tmp_path / "trail.db"
    assert subprocess.run([sys.executable, "-c", CRASHES, str(path)], check=False).returncode == 9

    def program() -> list[Any]:
        return [subprocess.check_output([sys.executable, "-c", f"print({number})"]) for number in (1, 2)]

    with everstep.open(path) as trail:
        with pytest.raises(UnknownOutcomeError, match="step 3"):
            recorded(trail, program)
        assert recorded(trail, program, unknown="retry") == [b"1\n", b"2\n"]


def test_popen_stays_a_class_and_passes_through_outside_of_a_run(trail: Any) -> None:
    class Mine(subprocess.Popen[bytes]):
        pass

    with capture(trail, "run"), Mine(["true"]) as inside:
        assert isinstance(inside, subprocess.Popen)
    with Mine(["echo", "x"], stdout=PIPE) as outside:
        assert outside.communicate()[0] == b"x\n"
    assert not any(thread.name == "everstep-pipes" for thread in threading.enumerate())


def _nothing() -> None:
    """What a process of its own does."""


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")  # of Python's own, since 3.12
def test_processes_that_are_not_recorded_are_told_of_once(trail: Any) -> None:
    def program() -> list[Any]:
        said: list[Any] = []
        for _ in range(2):
            child = os.posix_spawn("/bin/true", ["true"], {})
            said.append(os.waitpid(child, 0)[1])
        for _ in range(2):
            copy = multiprocessing.get_context("fork").Process(target=_nothing)
            copy.start()
            copy.join()
            said.append(copy.exitcode)
        return said

    with pytest.warns(CaptureWarning) as told:
        assert recorded(trail, program) == [0, 0, 0, 0]
    known = [
        str(each.message)
        for each in told
        if each.category is CaptureWarning and "starts a process" in str(each.message)
    ]
    assert ["os.posix_spawn" in known[0], "multiprocessing" in known[1], len(known)] == [True, True, 2]
    assert {Path(each.filename).name for each in told if "starts a process" in str(each.message)} == {
        Path(__file__).name
    }
