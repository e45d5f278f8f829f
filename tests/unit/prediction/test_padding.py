"""Padding: every size becomes a multiple of a block, by as little as possible, and what is said stays the same."""

from __future__ import annotations

import pytest

from fedsecure.prediction.padding import BLOCK, padded
from fedsecure.wire.v1 import prediction_pb2 as pb


@pytest.mark.parametrize("make", [lambda n: pb.Query(records=bytes(n)), lambda n: pb.Outcome(
    refusal=pb.Refusal(error="PolicyError", message="m" * n)
)], ids=["query", "outcome"])  # fmt: skip
def test_every_size_becomes_a_multiple_of_a_block(make):
    for n in range(1, 2 * BLOCK + 200):
        message = make(n)
        bare = message.ByteSize()
        data = padded(message)
        assert len(data) % BLOCK == 0
        assert 0 <= len(data) - bare <= BLOCK + 130, n  # some few sizes cannot be reached by one field: a block more
        again = type(message).FromString(data)
        assert not again.padding.strip(b"\0")
        again.padding = b""
        assert again == make(n)


def test_padding_twice_changes_nothing():
    query = pb.Query(records=b"r" * 100)
    assert padded(query) == padded(query)
