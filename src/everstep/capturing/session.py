"""A stretch of a program whose calls to the outside are the steps of a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Literal, cast

from everstep.capturing import loops, seams, senses, strays
from everstep.capturing.children import Children
from everstep.capturing.command import CAPTURED, CHILDREN
from everstep.capturing.exchange import Exchange, Halted, end_open_calls
from everstep.capturing.seal import Seal, leave_network, sealed
from everstep.capturing.stubborn import Patience
from everstep.capturing.threads import Gate, look_up
from everstep.codec.chain import Entry
from everstep.errors import RunFinishedError, SealedError, UnknownOutcomeError
from everstep.model import Durability
from everstep.models.prices import Prices, PriceTable
from everstep.models.reply import Reply
from everstep.run.asked import Ask
from everstep.run.flow import Suspended
from everstep.run.lanes import CURRENT, Lane, here
from everstep.run.life import Life
from everstep.run.steps import Unknown
from everstep.run.through import AS_CHILD, terminable
from everstep.run.workflows import Workflow
from everstep.store.base import LEASE_SECONDS
from everstep.trail.late import Late
from everstep.trail.trail import Trail
from everstep.trail.twin import AsyncTrail

if TYPE_CHECKING:
    from everstep.run.replaying import Replay
    from everstep.trail.replayed import Divergence, ReplayReport

# A program that is recorded does not load them.
_REPLAYING, _REPLAYED = Late("everstep.run.replaying"), Late("everstep.trail.replayed")

Mode = Literal["record", "verify", "lenient"]
Sealing = Literal["off", "calls", "files", "hard"]
_COUNTS = ("input_tokens", "output_tokens", "cached_tokens")


class Captured(Workflow[..., Any]):
    """A program, or a stretch of one. What its code is, is not known here."""

    def __init__(self, name: str, code: str | None, typed: Sequence[str] | None) -> None:
        super().__init__(_unnamed, name)
        self._code_digest = code or "unknown"
        self._typed = typed
        self.senses: dict[str, Any] = {}  # what is said of time and chance

    def fingerprint(self) -> dict[str, Any]:
        """What its calls may depend on beside what it was called with; and how it was called, to do it again."""
        return {**super().fingerprint(), CAPTURED: list(self._typed or ()), **self.senses}


def _unnamed(command: list[str] | None = None) -> None:
    """The signature of every captured program: what it was called with."""
    del command


class Session:
    """A captured program at work."""

    def __init__(self, life: Life, unknown: Unknown, prices: Prices | None = None) -> None:
        self.life = life
        self.run = life.run
        self.unknown = unknown  # what becomes of a call that was sent, and of whose answer nobody knows
        self.open_calls: set[Exchange] = set()
        self.senses: senses.Senses
        self.gate = Gate(life.run)
        self.children: Children | None = None  # how its processes are captured, if they are
        self.strays: list[str] = []  # the names of threads that asked, and that no lane of the program started
        self.value: Any = None  # what the program gave
        self.report: ReplayReport | None = None
        self._seal: Seal | None = None
        self._prices = PriceTable(prices) if prices else None
        self.compared: dict[str, Any] = {}  # what the state has at the end
        self.stubborn: Callable[[BaseException], None] | None = None  # what becomes of a program that does not leave
        self._patience = Patience()
        self.end: Callable[[BaseException | None], None]  # raises what the run ends with
        self.run.captured = self

    @property
    def id(self) -> str:
        """The id of the run."""
        return self.run.run_id

    @property
    def replays(self) -> bool:
        """Whether nothing is live."""
        return self.life.replays

    def priced(self, used: dict[str, Any]) -> dict[str, Any]:
        """What a call to a model used, with what that cost, if the model has a price."""
        if self._prices is None:
            return used
        counts: dict[str, Any] = {name: used.get(name) for name in _COUNTS}
        reply = Reply(model=used.get("model"), **counts)
        cost = self._prices.cost(reply, str(used.get("model")))
        return used if cost is None else {**used, "cost": cost}

    def ends_with(self, values: Mapping[str, Any], *, compared: Collection[str]) -> None:
        """What is set in the state when the run ends, however it does; and what of it a replay compares."""
        self.run.corrections = {"set": values}
        self.compared = {name: values[name] for name in compared}

    @contextmanager
    def sealed(self, seal: Sealing, allow: Sequence[str], *, whole_process: bool) -> Iterator[None]:
        """While this lasts a replay reaches nobody; in a whole process no thread does, else none of its lanes."""
        if not self.replays or seal == "off":
            yield
            return
        if seal == "hard":
            leave_network()
        with sealed(Seal(None if seal == "calls" else allow), None if whole_process else self._is_here) as self._seal:
            yield

    def _is_here(self) -> bool:
        lane = here()
        return lane is not None and lane.run is self.run

    def refuse(self, what: str) -> None:
        """Raise SealedError, if this is a replay that is sealed: of an effect that Python tells nobody of."""
        if self._seal is not None:
            self._seal.refuse(what)

    def refused(self) -> Iterator[Divergence]:
        """What the program tried to do and a replay does not let happen."""
        for hit in [] if self._seal is None else self._seal.hits:
            yield _REPLAYED.Divergence(self.id, "not on record", hit.what, None, f"{hit.where} would {hit.what}.", ())

    def refused_to(self, lane: Lane, error: BaseException) -> None:
        """A lane asked for something in a run that cannot go on. Does not return if it does so again and again."""
        if self.stubborn is not None and self._patience.is_over(lane):
            self.stubborn(error)

    def passed(self, ask: Ask, entry: Entry | None = None) -> None:
        """A call has its outcome, in this row, or the one that was written last."""
        self.senses.passed(ask, entry)


def boundary() -> Lane | None:
    """Where a call belongs that the program is about to make; None if it is not ours, or part of a call that is."""
    lane = here() or strays.lane_of_stray()
    if lane is None or lane.run.captured is None:
        return None
    leaf = lane.scope.leaf
    if leaf is not None:
        if not leaf.over:
            return None
        lane = leaf.ask.lane.spawn("after", leaf.call.name)
    if lane.run.closed and not lane.run.captured.replays:
        return None
    return lane if lane.busy is None else lane.spawn("beside", lane.busy)


@contextmanager
def capture(
    trail: Trail | AsyncTrail,
    id: str | None = None,  # noqa: A002 - the run's id, as everywhere
    *,
    name: str = "program",
    command: list[str] | None = None,
    code: str | None = None,
    typed: Sequence[str] | None = None,
    mode: Mode = "record",
    unknown: Unknown = "ask",
    tags: Mapping[str, str] | None = None,
    durability: Durability | None = None,
    prices: Prices | None = None,
    seal: Sealing = "calls",
    allow: Sequence[str] = (),
    whole_process: bool = False,
    clock: bool = True,
    entropy: bool = True,
    parent: str | None = None,
    children: str | None = None,
) -> Iterator[Session]:
    """Make the calls of what follows the steps of a run, or have them answered by one.

    With the id of a run that was interrupted or failed its calls are answered from the record as far as that goes,
    then live. With mode="verify" nothing is live, and what differs raises DivergenceError. `seal` says what a replay
    refuses that is not on record: calls to the outside, or also files written elsewhere than in temporary folders and
    those that `allow` names. `clock` and `entropy` say whether time and chance are such that a replay has them again.
    With the URL of the trail as `children` the Python processes that are started are captured, too, as child runs.
    """
    trail = trail.trail if isinstance(trail, AsyncTrail) else trail
    seams.install()
    loops.watch()
    strays.watch()
    look_up()
    program = Captured(name, code, typed)
    program.keeps_cancelled = whole_process  # we hear of signals before its event loop does
    program.senses = senses.said(clock_too=clock, entropy_too=entropy)
    if children is not None:
        program.senses[CHILDREN] = True
    life = _begun(trail, id, program, command, mode, tags, durability, parent)
    session = Session(life, unknown, prices)
    session.senses = senses.Senses(life, clock_too=clock, entropy_too=entropy)
    if children is not None and mode == "record":
        how = {"unknown": unknown, "durability": durability, "clock": clock, "entropy": entropy}
        session.children = Children(life.run, children, how)
    began, error = time.perf_counter(), None
    session.end = lambda error: _end(session, error, (time.perf_counter() - began) * 1000, mode)
    token = CURRENT.set(life.run.root)
    try:
        with (
            loops.known(life.run),
            terminable(life.run),
            session.senses.given(),
            session.sealed(seal, allow, whole_process=whole_process),
            strays.gathered(session) if whole_process else nullcontext(),
        ):
            yield session
    except Halted as halted:
        error = halted.__cause__ or Suspended()
    except Exception as raised:  # noqa: BLE001 - recorded, then raised
        error = raised
    except BaseException as raised:
        taken_out = _halted_in(raised)
        if taken_out is None:
            life.run.interrupt(raised)
            life.close()
            raise
        error = taken_out.__cause__ or Suspended()
    finally:
        CURRENT.reset(token)
        if session.children is not None:
            session.children.close()
    session.end(error)


def _halted_in(raised: BaseException) -> BaseException | None:
    """What took a task out whose group (anyio's) hands it on among others."""
    while isinstance(raised, BaseExceptionGroup):
        found = raised.subgroup(Halted)
        if found is None:
            return None
        raised = found.exceptions[0]
    return raised if isinstance(raised, Halted) else None


def _begun(
    trail: Trail,
    run_id: str | None,
    program: Captured,
    command: list[str] | None,
    mode: Mode,
    tags: Mapping[str, str] | None,
    durability: Durability | None,
    parent: str | None,
) -> Life:
    args = () if command is None else (command,)
    if mode == "record":
        life = Life(trail, durability or trail.durability or "sync", LEASE_SECONDS, program, AS_CHILD)
        if life.begin(run_id, args, {}, tags=tags, parent=parent) is not None:
            raise RunFinishedError(str(run_id), trail.run(str(run_id)).status)
        return life
    replay: Replay = _REPLAYING.Replay(trail, "sync", 0.0, program, AS_CHILD)
    replay.lenient = mode == "lenient"
    replay.begin(run_id, args, {})
    return replay


def _end(session: Session, error: BaseException | None, took: float, mode: Mode) -> None:
    life, run = session.life, session.run
    replay = cast("Replay", life) if life.replays else None
    try:
        session.gate.open()
        end_open_calls(session.open_calls)
        if replay is not None:
            replay.run.found += session.refused()  # before how the program ended, which may have come of it
        for waiter in life.end(session.value, error, None):
            if callable(waiter):
                waiter()
        if replay is not None:
            replay.compare_state(session.compared)
            assert replay.trail is not None  # noqa: S101 - there is no replay without one
            session.report = replay.report(replay.trail.run(session.id), mode, took)
    finally:
        life.close()
    if run.divergence is not None:
        raise run.divergence
    for refused in session.refused():
        raise SealedError(refused.step, refused.message.partition(" would ")[0])
    if isinstance(error, Suspended) and run.waiting:
        run_id, seq = run.waiting[0]
        assert life.trail is not None  # noqa: S101 - only a stored run waits
        raise UnknownOutcomeError(run_id, life.trail.step(run_id, seq, view=True).name, seq)
    if error is not None and not isinstance(error, Suspended):
        raise error
