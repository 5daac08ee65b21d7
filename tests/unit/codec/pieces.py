"""A store for the pieces of keyframes, and cuts so fine that short tests have many of them."""

from __future__ import annotations

from typing import Any

import pytest

from everstep.codec import frame, segments
from everstep.codec.blobs import blob_id
from everstep.codec.keyframe import Frozen
from everstep.codec.values import BlobRef, encode


class Pieces:
    """What was handed out, by id. Asking for anything else is an error, and every question is noted."""

    def __init__(self) -> None:
        self.content: dict[bytes, bytes] = {}
        self.asked: list[bytes] = []

    def fetch(self, name: bytes) -> bytes:
        self.asked.append(name)
        return frame.unpack(self.content[name])

    def keep(self, frozen: Frozen) -> Frozen:
        for name, data in frozen.blobs.items():
            assert blob_id(data) == name
        self.content |= frozen.blobs
        return frozen

    def blob(self, value: Any) -> BlobRef:
        framed = frame.pack(encode(value))
        self.content[blob_id(framed)] = framed
        return BlobRef(blob_id(framed), len(encode(value)))


def make_small(patch: pytest.MonkeyPatch) -> None:
    """Cut so finely that a short test has several levels. A branch of four references takes about 100 bytes."""
    patch.setattr(segments, "PIECE_ITEMS", 4)
    patch.setattr(segments, "PIECE_BYTES", 120)
