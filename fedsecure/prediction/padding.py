"""Padding: what is sealed has a multiple of ``BLOCK`` bytes, so that its size tells little of what it says."""

from __future__ import annotations

from typing import Final

from fedsecure.wire.v1 import prediction_pb2 as pb

__all__ = ["BLOCK", "padded"]

#: Sizes are rounded up to a multiple of this (bytes): a refusal, and the answer for a few records, both have one.
BLOCK: Final = 4096


def padded(message: pb.Query | pb.Outcome) -> bytes:
    """The bytes of ``message`` with as many zeros in its field ``padding`` as make them a multiple of ``BLOCK``."""
    message.padding = b""
    room = -message.ByteSize() % BLOCK
    while room:
        # the field takes a byte for its tag, and 1 or 2 for its length, on top; no field at all is the only empty one
        message.padding = bytes(max(room - (2 if room < 130 else 3), 1))
        if message.ByteSize() % BLOCK == 0:
            break
        room += BLOCK
    return message.SerializeToString(deterministic=True)
