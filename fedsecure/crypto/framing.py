"""Length-prefixed framing: what is signed or hashed is unambiguous, because every part carries its length.

LP(x) is the length of x as four big-endian bytes, then x. Two different tuples of parts never give the same bytes.
"""

from __future__ import annotations

__all__ = ["MAX_PART_BYTES", "length_prefixed"]

#: The longest part that a four-byte length can announce (bytes).
MAX_PART_BYTES = 2**32 - 1


def length_prefixed(*parts: bytes) -> bytes:
    """LP(part) of every part, concatenated. Raises ``ValueError`` for a part longer than ``MAX_PART_BYTES``."""
    framed = bytearray()
    for part in parts:
        if len(part) > MAX_PART_BYTES:
            raise ValueError(f"a part of {len(part)} bytes does not fit a four-byte length")
        framed += len(part).to_bytes(4, "big") + part
    return bytes(framed)
