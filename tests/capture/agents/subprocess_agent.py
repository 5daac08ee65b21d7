"""An agent that runs commands: each way of subprocess, and asyncio's; what they print is new every time."""

import asyncio
import os
import subprocess
import sys
import urllib.request

URL = os.environ["MODEL_URL"]
CHANCE = [sys.executable, "-I", "-S", "-c", "import os; print(os.urandom(4).hex())"]
ECHO = [sys.executable, "-I", "-S", "-c", "import sys; print('got', sys.stdin.read().upper())"]
FAILS = [sys.executable, "-I", "-S", "-c", "import os, sys; print('no', file=sys.stderr); sys.exit(7)"]


def say(*words: object) -> None:
    """One line of the transcript."""
    print(*words, flush=True)


def counter() -> str:
    """A call between the commands."""
    with urllib.request.urlopen(f"{URL}/plain/between", timeout=10) as got:
        return str(got.headers["X-Counter"])


def blocking() -> None:
    """Commands that are waited for."""
    done = subprocess.run(CHANCE, capture_output=True, text=True, check=True)
    say("run", done.returncode, done.stdout.strip())
    say("check_output", subprocess.check_output(CHANCE).strip())
    say("call", counter())
    failed = subprocess.run(FAILS, capture_output=True, text=True, check=False)
    say("failed", failed.returncode, failed.stderr.strip())
    try:
        subprocess.run(FAILS, capture_output=True, check=True)
    except subprocess.CalledProcessError as error:
        say("raised", error.returncode, error.stderr)
    with subprocess.Popen(ECHO, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        out, _ = process.communicate("text")
        say("communicate", process.returncode, out.strip())
    with subprocess.Popen(CHANCE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            say("read", line.strip())
    say("shell", subprocess.getoutput("echo $$ > /dev/null; echo shell"))
    with os.popen("echo popen") as pipe:
        say("popen", pipe.read().strip())
    say("system", os.system("exit 3"))


async def awaited() -> None:
    """Commands that are awaited, some at once."""

    async def chance(number: int) -> str:
        process = await asyncio.create_subprocess_exec(*CHANCE, stdout=subprocess.PIPE)
        out, _ = await process.communicate()
        return f"{number} {process.returncode} {out.decode().strip()}"

    for line in await asyncio.gather(*(chance(number) for number in range(3))):
        say("exec", line)
    process = await asyncio.create_subprocess_shell("echo from a shell; exit 2", stdout=subprocess.PIPE)
    out, _ = await process.communicate()
    say("asyncio shell", process.returncode, out)


if __name__ == "__main__":
    blocking()
    asyncio.run(awaited())
    say("done", counter())
