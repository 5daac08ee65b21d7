from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import AsyncTrail, Runner, Secret, Trail, register, step, workflow
from everstep.codec.record import erase
from everstep.errors import PrunedError, RunExistsError, RunNotFoundError, UnreadableError
from everstep.store.base import Claim, NewRun
from tests.corpus.make import EXPECTED
from tests.corpus.same import same
from tests.integration.moved import KINDS, SECRET, Offer, booking, journey
from tests.integration.support import everything, rich_trail

register(Offer)


@pytest.fixture
def trail(tmp_path: Path) -> Trail:
    return everstep.open(tmp_path / "trail.db")


@pytest.fixture(params=["memory", "sqlite"])
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Trail:
    return everstep.open(":memory:" if request.param == "memory" else tmp_path / "other.db")


def rows(trail: Trail, run_id: str) -> list[Any]:
    run = trail.store.run(run_id)
    return trail.store.entries(run_id, 0, run.seq)


def family(trail: Trail, run_id: str) -> list[str]:
    named = [step.child_run_id for step in trail.steps(run_id, view=True) if step.child_run_id]
    return [run_id, *(found for child in dict.fromkeys(named) for found in family(trail, child))]


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_comes_back_row_by_row_and_does_what_it_did(
    kind: str, trail: Trail, other: Trail, tmp_path: Path
) -> None:
    """Promise 6: what was recorded on one machine is replayed on another."""
    make, flow = KINDS[kind]
    run_id = make(trail)
    file = trail.export(run_id, tmp_path / "run.everstep")
    run = other.import_run(file)
    was = trail.run(run_id)
    assert (run.id, run.workflow, run.status, run.tags) == (was.id, was.workflow, was.status, was.tags)
    assert (run.created_at, run.ended_at, run.owner) == (was.created_at, was.ended_at, None)
    for member in family(trail, run_id):
        assert rows(other, member) == rows(trail, member)
        assert other.state(member) == trail.state(member)
    assert other.verify().ok
    assert trail.replay(run_id, flow).identical
    report = other.replay(run.id, flow)
    assert report.identical, report
    assert [each.to_dict() for each in report.steps] == [each.to_dict() for each in trail.replay(run_id, flow).steps]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_run_gives_the_same_bytes_wherever_it_is(
    kind: str, trail: Trail, other: Trail, tmp_path: Path
) -> None:
    run_id = KINDS[kind][0](trail)
    first = trail.export(run_id, tmp_path / "first.everstep").read_bytes()
    assert trail.export(run_id, tmp_path / "second.everstep").read_bytes() == first
    other.import_run(tmp_path / "first.everstep")
    assert other.export(run_id, tmp_path / "third.everstep").read_bytes() == first


def test_an_imported_run_goes_on(trail: Trail, other: Trail, tmp_path: Path) -> None:
    file = trail.export(KINDS["paused"][0](trail), tmp_path / "run.everstep")
    other.import_run(file)
    done = Runner(other).run(KINDS["paused"][1], id="paused", answer="no")
    assert done.value == "IT: NO"
    assert other.verify().ok


def test_an_imported_run_can_be_forked_and_compared(trail: Trail, other: Trail, tmp_path: Path) -> None:
    other.import_run(trail.export(KINDS["failed"][0](trail), tmp_path / "run.everstep"))
    other.fork("failed", 2, id="what if", outcome="paid after all").release()
    assert Runner(other).run(booking, id="what if").value == "paid after all"
    found = other.compare("failed", "what if")
    assert found.first is not None
    assert found.first.name == "pay"
    assert other.verify().ok


def test_a_map_goes_on_where_it_was(trail: Trail, other: Trail, tmp_path: Path) -> None:
    values = {"city": ["Rome", "Oslo"], "cheap": False}
    Runner(trail).map(booking, values, map_over="city", id="map", progress=False)
    other.import_run(trail.export("map", tmp_path / "run.everstep"))
    again = Runner(other).map(booking, values, map_over="city", id="map", progress=False)
    assert [result.value for result in again] == ["paid 90", "paid 90"]
    assert all(result.restored for result in again)


def test_a_fork_stands_alone_and_can_be_forked_again(trail: Trail, other: Trail, tmp_path: Path) -> None:
    file = trail.export(KINDS["fork"][0](trail), tmp_path / "run.everstep")
    run = other.import_run(file)
    assert (run.forked_from, run.fork_seq) == (None, None)
    assert [each.id for each in other.lineage(run.id)] == [run.id]
    with pytest.raises(RunNotFoundError):
        other.run("children")
    other.fork(run.id, 1, id="again").release()
    assert Runner(other).run(journey, id="again").completed
    assert other.verify().ok


def test_a_fork_that_may_reuse_goes_on_without_the_run_it_was_forked_from(
    trail: Trail, other: Trail, tmp_path: Path
) -> None:
    KINDS["failed"][0](trail)
    trail.fork("failed", 0, id="reuse", reuse=True, inputs={"cheap": False}).release()
    other.import_run(trail.export("reuse", tmp_path / "run.everstep"))
    assert Runner(other).run(booking, id="reuse").value == "paid 90"


