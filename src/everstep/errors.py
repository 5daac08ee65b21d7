"""Every error Everstep raises, in one tree. Each message says what happened, where, and the way out.

EverstepError
├── OpenError                   a trail could not be opened
│   ├── UnknownSchemeError        the URL names a store that does not exist
│   ├── UnreadableError           the file is missing, or may not be read
│   ├── NotATrailError            the file is something else
│   ├── NewerSchemaError          the file was written by a later Everstep
│   ├── NetworkFileSystemError    file locks cannot be trusted there
│   ├── OldSqliteError            the SQLite library has a known corruption bug
│   ├── MissingExtraError         a package that this kind of store needs is not installed
│   ├── ServerUnreachableError    no server answers there
│   └── LoginRefusedError         the server does not let this role in
├── StoreError                  the store could not do what was asked; nothing was half done
│   ├── DiskFullError
│   ├── LockedError               another program holds the write lock
│   ├── QueueFullError            more is waiting to be written than the bound allows
│   ├── ReadOnlyError             the trail was opened for reading
│   ├── ServerLostError           the server went away and did not come back in time
│   └── ClosedError
├── ValueRefused                a value cannot be kept, or cannot be given back
│   ├── UnstorableError           no faithful form: names the path to it
│   ├── StateError                an operation does not fit the state it meets
│   ├── UnknownClassError         the class is not registered in this process
│   ├── ChangedClassError         the class no longer has the stored shape
│   └── RedactionKeyError         the key for redaction placeholders is missing or unsafe
├── RunError                    a run cannot be used this way
│   ├── RunNotFoundError
│   ├── StepNotFoundError
│   ├── RunExistsError
│   ├── RunFinishedError
│   ├── InputsDifferError         the run was started with other inputs
│   │   └── ParametersDifferError the code takes others now
│   ├── UnknownInputError         a fork is to change an input that there is not
│   ├── ItemsDifferError          a map that has completed is given items that it did not have
│   ├── OwnedError                another live process owns the run
│   │   └── CopyAtWorkError         another copy is at work on it
│   ├── StaleWriterError          this process lost the run to another
│   ├── ForkedError               the process was forked, and its recorder with it
│   ├── ConflictError             the run moved on underneath
│   ├── HistoryDiffersError       it is to be copied to where it has another history
│   ├── NotAnOutcomeError         a fork is to change the outcome of what has none
│   ├── PrunedError               retention removed what was asked for
│   └── ErasedError               the payload was erased
├── JournalError                code and record do not go together
│   ├── DivergenceError           the code asks for another step than the record has
│   ├── WorkflowDiffersError      the run belongs to another workflow
│   ├── MapDiffersError           a map is taken for a run, or a run for a map
│   ├── ConcurrentStepsError      two steps of one lane at the same time
│   ├── UnknownLoopError          a step was awaited on an event loop that Everstep does not know
│   ├── NotAwaitedError           a pause or a sleep on an event loop that nobody awaits
│   ├── MutatedArgumentError      a step changed what it was given
│   ├── UnknownOutcomeError       an external effect was begun, and nobody knows how it ended
│   ├── RunStoppedError           the run is being stopped: no further step is taken
│   └── RecordedError             stands for a recorded exception whose class is not known here
├── GraphError                  a graph cannot be built, or cannot go on
│   ├── GraphInputError           it is given values that it does not take, or not those it needs
│   ├── GraphChangedError         the run was begun with a graph of another structure
│   └── LoopLimitError            it took more supersteps than it may
├── ModelError                  a model was not asked, refused, or gave an answer that cannot be used
│   └── ModelUnavailableError     it could not be reached, or has too much to do: worth another attempt
├── StepTimeoutError            a step took longer than it may (a TimeoutError too)
├── RunCancelledError           the run was cancelled
├── PauseExpiredError           nobody answered in time
├── NotWaitingError             the run does not wait for an answer
├── QuestionError               a pause cannot be asked like this, or what is stored of it is no question
├── AnswerError                 an answer is not what the question allows
├── BlockedNetworkError         code that is replayed in a test reached for the network (a ConnectionError too)
├── BisectTestError             a command that tests a state did not say whether it is good
└── DamagedError                stored bytes are not what was written
    ├── NewerFormatError          stored bytes in a later format
    └── DamagedFileError          a line of an exported run is not what was written

DamageWarning (a UserWarning) tells of damage that does not stand in the way: commits lost from the log when a trail is
opened, a keyframe that was passed over, a run left out of a list. RebuiltWarning, one of them, tells of a run that was
read from its steps because its own file is damaged. HandlerWarning tells of a handler of events that
failed, LeaseWarning of a lease that could not be renewed for a reason that nobody foresaw; the run goes on.
"""

from __future__ import annotations

import shlex
from collections import Counter
from typing import Any


