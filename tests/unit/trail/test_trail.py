from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import pytest

import everstep
from everstep.codec.chain import Entry
from everstep.errors import (
    ClosedError,
    DamageWarning,
    PrunedError,
    ReadOnlyError,
    RunExistsError,
    RunNotFoundError,
    StepNotFoundError,
)
from everstep.model import CheckpointKind, Status
from everstep.store.base import Keyframe, RunQuery, RunRow
from everstep.store.search import SearchIndex
from everstep.trail.compare import MISSING


def make(trail: everstep.Trail, name: str, steps: int = 3, **detail: object) -> None:
    with trail.record(name, **detail) as run:  # type: ignore[arg-type] # details of a run, in a test's own words
        for number in range(steps):
            run.step("s", append={"log": [number]}, set={"n": number})


def ids(runs: list[everstep.Run]) -> list[str]:
    return [run.id for run in runs]


def test_runs_are_listed_newest_first_and_filtered_before_the_limit(trail: everstep.Trail) -> None:
    for number in range(6):
        kind = "odd" if number % 2 else "even"
        make(trail, f"r-{number}", workflow=kind, tags={"user": f"u{number % 3}", "team": "t"})
    trail.record("open", parent="r-1")
    assert ids(trail.runs()) == ["open", *(f"r-{number}" for number in range(5, -1, -1))]
    assert ids(trail.runs(workflow="even", limit=2)) == ["r-4", "r-2"]
    assert ids(trail.runs(tags={"user": "u0"})) == ["r-3", "r-0"]
    assert ids(trail.runs(tags={"user": "u0", "team": "x"})) == []
    assert ids(trail.runs(status="ACTIVE")) == ["open"]
    assert ids(trail.runs(parent="r-1")) == ["open"]
    assert len(trail.runs(parent=None)) == 6
    moment = trail.run("r-3").created_at
    assert ids(trail.runs(since=moment)) == ["open", "r-5", "r-4", "r-3"]
    assert ids(trail.runs(since=moment.replace(tzinfo=None))) == ["open", "r-5", "r-4", "r-3"]
    assert trail.runs(since=datetime.now(UTC) + timedelta(days=1)) == []


def test_pages_follow_one_another_until_the_cursor_ends(trail: everstep.Trail) -> None:
    for number in range(7):
        make(trail, f"r-{number}", steps=0)
    page, seen = trail.runs(limit=3), list[str]()
    while True:
        seen += ids(page)
        if page.cursor is None:
            break
        page = trail.runs(limit=3, cursor=page.cursor)
    assert seen == [f"r-{number}" for number in range(6, -1, -1)]
    assert trail.runs(limit=7).cursor is None
    for bad in ("x", "-1", ""):
        with pytest.raises(ValueError, match="cursor"):
            trail.runs(cursor=bad)
    with pytest.raises(ValueError, match="limit"):
        trail.runs(limit=0)


def test_what_is_not_there_is_told_with_what_is_near(trail: everstep.Trail) -> None:
    make(trail, "research-17")
    for ask in (trail.run, trail.steps, trail.state, trail.verify, trail.lineage, trail.drop):
        with pytest.raises(RunNotFoundError, match="research-17"):
            ask("research-71")
    with pytest.raises(StepNotFoundError, match="0 to 4"):
        trail.step("research-17", 5)
    for at in (5, -1):
        with pytest.raises(StepNotFoundError):
            trail.state("research-17", at=at)


def test_steps_are_given_by_range(trail: everstep.Trail) -> None:
    make(trail, "r", steps=10)
    assert [step.seq for step in trail.steps("r")] == list(range(12))
    assert [step.seq for step in trail.steps("r", 4, 6)] == [4, 5, 6]
    assert [step.seq for step in trail.steps("r", 10)] == [10, 11]
    assert trail.steps("r", 6, 5) == []


