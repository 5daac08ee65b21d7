"""Broken ways to read, list and close."""

from __future__ import annotations

from typing import Any, ClassVar

from everstep.codec.chain import Entry
from everstep.errors import ClosedError, StepNotFoundError
from everstep.store.base import ANY, Append, Claim, Keyframe, NewRun, RunQuery, RunRow
from everstep.store.memory import MemoryStore, _Run
from tests.contract.mutants.registry import caught_by


@caught_by("every_range_of_rows_can_be_read", "every_range_of_a_fork_can_be_read")
class LeavesTheLastRowOut(MemoryStore):
    def entries(self, run_id: str, first: int, last: int) -> list[Entry]:
        return super().entries(run_id, first, last)[: max(1, last - first)]


@caught_by("an_empty_range_has_no_rows")
class RefusesEmptyRanges(MemoryStore):
    def entries(self, run_id: str, first: int, last: int) -> list[Entry]:
        if first > last:
            raise StepNotFoundError(run_id, first, last)
        return super().entries(run_id, first, last)


@caught_by("rows_beyond_the_history_are_not_found", "every_range_of_a_fork_can_be_read")
class CutsRangesToWhatThereIs(MemoryStore):
    def entries(self, run_id: str, first: int, last: int) -> list[Entry]:
        return super().entries(run_id, max(0, first), min(last, self.run(run_id).seq))


@caught_by("an_unknown_run_is_not_found")
class HasAnEmptyRangeOfAnyRun(MemoryStore):
    def entries(self, run_id: str, first: int, last: int) -> list[Entry]:
        return [] if first > last else super().entries(run_id, first, last)


@caught_by("order_is_by_sequence_whatever_the_clocks_say")
class OrdersRowsByTheClock(MemoryStore):
    def entries(self, run_id: str, first: int, last: int) -> list[Entry]:
        return sorted(super().entries(run_id, first, last), key=lambda entry: entry.started)


@caught_by("the_newest_keyframe_at_or_below_a_step_is_found", "keyframes_are_found_along_the_history_of_a_fork")
class FindsTheOldestKeyframe(MemoryStore):
    def keyframe(self, run_id: str, at: int) -> Keyframe | None:
        below = [seq for seq in self._runs[run_id].keyframes if seq <= at]
        return super().keyframe(run_id, min(below, default=at))


@caught_by("the_newest_keyframe_at_or_below_a_step_is_found")
class FindsKeyframesAtTheStepOnly(MemoryStore):
    def keyframe(self, run_id: str, at: int) -> Keyframe | None:
        found = super().keyframe(run_id, at)
        return found if found is not None and found.seq == at else None


@caught_by("nothing_handed_out_is_an_alias_of_what_is_stored")
class HandsItsRowsOut(MemoryStore):
    def entries(self, run_id: str, first: int, last: int) -> list[Entry]:
        rows = super().entries(run_id, first, last)
        return self._runs[run_id].history if rows == self._runs[run_id].history else rows


@caught_by("nothing_handed_out_is_an_alias_of_what_is_stored")
class HandsItsTagsOut(MemoryStore):
    def _row(self, run: _Run) -> RunRow:
        return super()._row(run)._replace(tags=run.new.tags)


@caught_by("nothing_handed_out_is_an_alias_of_what_is_stored")
class HandsItsKeyframesOut(MemoryStore):
    def keyframe(self, run_id: str, at: int) -> Keyframe | None:
        found = super().keyframe(run_id, at)
        return found and self._runs[run_id].keyframes[found.seq]


@caught_by("nothing_handed_in_stays_an_alias_of_what_is_stored")
class KeepsTheTagsItWasHanded(MemoryStore):
    def create(self, new: NewRun) -> Claim:
        claim = super().create(new)
        self._runs[new.id].new = new
        return claim


@caught_by("nothing_handed_in_stays_an_alias_of_what_is_stored")
class KeepsTheRowsItWasHanded(MemoryStore):
    def _append(self, append: Append) -> bool:
        kept = super()._append(append)
        run = self._runs[append.claim.run_id]
        if len(run.history) == len(append.entries) and isinstance(append.entries, list):
            run.history = append.entries
        return kept


class Marks(MemoryStore):
    """A store whose list of marked rows is changed on its way out."""

    def marked(self, run_id: str | None, kind: int, limit: int) -> list[tuple[str, Entry]]:
        return self.told(super().marked(run_id, kind, 10_000), run_id)[:limit]

    def told(self, marks: list[tuple[str, Entry]], run_id: str | None) -> list[tuple[str, Entry]]:
        raise NotImplementedError


@caught_by("marked_rows_of_a_run_come_newest_first", "order_is_by_sequence_whatever_the_clocks_say")
class MarksOldestFirst(Marks):
    def told(self, marks: list[tuple[str, Entry]], run_id: str | None) -> list[tuple[str, Entry]]:
        return marks[::-1]


@caught_by("marked_rows_of_all_runs_come_newest_first_each_once")
class MarksByRun(Marks):
    def told(self, marks: list[tuple[str, Entry]], run_id: str | None) -> list[tuple[str, Entry]]:
        return sorted(marks, key=lambda mark: mark[0])