class EverstepError(Exception):
    """The root of every error raised here."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process gets it with its message and its fields, whatever its class takes to be made."""
        return _again, (type(self), self.args, self.__dict__)


def _again(kind: type[EverstepError], args: tuple[Any, ...], fields: dict[str, Any]) -> EverstepError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(fields)
    return error


class OpenError(EverstepError):
    """A trail could not be opened."""


class UnknownSchemeError(OpenError):
    """The URL names a kind of store that does not exist."""

    def __init__(self, url: str) -> None:
        self.url = url
        super().__init__(
            f"{url!r} names no store known here. Use a path, 'sqlite:///path/to/trail.db', 'file:///path/to/folder', "
            "'postgresql://user@host/database' or ':memory:'."
        )


class UnreadableError(OpenError):
    """The file is missing, or may not be read or written."""

    def __init__(self, path: str, reason: str, way_out: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"cannot open {path!r}: {reason}. {way_out}")


class NotATrailError(OpenError):
    """The file exists and is not a trail."""

    def __init__(self, path: str, found: str) -> None:
        self.path, self.found = path, found
        super().__init__(f"{path!r} is not a trail but {found}. It was not touched; give another path.")


class NewerSchemaError(OpenError):
    """The file was written by a later version."""

    def __init__(self, path: str, found: int, known: int) -> None:
        self.path, self.found, self.known = path, found, known
        super().__init__(
            f"{path!r} has schema {found}; this version knows up to {known}. "
            "It was not touched; upgrade everstep to open it."
        )


class NetworkFileSystemError(OpenError):
    """The file lies where locks cannot be trusted."""

    def __init__(self, path: str, kind: str) -> None:
        self.path, self.kind = path, kind
        super().__init__(
            f"{path!r} is on a network file system ({kind}), where file locks do not hold and trails get damaged. "
            "Put the trail on a local disk, or open it with read_only=True while nobody writes."
        )


class OldSqliteError(OpenError):
    """The SQLite library in use can corrupt a WAL file."""

    def __init__(self, version: str) -> None:
        self.version = version
        super().__init__(
            f"SQLite {version} has a bug that can corrupt a trail (fixed in 3.51.3). "
            "Install apsw from its wheel: pip install --force-reinstall --only-binary apsw apsw."
        )


class MissingExtraError(OpenError):
    """A package is not installed that this kind of store needs."""

    def __init__(self, what: str, package: str) -> None:
        self.what, self.package = what, package
        super().__init__(f"a trail in {what} needs a package that is not installed. Get it: pip install '{package}'")


class ServerUnreachableError(OpenError):
    """No server answers at the place that the URL names."""

    def __init__(self, where: str, reason: str, *, starting: bool = False, full: bool = False) -> None:
        self.where, self.reason, self.starting, self.full = where, reason, starting, full
        way_out = (
            "It is there and has no connection left: close some, or raise max_connections or the limit of the role."
            if full
            else "Check host and port, that it runs, and that no firewall is in the way."
        )
        stop = "" if reason.endswith(("?", ".")) else "."  # libpq asks whether the server runs
        super().__init__(f"cannot reach the server of {where!r}: {reason}{stop} {way_out}")


class LoginRefusedError(OpenError):
    """The server does not let this role in."""

    def __init__(self, where: str, reason: str) -> None:
        self.where, self.reason = where, reason
        super().__init__(
            f"the server of {where!r} refused the login: {reason}. Check the user and the password: in the URL, in "
            "PGPASSWORD, or in ~/.pgpass."
        )


class StoreError(EverstepError):
    """The store could not do what was asked. Nothing was half done."""


class DiskFullError(StoreError):
    """There is no room for the write."""

    def __init__(self, where: str) -> None:
        self.where = where
        super().__init__(
            f"no space left to write {where!r}. Nothing of this write was kept and all earlier steps are intact; "
            "free some space and write again."
        )


class LockedError(StoreError):
    """Another program held the write lock for too long."""

    def __init__(self, where: str, seconds: float) -> None:
        self.where, self.seconds = where, seconds
        super().__init__(
            f"{where!r} stayed locked by another program for {seconds:g} s. Nothing was written; "
            "end the program that holds it (a paused process, an open sqlite3 shell) and write again."
        )


