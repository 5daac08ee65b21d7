"""The format of JSON files: what an earlier version wrote is read, says the same in words, and goes on.

`python -m tests.contract.test_files_format FOLDER` makes such a trail; the one in `tests/corpus` is never made again.
"""

from __future__ import annotations

import re
import shutil
import sys
from contextlib import closing
from pathlib import Path

from everstep.codec import record
from everstep.codec.chain import is_erased
from everstep.model import KIND_NUMBER, STATUS_NUMBER, Kind, Status
from everstep.store.files import FilesStore
from everstep.testing.pruning import prune
from everstep.testing.rows import Writer, begin, history, listed, pieces

TRAIL = Path(__file__).parents[1] / "corpus" / "v1" / "trail"


def make(folder: Path) -> None:
    """A trail with a file of every kind."""
    with closing(FilesStore(str(folder))) as store:
        writer = begin(store, "whole ☃", rows=2, workflow="flow", tags={"user": "ada"}, parent="above")
        writer.write(kind=Kind.CHECKPOINT)
        writer.write(status=Status.FAILED)
        writer.mark("large")
        store.append(writer.draft(writer.rows(blobs=pieces("large")), blobs=pieces("large")))
        store.append(writer.draft(writer.rows(kind=Kind.END), status=STATUS_NUMBER[Status.COMPLETED]))
        begin(store, "fork", fork=("whole ☃", 3)).write()
        begin(store, "dropped", rows=3)
        begin(store, "of dropped", fork=("dropped", 1), retry_of="dropped", retry_index=1).write()
        store.drop("dropped")
        erased = begin(store, "pruned and erased", rows=6)
        prune(store, "pruned and erased", 2, "base")
        store.erase("pruned and erased", [record.erase(history(store, "pruned and erased")[1])])
        store.request("pruned and erased", "cancel")
        store.renew(erased.claim, 0)


def test_a_trail_of_an_earlier_version_is_read_says_the_same_and_goes_on(tmp_path: Path) -> None:
    """Promise 7: words and bytes, whatever the version."""
    folder = shutil.copytree(TRAIL, tmp_path / "trail")
    with closing(FilesStore(str(folder))) as store:
        assert store.inspect() == []
        assert listed(store) == ["pruned and erased", "of dropped", "fork", "whole ☃"]
        run = store.run("whole ☃")
        assert (run.workflow, run.tags, run.parent, run.status) == ("flow", {"user": "ada"}, "above", 1)
        assert (run.errors, run.seq, len(history(store, "whole ☃"))) == (1, 6, 7)
        assert [entry.seq for _, entry in store.marked(None, KIND_NUMBER[Kind.CHECKPOINT], 9)] == [2]
        kept = store.keyframe("whole ☃", 9)
        assert kept is not None
        assert {name: store.blob(name) for name in pieces("large", "base")} == pieces("large", "base")
        assert [len(history(store, name)) for name in ("fork", "of dropped")] == [5, 3]
        assert [is_erased(entry) for entry in history(store, "pruned and erased")] == [False, True, False]
        assert store.run("pruned and erased").request == "cancel"
        Writer(store, store.claim("pruned and erased", "other")).write(2)
        assert not any(store.reclaim())
        assert store.inspect() == []


def test_what_is_written_today_has_the_files_of_then(tmp_path: Path) -> None:
    make(tmp_path / "trail")
    was, now = (
        sorted(
            re.sub(r"/_[0-9]+/", "/dropped/", path.relative_to(root).as_posix())  # its number is of its time
            for path in root.rglob("[!.]*")
            if path.is_file()
        )
        for root in (TRAIL, tmp_path / "trail")
    )
    assert now == was


if __name__ == "__main__":
    make(Path(sys.argv[1]))