@caught_by("marked_rows_of_all_runs_come_newest_first_each_once")
class MarksForEveryFork(Marks):
    def told(self, marks: list[tuple[str, Entry]], run_id: str | None) -> list[tuple[str, Entry]]:
        if run_id is not None:
            return marks
        return [mark for mark in marks for run in self._runs.values() if mark[1] in run.history]


@caught_by("marked_rows_of_a_fork_are_those_of_its_history", "marked_rows_and_counts_of_a_dropped_run_are_gone")
class MarksOwnRowsOnly(Marks):
    def told(self, marks: list[tuple[str, Entry]], run_id: str | None) -> list[tuple[str, Entry]]:
        return [mark for mark in marks if mark[1].seq in self._runs[mark[0]].arrived]


@caught_by("marked_rows_of_a_run_come_newest_first", "marked_rows_of_a_fork_are_those_of_its_history")
class MarksWithoutLimit(MemoryStore):
    def marked(self, run_id: str | None, kind: int, limit: int) -> list[tuple[str, Entry]]:
        return super().marked(run_id, kind, 10_000)


@caught_by("marked_rows_of_a_run_come_newest_first")
class MarksRowsOfAnyKind(MemoryStore):
    def marked(self, run_id: str | None, kind: int, limit: int) -> list[tuple[str, Entry]]:
        marks = [mark for other in range(20) for mark in super(MarksRowsOfAnyKind, self).marked(run_id, other, limit)]
        return sorted(marks, key=lambda mark: -mark[1].seq)[:limit]


class Lists(MemoryStore):
    """A store that answers another query than it was asked."""

    asked: ClassVar[dict[str, Any]] = {}

    def runs(self, query: RunQuery) -> list[RunRow]:
        fields = {name: getattr(query, name) for name in RunQuery.__slots__}
        return super().runs(RunQuery(**{**fields, **self.asked}))


def ignores(name: str, value: Any, *tests: str) -> None:
    caught_by(*tests)(type(f"IgnoresThe{name.title()}", (Lists,), {"asked": {name: value}}))


ignores("status", None, "runs_are_found_by_status")
ignores("workflow", None, "runs_are_found_by_workflow")
ignores("tags", {}, "runs_are_found_by_all_of_several_tags")
ignores("since", None, "runs_are_found_by_when_they_were_created")
ignores("parent", ANY, "runs_are_found_by_parent_and_by_having_none")
ignores("forked_from", None, "runs_are_found_by_what_they_were_forked_from")
ignores("before", None, "a_list_goes_on_where_the_last_page_ended")
ignores("limit", 1_000, "filters_come_before_the_limit_and_narrow_one_another")


@caught_by("runs_are_found_by_parent_and_by_having_none")
class TakesNoParentForAnyParent(MemoryStore):
    def runs(self, query: RunQuery) -> list[RunRow]:
        rows = super().runs(RunQuery())
        return [row for row in rows if query.parent in {ANY, None, row.parent}]


@caught_by("runs_are_found_by_all_of_several_tags")
class FindsByAnyTag(MemoryStore):
    def runs(self, query: RunQuery) -> list[RunRow]:
        rows = super().runs(RunQuery())
        return [row for row in rows if not query.tags or query.tags.items() & row.tags.items()]


@caught_by("filters_come_before_the_limit_and_narrow_one_another", "a_list_goes_on_where_the_last_page_ended")
class LimitsBeforeItFilters(MemoryStore):
    def runs(self, query: RunQuery) -> list[RunRow]:
        first = super().runs(RunQuery(limit=query.limit, before=query.before))
        return [row for row in super().runs(query) if row in first]


@caught_by("runs_are_listed_newest_first_whatever_the_clocks_say")
class ListsByTheClock(MemoryStore):
    def runs(self, query: RunQuery) -> list[RunRow]:
        return sorted(super().runs(query), key=lambda row: -row.created)


@caught_by("runs_are_found_by_when_they_were_created")
class FindsOnlyLaterRuns(MemoryStore):
    def runs(self, query: RunQuery) -> list[RunRow]:
        return [row for row in super().runs(query) if query.since is None or row.created > query.since]


@caught_by("says_where_it_is")
class IsNowhere(MemoryStore):
    where = ""


@caught_by(
    "a_closed_store_refuses_every_call", "a_closed_store_lets_go_of_nothing", "rows_outlive_the_last_handle_as_declared"
)
class NeverCloses(MemoryStore):
    def close(self) -> None:
        pass


@caught_by("a_closed_store_can_be_closed_again")
class ClosesOnce(MemoryStore):
    def close(self) -> None:
        if self._closed:
            raise ClosedError(self.where)
        super().close()


def open_for(name: str) -> None:
    """A store that forgets, in one call, that it was closed."""

    def call(self: MemoryStore, *given: Any) -> Any:
        closed, self._closed = self._closed, False
        try:
            return getattr(super(mutant, self), name)(*given)
        finally:
            self._closed = closed

    mutant: type[MemoryStore] = type(f"{name.title()}sWhenClosed", (MemoryStore,), {name: call})
    caught_by("a_closed_store_refuses_every_call")(mutant)


for call in ("create", "claim", "renew", "append", "submit", "run", "runs", "entries", "keyframe", "blob", "marked"):
    open_for(call)