class QueueFullError(StoreError):
    """Too many writes wait already."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        super().__init__(
            f"{bound} writes wait for the disk already. This one was not accepted; "
            "write again in a moment, or run fewer agents at once on this trail."
        )


class ReadOnlyError(StoreError):
    """The trail was opened for reading."""

    def __init__(self, where: str) -> None:
        self.where = where
        super().__init__(f"{where!r} was opened with read_only=True. Open it again without it to write.")


class ServerLostError(StoreError):
    """The server went away, and did not come back in time."""

    def __init__(self, where: str, seconds: float, reason: str) -> None:
        self.where, self.seconds, self.reason = where, seconds, reason
        super().__init__(
            f"the server of {where!r} was away for {seconds:g} s ({reason}). All acknowledged steps are kept; what was "
            "on its way may be there or not. Go on when it is back: what is there is found, and not written twice."
        )


class ClosedError(StoreError):
    """The trail was closed."""

    def __init__(self, where: str) -> None:
        self.where = where
        super().__init__(f"the trail {where!r} is closed. Open it again with everstep.open().")


class ValueRefused(EverstepError):  # noqa: N818 - the root of a branch; its children end in Error
    """A value cannot be kept faithfully, or cannot be given back as it was."""


class UnstorableError(ValueRefused):
    """A value has no faithful stored form."""

    def __init__(self, path: str, reason: str, way_out: str = "") -> None:
        self.path, self.reason = path, reason
        self.way_out = way_out or "Convert it to plain data, or make its class known with everstep.register(...)."
        super().__init__(f"cannot store the value at {path}: {reason}. {self.way_out}")


class StateError(ValueRefused):
    """An operation does not fit the state it meets."""

    def __init__(self, path: str, reason: str, way_out: str = "Set the whole value instead.") -> None:
        self.path, self.reason = path, reason
        super().__init__(f"cannot change the state at {path}: {reason}. Nothing was recorded. {way_out}")


class UnknownClassError(ValueRefused):
    """The stored value needs a class that is not registered in this process."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"the stored value is of the class {name}, which this process does not know. "
            "Import its module and call everstep.register(TheClass), or read it with view=True as plain data."
        )


class ChangedClassError(ValueRefused):
    """The class no longer has the shape of the stored value."""

    def __init__(self, name: str, difference: str) -> None:
        self.name, self.difference = name, difference
        super().__init__(
            f"the stored {name} does not fit the class of today: {difference}. "
            "Register it with a higher version and an upcaster: everstep.register(cls, version=2, upcast={1: fix})."
        )


class RedactionKeyError(ValueRefused):
    """The key behind redaction placeholders is missing or readable by others."""

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(
            f"cannot use the redaction key {path!r}: {reason}. "
            "Make it readable by its owner alone (chmod 600), or name another file in EVERSTEP_KEY_FILE."
        )


class RunError(EverstepError):
    """A run cannot be used this way."""


class RunNotFoundError(RunError):
    """No run has this id."""

    def __init__(self, run_id: str, nearest: tuple[str, ...] = (), where: str | None = None) -> None:
        near = tuple(each for each in nearest if each != run_id)  # it may have come since it was looked for
        self.run_id, self.nearest, self.where = run_id, near, where
        hint = f" Did you mean {', '.join(map(repr, near))}?" if near else " trail.runs() lists what there is."
        super().__init__(f"no run {run_id!r} in {'this trail' if where is None else repr(where)}.{hint}")


class StepNotFoundError(RunError):
    """The run has no step there, or no such superstep."""

    def __init__(self, run_id: str, seq: int, head: int, *, what: str = "step", there: str = "") -> None:
        self.run_id, self.seq, self.head = run_id, seq, head
        super().__init__(f"run {run_id!r} has no {what} {seq}; {there or f'its {what}s are 0 to {head}'}.")


