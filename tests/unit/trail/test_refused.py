"""What a trail does not take, and what it gives to other processes."""

from __future__ import annotations

import copy
import inspect
import os
import pickle
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import errors
from everstep.errors import EverstepError, InputsDifferError, RunNotFoundError, StateError, UnstorableError
from everstep.model import Status
from everstep.trail.compare import MISSING

HALF = "half a character: \ud800"


@pytest.mark.parametrize(
    "act",
    [
        lambda trail: trail.record(""),
        lambda trail: trail.record(HALF),
        lambda trail: trail.record("nul\0"),
        lambda trail: trail.record(5),
        lambda trail: trail.record("x", workflow=HALF),
        lambda trail: trail.record("x", tags={"user": 5}),
        lambda trail: trail.record("x", tags={HALF: "v"}),
        lambda trail: trail.record("x", parent=HALF),
        lambda trail: trail.record("x", retry_index=1 << 70),
        lambda trail: trail.record("x", retry_index="one"),
        lambda trail: trail.record("x", lease=float("nan")),
        lambda trail: trail.record("x", lease=-1),
        lambda trail: trail.record("x", lease=None),
        lambda trail: trail.record("r").step(HALF),
        lambda trail: trail.record("r").step(5),
        lambda trail: trail.record("r").step("s", id="abc"),
        lambda trail: trail.record("r").step("s", duration_ms=float("nan")),
        lambda trail: trail.record("r").step("s", duration_ms=float("inf")),
        lambda trail: trail.record("r").step("s", duration_ms=-1),
        lambda trail: trail.record("r").step("s", duration_ms=1e14),
        lambda trail: trail.record("r").step("s", duration_ms=None),
        lambda trail: trail.record("r").step("s", started=datetime.max),
        lambda trail: trail.record("r").step("s", error="boom"),
        lambda trail: trail.record("r").step("s", lane=HALF),
        lambda trail: trail.record("r").save({1: 2}),
        lambda trail: trail.fork("r", id=""),
    ],
)
def test_what_cannot_be_kept_is_a_typed_refusal(trail: everstep.Trail, act: Any) -> None:
    """Promise 13."""
    trail.record("r").release()
    with pytest.raises((UnstorableError, StateError)):
        act(trail)
    assert [run.id for run in trail.runs()] == ["r"]
    assert trail.run("r").head == 0
    assert trail.verify().ok


def test_a_misspelt_word_is_refused(trail: everstep.Trail) -> None:
    """Promise 13."""
    for act in (
        lambda: trail.record("r", worklfow="w"),  # type: ignore[call-arg] # what is tested
        lambda: trail.record("r").step("s", otput=1),  # type: ignore[call-arg] # what is tested
        lambda: trail.fork("r", ad=1),  # type: ignore[call-arg] # what is tested
    ):
        with pytest.raises(TypeError):
            act()


def test_questions_that_make_no_sense_are_told_so(trail: everstep.Trail) -> None:
    trail.record("r").release()
    for ask in (lambda: trail.state("r", at=1.5), lambda: trail.step("r", 1.5), lambda: trail.prune("r", keep=2.5)):  # type: ignore[arg-type] # what is tested
        with pytest.raises(TypeError, match="whole number"):
            ask()
    for limit in (0, -1):
        with pytest.raises(ValueError, match="limit"):
            trail.search("x", limit=limit)
    assert trail.runs(limit=10**30)[0].id == "r"
    with pytest.raises(errors.StepNotFoundError):
        trail.step("r", -1)


def test_inputs_are_the_same_in_whatever_order_they_are_named(trail: everstep.Trail) -> None:
    trail.record("r", inputs={"a": 1, "b": [{"x": 1, "y": 2}]}).release()
    trail.record("r", inputs={"b": [{"y": 2, "x": 1}], "a": 1}).release()
    with pytest.raises(InputsDifferError):
        trail.record("r", inputs={"b": [{"y": 2, "x": 1.0}], "a": 1})


