from __future__ import annotations

import os
import threading
import tracemalloc
from hashlib import sha256

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from everstep.codec import frame
from everstep.codec.dictionary import DICTIONARY
from everstep.codec.frame import pack, unpack
from everstep.codec.values import encode
from everstep.errors import DamagedError, NewerFormatError


@given(st.binary(max_size=300), st.integers(0, 40))
def test_what_is_packed_is_unpacked(part: bytes, times: int) -> None:
    """Promise 7."""
    assert unpack(pack(part * times)) == part * times


def test_only_what_gets_smaller_is_compressed() -> None:
    for body in (b"a" * 127, os.urandom(4000), os.urandom(5000)):
        assert pack(body) == b"\0" + body
    for times, number in ((40, 2), (585, 2), (586, 1)):
        text = b"a step " * times
        assert pack(text)[0] == number
        assert len(pack(text)) < len(text) / 2


def test_the_dictionary_makes_a_short_text_smaller() -> None:
    text = b"The first result does not answer the question, so I will look for another one that is more useful."
    body = encode([None, None, [[2, "messages", [{"role": "assistant", "content": text.decode()}]]]])
    assert len(pack(body)) < len(zstandard.ZstdCompressor(level=1).compress(body)) * 0.8


# A frame as it was written with the dictionary of format 2, and what is in it.
KEPT = bytes.fromhex(
    "0228b52ffd20887d01004382063dc8a11c3ce7a9fbcbeeb656363fc7a11c39aec9914e37c70e0206fce3a8ae3a00eb680fb923e85db75a6b04"
)
KEPT_BODY = b'{"role": "assistant", "content": "a step that was written long ago"}' * 2


def test_the_dictionary_is_part_of_the_format() -> None:
    """Promise 7: with any other, what was written with it could not be read."""
    assert sha256(DICTIONARY).hexdigest() == "516af3e8994b7caa090accadecdab5db10c12e921a2d91708cc3c6907d0b5cb7"
    assert unpack(KEPT) == KEPT_BODY


@pytest.mark.parametrize("format_byte", [3, 4, 0x7F, 0xFF])
def test_a_later_format_is_named(format_byte: int) -> None:
    with pytest.raises(NewerFormatError) as caught:
        unpack(bytes([format_byte]) + b"anything")
    assert caught.value.found == format_byte


def framed(body: bytes, *, sized: bool = True) -> bytes:
    return zstandard.ZstdCompressor(level=19, write_content_size=sized).compress(body)


def streamed(body: bytes) -> bytes:
    stream = zstandard.ZstdCompressor().compressobj()
    return stream.compress(body) + stream.flush()


GOOD = framed(b"a step " * 100)


def test_no_bytes_are_no_frame() -> None:
    with pytest.raises(DamagedError):
        unpack(b"")


@pytest.mark.parametrize("number", [b"\1", b"\2"])
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="only a format byte"),
        pytest.param(b"not a frame", id="no frame"),
        pytest.param(GOOD[:-1], id="cut off"),
        pytest.param(KEPT[1:-1], id="cut off, with the dictionary"),
        pytest.param(GOOD + b"x", id="a byte too many"),
        pytest.param(GOOD + GOOD, id="a second frame"),
        pytest.param(framed(b"a step " * 100, sized=False), id="no size declared"),
        pytest.param(streamed(b"a step " * 100), id="streamed, so no size declared"),
        pytest.param(framed(b""), id="a frame of nothing"),
        pytest.param(b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd", id="a frame to skip"),
        pytest.param(bytes.fromhex("28b52ffde0ffffffffffffff0f010000"), id="a size of exabytes"),
        pytest.param(bytes.fromhex("28b52ffda000000040010000"), id="a size of a gigabyte in twelve bytes"),
        pytest.param(framed(bytes(64 << 20)), id="a bomb"),
    ],
)
def test_a_frame_that_is_not_whole_or_not_honest_is_damage(number: bytes, data: bytes) -> None:
    """Promise 8: no decompression bombs."""
    with pytest.raises(DamagedError):
        unpack(number + data)


def test_what_needs_the_dictionary_is_damage_under_another_format() -> None:
    with pytest.raises(DamagedError):
        unpack(b"\1" + KEPT[1:])


def test_what_compresses_like_a_bomb_is_stored_raw_and_comes_back() -> None:
    zeros = bytes(20 << 20)
    packed = pack(zeros)
    assert packed[0] == 0
    assert unpack(packed) == zeros


def test_threads_do_not_share_an_engine() -> None:
    found: list[object] = []

    def work() -> None:
        short, long = os.urandom(100) * 10, os.urandom(100) * 500
        assert all(unpack(pack(short)) == short and unpack(pack(long)) == long for _ in range(50))
        found.extend((frame._engines.unpacker, frame._engines.short_unpacker))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Sharing one crashes the interpreter, but not every time: so they are looked at as well as used.
    assert len({id(engine) for engine in found}) == 8


@pytest.mark.parametrize("number", [b"\1", b"\2"])
def test_a_size_beyond_the_bound_is_refused_before_memory_is_taken(number: bytes) -> None:
    """Promise 8."""
    header = bytes.fromhex("28b52ffda0") + (frame.MAX_BODY + 1).to_bytes(4, "little")
    data = number + header + os.urandom(3 << 20)  # long enough for the ratio of sizes to look honest
    assert zstandard.frame_content_size(data[1:]) == frame.MAX_BODY + 1
    tracemalloc.start()
    try:
        with pytest.raises(DamagedError, match="impossible size"):
            unpack(data)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
