"""What a captured program learns of time and of chance, without a call: shown to it again when it is replayed.

docs/explanation/capture.md lists what a replay shows again and what not, source by source.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, cast

from everstep import actual
from everstep.capturing import clock, entropy, sleeping
from everstep.capturing.progress import Progress
from everstep.codec.chain import Entry
from everstep.errors import CaptureWarning
from everstep.journal.track import JUMP, SEED, metadata_of
from everstep.run import faults
from everstep.run.asked import Ask
from everstep.run.lanes import Lane
from everstep.run.life import Life
from everstep.trail.reading import Reader
from everstep.trail.versions import CLOCK

if TYPE_CHECKING:
    from everstep.run.replaying import Replay

HASHES = "hash_seed"  # in what is said of a run when it begins: of the hashes of its texts, if they have one
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
        start = _first_row(life)
        self._about = about = metadata_of(start)
        self._wanted = clock_too
        shown = clock_too and bool(about.get(CLOCK)) and clock.is_there()
        self.clock = clock.Clock(start.started * 1000, shown=shown, replays=life.replays)
        run.root.hand = self.clock.root
        self._seed: bytes | None = about.get(SEED) if entropy_too else None
        rows = _rows(life) if life.resumed or self.clock.replays else []
        self.progress = Progress(run.journal)
        self.well = None
        if self._seed is not None:
            self.well = entropy.Well([(0, self._seed), *_later_seeds(life, rows)], self.progress)
        self.timers = sleeping.Timers(
            run, replays=self.clock.replays, on_record=sleeping.fired(rows, run.journal.taken_back)
        )
        self._jumps = dict(_said(rows, JUMP))
        self._known = rows[-1].seq if rows else -1
        self._goes_on = life.resumed
        self._jump(0, self.clock.root)
        clock.watch(serves=life.resumed or self.clock.replays)
        entropy.watch()

    def _time_of(self, entry: Entry, hand: clock.Hand) -> int:
        """What the clock shows after a row. For one of today, while others have the past before them, another time."""
        pen, was = self._run.pen, self._jumps.get(entry.seq)
        if (
            was is None
            and self._goes_on
            and pen is not None
            and entry.seq > self._known
            and not self.progress.is_through()
        ):
            with pen.lock:
                was = self._jumps[entry.seq] = hand.ns + entry.duration * 1000
                pen.beside.setdefault(JUMP, []).append([entry.seq, was])
        return (entry.started + entry.duration) * 1000 if was is None else was

    def _jump(self, seq: int, hand: clock.Hand) -> None:
        """Put the clock forward once a resumed program has got through its record: for what it does now, it is now."""
        pen = self._run.pen
        if seq in self._jumps:
            hand.move(self._jumps[seq])
        elif self._goes_on and pen is not None and self.progress.is_through() and (seq or self.progress.begins_anew):
            self._goes_on = False
            with pen.lock:
                hand.move(actual.time_ns())
                pen.beside.setdefault(JUMP, []).append([seq, hand.ns])

    @contextmanager
    def given(self) -> Iterator[None]:
        """While this lasts the program has them."""
        self._warn()
        with ExitStack() as stack:
            if self.clock.shown:
                stack.enter_context(clock.shown())
            if self._seed is not None:
                stack.enter_context(entropy.seeded(self._run, self._seed))
            yield

    def _warn(self) -> None:
        has_its_own = bool(self._about.get(CLOCK)) or not (self._goes_on or self.clock.replays)
        if self._wanted and has_its_own and not clock.is_there():
            faults.warn(
                f"run {self._run.run_id!r} sees the clock of the world, so what it makes of the time differs when it "
                "is replayed. Install what it takes to show it its own: pip install time-machine; or say clock=False.",
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
        hand = clock.hand_of(ask.lane)
        if ask.recorded is not None and hand is not None:
            ask.began = hand.monotonic()
        self.progress.asked(None if ask.recorded is None else ask.recorded.seq)

    def passed(self, ask: Ask, entry: Entry | None = None) -> None:
        """A call has its outcome, in this row, or the one that was written last."""
        is_served, entry = entry is not None, entry or ask.entry
        hand = clock.hand_of(ask.lane)
        if entry is not None and hand is not None:
            self.progress.served(entry.seq)
            if is_served:
                hand.reach(ask.began + entry.duration / 1e6)
            if self._goes_on or self._jumps:
                hand.move(self._time_of(entry, hand))
                self._jump(entry.seq, hand)
            else:
                hand.move((entry.started + entry.duration) * 1000)

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
    if life.replays:  # it has read them, and to see whether each is what was written takes as long as all else here
        return cast("Replay", life).entries
    assert life.trail is not None  # noqa: S101 - as above
    row = life.trail.store.run(life.run.run_id)
    return Reader(life.trail.store).entries(row, 0, row.seq)


def _later_seeds(life: Life, rows: list[Entry]) -> list[tuple[int, bytes]]:
    """Those of forks, each with its row. A fork that has none yet gets one."""
    pen, shared = life.run.pen, life.run.journal.shared
    found = [(entry.seq, metadata_of(entry)[SEED]) for entry in rows[1:] if _has(entry, SEED)]
    if pen is not None and shared >= 0 and not any(seq > shared for seq, _ in found):
        pen.beside[SEED] = entropy.new_seed()
        found.append((pen.scribe.claim.seq + 1, pen.beside[SEED]))
    return found


def _has(entry: Entry, what: str) -> bool:
    """Whether a row says something: few do, and to search one is cheaper than to read it."""
    return what.encode() in entry.meta and what in metadata_of(entry)


def _said(rows: list[Entry], what: str) -> Iterator[list[Any]]:
    for entry in rows:
        if _has(entry, what):
            yield from metadata_of(entry)[what]
