"""Squeezed answers are stored as what they say, and squeezed again for a program that expects them so."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

import everstep
from everstep.capturing.codings import decoded, encoded
from everstep.capturing.http import FORM, Head
from tests.capture.oddities import SEPARATE, TEXT, serving


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "deflate", "zstd", "br", "identity", ""])
@pytest.mark.parametrize("ended", [False, True])
def test_each_chunk_says_what_it_said(coding: str, *, ended: bool) -> None:
    pieces = [b"", *SEPARATE, b"", b""]
    chunks = encoded(pieces, coding, ended=ended)
    assert decoded(chunks, coding) == (pieces, ended or coding in {"identity", ""})


@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd", "br", "strange"])
def test_what_is_in_no_known_coding_is_left_as_it_is(coding: str) -> None:
    assert decoded([b"\x00\x01 what is it"], coding) is None


def test_of_headers_by_one_name_the_first_counts_and_all_are_kept() -> None:
    headers = [("Content-Length", "4"), ("content-length", "9"), ("Content-Encoding", "identity")]
    head = Head(200, headers)
    assert (head.length, head.get("content-length"), head.get("date")) == (4, "4", None)
    stored = FORM.pack(head, [b"gone"], [0.0], str)
    assert stored == {"status": 200, "body": "gone", "headers": [list(pair) for pair in headers]}
    again, chunks = FORM.unpack(stored)
    assert (again.headers, again.length, chunks) == (headers, 4, [b"gone"])


WHOLE, PARTS = TEXT, b"".join(SEPARATE)
SQUEEZED = {
    "gzip": WHOLE, "deflate": WHOLE, "bare": WHOLE, "squeezed": PARTS, "spaced": PARTS * 4, "zstd": WHOLE,
    "zstd-parts": PARTS, "zstd-frames": WHOLE, "brotli": WHOLE, "brotli-parts": PARTS,
}  # fmt: skip


def test_a_squeezed_answer_is_stored_as_text_and_read_again_piece_by_piece(tmp_path: Path) -> None:
    def read(name: str) -> list[bytes]:
        with httpx.stream("GET", f"{url}/{name}") as answer:
            return list(answer.iter_bytes())

    with serving() as url, everstep.open(tmp_path / "trail.db") as trail:
        with everstep.capture(trail, "trip"):
            live = [read(name) for name in SQUEEZED]
        with everstep.capture(trail, "trip", mode="verify"):
            assert [read(name) for name in SQUEEZED] == live
        assert [b"".join(pieces) for pieces in live] == list(SQUEEZED.values())
        kept = [step.output["body"] for step in trail.steps("trip") if step.node_type]
        assert kept == [each.decode() for each in SQUEEZED.values()]