def test_finishing_with_an_error_fails_the_run(trail: everstep.Trail) -> None:
    trail.record("r").finish(error=ValueError("boom"))
    assert (trail.run("r").status, trail.run("r").owner) == (Status.FAILED, None)
    with pytest.raises(ValueError, match="does not end"):
        trail.record("x").finish(status="active")
    trail.record("x2").finish(status="stopped")
    assert trail.run("x2").status == Status.STOPPED


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("error", [ValueError("half \udcff"), MuteError()])
def test_an_error_that_cannot_be_told_does_not_hide_itself(trail: everstep.Trail, error: Exception) -> None:
    with pytest.raises(type(error)), trail.record("r"):
        raise error
    assert (trail.run("r").status, trail.run("r").owner) == (Status.FAILED, None)


def test_an_error_while_ending_is_a_note_on_the_one_that_counts(trail: everstep.Trail) -> None:
    with pytest.raises(ValueError, match="mine") as left, trail.record("r"):
        trail.close()
        raise ValueError("mine")
    assert "could not be ended" in left.value.__notes__[0]


def test_lineage_is_by_age_when_an_id_is_used_again(trail: everstep.Trail) -> None:
    trail.record("a").finish()
    trail.fork("a", id="b").finish()
    trail.drop("a")
    trail.fork("b", id="a").finish()
    assert [run.id for run in trail.lineage("a")] == ["b", "a"]
    assert [run.id for run in trail.lineage("b")] == ["b", "a"]
    assert trail.diff("a", "b@0") == []


def test_a_long_chain_of_forks_can_be_let_go_of(tmp_path: Path) -> None:
    length = sys.getrecursionlimit() // 2
    with everstep.open(tmp_path / "trail.db") as trail:
        trail.record("f0").release()
        for number in range(1, length):
            trail.fork(f"f{number - 1}", id=f"f{number}")
        depth, limit = len(inspect.stack()), sys.getrecursionlimit()
        sys.setrecursionlimit(depth + length // 2)  # far less than the chain is long
        try:
            trail.drop("f0")
            trail.reclaim()
            assert trail.state(f"f{length - 1}") == {}
        finally:
            sys.setrecursionlimit(limit)


def test_a_state_nested_deeply_by_paths_does_not_stop_the_run(trail: everstep.Trail) -> None:
    run, path = trail.record("r"), ["a"]
    run.step("s", set={"a": {}})
    with pytest.raises(StateError, match="parts"):
        for _ in range(100):
            path.append("b")
            run.step("s", set={tuple(path): {}})
    deep: Any = {}
    for _ in range(230):
        deep = {"d": deep}
    run.step("s", set={tuple(path[:-1]): deep})
    for _ in range(12):
        run.step("big", output=os.urandom(40_000))
    assert trail.verify().ok


@pytest.mark.parametrize(
    "kind", [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, EverstepError)]
)
def test_every_error_reaches_another_process_as_it_is(kind: type[EverstepError]) -> None:
    samples = {
        "str": "text", "int": 7, "bool": True, "float": 1.5, "tuple[str, ...]": ("a",), "tuple[int, ...]": (1,),
        "str | None": None, "int | None": 3, "tuple[int, bytes]": (3, b"hash"), "tuple[str, str] | None": ("a", "b"),
    }  # fmt: skip
    own = kind.__init__ is not Exception.__init__
    given = (
        {part.name: samples[str(part.annotation)] for part in inspect.signature(kind).parameters.values()}
        if own
        else {}
    )
    error = kind(**given) if given else kind("said")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is kind
        assert (str(again), again.__dict__) == (str(error), error.__dict__)


def test_records_reach_another_process_with_all_they_hold(trail: everstep.Trail) -> None:
    run = trail.record("r")
    run.step("s", output={"large": "x" * 100_000, "small": (1,)})
    run.step("s", set={"a": 1})
    step = pickle.loads(pickle.dumps(trail.step("r", 1)))
    change = copy.deepcopy(trail.diff("r@1", "r@2")[0])
    info = pickle.loads(pickle.dumps(trail.run("r")))
    trail.close()
    assert step.output == {"large": "x" * 100_000, "small": (1,)}
    assert change.old is MISSING
    assert info.id == "r"


def test_a_recorder_does_not_cross_a_fork_of_its_process(tmp_path: Path) -> None:
    """Promise 4."""
    trail = everstep.open(tmp_path / "trail.db")
    run = trail.record("r")
    run.step("before")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            run.step("mine too")
        except errors.ForkedError:
            with trail.record("child") as own:
                own.step("own")
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    run.step("after")
    assert [step.name for step in trail.steps("r")] == ["start", "before", "after"]
    assert [step.name for step in trail.steps("child")] == ["start", "own", "end"]
    trail.close()


