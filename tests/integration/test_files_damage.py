"""Torn, changed and missing files of a trail of JSON files: said, never silently wrong, and what is whole is read."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import everstep
from everstep.errors import DamagedError, NotATrailError, RebuiltWarning, StaleWriterError
from everstep.store.files import FilesStore
from everstep.store.files_layout import folder_name
from everstep.store.files_pages import sealed
from everstep.testing.rows import Writer, begin, history, keyframe
from tests.integration.support import everything, output, watched
from tests.places import IN_MEMORY


def varied(path: Path) -> None:
    """A closed trail with a file of every kind: finished and open runs, forks of dropped ones, pruned, with pieces."""
    with everstep.open(path) as trail:
        with trail.record("done", workflow="research", inputs={"topic": "x"}, tags={"user": "ada"}) as run:
            for number in range(4):
                run.step(f"s{number}", output={"n": number, "text": "word " * 30}, append_to="messages")
            run.checkpoint("half")
            run.step("document", output="d" * 70_000, output_to="document")
            run.step("broken", error=ValueError("no such page"))
            run.save({"messages": ["m" * 400], "document": "short"})
        trail.fork("done", 3, id="fork").step("other", output=1, output_to="result")
        trail.record("gone").step("s", output=1, output_to="x")
        trail.fork("gone", 1, id="of gone").step("other", output=1)
        trail.drop("gone")
        pruned = trail.record("pruned")
        for number in range(6):
            pruned.step("p", append={"rows": [number]})
        trail.prune("pruned", keep=2)


@pytest.fixture(scope="module")
def original() -> Iterator[Path]:
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        path = Path(folder) / "trail"
        path.mkdir()
        varied(path)
        yield path


@pytest.fixture
def path(original: Path) -> Iterator[Path]:
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        yield Path(shutil.copytree(original, f"{folder}/trail"))


def files(path: Path) -> list[str]:
    """All files of a trail, by their names in it, but for that which is for git."""
    return sorted(found.relative_to(path).as_posix() for found in path.rglob("[!.]*") if found.is_file())


def one_of_each(path: Path) -> dict[str, str]:
    """A file of each kind."""
    kinds = {name.rsplit("/", 1)[0].split("/", 2)[-1] + "/" + name.rsplit("/", 1)[-1]: name for name in files(path)}
    marks = ("trail.json", "run.json", "begin.json", "steps/", "keyframes/", "pieces/")
    return {mark: next(name for kind, name in sorted(kinds.items()) if mark in f"{kind} {name}") for mark in marks}


def test_there_is_a_file_of_every_kind(original: Path) -> None:
    assert len(set(one_of_each(original).values())) == 6
    with everstep.open(original, read_only=True) as trail:
        assert trail.verify().ok
        assert len(everything(trail)["runs"]) == 4


def look(path: Path, before: dict[str, Any]) -> list[str]:
    """What is said of damage. Nothing may be said only where everything reads as it was."""
    with watched() as seen, everstep.open(path, read_only=True) as trail:
        found = everything(trail)
    if not seen.said:
        assert found == before
    with watched() as again, everstep.open(path, read_only=True) as trail:
        again.said += map(str, trail.verify().damage)
    assert again.said
    return [*seen.said, *again.said]


def spoil(path: Path, names: list[str], data: dict[str, list[bytes]]) -> None:
    with everstep.open(path, read_only=True) as trail:
        before = everything(trail)
    for name in names:
        file = path / name
        whole = file.read_bytes()
        for spoiled in data[name]:
            file.write_bytes(spoiled)
            said = look(path, before)
            assert any(Path(name).name in text or "upgrade" in text for text in said), (name, said)
        file.write_bytes(whole)
    with everstep.open(path, read_only=True) as trail:
        assert everything(trail) == before


def test_a_file_that_was_cut_short_is_said_to_be(path: Path) -> None:
    """Promise 9: whatever the file, wherever it ends."""
    names = list(one_of_each(path).values())
    spoil(path, names, {name: _cut((path / name).read_bytes()) for name in names})


def _cut(data: bytes) -> list[bytes]:
    return [data[:end] for end in (0, 1, len(data) // 2, len(data) - 2, len(data) - 1)]


def flips(path: Path, seed: int, each: int) -> None:
    chance = random.Random(seed)
    names = list(one_of_each(path).values())
    spoil(path, names, {name: [_flipped((path / name).read_bytes(), chance) for _ in range(each)] for name in names})


def _flipped(data: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(data))
    return data[:place] + bytes([data[place] ^ (1 << chance.randrange(8))]) + data[place + 1 :]


def test_a_flipped_bit_is_said_to_be_one(path: Path) -> None:
    """Promise 9."""
    flips(path, 1, 6)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(2, 12))
def test_many_flipped_bits_are_said_to_be_some(path: Path, seed: int) -> None:
    """Promise 9."""
    flips(path, seed, 25)


def test_a_missing_file_is_said_to_be_missing(path: Path) -> None:
    """Promise 9: whichever it is, but for a keyframe that a run can do without."""
    with everstep.open(path, read_only=True) as trail:
        before = everything(trail)
    needed = [name for name in files(path) if "/keyframes/" not in name or name.startswith("runs/pruned")]
    assert len(needed) > 25
    for name in needed:
        (path / name).rename(path / "aside")
        assert any(Path(name).name in text for text in look(path, before)), name
        (path / "aside").rename(path / name)


# What a run's own file said is told by its steps.


def page(path: Path, run_id: str, name: str = "run.json") -> Path:
    return path / "runs" / folder_name(run_id) / name


@pytest.mark.parametrize("run_id", ["done", "fork", "of gone", "pruned"])
def test_a_run_whose_page_is_torn_is_read_from_its_steps(path: Path, run_id: str) -> None:
    """Promise 9: the newest intact step is found, and that is said."""
    with everstep.open(path, read_only=True) as trail:
        run, steps, state = trail.run(run_id), trail.steps(run_id), trail.state(run_id)
    page(path, run_id).write_bytes(page(path, run_id).read_bytes()[:100])
    with everstep.open(path, read_only=True) as trail:
        with pytest.warns(RebuiltWarning, match=f"{run_id!r} was read from its steps up to {run.head}[.;]"):
            again = trail.run(run_id)
        with pytest.warns(RebuiltWarning):
            assert (trail.steps(run_id), trail.state(run_id)) == (steps, state)
        assert (again.status, again.tags, again.oldest, again.ended_at) == (
            run.status,
            run.tags,
            run.oldest,
            run.ended_at,
        )


def test_the_torn_page_of_a_run_that_has_ended_is_written_anew_by_reclaiming(path: Path) -> None:
    written = page(path, "done").read_text()
    page(path, "done").write_text(written[:100])
    with everstep.open(path, read_only=True) as trail, pytest.warns(RebuiltWarning) as told:
        trail.run("done")
    [advice] = re.findall(r"In Python, (.+) writes the file anew", str(told[0].message))
    assert output(f"import everstep; print(any({advice}))") == "False"
    with everstep.open(path) as trail:
        assert trail.verify().ok
    again, before = json.loads(page(path, "done").read_text()), json.loads(written)
    assert [again[name] for name in ("run", "status", "head", "hash", "tags", "ended", "errors")] == [
        before[name] for name in ("run", "status", "head", "hash", "tags", "ended", "errors")
    ]


def test_a_run_is_read_up_to_its_newest_intact_step(path: Path) -> None:
    """Promise 9."""
    page(path, "done").unlink()
    torn = page(path, "done", "steps/000005.json")
    torn.write_bytes(torn.read_bytes()[:-40])
    with everstep.open(path, read_only=True) as trail:
        with pytest.warns(RebuiltWarning, match="up to 4, and 5 files beyond that do not follow"):
            assert trail.run("done").head == 4
        with pytest.warns(RebuiltWarning):
            [damage] = trail.verify("done").damage
        assert "run.json was not as it was written" in damage.what


def test_reclaiming_leaves_what_lies_beyond_a_damaged_step(path: Path) -> None:
    page(path, "done").unlink()
    page(path, "done", "steps/000005.json").unlink()
    with everstep.open(path) as trail, pytest.warns(RebuiltWarning):
        trail.drop("pruned")
    assert page(path, "done", "steps/000006.json").exists()


def test_whoever_owned_a_run_whose_page_was_torn_has_to_claim_it_anew(path: Path) -> None:
    """Promise 4: nobody knows who claimed it last."""
    store = FilesStore(str(path))
    writer = begin(store, "mine", rows=1)
    again = writer.draft(writer.rows())
    store.append(again)
    page(path, "mine").write_text("{")
    assert store.append(again)  # what was acknowledged still is
    with pytest.raises(StaleWriterError), pytest.warns(RebuiltWarning):  # of the append before it
        Writer(store, writer.claim).write()
    with pytest.raises(DamagedError, match="resume the run"), pytest.warns(RebuiltWarning):
        store.prune("mine", keyframe(again.entries[0]), store.run("mine").generation)
    with pytest.warns(RebuiltWarning):
        store.request("mine", "cancel")
    assert page(path, "mine").read_text() == "{"
    with pytest.warns(RebuiltWarning):
        writer = Writer(store, store.claim("mine", "maker"))
    writer.write()
    assert len(history(store, "mine")) == 3
    store.close()


def test_a_run_that_can_be_told_by_nothing_is_left_out_of_lists(path: Path) -> None:
    """Promise 9: the others are there."""
    page(path, "done").write_text("{")
    page(path, "done", "begin.json").write_text("{")
    with everstep.open(path, read_only=True) as trail:
        with pytest.warns(everstep.DamageWarning, match=r"left out: .*run.json.*begin.json") as told:
            assert "done" not in {run.id for run in trail.runs()}
        assert not any(issubclass(each.category, RebuiltWarning) for each in told)  # it was not told by its steps
        with pytest.raises(DamagedError, match=r"run.json"):
            trail.run("done")


def test_a_trail_that_lost_its_first_file_counts_on(path: Path) -> None:
    """Promise 5: no key is given out again."""
    with everstep.open(path) as trail:
        newest = trail.store.run("fork").key
    (path / "trail.json").unlink()
    with pytest.warns(RebuiltWarning, match="trail.json was not as it was written"):
        everstep.open(path, read_only=True).close()
    with pytest.warns(
        RebuiltWarning, match="counts go on by the clock, and the next program that writes makes it anew"
    ):
        trail = everstep.open(path)
    trail.record("new").finish()
    assert trail.store.run("new").key > newest
    assert trail.verify().ok
    trail.close()
    everstep.open(path).close()  # and that is all that is said of it


# Words and bytes.


def test_words_that_somebody_changed_are_not_believed_and_are_told(path: Path) -> None:
    """Promise 9: the bytes decide."""
    step = page(path, "done", "steps/000001.json")
    with everstep.open(path, read_only=True) as trail:
        before = everything(trail)
    step.write_text(step.read_text().replace('"s0"', '"s1"').replace("word word", "sword word"))
    with everstep.open(path, read_only=True) as trail:
        assert everything(trail) == before
        [damage] = trail.verify().damage
    assert "steps/000001.json was changed" in str(damage)


def test_a_damaged_step_is_named_with_the_newest_intact_one(path: Path) -> None:
    """Promise 9."""
    page(path, "done", "steps/000004.json").write_text("<<<<<<< HEAD\n")
    with everstep.open(path, read_only=True) as trail:
        with pytest.raises(DamagedError, match=r"steps/000004.json: it is not JSON.*step 3: fork there") as told:
            trail.steps("done")
        assert (told.value.run_id, told.value.seq, told.value.intact) == ("done", 4, 3)


def test_a_step_of_another_place_is_not_taken_for_one(path: Path) -> None:
    """Promise 9."""
    for name in ("steps/000001.json", "steps/000003.json"):
        shutil.copy(page(path, "done", "steps/000002.json"), page(path, "done", name))
        with everstep.open(path, read_only=True) as trail, pytest.raises(DamagedError, match="another step's"):
            trail.steps("done")


def test_a_copied_folder_is_no_second_run(path: Path) -> None:
    shutil.copytree(page(path, "done").parent, path / "runs" / "copy")
    with everstep.open(path) as trail:
        with pytest.warns(everstep.DamageWarning, match="runs/copy is not the folder of the run in it, 'done'"):
            assert len(trail.runs()) == 4
        assert "runs/copy is not the folder" in str(trail.verify())
        with pytest.warns(everstep.DamageWarning), pytest.raises(DamagedError):
            trail.drop("fork")  # what nobody needs is not known, so nothing is removed
    assert page(path, "done", "steps/000001.json").exists()


# What was never acknowledged.


def test_what_a_killed_writer_left_beyond_the_head_is_written_over(path: Path) -> None:
    """Promise 1: also a keyframe, which would tell of a step that never was."""
    store = FilesStore(str(path))
    writer = begin(store, "mine", rows=2)
    before = page(path, "mine").read_bytes()
    other = Writer(store, writer.claim)
    lost = other.rows(3, name="lost")
    store.append(other.draft(lost, keyframe=keyframe(lost[0], "lost")))
    page(path, "mine").write_bytes(before)  # as if it had been killed before the last thing that it did
    assert len(history(store, "mine")) == 2
    assert store.keyframe("mine", 9) is None
    stale = page(path, "mine", "keyframes/000002.json").read_bytes()
    [new] = writer.write()
    assert history(store, "mine")[2:] == [new]
    assert store.keyframe("mine", 9) is None
    page(path, "mine", "keyframes/000002.json").write_bytes(stale)  # as if the power had been cut then
    assert store.keyframe("mine", 9) is None
    page(path, "mine", "keyframes/000002.json").unlink()
    assert store.inspect() == []
    store.reclaim()
    assert not page(path, "mine", "steps/000004.json").exists()
    store.close()


# Files that somebody made.

HOSTILE: dict[str, Any] = {
    "nothing": {},
    "a list": [],
    "another format": {"run": 1, "key": "x"},
    "a path": {"forked_from": {"run": "../..", "seq": 2, "key": "../../../etc"}},
    "numbers that are none": {"head": "9", "oldest": [], "epoch": None},
    "a status that is none": {"status": "splendid"},
    "a hash that is none": {"hash": "zz"},
    "a time that is none": {"created": "yesterday"},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_page_with_a_good_seal_and_nonsense_in_it_is_damage(path: Path, name: str) -> None:
    """Promise 8: a hostile file gives an error."""
    made = HOSTILE[name]
    for file in (page(path, "fork"), page(path, "fork", "begin.json")):
        said = json.loads(file.read_text())
        del said["seal"]
        file.write_text(sealed({**said, **made}) if made and isinstance(made, dict) else sealed({"x": made}))
    with everstep.open(path, read_only=True) as trail:
        with pytest.raises(DamagedError):
            trail.run("fork")
        with pytest.warns(everstep.DamageWarning):
            assert len(trail.runs()) == 3


@pytest.mark.parametrize("text", ["[" * 100_000, "1" * 10_000, "\0", "[]", "{}", '{"row": 1}', '{"row": "AAAA"}'])
def test_what_is_no_page_is_damage(path: Path, text: str) -> None:
    """Promise 8."""
    for name in ("steps/000002.json", "run.json", "begin.json"):
        page(path, "done", name).write_text(text)
    with everstep.open(path, read_only=True) as trail, pytest.raises(DamagedError):
        trail.steps("done")
    (path / "trail.json").write_text(text)
    with watched() as seen:
        everstep.open(path, read_only=True).close()
    assert seen.said


def test_a_first_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    """Promise 13."""
    (tmp_path / "trail.json").write_text('{"name": "hiking"}')
    with pytest.raises(NotATrailError):
        everstep.open(tmp_path)
    assert os.listdir(tmp_path) == ["trail.json"]  # noqa: PTH208 - names alone
