from __future__ import annotations

import base64
import json
import random
from hashlib import sha256
from pathlib import Path
from typing import Any

import ormsgpack
import pytest
import zstandard

import everstep
from everstep import Trail
from everstep.codec import chain
from everstep.codec.chain import Entry
from everstep.codec.readable import json_line
from everstep.codec.values import encode
from everstep.errors import DamagedError, DamagedFileError, EverstepError, NewerFormatError, UnreadableError
from everstep.store.memory import MemoryStore
from everstep.trail import importing
from everstep.trail.exporting import Exported, lines, row_line, run_line, step_line
from tests.integration.moved import KINDS

MUTATIONS = 1_500


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """A run with children, a large piece and odd words."""
    trail = everstep.open(":memory:")
    run_id = KINDS["children"][0](trail)
    trail.fork(run_id, id="more", tags={"user": "ada ☃"}).step("doc", output="d" * 70_000, metadata={"é": [1, 2.5]})
    return trail.export("more", tmp_path / "run.everstep")


def all_rows(trail: Trail) -> dict[str, list[Entry]]:
    return {run.id: trail.store.entries(run.id, 0, run.head) for run in trail.runs()}


def read(path: Path) -> Trail:
    trail = everstep.Trail(MemoryStore())
    trail.import_run(path)
    return trail


def refused(path: Path, data: bytes) -> DamagedError:
    path.write_bytes(data)
    trail = everstep.Trail(MemoryStore())
    with pytest.raises(DamagedError) as caught:
        trail.import_run(path)
    assert list(trail.runs()) == []
    return caught.value