class RunExistsError(RunError):
    """A run with this id exists already."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"a run {run_id!r} exists already. Record to it to continue it, or choose another id.")


class RunFinishedError(RunError):
    """The run has completed and takes no further steps."""

    def __init__(self, run_id: str, status: str, way_out: str | None = None) -> None:
        self.run_id, self.status = run_id, status
        if way_out is None:
            way_out = f"{'Fork it' if status == 'completed' else 'Record to it again, or fork it,'} to go on."
        super().__init__(f"run {run_id!r} is {status} and takes no further steps here. {way_out}")


_FEW_INPUTS = 3  # that are told, of those that differ


class InputsDifferError(RunError):
    """The run was started with other inputs. `changes` says which, as they would be stored: no secrets."""

    def __init__(self, run_id: str, changes: tuple[str, ...] = ()) -> None:
        self.run_id, self.changes = run_id, changes
        more = f"; and {len(changes) - _FEW_INPUTS} more" if len(changes) > _FEW_INPUTS else ""
        told = f"Changed: {'; '.join(changes[:_FEW_INPUTS])}{more}. " if changes else ""
        super().__init__(
            f"run {run_id!r} was started with other inputs, and a run keeps its first ones. {told}"
            "Leave the inputs out to continue it, or fork it to try the new ones."
        )


class ParametersDifferError(InputsDifferError):
    """The code takes other inputs than the run was started with: one was renamed, or is new and has no default."""

    def __init__(self, run_id: str, whose: str, recorded: tuple[str, ...], taken: tuple[str, ...]) -> None:
        self.run_id, self.changes, self.recorded, self.taken = run_id, (), recorded, taken
        was, now = (", ".join(map(repr, names)) or "no inputs" for names in (recorded, taken))
        way_out = "Give a parameter that was renamed its old name again, and one that is new a default"
        RunError.__init__(
            self,
            f"run {run_id!r} was started with {was}, and {whose} takes {now} now. Nothing was executed. {way_out}; or "
            "begin a new run.",
        )


class UnknownInputError(RunError):
    """A fork is to change an input that there is not."""

    def __init__(self, run_id: str, whose: str, name: str, known: tuple[str, ...], near: str | None, out: str) -> None:
        self.run_id, self.name, self.known = run_id, name, known
        meant = "" if near is None else f" Did you mean {near!r}?"
        takes = f" It takes {', '.join(map(repr, known))}." if known else ""
        super().__init__(f"{whose} takes no input {name!r}.{meant}{takes} {out}")


class ItemsDifferError(RunError):
    """A map that has completed is given items that it did not complete with."""

    def __init__(self, run_id: str, indexes: tuple[int, ...]) -> None:
        self.run_id, self.indexes = run_id, indexes
        super().__init__(
            f"map {run_id!r} has completed, and items that are not its own were given: {len(indexes)}, the first at "
            f"{indexes[0]}. Map what is new under a new id; its own items give their results again."
        )


_LASTING = 1e7  # seconds: no process owns a run for months


class OwnedError(RunError):
    """Another live process owns the run."""

    def __init__(self, run_id: str, owner: str, seconds_left: float) -> None:
        self.run_id, self.owner, self.seconds_left = run_id, owner, seconds_left
        if seconds_left > _LASTING:
            super().__init__(
                f"run {run_id!r} is not all there: {owner} is at work on it, or was cut off. Copy it again from the "
                "trail it comes from, which goes on where that stopped. If that trail is gone, fork what there is."
            )
            return
        super().__init__(
            f"run {run_id!r} is owned by {owner} for another {seconds_left:.1f} s. "
            "Wait for it to finish. If its process is gone, the run can be taken over: at once on the same machine, "
            "elsewhere when the lease ends. A recorder of your own gives it up with release()."
        )


class CopyAtWorkError(OwnedError):
    """Another copy is at work on the run, in the trail that it is to be copied to."""

    def __init__(self, run_id: str, owner: str, seconds_left: float, where: str) -> None:
        self.run_id, self.owner, self.seconds_left, self.where = run_id, owner, seconds_left, where
        RunError.__init__(
            self,
            f"another copy is at work on run {run_id!r} in {where}: {owner}. Copy it again when that one is done, or "
            "was stopped: it goes on where that stopped. One on another machine that is gone without a word counts "
            f"as stopped in {seconds_left:.0f} s.",
        )


class StaleWriterError(RunError):
    """Another process took the run over; this one may no longer write to it."""

    def __init__(self, run_id: str, epoch: int, current: int) -> None:
        self.run_id, self.epoch, self.current = run_id, epoch, current
        super().__init__(
            f"run {run_id!r} was taken over (epoch {current}; this writer has {epoch}). "
            "Nothing was written; stop here, the other process continues the run."
        )


class ForkedError(RunError):
    """A recorder was taken across a fork of its process; the parent goes on with it."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(
            f"the recorder of run {run_id!r} belongs to the process that this one was forked from. "
            "Nothing was written; record to a run of this process's own."
        )


class ConflictError(RunError):
    """The run's head is not where this writer left it."""

    def __init__(self, run_id: str, seq: int, head: int) -> None:
        self.run_id, self.seq, self.head = run_id, seq, head
        super().__init__(
            f"run {run_id!r} stands at step {head}; a write of step {seq} does not follow it. "
            "Nothing was written; open the run again to continue from its head."
        )


class HistoryDiffersError(RunError):
    """The run is to be copied to a trail that has another history of it. `here` and `there` are seq and hash."""

    def __init__(self, run_id: str, here: tuple[int, bytes], where: str, there: tuple[int, bytes]) -> None:
        self.run_id, self.here, self.where, self.there = run_id, here, where, there
        super().__init__(
            f"run {run_id!r} has another history in {where}: it stands at step {there[0]} ({there[1].hex()[:12]}) "
            f"there, at step {here[0]} ({here[1].hex()[:12]}) here. The one there was left as it is. Copy the run to "
            "another trail; or export it, and import the file there with another id."
        )


class NotAnOutcomeError(RunError):
    """A fork is to change the outcome of something that has none. Where a step begins, `outcome` is the seq of its."""

    def __init__(self, run_id: str, seq: int, what: str, outcome: int | None = None) -> None:
        self.run_id, self.seq, self.outcome = run_id, seq, outcome
        one = f"say the seq of one: `everstep steps {shlex.quote(run_id)}` lists them"
        way_out = one if outcome is None else f"its outcome is {run_id}@{outcome}: say {outcome}"
        super().__init__(f"{run_id}@{seq} is {what}, and no outcome of a step. Nothing was made; {way_out}.")


