from __future__ import annotations

import pytest

from everstep.codec.values import decode, encode, view
from tests.corpus.make import EXPECTED, stored
from tests.corpus.same import same

STORED = stored()


def test_every_value_of_the_corpus_is_on_file_and_nothing_was_lost() -> None:
    assert list(STORED) == list(EXPECTED)


@pytest.mark.parametrize("name", STORED)
def test_stored_bytes_decode_to_exactly_the_value_they_were_made_of(name: str) -> None:
    """Promise 7."""
    assert same(decode(STORED[name]), EXPECTED[name])


@pytest.mark.parametrize("name", STORED)
def test_todays_encoder_writes_the_bytes_on_file(name: str) -> None:
    assert encode(EXPECTED[name]) == STORED[name]
    assert encode(view(STORED[name])) == STORED[name]