def test_a_fork_shares_the_past_and_leaves_its_parent_alone(trail: everstep.Trail) -> None:
    """Promise 5."""
    make(trail, "r", steps=10, tags={"user": "u"})
    before = [(step.seq, step.hash) for step in trail.steps("r")]
    with trail.fork("r", at=4, id="f", set={"n": "forked", ("log", 0): "zero"}, tags={"try": "2"}) as run:
        run.step("s", append={"log": ["f"]})
    with trail.fork("f", at=2, id="g") as deeper:
        deeper.step("s", append={"log": ["g"]})
    assert trail.state("f") == {"log": ["zero", 1, 2, 3, "f"], "n": "forked"}
    assert trail.state("f", at=4) == trail.state("r", at=4)
    assert trail.state("g") == {"log": [0, 1, "g"], "n": 1}
    assert [(step.seq, step.hash) for step in trail.steps("r")] == before
    assert [step.hash for step in trail.steps("f", 0, 4)] == [seal for _, seal in before[:5]]
    assert trail.run("f").tags == {"user": "u", "try": "2"}
    assert (trail.run("f").forked_from, trail.run("f").fork_seq) == ("r", 4)
    assert ids(trail.lineage("f")) == ["r", "f", "g"]
    assert ids(trail.lineage("r")) == ["r", "f"]
    assert trail.verify().ok
    with pytest.raises(RunExistsError):
        trail.fork("r", id="f")
    with pytest.raises(StepNotFoundError):
        trail.fork("r", at=99)


def test_a_refused_fork_leaves_nothing_behind_that_blocks_the_next(trail: everstep.Trail) -> None:
    make(trail, "r")
    with pytest.raises(everstep.EverstepError):
        trail.fork("r", id="f", set={("none", "x"): 1})
    with trail.fork("r", id="g", set={"n": 1}):
        pass
    assert trail.state("g")["n"] == 1


def test_differences_are_told_by_path_and_by_type(trail: everstep.Trail) -> None:
    run = trail.record("r")
    run.step("a", set={"x": 1, "y": [1, {"k": "v"}], "gone": None, "same": (1,)})
    run.step("b", set={"x": True, "y": [1, {"k": "w"}, 3], "new": 1}, delete=["gone"])
    found = {change.path: (change.old, change.new) for change in trail.diff("r@1", "r")}
    assert found == {
        ("x",): (1, True),
        ("y", 1, "k"): ("v", "w"),
        ("y", 2): (MISSING, 3),
        ("gone",): (None, MISSING),
        ("new",): (MISSING, 1),
    }
    assert type(found["x",][0]) is int
    assert min(map(str, trail.diff("r@1", "r"))) == "+ state.new: 1"
    assert trail.diff("r@2", "r") == []


def test_a_number_that_no_step_has_makes_no_address(trail: everstep.Trail) -> None:
    trail.record("r").finish()
    for ask in (trail.diff, trail.compare):
        with pytest.raises(RunNotFoundError):
            ask("r@" + "9" * 5_000, "r")


def test_checkpoints_are_named_points_that_copy_nothing(trail: everstep.Trail) -> None:
    run = trail.record("r")
    run.step("a", set={"x": 1})
    run.checkpoint("before", kind="pre_operation", metadata={"why": "risky"})
    run.step("b", set={"x": 2})
    run.checkpoint("after")
    with trail.fork("r", at=2, id="f") as fork:
        fork.checkpoint("mine", kind=CheckpointKind.ROUTINE)
    before = trail.checkpoints("r", kind="pre_operation")[0]
    assert (before.id, before.name, before.metadata) == ("r@2", "before", {"why": "risky"})
    assert trail.state(before.run_id, at=before.seq) == {"x": 1}
    assert [point.name for point in trail.checkpoints("r")] == ["after", "before"]
    assert [point.name for point in trail.checkpoints("f")] == ["mine", "before"]
    assert [point.name for point in trail.checkpoints()] == ["mine", "after", "before"]
    assert [point.name for point in trail.checkpoints(limit=1)] == ["mine"]
    with pytest.raises(ValueError, match="whim"):
        run.checkpoint("x", kind="whim")


def test_words_are_found_in_inputs_outputs_states_and_errors(trail: everstep.Trail) -> None:
    with pytest.raises(ValueError, match="quagmire"), trail.record("r", inputs={"topic": "deep fusion"}) as run:
        run.step("ask", output={"answer": ["The tokamak holds plasma", 42]})
        run.step("note", append={"log": ["a stellarator twists it"]})
        raise ValueError("stuck in a quagmire")
    make(trail, "other")

    def seqs(words: str) -> list[int]:
        return sorted(step.seq for step in trail.search(words))

    assert seqs("fusion") == [0]
    assert seqs("TOKAMAK plasma") == [1]
    assert seqs("tokamak stellarator") == []
    assert seqs('"twists it"') == [2]
    assert seqs('"it twists"') == []
    assert seqs("stell*") == [2]
    assert seqs("quagmire") == [3]
    assert seqs("42") == [1]
    for odd in ("", '"', "*", "AND", "a OR", "(", "x:y", "-", "\x00"):
        trail.search(odd)
    with trail.record("r") as run:
        run.step("late", output="a tokamak again")
    assert seqs("tokamak") == [1, 4]
    assert len(trail.search("tokamak", limit=1)) == 1


