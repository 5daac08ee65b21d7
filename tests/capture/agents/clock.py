"""A probe of every clock and every source of chance that a program can reach: one line each, name and value.

Two runs of this program print the same names; the values differ, but for those of `SAME` and the date. The last part
asks from a thread, from tasks and after a call of the model server.
"""

import asyncio
import datetime  # noqa: ICN001 - programs of every age write it so
import os
import random
import secrets
import tempfile
import threading
import time
import urllib.request
import uuid
import warnings
from collections.abc import Callable
from datetime import date
from datetime import datetime as DateTime  # noqa: N812 - the name under which the other style would hide
from random import choice, randint
from random import random as chance
from secrets import token_bytes
from time import monotonic, time_ns
from time import time as now
from uuid import uuid4

import uuid_utils
from uuid_utils import compat

ZONE = datetime.timezone.utc  # noqa: UP017 - programs of every age write it so
MODULE_TIME = time.time()  # taken at import
MODULE_CHANCE = random.Random()


def default_time(at: float = time.time()) -> float:
    """A time that was taken when the function was made."""
    return at


def utcnow() -> datetime.datetime:
    """The time in UTC as it was asked for before Python 3.12."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return datetime.datetime.utcnow()


def shuffled() -> list[int]:
    """A list in an order by chance."""
    numbers = list(range(10))
    random.shuffle(numbers)
    return numbers


def temporary() -> str:
    """The name that a temporary file gets, without its folder."""
    with tempfile.NamedTemporaryFile() as file:
        return os.path.basename(file.name)  # noqa: PTH119 - programs of every age write it so


def folder() -> str:
    """The name that a temporary folder gets, without its parent."""
    with tempfile.TemporaryDirectory() as made:
        return os.path.basename(made)  # noqa: PTH119 - programs of every age write it so


def file_time() -> float:
    """When a new file was written, as the file system has it."""
    with tempfile.NamedTemporaryFile() as file:
        return os.stat(file.name).st_mtime  # noqa: PTH116 - programs of every age write it so


def reseeded() -> float:
    """The next number after a seed by chance."""
    random.seed()
    return random.random()


def seeded() -> float:
    """The next number after a seed of one's own: the same in every run."""
    return random.Random(7).random()


PROBES: dict[str, Callable[[], object]] = {
    "time.time": time.time,
    "time.time_ns": time.time_ns,
    "time.time at import": lambda: MODULE_TIME,
    "time.time as a default": default_time,
    "time.strftime": lambda: time.strftime("%Y-%m-%d %H:%M:%S"),
    "time.localtime": lambda: tuple(time.localtime()),
    "time.gmtime": lambda: tuple(time.gmtime()),
    "time.ctime": time.ctime,
    "time.monotonic": time.monotonic,
    "time.monotonic_ns": time.monotonic_ns,
    "time.perf_counter": time.perf_counter,
    "time.perf_counter_ns": time.perf_counter_ns,
    "time.process_time": time.process_time,
    "time.thread_time": time.thread_time,
    "time.clock_gettime": lambda: time.clock_gettime(time.CLOCK_REALTIME),
    "from time import time": now,
    "from time import time_ns": time_ns,
    "from time import monotonic": monotonic,
    "datetime.now": datetime.datetime.now,
    "datetime.now(utc)": lambda: datetime.datetime.now(ZONE),
    "datetime.utcnow": utcnow,
    "datetime.today": datetime.datetime.today,
    "date.today": datetime.date.today,
    "from datetime import date": date.today,
    "from datetime import datetime": DateTime.now,
    "random.random": random.random,
    "random.randint": lambda: random.randint(0, 10**9),
    "random.choice": lambda: random.choice(range(10**9)),
    "random.sample": lambda: random.sample(range(10**6), 3),
    "random.shuffle": shuffled,
    "random.gauss": random.gauss,
    "random.getrandbits": lambda: random.getrandbits(64),
    "random.randbytes": lambda: random.randbytes(8).hex(),
    "random.seed": reseeded,
    "random.Random()": lambda: random.Random().random(),
    "random.Random() at import": MODULE_CHANCE.random,
    "random.Random(7)": seeded,
    "random.SystemRandom": lambda: random.SystemRandom().random(),
    "from random import random": chance,
    "from random import choice": lambda: choice(range(10**9)),
    "from random import randint": lambda: randint(0, 10**9),
    "uuid.uuid1": uuid.uuid1,
    "uuid.uuid4": uuid.uuid4,
    "from uuid import uuid4": uuid4,
    "uuid_utils.uuid4": uuid_utils.uuid4,
    "uuid_utils.uuid7": uuid_utils.uuid7,
    "uuid_utils.compat.uuid4": compat.uuid4,
    "uuid_utils.compat.uuid7": compat.uuid7,
    "secrets.token_hex": lambda: secrets.token_hex(8),
    "secrets.token_urlsafe": lambda: secrets.token_urlsafe(8),
    "secrets.randbelow": lambda: secrets.randbelow(10**9),
    "secrets.choice": lambda: secrets.choice(range(10**9)),
    "from secrets import token_bytes": lambda: token_bytes(8).hex(),
    "os.urandom": lambda: os.urandom(8).hex(),
    "os.getrandom": lambda: os.getrandom(8).hex() if hasattr(os, "getrandom") else os.urandom(8).hex(),
    "hash of a string": lambda: hash("x"),
    "order of a set": lambda: list({f"name {number}" for number in range(8)}),
    "tempfile.NamedTemporaryFile": temporary,
    "tempfile.TemporaryDirectory": folder,
    "tempfile.mktemp": lambda: os.path.basename(tempfile.mktemp()),  # noqa: PTH119 - as above
    "os.stat of a new file": file_time,
    "os.getpid": os.getpid,
    "id": lambda: id(object()),
    "repr of an object": lambda: repr(object()),
    "threading.get_ident": threading.get_ident,
    "os.times": lambda: os.times().elapsed,
}
SAME = {"random.Random(7)"}


def show(name: str, value: object) -> None:
    """One line of the transcript."""
    print(name, "=", value, flush=True)


async def tasks() -> None:
    """The clock of the loop, and chance in tasks side by side."""
    loop = asyncio.get_running_loop()
    show("loop.time", loop.time())

    async def draw(number: int) -> str:
        await asyncio.sleep(random.random() / 100)
        return f"{number} {random.random()} {uuid.uuid4()} {time.time()}"

    for number, drawn in enumerate(await asyncio.gather(*(draw(at) for at in range(3)))):
        show(f"in task {number}", drawn)
    before = loop.time()
    await asyncio.sleep(0.02)
    show("slept in a loop", loop.time() - before >= 0.019)


def main() -> None:
    """Every probe, then the same from elsewhere."""
    for name, probe in PROBES.items():
        show(name, probe())
    drawn: list[object] = []
    thread = threading.Thread(target=lambda: drawn.extend([random.random(), time.time(), uuid.uuid4()]))
    thread.start()
    thread.join()
    for number, value in enumerate(drawn):
        show(f"in a thread {number}", value)
    asyncio.run(tasks())
    with urllib.request.urlopen(os.environ["MODEL_URL"] + f"/plain/{uuid.uuid4()}", timeout=10) as got:
        show("after a call", (got.headers["X-Counter"], time.time(), random.random()))
    before = time.time()
    time.sleep(0.02)
    show("slept", time.time() - before >= 0.019)


if __name__ == "__main__":
    main()
