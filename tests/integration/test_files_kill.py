"""kill -9 of writers of JSON files, and power cuts at any moment: what was acknowledged is there, once."""

from __future__ import annotations

import os
import random
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import everstep
from everstep.store.files import FilesStore
from tests.integration.test_kill import torture
from tests.integration.writers import one
from tests.places import IN_MEMORY


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory where there is such a place: a process that is killed leaves there what it had written."""
    with TemporaryDirectory(dir=IN_MEMORY) as name:
        yield Path(name)


def test_kill_minus_nine_loses_nothing_acknowledged(folder: Path) -> None:
    """Promise 1: nothing acknowledged is lost, nothing is there twice, the chain holds, everybody can go on."""
    assert torture(f"file://{folder}/trail", folder, 1, 20) > 20


# A power cut.


def names_in(folder: Path) -> dict[str, tuple[int, bool]]:
    """The names in a folder, the number of each, and whether it is a folder too."""
    return {path.name: (path.lstat().st_ino, path.is_dir()) for path in folder.iterdir()}


class Disk:
    """Notes what was synced of the files below a folder, and makes what would be left if the power were cut now."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._root = root
        self._real = os.fsync
        self._held: list[int] = []  # so that no number of a file comes again
        self._files: dict[int, bytes] = {}
        self._folders: dict[int, dict[str, tuple[int, bool]]] = {}
        self.before: Callable[[], None] = lambda: None  # called before each sync
        monkeypatch.setattr(os, "fsync", self._sync)

    def _sync(self, file: int) -> None:
        self.before()
        self._real(file)
        found = os.fstat(file)
        if stat.S_ISDIR(found.st_mode):
            self._folders[found.st_ino] = names_in(Path(f"/proc/self/fd/{file}"))
        else:
            self._files[found.st_ino] = os.pread(file, found.st_size, 0)
        if found.st_ino not in self._folders:
            self._held.append(os.dup(file))

    def close(self) -> None:
        for file in self._held:
            os.close(file)

    def left(self, to: Path, chance: random.Random) -> None:
        """What was synced is there; of the rest, whatever chance wants."""
        self._leave(self._root, self._root.stat().st_ino, to, chance)

    def _leave(self, path: Path, number: int, to: Path, chance: random.Random) -> None:
        names = names_in(path) if path.is_dir() and chance.random() < 0.3 else self._folders.get(number, {})
        to.mkdir()
        for name, (inside, is_folder) in names.items():
            real = path / name
            same = real.exists() and real.lstat().st_ino == inside
            if is_folder:
                self._leave(real if same else path / "gone", inside, to / name, chance)
            else:
                written = real.read_bytes() if same and chance.random() < 0.5 else b""
                torn = written[: chance.randint(0, len(written))]
                (to / name).write_bytes(self._files.get(inside, torn))


def check(path: Path, acks: list[tuple[str, int, str]]) -> None:
    """All that was acknowledged is there, and the trail is whole and goes on."""
    with everstep.open(path) as trail:
        report = trail.verify()
        assert report.ok, str(report)
        kept = {(run.id, step.seq, step.hash.hex()) for run in trail.runs(limit=1000) for step in trail.steps(run.id)}
        assert set(acks) - kept == set()
        with trail.record("afterwards") as run:
            assert run.step("s", output=1).seq == 1


def cut(folder: Path, monkeypatch: pytest.MonkeyPatch, seed: int, steps: int) -> int:
    """Cut the power at many moments of one life of a trail. How many there were."""
    chance, acks, cuts = random.Random(seed), list[tuple[str, int, str]](), 0
    root = folder / "trail"
    root.mkdir()
    disk = Disk(root, monkeypatch)

    def perhaps() -> None:
        nonlocal cuts
        if chance.random() < 0.1:
            before, disk.before = disk.before, lambda: None
            with monkeypatch.context() as aside:
                aside.setattr(os, "fsync", lambda _: None)
                disk.left(folder / "left", chance)
                check(folder / "left", acks)
            shutil.rmtree(folder / "left")
            disk.before = before
            cuts += 1

    disk.before = perhaps
    with everstep.open(root) as trail:
        for number in range(3):
            run = trail.record(f"r{number}")
            for _ in range(steps):
                step = one(run, run.seq + 1)
                acks.append((step.run_id, step.seq, step.hash.hex()))
            if number:
                acks = [ack for ack in acks if ack[0] != f"r{number - 1}"]  # they may go from here on
                trail.prune(f"r{number - 1}", keep=5)
            trail.fork(f"r{number}", 3, id=f"fork {number}").step("other", output=1)
            run.finish()
        trail.drop("r0")
        disk.before = lambda: None
    disk.close()
    return cuts


def test_a_power_cut_loses_nothing_acknowledged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise 1."""
    assert cut(folder, monkeypatch, 1, 12) > 10


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(2, 20))
def test_many_power_cuts_lose_nothing_acknowledged(folder: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Promise 1."""
    assert cut(folder, monkeypatch, seed, 30) > 20


def test_a_folder_outlives_its_first_moment(folder: Path) -> None:
    """What a killed program left of a trail that it was about to make does not stand in the way."""
    (folder / "trail").mkdir()
    (folder / "trail" / "trail.json.new").write_text('{"everst')
    FilesStore(str(folder / "trail")).close()
    (folder / "trail" / "pieces").rmdir()
    FilesStore(str(folder / "trail")).close()
    with everstep.open(folder / "trail", read_only=True) as trail:
        assert trail.runs() == []