def test_pruning_keeps_the_state_and_says_what_is_gone(trail: everstep.Trail) -> None:
    make(trail, "r", steps=50)
    whole = trail.state("r")
    counts = trail.prune("r", keep=10)
    assert counts.steps == 42
    assert trail.state("r") == whole
    assert [step.seq for step in trail.steps("r")] == list(range(42, 52))
    assert trail.state("r", at=41)["n"] == 40
    assert trail.run("r").oldest == 42
    for ask in (lambda: trail.step("r", 41), lambda: trail.state("r", at=40), lambda: trail.steps("r", 0)):
        with pytest.raises(PrunedError, match="was pruned"):
            ask()
    assert trail.prune("r", keep=10).steps == 0
    assert trail.verify().ok
    with pytest.raises(ValueError, match="keep"):
        trail.prune("r", keep=0)
    with trail.fork("r", at=45, id="f") as run:
        run.step("s", set={"n": "on"})
    assert trail.state("f")["log"] == list(range(45))
    assert trail.verify().ok


def test_a_run_being_written_can_be_pruned(trail: everstep.Trail) -> None:
    run = trail.record("r")
    for number in range(400):
        run.step("s", append={"log": [f"{number} " * 100]})
        if number % 90 == 89:
            trail.prune("r", keep=5)
    assert trail.state("r") == {"log": [f"{number} " * 100 for number in range(400)]}
    assert trail.verify().ok