def test_a_change_in_any_line_is_seen_and_the_line_is_named(exported: Path) -> None:
    """Promise 9."""
    whole = exported.read_bytes().splitlines(keepends=True)
    assert {line[:6] for line in whole} == {b'{"ever', b'{"run"', b'{"step', b'{"row"', b'{"piec'}
    for number, line in enumerate(whole, 1):
        for at in range(2, len(line) - 2, max(1, len(line) // 40)):
            other = b"b" if line[at : at + 1] != b"b" else b"c"
            changed = line[:at] + other + line[at + 1 :]
            error = refused(exported, b"".join([*whole[: number - 1], changed, *whole[number:]]))
            if isinstance(error, DamagedFileError):
                assert error.line == number or line.startswith((b'{"ever', b'{"run"')), (line, at, error)
                assert f"line {error.line}" in str(error)


def test_lines_that_are_missing_doubled_or_in_another_order_are_seen(exported: Path) -> None:
    """Promise 9."""
    whole = exported.read_bytes().splitlines(keepends=True)
    for at in range(len(whole)):
        refused(exported, b"".join(whole[:at] + whole[at + 1 :]))
        refused(exported, b"".join(whole[: at + 1] + whole[at:]))
        refused(exported, b"".join(whole[:at]))
        if at:
            refused(exported, b"".join([*whole[: at - 1], whole[at], whole[at - 1], *whole[at + 1 :]]))
    refused(exported, b"".join(whole) + b"\n")
    refused(exported, b"".join(whole)[:-1])


def test_ends_of_lines_that_a_checkout_changed_do_not_matter(exported: Path) -> None:
    was = all_rows(read(exported))
    exported.write_bytes(exported.read_bytes().replace(b"\n", b"\r\n"))
    assert all_rows(read(exported)) == was


def test_a_lie_about_a_step_is_seen_though_everything_else_fits(exported: Path) -> None:
    whole = exported.read_bytes().splitlines(keepends=True)
    at = next(number for number, line in enumerate(whole) if b'"paid 90"' in line)
    whole[at] = whole[at].replace(b'"paid 90"', b'"paid 10"')
    error = refused(exported, b"".join(whole))
    assert isinstance(error, DamagedFileError)
    assert error.line == at + 1
    assert "does not tell what the step's row holds" in str(error)


@pytest.mark.parametrize("field", ["status", "workflow", "created", "rows", "root", "tags", "head", "retry_index"])
def test_a_word_about_a_run_that_was_changed_is_seen_by_its_seal(exported: Path, field: str) -> None:
    whole = exported.read_bytes().splitlines(keepends=True)
    said = json.loads(whole[1])
    said[field] = {
        "status": "failed", "created": "2026-01-01T00:00:00.000000Z", "rows": said["rows"] + 1, "tags": {"user": "eve"},
        "head": said["head"][::-1], "retry_index": 1,
    }.get(field, "other")  # fmt: skip
    error = refused(exported, b"".join([whole[0], json_line(said).encode(), *whole[2:]]))
    assert isinstance(error, DamagedFileError)
    assert error.line == 2


def test_a_later_format_is_told_as_one(exported: Path) -> None:
    data = exported.read_bytes()
    error = refused(exported, data.replace(b'"format": 1', b'"format": 2', 1))
    assert isinstance(error, NewerFormatError)
    assert error.found == 2


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\n", b"{}\n", b"[]\n", b"null\n", b'"run"\n', b"SQLite format 3\0", b"\xff\xfe", b"[" * 100_000,
        b'{"everstep": "run"}\n', b'{"everstep": "run", "format": "1"}\n', b'{"everstep": "run", "format": true}\n',
        b'{"everstep": "run", "format": 1, "runs": 1e9}\n', b'{"everstep": "run", "format": 1, "runs": 999999999999}\n',
        b'{"everstep": "run", "format": 1, "runs": -1}\n',
        b'{"everstep": "run", "format": 1, "runs": ' + b"9" * 9000 + b"}\n",
        b'{"a":' * 50_000, b"x" * 5_000_000,
    ],
)  # fmt: skip
def test_what_is_no_exported_run_is_refused(tmp_path: Path, data: bytes) -> None:
    """Promise 8."""
    assert isinstance(refused(tmp_path / "file", data), DamagedFileError)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(UnreadableError, match="Give the path"):
            read(path)


def made(run_id: str, *bodies: bytes, metas: dict[int, bytes] | None = None, **said: Any) -> list[Exported]:
    """A run that is sealed as it should be, whatever is in it: what somebody with our code can make."""
    before, entries = chain.genesis(run_id), list[Entry]()
    for seq, body in enumerate(bodies):
        kind, meta = 0 if seq == 0 else 2, (metas or {}).get(seq, encode([seq]))
        entries.append(chain.seal(before, seq, kind, 1, "s", 1_700_000_000_000_000, 1, meta, body))
        before = entries[-1].hash
    run = Exported(run_id, run_id, "w", 1, before, 1_700_000_000_000_000, None, None, None, {}, entries)
    return [run._replace(**said)]


def written(runs: list[Exported], pieces: dict[bytes, bytes] | None = None) -> bytes:
    return "".join(lines(runs, pieces or {})).encode()


PLAIN = b"\x00" + encode([None, 1])


def test_what_is_made_with_our_code_and_holds_nothing_bad_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.everstep"
    path.write_bytes(written(made("r", PLAIN, PLAIN)))
    assert read(path).verify().ok


def bomb(size: int) -> bytes:
    return b"\x01" + zstandard.ZstdCompressor().compress(bytes(size))


def test_no_row_makes_an_import_unpack_without_end(tmp_path: Path) -> None:
    """Promise 8."""
    path = tmp_path / "run.everstep"
    assert "impossible size" in str(refused(path, _unchecked(PLAIN, bomb(1 << 26))))
    many = [PLAIN, *[bomb((1 << 24) - 1)] * 60]  # 16 MB in a few hundred bytes, each of them allowed
    assert "unpack to more" in str(refused(path, _unchecked(*many)))


@pytest.mark.parametrize(
    "body", [b"\x91" * 2_000 + b"\xc0", b"\xdd\xff\xff\xff\xff", b"\xc1", b"", encode({"a": 1}), encode(5)]
)
def test_a_row_that_holds_no_payload_is_refused(tmp_path: Path, body: bytes) -> None:
    assert isinstance(refused(tmp_path / "run.everstep", _unchecked(PLAIN, b"\x00" + body)), DamagedFileError)


def test_a_row_in_a_later_format_is_told_as_one(tmp_path: Path) -> None:
    assert isinstance(refused(tmp_path / "run.everstep", _unchecked(PLAIN, b"\x09new")), NewerFormatError)


def _unchecked(*bodies: bytes, metas: dict[int, bytes] | None = None) -> bytes:
    """A file that says nothing of the rows that cannot be read."""
    [run] = made("r", *bodies, metas=metas)
    first = json_line({
        "everstep": "run", "format": 1, "run": "r", "workflow": "w", "status": "completed", "runs": 1,
        "rows": len(bodies), "pieces": 0,
    })  # fmt: skip
    return (first + run_line(run) + "".join(map(_shown, run.entries)) + "".join(map(row_line, run.entries))).encode()


def _shown(entry: Entry) -> str:
    try:
        return step_line(entry)
    except EverstepError:
        return json_line({"step": entry.seq, "name": "s"})


@pytest.mark.parametrize(
    "meta",
    [
        encode(7), encode({"a": 1}), b"", b"\xc1", encode([]), encode([None]), encode(["x"]), encode([1, [2]]),
        encode([1, None, 5]), encode([1, *[None] * 5, "digest"]), encode([1, *[None] * 9, 5]),
        encode([1, *[None] * 14, "metadata"]), encode([1, *[None] * 15, b"short"]), encode([1, "x" * (1 << 24)]),
    ],
    ids=range(14),
)  # fmt: skip
def test_a_row_whose_meta_is_none_is_refused(tmp_path: Path, meta: bytes) -> None:
    data = _unchecked(PLAIN, PLAIN, metas={1: meta})
    assert isinstance(refused(tmp_path / "run.everstep", data), DamagedFileError)


@pytest.mark.parametrize(
    "payload",
    [
        [None, 1, 5],
        [None, 1, [5]],
        [None, 1, [[0]]],
        [None, 1, [["set", "x"]]],
        [None, 1, None, 5],
        [None, 1, None, []],
    ],
)
def test_a_row_whose_payload_has_parts_that_none_has_is_refused(tmp_path: Path, payload: list[Any]) -> None:
    path = tmp_path / "run.everstep"
    assert isinstance(refused(path, written(made("r", PLAIN, b"\x00" + encode(payload)))), DamagedFileError)


def test_a_run_that_does_not_begin_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.everstep"
    [run] = made("r", PLAIN)
    entry = chain.seal(chain.genesis("r"), 0, 2, 1, "s", 1_700_000_000_000_000, 1, encode([0]), PLAIN)
    for entries, head in (((entry,), entry.hash), ((), chain.genesis("r"))):
        refused(path, written([run._replace(entries=entries, head=head)]))


@pytest.mark.parametrize(
    "columns",
    [
        {"kind": 99}, {"kind": -1}, {"status": 99}, {"name": "a\0b"}, {"name": 5}, {"started": 1 << 62},
        {"started": -(1 << 62)}, {"duration": -1}, {"duration": 1 << 62}, {"seq": 7}, {"hash": b""}, {"data": "text"},
    ],
)  # fmt: skip
def test_a_row_with_a_column_that_no_row_has_is_refused(tmp_path: Path, columns: dict[str, Any]) -> None:
    [run] = made("r", PLAIN, PLAIN)
    entry = run.entries[1]._replace(**columns)
    if {"name", "hash", "data"}.isdisjoint(columns) or columns == {"name": "a\0b"}:  # sealed again: the chain fits
        light = ormsgpack.packb([entry.seq, entry.kind, entry.status, entry.name, entry.started, entry.duration])
        digest = sha256(b"%d:%b%b" % (len(entry.meta), entry.meta, entry.data)).digest()[:16]
        entry = entry._replace(hash=sha256(run.entries[0].hash + light + digest).digest())
    row = base64.b64encode(ormsgpack.packb(list(entry))).decode()
    whole = written([run]).decode().splitlines(keepends=True)
    head = run_line(run._replace(head=entry.hash)) if entry.hash else whole[1]
    data = "".join([whole[0], head, *whole[2:-1], f'{{"row": "{row}"}}\n']).encode()
    assert isinstance(refused(tmp_path / "run.everstep", data), DamagedFileError)


@pytest.mark.parametrize(
    "said",
    [
        {"run": "a\0b"}, {"run": "\ud800"}, {"run": 5}, {"run": ""}, {"tags": ["a"]}, {"tags": {"a": 1}},
        {"tags": {"a": "\ud800"}}, {"status": "restored"}, {"status": "gone"}, {"created": "yesterday"},
        {"created": "2026-01-01"}, {"created": 5}, {"rows": True}, {"rows": 1.0}, {"rows": -1}, {"rows": 1 << 80},
        {"retry_index": "1"}, {"retry_index": -1}, {"parent": 5}, {"retry_of": []}, {"head": "xyz"}, {"extra": 1},
        {"workflow": None},
    ],
)  # fmt: skip
def test_a_run_that_says_what_no_run_says_is_refused_though_its_seal_fits(tmp_path: Path, said: dict[str, Any]) -> None:
    whole = written(made("r", PLAIN)).decode().splitlines(keepends=True)
    fields = {**json.loads(whole[1]), **said}
    del fields["seal"]
    try:
        seal = sha256(json_line(fields).encode()).hexdigest()[:32]
    except ValueError:
        seal = ""
    data = "".join([whole[0], json_line({**fields, "seal": seal}), *whole[2:]]).encode()
    path, trail = tmp_path / "run.everstep", everstep.open(":memory:")
    path.write_bytes(data)
    with pytest.raises(EverstepError):
        trail.import_run(path)
    assert list(trail.runs()) == []


def test_a_piece_that_nothing_refers_to_or_that_is_missing_is_refused(tmp_path: Path) -> None:
    meta = encode([1, *[None] * 15, bytes(16)])
    path = tmp_path / "run.everstep"
    refused(path, written(made("r", PLAIN, PLAIN, metas={1: meta})))
    refused(path, written(made("r", PLAIN, PLAIN, metas={1: meta}), {bytes(16): b"\x00\xc0"}))
    refused(path, written(made("r", PLAIN), {bytes(16): b"\x00\xc0"}))


def test_two_runs_of_one_id_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.everstep"
    refused(path, written([*made("r", PLAIN), *made("r", PLAIN)]))


def test_the_file_decides_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "in"
    place.mkdir()
    monkeypatch.chdir(place)
    path = tmp_path / "run.everstep"
    path.write_bytes(written(made("../../evil", PLAIN, PLAIN)))
    with everstep.open(place / "trail.db") as trail:
        assert trail.import_run(path).id == "../../evil"
    assert sorted(found.name for found in tmp_path.iterdir()) == ["in", "run.everstep"]
    assert all(found.name.startswith("trail.db") for found in place.iterdir())


def test_a_file_larger_than_any_export_is_not_read(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "FILE_MAX", exported.stat().st_size - 1)
    error = refused(exported, exported.read_bytes())
    assert "more than" in str(error)


def mutated(data: bytes, chance: random.Random) -> bytes:
    """The file with something changed somewhere: bytes, words, lines."""
    changed = bytearray(data)
    for _ in range(chance.choice([1, 1, 1, 2, 8])):
        at, size = chance.randrange(len(changed)), chance.choice([1, 1, 2, 7, 100, 5_000])
        match chance.randrange(5):
            case 0:
                changed[at] ^= 1 << chance.randrange(8)
            case 1:
                del changed[at : at + size]
            case 2:
                changed[at:at] = chance.randbytes(size)
            case 3:
                changed[at:at] = changed[at : at + size]
            case 4:
                other = chance.randrange(len(changed))
                changed[at : at + size] = changed[other : other + size]
    return bytes(changed)


def test_whatever_is_done_to_a_file_it_is_refused_or_means_the_same(exported: Path) -> None:
    """Promises 8 and 9: 1,500 mutations, each an error of ours, or without effect."""
    data, was, chance = exported.read_bytes(), all_rows(read(exported)), random.Random(5)
    survived = 0
    for _ in range(MUTATIONS):
        exported.write_bytes(mutated(data, chance))
        trail = everstep.Trail(MemoryStore())
        try:
            trail.import_run(exported)
        except EverstepError:
            assert list(trail.runs()) == []
        else:
            survived += 1
            assert all_rows(trail) == was
    assert survived < MUTATIONS // 100
