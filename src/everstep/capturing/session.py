"""A stretch of a program whose calls to the outside are the steps of a run."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from everstep.capturing import callbacks, loops, seams, senses, sets, strays
from everstep.capturing.breaking import Broken, terminable
from everstep.capturing.cancelling import Cancelling
from everstep.capturing.command import CAPTURED, CHILDREN
from everstep.capturing.exchange import Exchange, wait
from everstep.capturing.halting import Host, halted_in, is_halt
from everstep.capturing.leaving import end_block, end_open_calls
from everstep.capturing.seams import signals
from everstep.capturing.stubborn import Patience, when_idle
from everstep.capturing.threads import Gate, look_up
from everstep.codec.chain import Entry
from everstep.errors import RunFinishedError, RunStoppedError, SealedError, UnknownOutcomeError
from everstep.model import Durability
from everstep.run import collecting
from everstep.run.asked import Ask
from everstep.run.given import check_word, plain_trail
from everstep.run.lanes import CURRENT, Lane, here
from everstep.run.life import Life
from everstep.run.spawning import at_once
from everstep.run.steps import Unknown
from everstep.run.stopping import Suspended
from everstep.run.through import AS_CHILD
from everstep.run.workflows import Workflow
from everstep.store.base import LEASE_SECONDS
from everstep.trail.answers import name_of
from everstep.trail.late import Late
from everstep.trail.trail import Trail
from everstep.trail.twin import AsyncTrail

if TYPE_CHECKING:
    from everstep.capturing.children import Children
    from everstep.capturing.seal import Hit, Seal
    from everstep.models.prices import Prices, PriceTable
    from everstep.run.replaying import Replay
    from everstep.trail.replayed import ReplayReport

# A program that is recorded does not load them, unless it is told to use them.
_REPLAYING, _REPLAYED = Late("everstep.run.replaying"), Late("everstep.trail.replayed")
_SEAL, _CHILDREN = Late("everstep.capturing.seal"), Late("everstep.capturing.children")
_PRICES = Late("everstep.models.prices")

Mode = Literal["record", "verify", "lenient"]
Sealing = Literal["off", "calls", "files", "hard"]


@dataclass(frozen=True, slots=True)
class Program:
    """What is captured: a stretch of code, of which a name is known, or a program, as the command line runs it."""

    name: str
    command: list[str] | None = None  # of a program: what it was called with, the inputs of its run
    code: str | None = None  # a digest of its text
    typed: Sequence[str] = ()  # how it was called, to do it again
    parent: str | None = None  # the run in whose process it was started
    children: str | None = None  # the URL of the trail, if the Python processes that it starts are to be runs, too

    @property
    def is_whole(self) -> bool:
        """Whether all threads of the process belong to it."""
        return self.command is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """How it is captured: what capture() is told."""

    mode: Mode = "record"
    unknown: Unknown = "ask"
    tags: Mapping[str, str] | None = None
    durability: Durability | None = None
    prices: PriceTable | None = None
    seal: Sealing = "calls"
    allow: Sequence[str] = ()
    clock: bool = True
    entropy: bool = True


class Captured(Workflow[..., Any]):
    """A program, or a stretch of one, as the workflow that it is a run of."""

    def __init__(self, program: Program, how: How) -> None:
        super().__init__(_unnamed, program.name)
        self._code_digest = program.code or "unknown"
        self._about = {
            CAPTURED: list(program.typed),
            **senses.said(clock_too=how.clock, entropy_too=how.entropy),
            **({CHILDREN: True} if program.children is not None else {}),
        }
        self.keeps_cancelled = program.is_whole  # we hear of signals before its event loop does

    def fingerprint(self) -> dict[str, Any]:
        """What its calls may depend on beside what it was called with; and how it was called, to do it again."""
        return {**super().fingerprint(), **self._about}


def _unnamed(command: list[str] | None = None) -> None:
    """The signature of every captured program: what it was called with."""
    del command


class Session:
    """A captured program at work."""

    def __init__(self, life: Life, program: Program, how: How) -> None:
        self.life = life
        self.run = life.run
        self.run.captured = self
        self.is_whole = program.is_whole
        self.unknown = how.unknown  # what becomes of a call that was sent, and of whose answer nobody knows
        self.open_calls: set[Exchange] = set()
        self.given: set[Exchange] = set()  # the same, of answers on record
        self.cancelling, self.broken = Cancelling(), Broken(life.run)
        self.gate, self.loops = Gate(life.run, is_whole=self.is_whole), loops.Entered(life.run)
        self.host = Host(life.run, is_whole=self.is_whole)
        life.run.turnstile.is_at_work = functools.partial(loops.is_at_work, life.run, self.open_calls)
        life.run.turnstile.lose_patience = functools.partial(loops.lose_patience, self.open_calls)
        self.senses = senses.Senses(life, clock_too=how.clock, entropy_too=how.entropy)
        self.children: Children | None = None  # how its processes are captured, if they are
        if program.children is not None and not self.replays:
            told = {
                "unknown": how.unknown, "durability": how.durability, "prices": how.prices and how.prices.prices,
                "clock": self.senses.clock.shown, "entropy": self.senses.well is not None,  # as it was recorded
            }  # fmt: skip
            self.children = _CHILDREN.Children(life.run, program.children, told)
        self.begun_anew: list[str] = []  # processes that had not ended when the run was cut off
        self.strays: list[str] = []  # the names of threads that asked, and that no lane of the program started
        self._told: set[str] = set()  # of what the program was told
        self.value: Any = None  # what the program gave
        self.report: ReplayReport | None = None
        self._seal: Seal | None = None
        self.compared: dict[str, Any] = {}  # what the state has at the end
        self._served: set[float] = set()  # the rows whose outcomes the program was given
        self.stubborn: Callable[[BaseException], None] | None = None  # what becomes of a program that does not leave
        self._patience = Patience()
        self._is_watched = False
        self._how, self._began = how, time.perf_counter()

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
        return used if self._how.prices is None else self._how.prices.priced(used)

    def ends_with(self, values: Mapping[str, Any], *, compared: Collection[str]) -> None:
        """What is set in the state when the run ends, however it does; and what of it a replay compares."""
        self.run.corrections = {"set": values}
        self.compared = {name: values[name] for name in compared}

    @contextmanager
    def surrounded(self) -> Iterator[None]:
        """While this lasts the program has tasks, signals, time, chance and threads as a captured one has them."""
        with (
            loops.known(self.run),
            self.host.left(),
            terminable(self.run),
            self.senses.given(),
            self._sealed(),
            strays.gathered(self) if self.is_whole else nullcontext(),
        ):
            yield

    @contextmanager
    def _sealed(self) -> Iterator[None]:
        """While this lasts a replay reaches nobody; in a whole process no thread does, else none of its lanes."""
        seal = self._how.seal
        if not self.replays or seal == "off":
            yield
            return
        if seal == "hard":
            _SEAL.leave_network()
        applies = None if self.is_whole else self._is_here
        with _SEAL.sealed(_SEAL.Seal(self._how.allow, files=seal != "calls"), applies) as self._seal:
            yield

    def _is_here(self) -> bool:
        lane = here()
        return lane is not None and lane.run is self.run

    def refuse(self, what: str) -> None:
        """Raise SealedError, if this is a replay that is sealed: of an effect that Python tells nobody of."""
        if self._seal is not None:
            self._seal.refuse(what)

    @property
    def refused(self) -> list[Hit]:
        """What the program tried to do and a replay does not let happen."""
        return [] if self._seal is None else self._seal.hits

    def is_news(self, what: str) -> bool:
        """Whether the program is to be told of something that is not recorded: once in a run, and not in a replay."""
        is_news = not self.replays and what not in self._told
        self._told.add(what)
        return is_news

    def end(self, error: BaseException | None) -> None:
        """End the run, with what took its program out. Raises what it ends with."""
        if self.replays and cast("Replay", self.life).run.came_to_the_end and isinstance(error, RunStoppedError):
            error = Suspended()  # what it asked for on its way out, in a `finally`, is not on record either
        _end(self, error, (time.perf_counter() - self._began) * 1000, self._how.mode)

    def close(self) -> None:
        """Give back what it holds: its processes, what it tells its children, and the run."""
        signals.leave(self.run)
        self.loops.leave()
        if self.children is not None:
            self.children.close()
        self.life.close()

    def refused_to(self, lane: Lane, error: BaseException) -> None:
        """A lane asked for something in a run that cannot go on. If it does so again and again, its code is taken out.

        A whole program does not come back then. Others may wait for this lane, and for ever: that is seen to, as well.
        """
        leave = self.stubborn
        if leave is None:
            return
        if self._patience.is_over(lane):
            leave(error)
        if not self._is_watched:
            self._is_watched = True
            when_idle(lambda: None if self.run.closed else leave(error))

    def starting(self, lane: Lane) -> Callable[[], None]:
        """What a thread that is started here is to call first: one that a call needs is none of the program's doing."""
        leaf = lane.scope.leaf
        return at_once if leaf is not None and not leaf.over else self.gate.start()

    task, is_halt = staticmethod(sets.task), staticmethod(is_halt)

    def submitted(self, future: Any, lane: Lane) -> None:
        """A pool has taken a job, which has this lane."""
        sets.started(future, lane)
        self.senses.joined_by(future, lane)

    def passed(self, ask: Ask, entry: Entry | None = None) -> None:
        """A call has its outcome, in this row, or the one that was written last."""
        self.senses.passed(ask, entry)
        if entry is not None:
            self._served.add(entry.seq)

    def fork_at(self, seq: int) -> int:
        """Where to fork a run that parted at this row: what other lanes have not been given yet may differ as well."""
        places = self.run.journal.order(awaited=False)
        left = [int(place) for place in places if place == int(place) and place not in self._served]
        return max(min([seq, *left]) - 1, 0)


