"""What is damaged is not copied: it is named, and the rest is."""

from __future__ import annotations

import shutil
from pathlib import Path

import apsw
import pytest

import everstep
from everstep import DamageWarning
from everstep.errors import DamagedError
from everstep.store.rows import keyframe_seal
from tests.integration.cli_support import data, process, run
from tests.integration.copying import keyframes, noise, notes, same_run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "trail.db"
    with everstep.open(path) as trail:
        notes(trail, "before", "a")
        notes(trail, "hit", *noise(60))
        with trail.record("large") as run:
            run.step("s", output="large " * 20_000, output_to="x")
        notes(trail, "pruned", *noise(10))
        trail.prune("pruned", keep=2)
        notes(trail, "after", "b")
    return path


@pytest.fixture
def path(tmp_path: Path, made: Path) -> Path:
    return Path(shutil.copy(made, tmp_path))


def change(path: Path, sql: str) -> None:
    connection = apsw.Connection(str(path))
    connection.create_scalar_function("seal_of", keyframe_seal)  # type: ignore[arg-type] # SQL gives it what it takes
    connection.execute(sql)
    connection.close()


HIT = "(select key from run where id = 'hit')"
PRUNED = "(select key from run where id = 'pruned')"


@pytest.mark.parametrize(
    ("sql", "name"),
    [
        (f"update step set data = zeroblob(100) where run = {HIT} and seq = 40", "hit"),
        (f"update step set name = 'other' where run = {HIT} and seq = 0", "hit"),
        (f"delete from step where run = {HIT} and seq = 40", "hit"),
        ("update run set hash = zeroblob(32) where id = 'hit'", "hit"),
        ("update run set workflow = 'other' where id = 'hit'", "hit"),
        ("update blob set data = zeroblob(9) where id = (select blob from ref)", "large"),
        ("delete from blob where id = (select blob from ref)", "large"),
        (f"update keyframe set data = zeroblob(9) where run = {PRUNED}", "pruned"),
        (f"delete from keyframe where run = {PRUNED}", "pruned"),
    ],
)
def test_a_damaged_run_is_refused_by_name_and_the_others_are_copied(path: Path, sql: str, name: str) -> None:
    """Promises 9 and 13."""
    change(path, sql)
    copied = data("copy", path, path.with_name("to.db"), code=6)["copy"]
    [refusal] = copied["refused"]
    assert name in refusal["reason"]
    assert "damage" in refusal["reason"]
    with everstep.open(path) as source, everstep.open(path.with_name("to.db")) as to:
        others = {"before", "hit", "large", "pruned", "after"} - {name}
        assert copied["runs"] == len(others)
        for other in others:
            same_run(source, to, other)


def test_what_is_there_of_a_damaged_run_is_held_and_goes_on_when_it_is_repaired(path: Path, made: Path) -> None:
    """Promises 2 and 9."""
    change(path, f"update step set data = zeroblob(100) where run = {HIT} and seq = 55")
    to = path.with_name("to.db")
    with everstep.open(path) as source, everstep.open(to) as there:
        [refusal] = source.copy(there).refused
        assert isinstance(refusal.error, DamagedError)
        assert (refusal.run_id, refusal.error.seq, refusal.error.intact) == ("hit", 55, 54)
    assert data("copy", made, to)["copy"]["same"] == 4
    with everstep.open(made) as source, everstep.open(to) as there:
        same_run(source, there, "hit")


@pytest.mark.parametrize(
    "sql",
    [
        f"update keyframe set data = zeroblob(9) where run = {HIT}",
        f"update keyframe set hash = zeroblob(32), seal = seal_of(run, seq, zeroblob(32), data) where run = {HIT}",
        "delete from blob where id not in (select blob from ref)",
    ],
)
def test_a_damaged_cache_is_left_behind_with_a_warning(path: Path, sql: str) -> None:
    """Promise 9: the rows tell the same without it."""
    change(path, f"delete from keyframe where run = {PRUNED}; update run set id = null where id = 'pruned'; {sql}")
    with everstep.open(path) as source, everstep.open(path.with_name("to.db")) as to:
        with pytest.warns(DamageWarning, match="keyframe at hit@"):
            assert source.copy(to, "hit").ok
        assert keyframes(to.store, "hit") == {}
        assert to.store.run("hit").hash == source.store.run("hit").hash
        assert to.verify("hit").ok
        assert len(to.state("hit")["texts"]) == 60


def test_a_run_that_is_told_by_its_steps_is_copied_with_a_warning_and_one_that_nothing_tells_is_not(
    tmp_path: Path,
) -> None:
    """Promises 9 and 13: of each it is said once what became of it."""
    source, to = (tmp_path / "files").as_uri(), tmp_path / "to.db"
    with everstep.open(source) as trail:
        for name in ("torn", "lost", "well"):
            notes(trail, name, "a", "b")
        trail.record("kid", parent="well").finish("done")
    for name, page in (("torn", "run"), ("lost", "run"), ("lost", "begin")):
        [folder] = (tmp_path / "files" / "runs").glob(f"{name}-*")
        (folder / f"{page}.json").write_text("{", "utf-8")
    for words, runs in ((("torn", "well"), 3), ((), 3)):
        done = process("copy", source, to.with_stem(f"to-{len(words)}"), *words)
        lines = done.stderr.splitlines()
        assert (done.code, lines[1].split(":")[-1]) == (6, f" {runs} runs, 8 entries."), done.stderr
        assert [line.split(":")[0] for line in lines] == ["warning", lines[1].split(":")[0], "not copied", "next"]
        assert "Run 'torn' was read from its steps up to 2" in lines[0]
        assert "runs/lost-" in lines[2]
    copied = data("copy", source, to, "well", "torn", code=6)["copy"]
    assert [refused["reason"].count("runs/lost-") for refused in copied["refused"]] == [1]


def test_a_run_whose_own_row_is_damaged_is_named(path: Path) -> None:
    """Promise 13: it is in no list."""
    change(path, "update run set workflow = 'other' where id = 'hit'")
    said = run("copy", path, path.with_name("to.db"))
    assert said.exit_code == 6
    assert "not copied: damage in run 'hit'" in said.output
    assert "everstep verify" in said.output