def test_an_id_that_is_taken_is_an_error_and_another_can_be_given(trail: Trail, other: Trail, tmp_path: Path) -> None:
    file = trail.export(KINDS["children"][0](trail), tmp_path / "run.everstep")
    other.import_run(file)
    with pytest.raises(RunExistsError):
        other.import_run(file)
    run = other.import_run(file, id="second")
    assert run.id == "second"
    assert rows(other, "second") == rows(other, "children")
    assert other.replay("second", journey).identical
    assert other.verify().ok


def test_a_child_that_is_there_and_is_another_is_never_mixed_up(trail: Trail, other: Trail, tmp_path: Path) -> None:
    file = trail.export(KINDS["children"][0](trail), tmp_path / "run.everstep")
    other.record("children/booking#0").finish()
    with pytest.raises(RunExistsError, match="children/booking#0"):
        other.import_run(file)
    with pytest.raises(RunNotFoundError):
        other.run("children")


def test_an_import_that_was_interrupted_is_done_by_the_next_one(
    trail: Trail, other: Trail, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = trail.export(KINDS["children"][0](trail), tmp_path / "run.everstep")
    create = other.store.create

    def interrupted(new: NewRun) -> Claim:
        if new.id == "children/booking#0":
            raise KeyboardInterrupt
        return create(new)

    monkeypatch.setattr(other.store, "create", interrupted)
    with pytest.raises(KeyboardInterrupt):
        other.import_run(file)
    assert [run.id for run in other.runs()] == ["children/booking#1"]
    monkeypatch.undo()
    other.import_run(file)
    assert rows(other, "children") == rows(trail, "children")
    assert other.replay("children", journey).identical


def test_a_child_that_was_dropped_or_pruned_is_told_by_its_step_alone(
    trail: Trail, other: Trail, tmp_path: Path
) -> None:
    KINDS["children"][0](trail)
    trail.drop("children/booking#0")
    trail.prune("children/booking#1", keep=1)
    other.import_run(trail.export("children", tmp_path / "run.everstep"))
    assert [run.id for run in other.runs()] == ["children"]
    assert other.replay("children", journey).identical


def test_a_run_that_is_not_whole_is_not_exported(trail: Trail, tmp_path: Path) -> None:
    KINDS["function"][0](trail)
    trail.prune("function", keep=1)
    with pytest.raises(PrunedError, match="exported whole"):
        trail.export("function", tmp_path / "run.everstep")
    assert not (tmp_path / "run.everstep").exists()


def test_everything_that_a_trail_can_hold_is_the_same_after_the_journey(tmp_path: Path) -> None:
    rich_trail(tmp_path / "rich.db")
    trail, other = everstep.open(tmp_path / "rich.db"), everstep.open(tmp_path / "other.db")
    trail.drop("pruned")
    trail.drop("fork")
    file = trail.export("parent", tmp_path / "run.everstep")
    assert b'"run": "open"' in file.read_bytes()  # its child, though no step names it
    other.import_run(file)
    was, now = everything(trail), everything(other)
    for found in (was, now):
        for key in ("runs", "checkpoints"):
            del found[key]  # which run came first is the trail's own
        found.update((key, sorted(value)) for key, value in found.items() if key.startswith(("status", "tag")))
    assert now.keys() == was.keys()
    assert {key: now[key] for key in now if not same(now[key], was[key])} == {}


@pytest.mark.parametrize("name", sorted(EXPECTED.keys() - {"blob"}))  # a reference, which no user ever holds
def test_every_type_survives(name: str, tmp_path: Path) -> None:
    """Promise 7."""
    trail, other = everstep.open(":memory:"), everstep.open(":memory:")
    trail.record("r", inputs={"it": EXPECTED[name]}).step("s", output=EXPECTED[name])
    other.import_run(trail.export("r", tmp_path / "run.everstep"))
    assert same(other.step("r", 1).output, trail.step("r", 1).output)
    assert rows(other, "r") == rows(trail, "r")


def test_what_was_erased_stays_erased_and_the_chain_holds(trail: Trail, other: Trail, tmp_path: Path) -> None:
    KINDS["function"][0](trail)
    trail.store.erase("function", [erase(rows(trail, "function")[1])])  # type: ignore[attr-defined] # SQLite can
    file = trail.export("function", tmp_path / "run.everstep")
    assert b'"erased": true' in file.read_bytes()
    assert b"B in Rome" not in file.read_bytes()
    other.import_run(file)
    assert other.step("function", 1).erased
    assert other.verify().ok


@step
def login(user: str, password: str) -> dict[str, str]:
    return {"token": SECRET, "user": user}


@workflow
def session(password: str) -> str:
    found = login("ada", password)
    raise PermissionError(f"no right with {found['token']}")


def test_no_secret_is_in_the_file(trail: Trail, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise 10."""
    monkeypatch.setenv("EVERSTEP_KEY_FILE", str(tmp_path / "key"))
    with pytest.raises(PermissionError):
        Runner(trail).run(session, "hunter2-hunter2", id="s", tags={"api_key": SECRET})
    trail.record("t", inputs={"it": Secret(SECRET)}).step(f"call {SECRET}", output=[SECRET], metadata={"key": SECRET})
    for run_id in ("s", "t"):
        data = trail.export(run_id, tmp_path / "run.everstep").read_bytes()
        plain = [json.loads(line) for line in data.splitlines()]
        assert b"[redacted:" in data
        for word in (SECRET, "hunter2-hunter2"):
            assert word.encode() not in data
            assert word not in json.dumps(plain)
        other = everstep.open(":memory:")
        other.import_run(tmp_path / "run.everstep")
        assert SECRET not in repr(everything(other))


def test_the_readable_part_says_what_happened_and_no_time(trail: Trail, tmp_path: Path) -> None:
    run_id = KINDS["failed"][0](trail)
    lines = trail.export(run_id, tmp_path / "run.everstep").read_text("utf-8").splitlines()
    first, run, *rest = map(json.loads, lines)
    assert first == {
        "everstep": "run", "format": 1, "run": "failed", "workflow": "booking", "status": "failed", "runs": 1,
        "rows": 4, "pieces": 0,
    }  # fmt: skip
    assert run["run"] == "failed"
    start, searched, paid, ended = rest[:4]
    assert start["inputs"] == {"city": "Rome", "cheap": True}
    [name] = searched["output"][0]
    assert name.endswith("Offer")
    assert searched["output"][1][name] == {"hotel": "B in Rome", "price": 70}
    assert (paid["status"], paid["error"]) == ("failed", ["ConnectionError", "the card was declined"])
    assert ended["kind"] == "end"
    assert [list(row) for row in rest[4:]] == [["row"]] * 4


def test_what_is_recorded_twice_differs_in_the_readable_part_where_it_did_something_else(tmp_path: Path) -> None:
    found = []
    for city in ("Rome", "Rome", "Oslo"):
        trail = everstep.open(":memory:")
        Runner(trail).run(booking, city, cheap=False, id="r")
        lines = trail.export("r", tmp_path / "run.everstep").read_text("utf-8").splitlines()
        found.append([line for line in lines if line.startswith('{"step"')])
    assert found[0] == found[1]
    different = [a != b for a, b in zip(found[0], found[2], strict=True)]
    assert different == [True, True, False, False]  # what it was given, and what the search was given and gave


def test_nothing_hides_in_the_readable_part_and_nothing_in_it_is_endless(trail: Trail, tmp_path: Path) -> None:
    run = trail.record("r")
    run.step("a\u202eb\u200b\ufeff", output=["\x1b[2J\u2028\u0085", "é ü 漢字 🎈", float("nan"), b"\0" * 99, 2**80])
    run.step("long", output={"text": "x" * 9_000, "deep": [[[[[[[[[[[[1]]]]]]]]]]]], "many": list(range(100_000))})
    text = trail.export("r", tmp_path / "run.everstep").read_text("utf-8")
    _, _, _, odd, long, *_ = text.split("\n")
    assert not set(odd) & set("\u202e\u200b\ufeff\x1b\u2028\u0085")
    assert "é ü 漢字 🎈" in odd
    assert json.loads(odd)["name"] == "a\u202eb\u200b\ufeff"
    assert len(long) < 6_000
    assert "9,000 characters" in long
    assert everstep.open(":memory:").import_run(tmp_path / "run.everstep").step_count == 3


def test_a_file_is_written_whole_or_not_at_all_and_as_any_other(trail: Trail, tmp_path: Path) -> None:
    KINDS["function"][0](trail)
    with pytest.raises(UnreadableError, match="can be written"):
        trail.export("function", tmp_path / "none" / "run.everstep")
    file = tmp_path / "run.everstep"
    file.write_text("old")
    with pytest.raises(RunNotFoundError):
        trail.export("no such run", file)
    assert file.read_text() == "old"
    trail.export("function", str(file))
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    beside = tmp_path / "beside"
    beside.touch()
    assert stat.S_IMODE(os.stat(file).st_mode) == stat.S_IMODE(os.stat(beside).st_mode)  # noqa: PTH116 - as plain as it gets


def test_exporting_needs_no_right_to_write_to_the_trail(trail: Trail, tmp_path: Path) -> None:
    KINDS["function"][0](trail)
    trail.close()
    with everstep.open(tmp_path / "trail.db", read_only=True) as reading:
        file = reading.export("function", tmp_path / "run.everstep")
        with pytest.raises(everstep.EverstepError, match="read_only"):
            reading.import_run(file, id="second")


def test_the_awaited_twin_moves_runs_too(trail: Trail, tmp_path: Path) -> None:
    KINDS["function"][0](trail)

    async def move() -> str:
        file = await AsyncTrail(trail).export("function", tmp_path / "run.everstep")
        return (await AsyncTrail(everstep.open(":memory:")).import_run(file)).id

    assert asyncio.run(move()) == "function"
