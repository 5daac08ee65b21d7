from __future__ import annotations

import os
import threading
import tracemalloc

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from everstep.codec import frame
from everstep.codec.frame import pack, unpack
from everstep.errors import DamagedError, NewerFormatError


@given(st.binary(max_size=300), st.integers(0, 20))
def test_what_is_packed_is_unpacked(part: bytes, times: int) -> None:
    """Promise 7."""
    assert unpack(pack(part * times)) == part * times


def test_only_what_gets_smaller_is_compressed() -> None:
    short, random, text = b"a" * 127, os.urandom(4000), b"a step " * 40
    assert pack(short) == b"\0" + short
    assert pack(random) == b"\0" + random
    assert pack(text)[0] == 1
    assert len(pack(text)) < len(text) / 2


@pytest.mark.parametrize("format_byte", [2, 3, 0x7F, 0xFF])
def test_a_later_format_is_named(format_byte: int) -> None:
    with pytest.raises(NewerFormatError) as caught:
        unpack(bytes([format_byte]) + b"anything")
    assert caught.value.found == format_byte


def framed(body: bytes, *, sized: bool = True) -> bytes:
    return b"\1" + zstandard.ZstdCompressor(level=19, write_content_size=sized).compress(body)


def streamed(body: bytes) -> bytes:
    stream = zstandard.ZstdCompressor().compressobj()
    return b"\1" + stream.compress(body) + stream.flush()


GOOD = pack(b"a step " * 100)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\1", id="only a format byte"),
        pytest.param(b"\1not a frame", id="no frame"),
        pytest.param(GOOD[:-1], id="cut off"),
        pytest.param(GOOD + b"x", id="a byte too many"),
        pytest.param(GOOD + GOOD[1:], id="a second frame"),
        pytest.param(framed(b"a step " * 100, sized=False), id="no size declared"),
        pytest.param(streamed(b"a step " * 100), id="streamed, so no size declared"),
        pytest.param(framed(b""), id="a frame of nothing"),
        pytest.param(b"\1\x50\x2a\x4d\x18\x04\x00\x00\x00abcd", id="a frame to skip"),
        pytest.param(b"\1" + bytes.fromhex("28b52ffde0ffffffffffffff0f010000"), id="a size of exabytes"),
        pytest.param(b"\1" + bytes.fromhex("28b52ffda000000040010000"), id="a size of a gigabyte in twelve bytes"),
        pytest.param(framed(bytes(64 << 20)), id="a bomb"),
    ],
)
def test_a_frame_that_is_not_whole_or_not_honest_is_damage(data: bytes) -> None:
    """Promise 8: no decompression bombs."""
    with pytest.raises(DamagedError):
        unpack(data)


def test_what_compresses_like_a_bomb_is_stored_raw_and_comes_back() -> None:
    zeros = bytes(20 << 20)
    packed = pack(zeros)
    assert packed[0] == 0
    assert unpack(packed) == zeros


def test_threads_do_not_share_an_engine() -> None:
    found: list[object] = []

    def work() -> None:
        body = os.urandom(100) * 500
        assert all(unpack(pack(body)) == body for _ in range(50))
        found.append(frame._engines.unpacker)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Sharing one crashes the interpreter, but not every time: so they are looked at as well as used.
    assert len({id(engine) for engine in found}) == 4


def test_a_size_beyond_the_bound_is_refused_before_memory_is_taken() -> None:
    """Promise 8."""
    header = bytes.fromhex("28b52ffda0") + (frame.MAX_BODY + 1).to_bytes(4, "little")
    data = b"\1" + header + os.urandom(3 << 20)  # long enough for the ratio of sizes to look honest
    assert zstandard.frame_content_size(data[1:]) == frame.MAX_BODY + 1
    tracemalloc.start()
    try:
        with pytest.raises(DamagedError, match="impossible size"):
            unpack(data)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