@pytest.mark.parametrize("size", [1, 70_000])
def test_a_state_is_told_though_the_run_is_pruned_meanwhile(
    trail: everstep.Trail, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Promise 9: that is no damage, and the newest state is never pruned."""
    with trail.record("r") as run:
        for number in range(30):
            run.save({"log": list(range(number)), "large": f"{number}" * size})
    whole, look, looks = trail.state("r"), trail.store.keyframe, ["first"]

    def before_it_is_pruned(run_id: str, at: int) -> Keyframe | None:
        found = look(run_id, at)
        if looks:
            looks.clear()
            trail.prune("r", keep=2)
        return found

    monkeypatch.setattr(trail.store, "keyframe", before_it_is_pruned)
    assert trail.state("r") == whole
    assert not looks


def test_steps_that_are_pruned_meanwhile_are_said_to_be(trail: everstep.Trail, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise 9: that is no damage."""
    make(trail, "r", steps=30)
    trail.prune("r", keep=20)
    look, looks = trail.store.keyframe, ["first"]

    def after_it_is_pruned(run_id: str, at: int) -> Keyframe | None:
        if looks:
            looks.clear()
            trail.prune("r", keep=2)
        return look(run_id, at)

    monkeypatch.setattr(trail.store, "keyframe", after_it_is_pruned)
    with pytest.raises(PrunedError):
        trail.steps("r")
    assert [step.seq for step in trail.steps("r")] == [30, 31]


@pytest.mark.parametrize("times", [1, 2])
def test_a_search_whose_index_is_removed_meanwhile_is_made_again_and_keeps_nobody_from_seeing_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Promise 13: as long as somebody has its error, too."""
    kept, add, removals = list[Exception](), SearchIndex.add, [tmp_path / "trail.db-search"] * times

    def after_a_drop(index: SearchIndex, rows: Iterable[tuple[int, Entry]], since: int, generation: int) -> None:
        if removals:
            removals.pop().unlink()  # as another process does that lets go of something
        add(index, rows, since, generation)

    monkeypatch.setattr(SearchIndex, "add", after_a_drop)
    with everstep.open(tmp_path / "trail.db") as trail:
        run = trail.record("r")
        run.step("s", output="one")
        try:
            assert [step.seq for step in trail.search("one")] == [1]
        except ReadOnlyError as error:
            kept.append(error)
        run.step("s", output="two")
        assert trail.run("r").head == 2
        assert [step.seq for step in trail.search("two")] == [2]
    assert len(kept) == times - 1


def test_many_search_at_once_while_there_is_more_to_find(tmp_path: Path) -> None:
    """Promise 13: nobody is told that another program holds the index."""
    with everstep.open(tmp_path / "trail.db") as trail, ThreadPoolExecutor(4) as threads:
        run = trail.record("r")
        for number in range(15):
            run.step("s", output=f"word {number}")
            for found in threads.map(trail.search, ["word"] * 4):
                assert len(found) == number + 1


def test_a_dropped_run_is_gone_and_its_forks_stay(trail: everstep.Trail) -> None:
    make(trail, "r", steps=20)
    with trail.fork("r", at=10, id="f") as run:
        run.step("s", set={"n": "f"})
    state = trail.state("f")
    trail.drop("r")
    assert ids(trail.runs()) == ["f"]
    assert trail.state("f") == state
    assert trail.steps("f")[0].seq == 0
    assert trail.verify().ok
    make(trail, "r", steps=1)
    assert trail.state("r") == {"log": [0], "n": 0}
    trail.drop("f")
    trail.drop("r")
    assert trail.runs() == []
    assert trail.verify().ok


def test_a_closed_trail_says_so(trail: everstep.Trail) -> None:
    run = trail.record("r")
    trail.close()
    trail.close()
    for ask in (trail.runs, lambda: trail.state("r"), lambda: run.step("s"), lambda: trail.record("x"), trail.verify):
        with pytest.raises(ClosedError, match=r"everstep\.open"):
            ask()


def test_a_trail_for_reading_refuses_to_write_and_answers_everything(tmp_path: Path) -> None:
    """Promise 12: reads need no right to write."""
    path = tmp_path / "trail.db"
    with everstep.open(path) as trail:
        make(trail, "r")
    with everstep.open(path, read_only=True) as trail:
        assert trail.state("r") == {"log": [0, 1, 2], "n": 2}
        assert trail.run("r").status == Status.COMPLETED
        assert len(trail.search("s")) == 3
        assert trail.verify().ok
        for act in (lambda: trail.record("x"), lambda: trail.drop("r"), lambda: trail.fork("r"), trail.reclaim):
            with pytest.raises(ReadOnlyError, match="read_only"):
                act()


def test_letting_go_gives_the_space_back(tmp_path: Path) -> None:
    path = tmp_path / "trail.db"
    with everstep.open(path) as trail:
        for number in range(4):
            with trail.record(f"r-{number}") as run:
                for step in range(150):
                    run.step("s", output=bytes(range(256)) * 20 + step.to_bytes(2, "big") * 500, output_to="x")
        trail.reclaim()
        full = path.stat().st_size
        for number in range(3):
            trail.drop(f"r-{number}")
        assert path.stat().st_size < full / 2
        assert trail.verify().ok


def test_a_damaged_index_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "trail.db"
    with everstep.open(path) as trail:
        make(trail, "r")
        assert len(trail.search("s")) == 3
        for garbage in (b"not an index at all " * 100, path.with_name("trail.db-search").read_bytes()[:5000]):
            path.with_name("trail.db-search").write_bytes(garbage)
            assert len(trail.search("s")) == 3


def test_the_runs_inside_a_run_are_found_without_a_list_for_each(
    trail: everstep.Trail, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, parent in [("r", None), *((f"r-{n}", "r") for n in range(12)), ("deep", "r-3"), ("other", None)]:
        make(trail, name, 1, parent=parent)
    asked, listed = list[RunQuery](), trail.store.runs

    def counted(query: RunQuery) -> list[RunRow]:
        asked.append(query)
        return listed(query)

    monkeypatch.setattr(trail.store, "runs", counted)
    assert trail.usage("r").runs == 14
    assert len(asked) == 4, "as many with a thousand inside"
    monkeypatch.setattr("everstep.trail.usage._PART", 1)  # as if there were many more runs
    assert trail.usage("r").runs == 14


def test_a_damaged_run_elsewhere_hides_none_of_those_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everstep.trail.usage._PART", 2)  # as if there were many more runs
    with everstep.open(tmp_path / "trail.db") as trail:
        for name, parent in [("r", None), ("r-0", "r"), ("r-1", "r"), ("deep", "r-0"), *((n, None) for n in "abcd")]:
            make(trail, name, 1, parent=parent)
        with closing(apsw.Connection(str(tmp_path / "trail.db"))) as connection:
            connection.execute("update run set workflow = 'another' where id = 'c'")
        with pytest.warns(DamageWarning, match="'c'"):
            assert trail.usage("r").runs == 4