def boundary() -> Lane | None:
    """Where a call belongs that the program is about to make; None if it is not ours, or part of a call that is."""
    lane = here() or strays.lane_of_stray()
    if lane is None or lane.run.captured is None:
        return None
    leaf = lane.scope.leaf
    if leaf is not None:
        if not leaf.over:
            return None
        lane = leaf.ask.lane.spawn("after", leaf.ask.name)
    if lane.run.closed and not lane.run.captured.replays:
        return None
    return lane if lane.busy is None else lane.spawn("beside", lane.busy)


_DONE = 'To go through it again, say mode="verify"; to record anew, another id; to change something, fork it.'


def capture(
    trail: Trail | AsyncTrail,
    id: str | None = None,  # noqa: A002 - the run's id, as everywhere
    *,
    name: str = "program",
    mode: Mode = "record",
    unknown: Unknown = "ask",
    tags: Mapping[str, str] | None = None,
    durability: Durability | None = None,
    prices: Prices | None = None,
    seal: Sealing = "calls",
    allow: Sequence[str] = (),
    clock: bool = True,
    entropy: bool = True,
) -> AbstractContextManager[Session]:
    """Make the calls of what follows the steps of a run, or have them answered by one.

    With the id of a run that was interrupted or failed its calls are answered from the record as far as that goes,
    then live. With mode="verify" nothing is live, and what differs raises DivergenceError. `seal` says what a replay
    refuses that is not on record: calls to the outside, or also files written elsewhere than in temporary folders and
    those that `allow` names. `clock` and `entropy` say whether time and chance are such that a replay has them again.
    """
    for argument, given, words in (
        ("mode", mode, Mode), ("unknown", unknown, Unknown), ("seal", seal, Sealing),
        ("durability", durability or "sync", Durability),
    ):  # fmt: skip
        check_word(argument, given, words)
    how = How(
        mode=mode, unknown=unknown, tags=tags, durability=durability, seal=seal, allow=allow, clock=clock,
        entropy=entropy, prices=_PRICES.PriceTable(prices) if prices else None,
    )  # fmt: skip
    return captured(plain_trail(trail, "capture"), id, Program(name), how)


