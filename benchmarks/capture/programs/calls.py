"""The program whose calls are timed: `calls.py CALLS STREAMS`. Its last line on stderr is the seconds of each, as JSON.

The clock is one that no tool here replaces: some of them show a program that is replayed the time of its recording.
"""

import json
import os
import sys
import time

import httpx2
from openai import OpenAI

ANSWER = {
    "id": "chatcmpl-1", "object": "chat.completion", "created": 1_700_000_000, "model": "gpt-test",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "answer " * 8}}],
    "usage": {"prompt_tokens": 700, "completion_tokens": 8, "total_tokens": 708},
}  # fmt: skip

ROW = os.urandom(int(os.environ["BENCH_COMMITTED"]))

with open(os.environ["BENCH_PROMPTS"], encoding="utf-8") as file:  # noqa: PTH123 - a plain program
    PROMPTS = json.load(file)

# Answered from memory, calls cost what the SDK takes for itself: no replay can be faster.
transport = httpx2.MockTransport(lambda _: httpx2.Response(200, json=ANSWER)) if "BENCH_MEMORY" in os.environ else None
client = OpenAI(
    base_url=os.environ["MODEL_URL"] + "/v1",
    api_key=os.environ["BENCH_KEY"],
    max_retries=0,
    http_client=httpx2.Client(transport=transport) if transport else None,
)
create = client.chat.completions.create


class Commits:
    """Durable commits of SQLite and nothing else: a row as large as a call, stored plain. Without a path, none."""

    def __init__(self, path: str | None) -> None:
        self.connection = None
        if path is not None:
            import apsw  # noqa: PLC0415 - the others do not need it

            self.connection = apsw.Connection(path)
            self.connection.execute("pragma journal_mode = wal")
            self.connection.execute("pragma synchronous = full")
            self.connection.execute("create table log (id integer primary key, data blob not null)")

    def commit(self) -> None:
        """Make one."""
        if self.connection is not None:
            self.connection.execute("begin immediate")
            self.connection.execute("insert into log (data) values (?)", (ROW,))
            self.connection.execute("commit")


class Turns:
    """Turns at the calls, so many in each, where other programs make theirs meanwhile. None if it is not told."""

    def __init__(self, told: str) -> None:
        go, done, size = told.split(":") if told else ("", "", "0")
        self.size = int(size)
        if self.size:
            self.go, self.done = os.open(go, os.O_RDONLY), os.open(done, os.O_WRONLY)

    def before(self, calls: int) -> None:
        """Wait for the next turn, if the last one is over after so many calls."""
        if self.size and calls % self.size == 0:
            self.end()
            os.read(self.go, 1)

    def end(self) -> None:
        """Say that there is nothing left to do in this turn."""
        if self.size:
            os.write(self.done, b".")


commit = Commits(os.environ.get("BENCH_COMMITS")).commit
turns = Turns(os.environ.get("BENCH_TURNS", ""))


def now() -> int:
    """Nanoseconds, of the clock of the system."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def main(calls: int, streams: int) -> None:
    """Ask so often, whole and as streams. The first call opens the connection, and is not counted."""
    seconds: dict[str, list[float]] = {"calls": [], "streams": []}
    for number in range(calls + 1):
        if number:
            turns.before(number - 1)
        start = now()
        create(model="gpt-test", messages=[{"role": "user", "content": PROMPTS[number % len(PROMPTS)]}])
        commit()
        if number:
            seconds["calls"].append((now() - start) / 1e9)
    turns.end()
    for _ in range(streams):
        start = now()
        for _chunk in create(
            model="gpt-test", stream=True, messages=[{"role": "user", "content": "At length. [chunks 50]"}]
        ):
            pass
        seconds["streams"].append((now() - start) / 1e9)
    print("done", flush=True)
    print(json.dumps(seconds), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