class PrunedError(RunError):
    """Retention removed the steps that were asked for."""

    def __init__(
        self, run_id: str, seq: int, oldest: int, *, what: str = "step", way_out: str = "Ask for that one or later."
    ) -> None:
        self.run_id, self.seq, self.oldest = run_id, seq, oldest
        super().__init__(
            f"{what} {seq} of run {run_id!r} was pruned; what is kept begins at {what} {oldest}. {way_out}"
        )


class ErasedError(RunError):
    """The payload that was asked for has been erased."""

    def __init__(self, run_id: str, seq: int) -> None:
        self.run_id, self.seq = run_id, seq
        super().__init__(f"the payload of step {seq} of run {run_id!r} was erased; its name, status and times remain.")


class DamagedError(EverstepError):
    """Stored bytes are not what was written."""

    def __init__(
        self, what: str, *, run_id: str | None = None, seq: int | None = None, intact: int | None = None
    ) -> None:
        self.what, self.run_id, self.seq, self.intact = what, run_id, seq, intact
        where = f" in run {run_id!r}" if run_id is not None else ""
        where += f" at step {seq}" if seq is not None else ""
        way_out = (
            f"The newest intact point before it is step {intact}: fork there to go on."
            if intact is not None
            else "Run `trail.verify()` to see what is intact, and restore the trail from a backup."
        )
        super().__init__(f"damage{where}: {what}. {way_out}")


class NewerFormatError(DamagedError):
    """Stored bytes carry a format this version does not know."""

    def __init__(self, found: int) -> None:
        self.found = found
        super().__init__(f"format {found} is unknown here; it is damaged, or a later version of everstep wrote it")


class DamagedFileError(DamagedError):
    """An exported run is not what was written. Nothing of it was imported."""

    def __init__(self, path: str, line: int, what: str) -> None:
        super().__init__(what)
        self.path, self.line = path, line
        way_out = "Nothing was imported; take the file from where it was whole, or export the run again."
        self.args = (f"damage in {path!r}, line {line}: {what}. {way_out}",)


class DamageWarning(UserWarning):
    """Damage that does not stand in the way of what was asked; `trail.verify()` tells all of it."""


class RebuiltWarning(DamageWarning):
    """A file of a trail was damaged, and what it said was told by others; the message says what is lost of it."""


class JournalError(EverstepError):
    """Code and record do not go together."""


NOT_RECORDED = "is not recorded (files, variables of the environment, how long something takes)"
_OF_OUTCOMES = {  # what a replay finds when it executes something again
    "changed result": "gave another result than on record",
    "changed retry": "was retried in another way than on record",
}
BECAME_STREAM, NO_STREAM, MOVED = "became a stream", "no longer a stream", "moved"
FORMS = frozenset({BECAME_STREAM, NO_STREAM})  # which nothing but a change of the code can be
_CHANGES = {
    BECAME_STREAM: "was recorded as a plain step, and is a stream (a generator) now",
    NO_STREAM: "was recorded as a stream (a generator), and is a plain step now",
    MOVED: "was called in a task or a thread that the record does not have, and is on record where that was started",
}


class DivergenceError(JournalError):
    """The code asks for another step than the record has. Nothing was executed and nothing was written."""

    def __init__(
        self,
        cause: str,
        *,
        lane: str = "",
        position: int = 0,
        seq: int | None = None,
        recorded: str | None = None,
        requested: str | None = None,
        skipped: tuple[str, ...] = (),
    ) -> None:
        self.cause = cause  # changed argument, removed or reordered, inserted or replaced, inserted, removed, ...
        self.lane, self.position, self.seq = lane, position, seq
        self.recorded, self.requested, self.skipped = recorded, requested, skipped
        self.run_id = ""
        self.of_program = False  # that is captured: nothing in it can be made a step
        self.detail = ""
        self.fork_at = None if seq is None else max(seq - 1, 0)  # to go on with the code as it is
        super().__init__(cause)

    def __str__(self) -> str:
        where = f"step {self.seq}" if self.seq is not None else f"position {self.position}"
        lane = f" of lane {self.lane!r}" if self.lane else ""
        skipped = f" (not called: {self.passed_over})" if self.skipped else ""
        executed = "" if self.cause in _OF_OUTCOMES else " It was not executed."
        why = "changes from run to run (the clock, random numbers, the order of threads or of a set): make that a step"
        if self.of_program:
            why = NOT_RECORDED
        unchanged = f"If the code is what it was, it depends on something that {why}. Else"
        if self.cause in FORMS:
            unchanged = "Either"
        return (
            f"run {self.run_id!r} diverged at {where}{lane}, {self.cause}: {self.parting}{skipped}.{self.detail}"
            f"{executed} {unchanged} put the code back, or fork the run before this step and go on from there."
            f"{self._renamed()}"
        )

    @property
    def parting(self) -> str:
        """In what the code and the record differ."""
        if told := _OF_OUTCOMES.get(self.cause) or _CHANGES.get(self.cause):
            return f"{self.requested!r} {told}"
        if self.recorded == self.requested and self.cause == "changed argument":
            return f"{self.requested!r} was called with different arguments than on record"
        if self.recorded == self.requested:
            return f"a {self.requested!r} was called that comes later on record"
        said = f"the record has {self.recorded!r}" if self.recorded else "the record has no further step there"
        return f"{said}, the code {f'called {self.requested!r}' if self.requested else 'did not call it'}"

    def _renamed(self) -> str:
        """The way out for a step with a new name. What a captured program calls is no function, and has none."""
        was, now = self.recorded or "", self.requested or ""
        names = self.cause == "inserted or replaced" and all(
            each.replace(".", "_").isidentifier() for each in (was, now)
        )
        return f" If {now!r} is {was!r} under a new name, keep the old one with @step(name={was!r})." if names else ""

    @property
    def passed_over(self) -> str:
        """The recorded steps that the code did not call, the first of them by name."""
        counts = Counter(self.skipped)
        return ", ".join(name if times == 1 else f"{name} ({times} times)" for name, times in [*counts.items()][:5])