@contextmanager
def captured(trail: Trail, run_id: str | None, program: Program, how: How) -> Iterator[Session]:
    """`capture`, of whole programs too."""
    seams.install()
    sets.install()
    callbacks.install()
    strays.watch()
    collecting.watch()
    look_up()
    life = _begun(trail, run_id, program, how)
    try:
        session = Session(life, program, how)
    except BaseException:  # Ctrl-C too, while a long record is read: the run is for another to take up
        life.close()
        raise
    error: BaseException | None = None
    token = CURRENT.set(session.run.root)
    try:
        with session.surrounded():
            yield session
    except Exception as raised:  # noqa: BLE001 - recorded, then raised
        error = raised
    except BaseException as raised:  # the run was interrupted, or took its program out itself
        taken_out = halted_in(raised)
        if taken_out is None:
            session.run.interrupt(raised)
            session.close()
            raise
        error = taken_out.__cause__ or Suspended()
    finally:
        CURRENT.reset(token)
    end_block(session, error)


def _begun(trail: Trail, run_id: str | None, program: Program, how: How) -> Life:
    workflow = Captured(program, how)
    args = () if program.command is None else (program.command,)
    if how.mode == "record":
        life = Life(trail, how.durability or trail.durability or "sync", LEASE_SECONDS, workflow, AS_CHILD)
        if life.begin(run_id, args, {}, tags=how.tags, parent=program.parent) is not None:
            raise RunFinishedError(str(run_id), trail.run(str(run_id)).status, _DONE)
        return life
    replay: Replay = _REPLAYING.Replay(trail, "sync", 0.0, workflow, AS_CHILD)
    replay.lenient = how.mode == "lenient"
    replay.begin(run_id, args, {})
    return replay


def _end(session: Session, error: BaseException | None, took: float, mode: Mode) -> None:
    life, run = session.life, session.run
    replay = cast("Replay", life) if life.replays else None
    came_of_seal = bool(session.refused) and run.divergence is None  # whatever is found below
    try:
        session.gate.open()
        session.broken.end()
        if not end_open_calls(session, completes=error is None):
            error = Suspended()
        if replay is not None:
            replay.run.found += [
                _REPLAYED.Divergence(session.id, "not on record", hit.what, None, hit.told, ())
                for hit in session.refused
            ]  # before how the program ended, which may have come of it
        for waiter in life.end(session.value, error, None):
            wait(waiter)
        if replay is not None:
            replay.compare_state(session.compared)
            assert replay.trail is not None  # noqa: S101 - there is no replay without one
            session.report = replay.report(replay.trail.run(session.id), mode, took)
    finally:
        session.close()
        if run.divergence is not None and run.divergence.seq is not None:
            run.divergence.fork_at = session.fork_at(run.divergence.seq)
    if run.divergence is not None and not came_of_seal:
        raise run.divergence
    if session.refused:
        raise SealedError(*session.refused[0])
    if isinstance(error, Suspended | RunStoppedError) and run.waiting:
        run_id, seq = run.waiting[0]
        assert life.trail is not None  # noqa: S101 - only a stored run waits
        raise UnknownOutcomeError(run_id, name_of(life.trail.step(run_id, seq, view=True)), seq)
    if error is not None and not isinstance(error, Suspended):
        raise error
