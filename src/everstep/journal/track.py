"""A lane as the record has it, and how a request is compared with it."""

from __future__ import annotations

from typing import Any

from everstep.codec import record
from everstep.codec.chain import Entry
from everstep.codec.values import view
from everstep.errors import DivergenceError

# What the metadata of a row says to the journal.
CHAIN = "chain"  # of a failure: the seqs of the failed steps that it came from
AT = "at"  # the position, where the order of the rows does not give it
RETRY = "retry"  # of an answer: the external effect is to be tried again
UNKNOWN = "unknown"  # of a failure: that nobody knows how the external effect ended
OUTPUT = "output"  # of an announced effect: where its outcome goes in the state, and whether it is appended there
STEPS = "steps"  # of a lane that ended: how many it had
CUT = "cut"  # of a lane that goes on: what stood in it from this position on is superseded
AGAIN = "again"  # of an outcome: if the run fails right after it, it is asked for anew
CANCELS = "cancels"  # of a failure: a cancellation by what the step awaited; if the code ended by it, it is asked anew
TURNS = "turns"  # of an awaited outcome in parts: when each of them was there, between which rows
# And to the program of the run, if it is captured.
ASKED = "asked"  # of a call that failed or was cancelled: its place in the order, when it was asked for
FIRED = "fired"  # the timers that ended before it, each with its place in the order
JUMP = "jump"  # after which row the clock showed another time than that row's
SEED = "seed"  # what its chance is derived from, in the first row of the run, and of a fork
STEERS = frozenset({AGAIN, ASKED, TURNS, FIRED, JUMP, SEED})  # what a replay goes by, and nobody reads


class Recorded:
    """A step as the record has it."""

    __slots__ = (
        "again", "attempt", "cancelled", "cancels", "digest", "id", "index", "intent", "late", "loose", "name",
        "outcome", "reopened", "seq", "turns",
    )  # fmt: skip

    def __init__(self, seq: int, name: str, index: int, digest: bytes | None) -> None:
        self.seq = seq  # of its first row
        self.name = name
        self.index = index
        self.digest = digest
        self.id: int | None = None  # of the attempt that began last, if its beginning was written
        self.attempt = 0  # how many attempts have failed
        self.outcome: Entry | None = None
        self.again = False  # to ask anew may help, if the run has failed since
        self.turns: list[float] = []  # of an outcome in parts: when each was there, as seqs go; 0 where that is all one
        self.intent = False  # an external effect was announced
        self.loose = False  # if it is not asked for again, it is superseded
        self.late = False  # so too, because it came after a failure; and who asks for it now may do so at another time
        self.cancels = False  # its outcome is a cancellation, and nobody cancelled it
        self.cancelled: int | None = None  # the row that says so; an outcome, if there is one, came too late
        self.reopened: int | None = None  # the run failed because of it, after so many attempts, and was taken up again

    def reopen(self, *, unknown: bool) -> None:
        """Have it asked for anew; or somebody, if nobody knows whether it took effect."""
        self.outcome, self.reopened, self.intent, self.again = None, self.attempt, unknown, False


class Track:
    """A lane as the record has it: its steps in order."""

    __slots__ = ("by_name", "ended", "path", "rewritten", "spare", "steps", "upto")

    def __init__(self, path: str) -> None:
        self.path = path
        self.steps: list[Recorded] = []
        self.ended: int | None = None  # how many steps it had when it ended
        self.rewritten: int | None = None  # a position where the code now asks for another step than it did
        self.spare: dict[tuple[str, bytes | None], list[Recorded]] | None = None  # of an unordered lane
        self.by_name: dict[tuple[str, int, bytes | None], Recorded] = {}  # of the steps up to a position
        self.upto = 0

    @property
    def unordered(self) -> bool:
        return is_unordered(self.path)

    def find(self, name: str, index: int, digest: bytes | None) -> Recorded | None:
        """The newest step with this name and number."""
        for known in self.steps[self.upto :]:
            self.by_name[known.name, known.index, known.digest] = known
        self.upto = len(self.steps)
        return self.by_name.get((name, index, digest))

    def refused_from(self) -> tuple[int, set[int]]:
        """From where on its last steps may be answered otherwise when asked for anew; with the rows of their outcomes.

        The last that may have taken effect though it failed is reopened, and stays: somebody is asked about it.
        """
        position = len(self.steps)
        rows = set[int]()
        while position and self.steps[position - 1].again:
            step = self.steps[position - 1]
            if step.outcome is not None:
                rows.add(step.outcome.seq)
                if metadata_of(step.outcome).get(UNKNOWN):
                    step.reopen(unknown=True)
                    break
            position -= 1
        return position, rows

    def take(self, name: str, digest: bytes | None) -> Recorded | None:
        """For a lane without order: a record that fits and was not taken yet."""
        if self.spare is None:
            self.spare = {}
            for known in reversed(self.steps):
                self.spare.setdefault((known.name, known.digest), []).append(known)
        fitting = self.spare.get((name, digest))
        if not fitting:
            return None
        found = fitting.pop()
        if not fitting:
            del self.spare[name, digest]  # whoever looks for what is left has less to look at
        return found


def is_unordered(path: str) -> bool:
    """Whether the steps of a lane came in any order, several at a time."""
    return path.rpartition("/")[2].startswith("unordered:")


def unasked(track: Track, asked: int, shared: int = -1) -> DivergenceError | None:
    """What a lane recorded and its code did not ask for, now that it has ended; rows up to `shared` are history."""
    if track.spare is not None:
        rest = [step for steps in track.spare.values() for step in steps if not (step.loose or step.late)]
        step = min(rest, key=lambda step: step.seq, default=None)
    elif asked < len(track.steps):
        step = track.steps[asked] if not (track.steps[asked].loose or track.steps[asked].late) else None
    else:
        step = None
    if step is None or step.seq <= shared:
        return None
    return DivergenceError("removed", lane=track.path, position=asked, seq=step.seq, recorded=step.name)


def flags_of(entry: Entry) -> int:
    """The flags of a row."""
    meta = view(entry.meta)
    return int(meta[record.FLAGS] or 0) if len(meta) > record.FLAGS else 0


def metadata_of(entry: Entry) -> dict[str, Any]:
    """What a row says under names: what its writer noted, of its step or of its run."""
    return record.read_meta(entry)[record.METADATA] or {}


def lane_of(entry: Entry) -> str:
    """The path of the lane that a row is of, in its step."""
    return record.read_meta(entry)[record.LANE] or ""


def divergence(track: Track, position: int, name: str, digest: bytes | None) -> DivergenceError:
    """Why a request does not fit its record, as far as the rest of the lane's record can tell."""
    known, later = track.steps[position], track.steps[position + 1 :]
    exact = next((n for n, step in enumerate(later, 1) if (step.name, step.digest) == (name, digest)), None)
    named = next((n for n, step in enumerate(later, 1) if step.name == name), None)
    skipped: tuple[str, ...] = ()
    if exact is not None:
        cause, skipped = "removed or reordered", tuple(step.name for step in track.steps[position : position + exact])
    elif known.name == name:
        cause = "changed argument"
    elif named is not None:
        cause, skipped = "removed or reordered", tuple(step.name for step in track.steps[position : position + named])
    else:
        cause = "inserted or replaced"
    return DivergenceError(
        cause, lane=track.path, position=position, seq=known.seq, recorded=known.name, requested=name, skipped=skipped
    )