class WorkflowDiffersError(JournalError):
    """The run was begun by another workflow."""

    def __init__(self, run_id: str, recorded: str, given: str, *, of_program: bool = False) -> None:
        self.run_id, self.recorded, self.given = run_id, recorded, given
        super().__init__(
            f"run {run_id!r} is one of the program {recorded!r}, not of {given!r}. Give the one that was recorded, "
            "under the name that it had, changed where it must be, or record the other as a new run."
            if of_program
            else f"run {run_id!r} is one of workflow {recorded!r}, not of {given!r}. Run it with {recorded!r} "
            '(a renamed function keeps its name with @workflow(name="...")), or take another id.'
        )


class MapDiffersError(JournalError):
    """A map is taken for a run, or a run for a map."""

    def __init__(self, run_id: str, *, is_map: bool) -> None:
        self.run_id, self.is_map = run_id, is_map
        what = "is a map over many items: map them with this id" if is_map else "is no map: run it with this id"
        super().__init__(f"run {run_id!r} {what} to go on with it, or take another id.")


class ConcurrentStepsError(JournalError):
    """Two steps of one lane at the same time: the order they are recorded in would be chance."""

    def __init__(self, name: str, other: str, lane: str) -> None:
        self.name, self.other, self.lane = name, other, lane
        super().__init__(
            f"step {name!r} began while {other!r} was at work in the same lane ({lane or 'main'}): a thread or task "
            "was started in a way that Everstep does not see. Start it with everstep.submit(pool, fn, ...), or call "
            "the steps inside `with everstep.unordered():`."
        )


