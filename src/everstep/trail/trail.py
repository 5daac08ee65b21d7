"""An opened store with its policies, and every question that can be asked of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

from everstep.codec.record import StepRecord
from everstep.errors import RunNotFoundError, StoreError
from everstep.model import (
    KIND_NUMBER,
    STATUSES,
    Checkpoint,
    CheckpointKind,
    Kind,
    Run,
    Status,
    from_micros,
    to_micros,
)
from everstep.policy.redaction import Gate
from everstep.policy.rules import Rule
from everstep.store.base import ALL, ANY, Caches, Counts, Retains, RunQuery, RunRow, Searches, Store
from everstep.store.search import Field, held_in
from everstep.trail import answers, retention
from everstep.trail.beginning import Beginning, begin, gated_tags
from everstep.trail.compare import Change, changes
from everstep.trail.detail import text
from everstep.trail.events import Events
from everstep.trail.forking import Forking, fork
from everstep.trail.late import Late
from everstep.trail.leaving import give_up, give_up_again
from everstep.trail.listing import standing
from everstep.trail.numbers import check_limit, position, whole
from everstep.trail.opening import open_store
from everstep.trail.reading import Reader
from everstep.trail.recorder import Recorder
from everstep.trail.scribe import Scribe

if TYPE_CHECKING:
    from everstep.trail.bisecting import Bisection
    from everstep.trail.check import Report
    from everstep.trail.comparing import Comparison
    from everstep.trail.copying import Copied
    from everstep.trail.rebuilding import ReplayMode, Replays
    from everstep.trail.replayed import ReplayReport
    from everstep.trail.supersteps import CheckpointContent, Supersteps
    from everstep.trail.usage import Usage
    from everstep.trail.why.report import Why

_PATIENCE = 10.0  # seconds that closing waits for handlers of events
# Questions of people, which no program asks that records.
_BISECTING, _COMPARING, _COPYING, _EXPORTING, _IMPORTING, _REBUILDING = (
    Late(f"everstep.trail.{verb}ing") for verb in ("bisect", "compar", "copy", "export", "import", "rebuild")
)
_CHECK, _JUDGING = Late("everstep.trail.check"), Late("everstep.trail.why.judging")
_SUPERSTEPS, _USAGE = Late("everstep.trail.supersteps"), Late("everstep.trail.usage")


class Runs(list[Run]):
    """A page of runs. `cursor` asks for the next one; None when this was the last."""

    cursor: str | None = None


def open(url: str | os.PathLike[str], *, read_only: bool = False, redact: Iterable[Rule] = ()) -> Trail:  # noqa: A001 - everstep.open, as in io.open
    """Open a trail: a path, `sqlite:///path`, `file:///folder`, `postgresql://...` or `:memory:`. Raises an OpenError.

    Makes it when it is not there.
    """
    return Trail(open_store(url, read_only=read_only), redact=redact)


class Trail:
    """Everything recorded in one store. Safe to share between threads."""

    durability: str | None = None  # how durable runs of it are, unless their runner says
    after_run: Callable[[str], object] | None = None  # is told when a runner has ended a run

    def __init__(self, store: Store, *, redact: Iterable[Rule] = ()) -> None:
        self.store = store
        self.gate = Gate(extra=tuple(redact))
        self.events = Events()
        self.on = self.events.on
        self.at_work = set[Scribe]()  # of the runs that runners have in hand

    # Recording.

    def record(self, run_id: str | None = None, **detail: Unpack[Beginning]) -> Recorder:
        """Begin a run, or continue one that has not ended. The caller owns it from here on.

        A run that failed or was stopped is active again with its next step. Raises OwnedError while another process
        works on it, RunFinishedError when it has completed, InputsDifferError when other inputs are given than it
        began with.
        """
        return Recorder(begin(self.store, self.gate, run_id, **detail))

    def answer(self, run_id: str, value: Any = None, *, pause: int | None = None, retry: bool = False) -> None:
        """Answer what a paused run, or a child of it, waits for. Run it again to go on. An answer counts once.

        `pause` says which question of this run, where there are several. For an external effect whose outcome is not
        known the value is what it gave, or `retry` has it tried again. Raises NotWaitingError, AnswerError.
        """
        row = self.store.run(self._id(run_id))
        if pause is None:
            row = answers.who_waits(self, row)
        answers.answer(self, row, value, pause, retry=retry)

    def cancel(self, run_id: str) -> None:
        """End a run. Whoever works on it is asked to: steps at work are finished and kept, no further one is taken."""
        give_up_again()
        answers.cancel(self, self.store.run(self._id(run_id)))

    def stop(self, run_id: str) -> bool:
        """Ask whoever works on a run to stop when its superstep is over; it can be run again to go on.

        What is no graph stops as if it was cancelled. False if nobody works on it.
        """
        return answers.stop(self, self.store.run(self._id(run_id)))

    def fork(self, run_id: str, at: int | None = None, **detail: Unpack[Forking]) -> Recorder:
        """A new run that shares this one's steps up to `at` and goes on from there. The parent is untouched.

        `set` changes the state there, `inputs` what the code is given from there on, and `outcome` what step `at` gave:
        a value, or an exception. With `reuse`, what the parent did later is used where the same is asked for.
        """
        return Recorder(fork(self.store, self.gate, self._id(run_id), at, **detail))

    # Asking.

    def run(self, run_id: str) -> Run:
        """One run as it stands. Raises RunNotFoundError."""
        return _public(self.store.run(self._id(run_id)))

    def _id(self, run_id: str) -> str:
        """The id under which a run is stored: one that is a secret itself is not known by it, nor shown in errors."""
        return text(self.gate, "id", run_id)

    def runs(
        self,
        *,
        status: Status | str | None = None,
        workflow: str | None = None,
        tags: Mapping[str, str] | None = None,
        since: datetime | None = None,
        parent: object = ANY,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Runs:
        """Runs, newest first. A `parent` of None asks for those at the top; left out, for all.

        The status `interrupted` asks for active ones that nobody works on.
        """
        check_limit(limit)
        query = RunQuery(
            workflow=workflow, tags=gated_tags(self.gate, tags), since=to_micros(since) if since is not None else None,
            parent=parent, before=position(cursor), limit=min(limit, ALL) + 1,
        )  # fmt: skip
        rows = standing(self.store, query, status)
        page = Runs(map(_public, rows[:limit]))
        page.cursor = str(rows[limit - 1].key) if len(rows) > limit else None
        return page

    def steps(
        self, run_id: str, first: int | None = None, last: int | None = None, *, view: bool = False
    ) -> list[StepRecord]:
        """The steps of a run in order, from `first` to `last`; by default all, those shared with its parents too."""
        run, reader = self.store.run(self._id(run_id)), Reader(self.store, as_view=view)
        begin, end = run.base if first is None else first, run.seq if last is None else last
        fetch, decode = reader.fetch, reader.decode
        return [StepRecord(run.id, entry, fetch, decode) for entry in reader.entries(run, whole(begin), whole(end))]

    def step(self, run_id: str, seq: int, *, view: bool = False) -> StepRecord:
        """One step. Raises StepNotFoundError or PrunedError."""
        return self.steps(run_id, seq, seq, view=view)[0]

    def state(self, run_id: str, at: int | None = None, *, view: bool = False) -> dict[str, Any]:
        """The values after step `at`, the newest by default. With `view`, classes come as plain data."""
        return Reader(self.store, as_view=view).state(self._id(run_id), None if at is None else whole(at))

    def checkpoints(
        self, run_id: str | None = None, *, kind: CheckpointKind | str | None = None, limit: int = 100
    ) -> list[Checkpoint]:
        """Named points, newest first, of one run's history or of all runs.

        Of one run the ends of its supersteps are among them, as kind `boundary`: they are found, not written.
        """
        wanted = None if kind is None else CheckpointKind(kind)
        reader, runs, found = Reader(self.store), dict[str, RunRow](), list[Checkpoint]()
        owner_id = None if run_id is None else self._id(run_id)
        marked = self.store.marked(owner_id, KIND_NUMBER[Kind.CHECKPOINT], limit if wanted is None else ALL)
        for owner, entry in marked:
            run = runs.get(owner) or runs.setdefault(owner, self.store.run(owner))
            [sound] = reader.entries(run, entry.seq, entry.seq)  # the index alone cannot tell whether a row was changed
            record = StepRecord(owner, sound, reader.fetch)
            why = next((word for word in CheckpointKind if word == record.node_type), CheckpointKind.MANUAL)
            if wanted in {None, why}:
                found.append(Checkpoint(owner, record.seq, record.name, why, record.started_at, record.metadata))
        if owner_id is not None and wanted in {None, CheckpointKind.BOUNDARY}:
            found = _SUPERSTEPS.merged(found, self._supersteps(owner_id).boundaries(), limit)
        return found[:limit]

    # A graph's run, superstep by superstep.

    list_workflows = runs

    def get_steps(self, run_id: str, superstep: int | None = None, *, view: bool = False) -> list[StepRecord]:
        """The steps as people count them: one for each time a node, or a step at the top, ended; failures too."""
        return self._supersteps(self._id(run_id), view=view).steps(superstep)

    def get_state(self, run_id: str, superstep: int | None = None, *, view: bool = False) -> dict[str, Any]:
        """The values after a superstep, the newest by default. Raises StepNotFoundError or PrunedError."""
        return self._supersteps(self._id(run_id), view=view).state(superstep)

    def get_checkpoint(self, run_id: str, superstep: int | None = None, *, view: bool = False) -> CheckpointContent:
        """The values after a superstep and the steps that led there. Raises StepNotFoundError or PrunedError."""
        return self._supersteps(self._id(run_id), view=view).content(superstep)

    def get_run_inputs(self, run_id: str, *, view: bool = False) -> Any:
        """What a run began with. Raises PrunedError when its first step was pruned."""
        return self.step(run_id, 0, view=view).inputs

    def step_at(self, address: str, *, view: bool = False) -> StepRecord:
        """The newest step at `run:superstep:node`. Raises StepNotFoundError or PrunedError."""
        found: StepRecord = _SUPERSTEPS.at_address(self, address, view=view)
        return found

    def _supersteps(self, run_id: str, *, view: bool = False) -> Supersteps:
        found: Supersteps = _SUPERSTEPS.Supersteps(self.store, run_id, as_view=view)
        return found

    def lineage(self, run_id: str) -> list[Run]:
        """Where a run came from and what came of it: its ancestors from the root on, itself, then its forks."""
        run = self.store.run(self._id(run_id))
        ancestors, youngest = list[RunRow](), run
        while youngest.forked_from is not None:
            try:
                older = self.store.run(youngest.forked_from)
            except RunNotFoundError:
                break  # it was dropped; what this run shares with it stays
            if older.key >= youngest.key:
                break  # it was dropped too, and another has its id now
            ancestors.append(older)
            youngest = older
        forks = [fork for fork in self.store.runs(RunQuery(forked_from=run.id, limit=ALL)) if fork.key > run.key]
        return [_public(row) for row in (*reversed(ancestors), run, *reversed(forks))]

    def diff(self, a: str, b: str) -> list[Change]:
        """How the state at `a` differs from that at `b`; each is a run id, or `run@seq`."""
        return changes(self.state(*address_of(self, a), view=True), self.state(*address_of(self, b), view=True))

    def compare(self, a: str | Checkpoint, b: str | Checkpoint) -> Comparison:
        """How run `b` differs from run `a`, step by step; each is a run id, `run@seq` or a checkpoint.

        Nothing is executed. Raises RunNotFoundError, StepNotFoundError, PrunedError.
        """
        found: Comparison = _COMPARING.compare(self, self._point(a), self._point(b))
        return found

    def bisect(self, run: str | Checkpoint, test: Callable[[dict[str, Any]], bool | None]) -> Bisection:
        """The first step after which a test of the state fails, found by halving: of 1,000 states it sees about ten.

        `test` is given the values, with classes as plain data: true if they are good, false if not, None if it cannot
        tell. What it raises is raised here.
        """
        found: Bisection = _BISECTING.bisect(self, self._point(run), lambda _, values: test(values))
        return found

    def _point(self, given: str | Checkpoint) -> tuple[str, int | None]:
        return (given.run_id, given.seq) if isinstance(given, Checkpoint) else address_of(self, given)

    def search(self, words: str, field: Field | None = None, limit: int = 20, *, view: bool = True) -> list[StepRecord]:
        """Steps that hold all words, best first. "Quoted words" stand together; a star is any end.

        With `field`, all of them in that part of the step: name, inputs, output, values or error.
        """
        check_limit(limit)
        if not isinstance(self.store, Searches):
            raise StoreError(f"the store {self.store.where!r} cannot search. Read its steps, or keep them in SQLite.")
        reader, found = Reader(self.store, as_view=view), self.store.search(words, limit if field is None else ALL)
        hits = found if field is None else held_in(field, words, found)[:limit]
        return [StepRecord(run, entry, reader.fetch, reader.decode) for run, entry in hits]

    def why(self, run_id: str) -> Why:
        """Why a run failed or does not go on: from the failure back to the step it came from. Runs no code of it."""
        found: Why = _JUDGING.explain(self, self._id(run_id))
        return found

    def usage(self, run_id: str) -> Usage:
        """What the models of a run and its child runs were asked, how many tokens that took, and what it cost."""
        found: Usage = _USAGE.usage(self, self._id(run_id))
        return found

    def verify(self, run_id: str | None = None) -> Report:
        """Check every row, keyframe and piece of one run, or of all."""
        found: Report = _CHECK.verify(self.store, None if run_id is None else self._id(run_id))
        return found

    def replay(
        self,
        run_id: str,
        workflow: Replays | None = None,
        *,
        mode: ReplayMode | None = None,
        inputs: Mapping[str, Any] | None = None,
        rerun: Collection[str] = (),
    ) -> ReplayReport:
        """Go through a run again: nothing is live, nothing is written, and what differs is told.

        `recorded` rebuilds what happened from the record alone. `verify` runs the code of the workflow, every leaf
        from the record, and stops where they part; `lenient` goes on there as far as it can. Without a workflow it is
        `recorded`, with one `verify`. `inputs` are for a run whose inputs could not be stored. Leaves named in `rerun`
        are called all the same, and what they give is compared: for those that are nothing but code.
        """
        return _REBUILDING.replayed(self, self.run(run_id), workflow, mode, inputs, rerun)  # type: ignore[no-any-return] # loaded late

    # Moving: a run as a file, to be kept beside the code and replayed by its tests.

    def export(self, run_id: str, path: str | os.PathLike[str]) -> Path:
        """Write a run, with its children, to a file that stands alone. Raises PrunedError if it is not whole."""
        place: Path = _EXPORTING.export(self.store, self._id(run_id), path)
        return place

    def import_run(self, path: str | os.PathLike[str], *, id: str | None = None) -> Run:  # noqa: A002 - the run's id, as everywhere
        """Read an exported run. Nothing is written before every line of the file was seen to be what was written.

        Raises DamagedFileError, NewerFormatError, and RunExistsError, for which there is another `id`.
        """
        return self.run(_IMPORTING.import_run(self.store, self.gate, path, id))

    def copy(self, to: Trail, *runs: str) -> Copied:
        """Copy runs to another trail, byte for byte: all, or some with what is inside them and what they came from.

        What is there is not copied again, and a run that has gone on there is left alone. One that cannot be copied
        does not stop the others: look at `ok`, and at `refused`.
        """
        return _COPYING.copy(self.store, to.store, [self._id(run_id) for run_id in runs])  # type: ignore[no-any-return] # loaded late

    # Letting go.

    def prune(self, run_id: str, *, keep: int) -> Counts:
        """Let go of all but the newest `keep` steps. The state stays whole; what was pruned is then a PrunedError."""
        return retention.prune(self._retaining(), self.store, self._id(run_id), whole(keep))

    def drop(self, run_id: str) -> Counts:
        """Let go of a run and of the runs inside it. Steps that its forks share stay with them."""
        return retention.drop(self._retaining(), self.store, self._id(run_id))

    def reclaim(self) -> Counts:
        """Remove what nothing refers to any more and give the space back to the file system."""
        return self._retaining().reclaim()

    def clear_cache(self) -> None:
        """Let go of all that nodes with a cache gave: each is computed again when it is needed."""
        if not isinstance(self.store, Caches):
            raise StoreError(f"the store {self.store.where!r} has no cache: values are cached in the process alone.")
        self.store.cache().clear()

    def _retaining(self) -> Retains:
        if not isinstance(self.store, Retains):
            raise StoreError(f"the store {self.store.where!r} cannot let go of history. Keep it in SQLite to prune.")
        return self.store

    def close(self) -> None:
        """Write what waits, give up the runs that are at work, and let go of the file. Idempotent."""
        self.events.settle(_PATIENCE)
        all(map(give_up, list(self.at_work)))  # up to the first that a store which is away cannot be told of
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.store.where!r}>"


def address_of(trail: Trail, text: str) -> tuple[str, int | None]:
    """A run, or `run@seq`, as its id and its seq. An id may look like an address: a run that exists comes first."""
    head, at, tail = text.rpartition("@")
    if not at or not tail.isdecimal() or len(tail) > 18:
        return text, None
    with suppress(RunNotFoundError):
        return trail.run(text).id, None
    return head, int(tail)


def _public(row: RunRow) -> Run:
    return Run(
        id=row.id, workflow=row.workflow, status=STATUSES[row.status], head=row.seq, oldest=row.base, tags=row.tags,
        created_at=from_micros(row.created), ended_at=None if row.ended is None else from_micros(row.ended),
        owner=row.owner, epoch=row.epoch, error_count=row.errors, parent_run_id=row.parent, forked_from=row.forked_from,
        fork_seq=row.fork_seq, retry_of=row.retry_of, retry_index=row.retry_index,
    )  # fmt: skip