def test_a_closed_trail_does_not_take_others_across_a_fork(tmp_path: Path) -> None:
    """Promise 1."""
    closed = [everstep.open(tmp_path / f"closed-{number}.db") for number in range(6)]
    for one in closed:
        one.close()
    trail = everstep.open(tmp_path / "trail.db")
    trail.record("p").release()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            run = trail.record("c")
            run.step("first")
            os.read(reading, 1)
            for number in range(5):
                run.step("c", output=number)
            code = 0
        finally:
            os._exit(code)
    while not [run for run in trail.runs() if run.id == "c" and run.head == 1]:
        pass
    trail.close()
    os.write(writing, b"1")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with everstep.open(tmp_path / "trail.db") as again:
        assert again.run("c").head == 6
        assert again.verify().ok


def test_a_link_leads_to_the_same_trail(tmp_path: Path) -> None:
    """Promise 13: what lies beside the file lies beside the real one."""
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "l.db").symlink_to(tmp_path / "trail.db")
    with everstep.open(tmp_path / "links" / "l.db") as trail:
        trail.record("r").step("s")
        assert len(trail.search("s")) == 1
        with everstep.open(tmp_path / "trail.db", read_only=True) as other:
            assert other.run("r").head == 1
    assert [path.name for path in (tmp_path / "links").iterdir()] == ["l.db"]


def test_what_was_let_go_of_is_not_left_in_the_files(tmp_path: Path) -> None:
    """Promise 12."""
    secret = b"a word that nobody says otherwise"
    with everstep.open(tmp_path / "trail.db") as trail:
        for name in ("dropped", "pruned"):
            with trail.record(name, tags={"user": secret.decode()} if name == "dropped" else {}) as run:
                run.step("s", output={"said": secret}, output_to="x")
                run.step("s", set={"x": None})
                run.step("t", output=1)
        trail.record("stays").step("other", output=b"noise" * 50)
        trail.search("word")
        trail.drop("dropped")
        trail.prune("pruned", keep=1)
    files = [path for path in tmp_path.iterdir() if path.is_file()]
    assert [path.name for path in files if secret in path.read_bytes() or b"nobody" in path.read_bytes()] == []


def test_a_secret_in_an_id_or_a_tag_is_not_stored_nor_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trail: everstep.Trail
) -> None:
    """Promise 10."""
    monkeypatch.setenv("EVERSTEP_KEY_FILE", str(tmp_path / "redaction.key"))
    token = "sk-ant-" + "a1B2" * 8
    trail.record(token, tags={"password": "hunter2", "user": "u"}).step("s")
    trail.record("child", parent=token)
    assert trail.run(token).head == 1
    assert trail.run("child").parent_run_id == trail.run(token).id
    assert token not in repr(trail.runs())
    assert "hunter2" not in repr(trail.runs())
    with pytest.raises(RunNotFoundError) as told:
        trail.run(token + "x")
    assert token not in str(told.value)


@pytest.mark.parametrize("away", [lambda path: path.unlink(), lambda path: path.rename(path.with_name("moved.db"))])
def test_steps_into_a_file_that_is_gone_are_not_acknowledged(
    tmp_path: Path, away: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise 1: SQLite itself would write on to where nobody looks."""
    monkeypatch.setattr("everstep.store.sqlite._LOOK_EVERY", 0.0)
    trail = everstep.open(tmp_path / "trail.db")
    run = trail.record("r")
    run.step("a")
    away(tmp_path / "trail.db")
    with pytest.raises(errors.StoreError, match="moved or deleted"):
        run.step("b")
    trail.close()


def test_a_run_whose_file_was_removed_is_not_said_to_have_ended(tmp_path: Path) -> None:
    """However short it was: the file is looked for before a run ends."""
    trail = everstep.open(tmp_path / "trail.db")
    run = trail.record("r")
    run.step("a")
    (tmp_path / "trail.db").unlink()
    with pytest.raises(errors.StoreError, match="moved or deleted"):
        run.finish()
    trail.close()
