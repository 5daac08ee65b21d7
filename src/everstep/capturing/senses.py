"""What a captured program learns of time and of chance, without a call: shown to it again when it is replayed.

| what it asks | what a replay shows |
| --- | --- |
| `time.time`, `time_ns`, `localtime`, `gmtime`, `ctime`, `strftime`, `clock_gettime(CLOCK_REALTIME)` | the same |
| `datetime.now`, `utcnow`, `today`, `date.today`, however they were imported | the same |
| `os.urandom`, `os.getrandom`, `secrets`, `SystemRandom`, `uuid1`, `uuid4`, `getnode` | the same |
| `random`, all of it; `Random()`; names of temporary files and folders | the same |
| hashes of texts, the order of sets | the same, if PYTHONHASHSEED is: `everstep record` sets it |
| `time.sleep`, `asyncio.sleep`, timeouts | the same end, at once |
| `time.monotonic`, `perf_counter`, `process_time`, `thread_time`, `loop.time`, `os.times` | other: they go on |
| times of files, `os.getpid`, `threading.get_ident`, `id()`, the `repr` of objects | other |
| `ssl.RAND_bytes`, other C and Rust code that asks the system itself; /dev/urandom | other |

A name that was imported before capturing began (`from time import sleep`, `from os import urandom`) is what it was; the
times are covered all the same. `random` is one for all threads: in which order they draw from it is chance, so use a
`Random()` or `secrets` in threads. The same holds for `uuid1` and for the names of temporary files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from everstep.capturing import clock, entropy, sleeping
from everstep.codec.chain import Entry
from everstep.errors import CaptureWarning
from everstep.journal import Journal
from everstep.run import faults
from everstep.run.asked import Ask
from everstep.run.lanes import Lane
from everstep.run.life import Life, about_run
from everstep.run.replaying import Replay

# In what is said of a run when it begins.
CLOCK = "clock"  # that it sees a clock of its own
SEED = "seed"  # what its chance is derived from; of a fork, so does the first row that it writes
HASHES = "hash_seed"  # of the hashes of its texts, if they have one
_HASHES_FROM = "PYTHONHASHSEED"


def said(*, clock_too: bool, entropy_too: bool) -> dict[str, Any]:
    """What is said of a new run, so that the same can be shown again."""
    about: dict[str, Any] = {}
    if clock_too and clock.is_there():
        about[CLOCK] = True
    if entropy_too:
        about[SEED] = entropy.new_seed()
    if hashes() is not None:
        about[HASHES] = hashes()
    return about


def hashes() -> str | None:
    """The seed of the hashes of texts in this process, None if it is by chance."""
    seed = os.environ.get(_HASHES_FROM, "random")
    return None if seed in {"", "random"} else seed


class Senses:
    """Time and chance of one captured program."""

    def __init__(self, life: Life, *, clock_too: bool, entropy_too: bool) -> None:
        """With either of them off, the program sees what is there."""
        self._run = run = life.run
        self._start = start = _first_row(life)
        self._about = about = about_run(start)
        self._wanted = clock_too
        shown = clock_too and bool(about.get(CLOCK)) and clock.is_there()
        self.clock = clock.Clock(start.started * 1000, shown=shown, replays=isinstance(life, Replay))
        run.root.hand = self.clock.root
        seed = about.get(SEED) if entropy_too else None
        self._seed: bytes | None = seed
        self.well = (
            None if seed is None else entropy.Well([(0, seed), *self._later_seeds(life)], _outcomes(run.journal))
        )
        on_record = sleeping.fired(_rows(life)) if run.journal.scopes or self.clock.replays else {}
        self.timers = sleeping.Timers(run, replays=self.clock.replays, on_record=on_record)
        clock.watch()
        sleeping.watch()
        entropy.watch()

    def _later_seeds(self, life: Life) -> list[tuple[int, bytes]]:
        """Those of forks. A fork that has none yet gets one."""
        run, trail = life.run, life.trail
        if trail is None:
            return []
        row = trail.store.run(run.run_id)
        if row.fork_seq is None:
            return []
        found = [(entry.seq, seed) for entry in _rows(life) if (seed := about_run(entry).get(SEED)) and entry.seq]
        if run.pen is not None and not any(seq > row.fork_seq for seq, _ in found):
            seed = entropy.new_seed()
            run.pen.beside[SEED] = seed
            found.append((run.pen.scribe.claim.seq + 1, seed))
        return found

    @contextmanager
    def given(self) -> Iterator[None]:
        """While this lasts the program has them."""
        self._warn()
        with ExitStack() as stack:
            if self.clock.shown:
                stack.enter_context(clock.shown())
            if self._seed is not None:
                stack.enter_context(entropy.seeded(self._seed))
            yield

    def _warn(self) -> None:
        if self._wanted and not clock.is_there():
            faults.warn(
                f"run {self._run.run_id!r} sees the clock of the world, so what it makes of the time differs when it "
                "is replayed. Install what it takes to show it its own: pip install 'everstep[capture]'; or say "
                "clock=False.",
                CaptureWarning,
            )
        was = self._about.get(HASHES)
        if was is not None and was != hashes():
            faults.warn(
                f"run {self._run.run_id!r} was recorded with {_HASHES_FROM}={was}, and here it is {hashes()}: sets of "
                f"texts are in another order. Start Python with {_HASHES_FROM}={was}.",
                CaptureWarning,
            )

    # What happens to the program.

    def asked(self, ask: Ask) -> None:
        """The program makes a call."""
        if self.well is not None:
            self.well.asked(None if ask.recorded is None else ask.recorded.seq)

    def passed(self, ask: Ask, entry: Entry | None = None) -> None:
        """A call has its outcome, in this row, or the one that was written last."""
        entry = entry or ask.entry
        hand = clock.hand_of(ask.lane)
        if entry is not None and hand is not None:
            hand.move((entry.started + entry.duration) * 1000)
        if entry is not None and self.well is not None:
            self.well.passed(entry.seq)

    def parted(self, origin: Lane, lane: Lane) -> None:
        """A thread or a job begins."""
        self.clock.part(origin, lane)

    def joined_by(self, waited_for: Any, lane: Lane) -> None:
        """Whoever waits for this thread, or this future, waits for the lane."""
        clock.joined_by(waited_for, lane)


def _first_row(life: Life) -> Entry:
    assert life.trail is not None  # noqa: S101 - what is captured is stored
    return life.trail.store.entries(life.run.run_id, 0, 0)[0]


def _rows(life: Life) -> list[Entry]:
    assert life.trail is not None  # noqa: S101 - as above
    return life.trail.store.entries(life.run.run_id, 0, life.trail.store.run(life.run.run_id).seq)


def _outcomes(journal: Journal) -> list[int]:
    steps = (step for track in journal.scopes.get(None, {}).values() for step in track.steps)
    return [step.outcome.seq for step in steps if step.outcome is not None and step.cancelled is None]