class UnknownLoopError(JournalError):
    """A step was awaited on an event loop that Everstep does not know."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"step {name!r} was awaited on an event loop that was started inside the run (asyncio.run in a thread?), "
            "so its tasks cannot be told apart. Call everstep.adopt_loop() first thing in that loop."
        )


class NotAwaitedError(JournalError):
    """A pause or a sleep on an event loop was not awaited: nobody was asked, and nobody waited."""

    def __init__(self, name: str, place: str) -> None:
        self.name, self.place = name, place
        super().__init__(
            f"the {name} at {place} was not awaited: nothing came of it, and what it gives is no answer. "
            f"Write `await {name}(...)`."
        )


class MutatedArgumentError(JournalError):
    """A step changed what it was given: a resumed run, which does not run the step again, would not see the change."""

    def __init__(self, name: str, parameter: str) -> None:
        self.name, self.parameter = name, parameter
        super().__init__(
            f"step {name!r} changed its argument {parameter!r}. When the run is resumed the step is not run again, and "
            "the change would be missing. Return a changed copy; what is no part of what is asked, like a client, is "
            f"left out with @step(ignore=[{parameter!r}]), or bound to a graph."
        )


class UnknownOutcomeError(JournalError):
    """An external effect was begun and nobody knows how it ended. It was not repeated."""

    def __init__(self, run_id: str, name: str, seq: int) -> None:
        self.run_id, self.name, self.seq = run_id, name, seq
        super().__init__(
            f"run {run_id!r} has no outcome of the external step {name!r} (step {seq}): whether it took effect is not "
            "known, and it was not repeated. Look there, then say what it gave: trail.answer(run_id, value), or "
            'trail.answer(run_id, retry=True). @step(external=True, unknown="retry") repeats it with the same '
            "idempotency key."
        )


class RunStoppedError(JournalError):
    """The run is being stopped: no further step is taken on the way out."""

    def __init__(self, run_id: str, name: str | None, why: str) -> None:
        self.run_id, self.name, self.why = run_id, name, why
        step = "a step" if name is None else f"step {name!r}"
        super().__init__(
            f"{step} came too late, and is not recorded: run {run_id!r} has completed. Wait for its thread or task "
            "before the workflow returns."
            if why == "has completed"
            else f"{step} was not taken: run {run_id!r} {why}. It goes on when the run is resumed."
        )


class RecordedError(JournalError):
    """Stands for a recorded exception whose class is not known here. Its text is the recorded one."""

    def __init__(self, type: str, message: str) -> None:  # noqa: A002 - the recorded error's field
        self.type, self.message = type, message
        super().__init__(message)


class GraphError(EverstepError):
    """A graph cannot be built like this, or a node did what its graph cannot go on with."""

    def __init__(self, where: str, what: str, way_out: str) -> None:
        self.where, self.what = where, what
        super().__init__(f"{where} {what}. {way_out}")


class GraphInputError(GraphError):
    """A graph is given values that it does not take, or not those it needs."""


class GraphChangedError(GraphError):
    """The run was begun with a graph of another structure."""

    def __init__(self, run_id: str, graph: str, changes: tuple[str, ...]) -> None:
        self.run_id, self.changes = run_id, changes
        super().__init__(
            f"run {run_id!r}",
            f"was begun with another structure of graph {graph!r}: {'; '.join(changes)}",
            "Go on with the graph as it was, or fork the run to use this one.",
        )


class LoopLimitError(GraphError):
    """A graph took more supersteps than it may."""

    def __init__(self, graph: str, limit: int, last: str) -> None:
        self.graph, self.limit = graph, limit
        super().__init__(
            f"graph {graph!r}",
            f"has not ended after {limit:,} supersteps; the last one ran {last}",
            "If it needs more, build it with a larger max_supersteps= and run it with the same id again.",
        )


class ModelError(EverstepError):
    """A model was not asked, refused, or gave an answer that cannot be used. `status` is that of HTTP, if there is one.

    No key is in its text.
    """

    def __init__(self, endpoint: str, reason: str, way_out: str, *, status: int | None = None) -> None:
        self.endpoint, self.reason, self.status = endpoint, reason, status
        super().__init__(f"no answer from {endpoint}: {reason}. {way_out}")


class ModelUnavailableError(ModelError):
    """It could not be reached, did not answer in time, or has too much to do. Worth another attempt."""


class StepTimeoutError(EverstepError, TimeoutError):
    """A step took longer than it may."""

    def __init__(self, name: str, seconds: float) -> None:
        self.name, self.seconds = name, seconds
        super().__init__(f"step {name!r} took longer than {seconds:g} s. Give it more with @step(timeout=...).")


class RunCancelledError(EverstepError):
    """The run was cancelled."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"run {run_id!r} was cancelled. What it had done is kept; run it again to go on.")


class PauseExpiredError(EverstepError):
    """Nobody answered in time."""

    def __init__(self, run_id: str, prompt: str, deadline: str) -> None:
        self.run_id, self.prompt, self.deadline = run_id, prompt, deadline
        super().__init__(f"nobody answered {prompt!r} of run {run_id!r} by {deadline}. Catch this to go on without.")


class NotWaitingError(EverstepError):
    """The run does not wait for this answer."""

    def __init__(self, run_id: str, reason: str) -> None:
        self.run_id, self.reason = run_id, reason
        super().__init__(f"run {run_id!r} does not wait for this answer: {reason}.")


class QuestionError(EverstepError):
    """A question cannot be asked like this, or what is stored of one is no question."""

    def __init__(self, prompt: str, reason: str, way_out: str) -> None:
        self.prompt, self.reason = prompt, reason
        super().__init__(f"{prompt!r:.120} cannot be asked: {reason}. {way_out}")


class AnswerError(EverstepError):
    """An answer is not what the question allows. The question still waits."""

    def __init__(self, prompt: str, problem: str, allowed: str) -> None:
        self.prompt, self.problem, self.allowed = prompt, problem, allowed
        super().__init__(f"the answer to {prompt!r:.120} was not taken: {problem}. Give {allowed}.")


class BlockedNetworkError(EverstepError, ConnectionError):
    """Code that is replayed in a test reached for the network: in a replay nothing is live."""

    def __init__(self, place: str) -> None:
        self.place = place
        super().__init__(f"{place}: there is no network in a replay. Make what needs it a step, or part of one.")


class BisectTestError(EverstepError):
    """A command that tests the state of a run did not say whether it is good."""

    def __init__(self, command: str, seq: int, reason: str) -> None:
        self.command, self.seq, self.reason = command, seq, reason
        super().__init__(
            f"the test {command!r:.120} did not tell whether the state after step {seq} is good: {reason}. "
            "It must exit with 0 if it is, with 1 to 124 if it is not, and with 125 if it cannot tell."
        )


class CaptureError(EverstepError):
    """A program cannot be captured, or not go on as it was."""


class UnknownLayoutError(CaptureError):
    """A library that a program calls the outside with is not laid out as it is known here."""

    def __init__(self, module: str, version: str, reason: str, replaced: tuple[str, str] | None = None) -> None:
        """`replaced` are the distribution that took the place of the library, and who installs it."""
        self.module, self.version, self.reason, self.replaced = module, version, reason, replaced
        found, way_out = f"{module} {version} is", "Use a version of it that is known, or a newer everstep."
        if replaced is not None:
            other, by = replaced
            found = f"{module} here is {other} {version} (installed by {by}), which took its place and is"
            way_out = (
                f"Use an environment without {by}, and httpx or requests for its calls: pip uninstall {by} {other}, "
                f"then pip install --force-reinstall {module}."
            )
        super().__init__(
            f"{found} not laid out as everstep knows it: {reason}. Its calls would not be recorded, and nobody would "
            f"notice. {way_out}"
        )


class UnrecordableError(CaptureError):
    """A program calls the outside in a way that cannot be recorded."""

    def __init__(self, what: str, instead: str) -> None:
        self.what, self.instead = what, instead
        super().__init__(
            f"everstep cannot record calls over {what}: they would be missed, and live in a replay. Use {instead}."
        )


class ProgramError(CaptureError):
    """A program ended with a status that says that it failed."""

    def __init__(self, status: int, said: str = "") -> None:
        self.status = status
        super().__init__(f"the program exited with status {status}{f': {said}' if said else '.'}")


class HiddenValueError(CaptureError):
    """A resumed program is about to send a placeholder where a secret was."""

    def __init__(self, run_id: str, name: str) -> None:
        self.run_id, self.name = run_id, name
        super().__init__(
            f"{name!r} of run {run_id!r} would be sent with a placeholder in it: an answer on record held a secret, "
            "which was not stored, and the resumed program hands it on. Record the program anew; or fork the run "
            "before the call that gave the secret, so that it is made again."
        )


class UnfitOutcomeError(CaptureError):
    """A fork has put something in the place of an answer that cannot be one."""

    def __init__(self, run_id: str, seq: int, name: str, *, in_events: bool = False) -> None:
        self.run_id, self.seq, self.name = run_id, seq, name
        given = f"what {run_id}@{seq} ({name!r}) is said to have given is"
        if in_events:
            events = '{"status": 200, "body": "data: {...}\\n\\ndata: [DONE]\\n\\n"}'
            super().__init__(
                f"{given} a whole answer, and the program asked for a stream. Fork again, with the text of its events: "
                f"{events}, laid out as `everstep show` has them for the run that was forked."
            )
            return
        super().__init__(
            f"{given} no answer to such a call. Fork again: of a "
            "request give the body of its answer, of a process what it printed, of all else a value that is laid out "
            "as `everstep show` has it for the run that was forked."
        )


class SealedError(CaptureError):
    """A replay reached out to something that is not on record."""

    def __init__(self, what: str, where: str, folder: str | None = None) -> None:
        self.what, self.where = what, where
        allow = "replay it without a seal: --seal off" if folder is None else f"allow its folder: --allow {folder}"
        why = self._never() if folder is None else "Files are never recorded."
        self.way_out = f"{why} If it does no harm, {allow}"
        super().__init__(
            f"{where} would {what}, which is not on record: a replay is sealed off from the outside. {self.way_out}"
        )

    def _never(self) -> str:
        """Why to record the program again would not help, and what would."""
        if self.what.startswith(("getaddrinfo", "gethostby", "getnameinfo")):
            return "Lookups of names are never recorded: take the name or the address from configuration."
        if "upgraded from HTTP" in self.what:
            return "What is said over such is never recorded: for websockets use websockets or aiohttp."
        if self.what.startswith("become"):
            return (
                "Of that one nothing is recorded: have it recorded itself, as in `opentelemetry-instrument everstep "
                "record -- python agent.py`."
            )
        return (
            "Such is never recorded: have the program call the outside by a library that is (httpx, requests, aiohttp, "
            "websockets, subprocess)."
        )


class EscapedStepWarning(UserWarning):
    """A step was called outside the run that is live in this process, so it was not recorded."""


class CodeChangedWarning(UserWarning):
    """A run is resumed by code that is not what began it."""


class CaptureWarning(UserWarning):
    """A captured program sees something of the world that a replay cannot show it again."""


class RedactedValueWarning(UserWarning):
    """A resumed run goes on with a placeholder where a secret was."""


class UncachedWarning(UserWarning):
    """What a node gave could not be cached, or not be looked for. It ran as if it had no cache."""


class HandlerWarning(UserWarning):
    """A handler of events failed. The run and the other handlers went on."""


class LeaseWarning(UserWarning):
    """A lease could not be renewed, or a request not heard, for a reason that nobody foresaw. It is tried again."""
