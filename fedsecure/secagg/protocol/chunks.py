"""The pieces in which masked vectors travel: protobuf's bytes, written and read without copying what is in them.

Uploads are most of a session's bytes, and protobuf copies a field several times. ``MaskedChunk`` has its ``data`` last;
so what comes before it is put in front of it, or read off. A chunk in any other form than that one goes through
protobuf, with the checks of every message.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fedsecure.crypto.transcripts import DIGEST_BYTES
from fedsecure.secagg.protocol.codec import check_digest, decode, fault
from fedsecure.secagg.v1 import secagg_pb2 as pb

__all__ = ["CHUNK_BYTES", "MAX_CHUNK_MESSAGE_BYTES", "Chunk", "masked_chunk", "parse_masked_chunk"]

#: Data of one chunk, and the longest message that holds it (bytes).
CHUNK_BYTES = 1 << 20
MAX_CHUNK_MESSAGE_BYTES = CHUNK_BYTES + 128
_VARINT, _BYTES = 0, 2
#: The tags of the fields as they stand on the wire: number and wire type, one byte each.
_TRANSCRIPT, _STREAM, _OFFSET, _DATA = (
    number << 3 | kind
    for number, kind in (
        (pb.MaskedChunk.TRANSCRIPT1_FIELD_NUMBER, _BYTES),
        (pb.MaskedChunk.STREAM_FIELD_NUMBER, _VARINT),
        (pb.MaskedChunk.OFFSET_FIELD_NUMBER, _VARINT),
        (pb.MaskedChunk.DATA_FIELD_NUMBER, _BYTES),
    )
)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a masked vector: ``stream`` is its index in the session, ``offset`` in bytes. ``data`` may be a view
    of the message."""

    transcript1: bytes
    stream: int
    offset: int
    data: bytes | memoryview[int] = field(repr=False)


def masked_chunk(transcript1: bytes, stream: int, offset: int, data: bytes | memoryview[int]) -> bytes:
    """Leg 2: up to 1 MiB of stream ``stream`` from byte ``offset`` on, little endian."""
    return b"".join((_head(transcript1, stream, offset, len(data)), data))


def parse_masked_chunk(data: bytes) -> Chunk:
    """Read a ``MaskedChunk``. Raises ``SecAggError`` BAD_VECTOR."""
    if (chunk := _in_place(data)) is not None:
        return chunk
    message = decode(pb.MaskedChunk, data, MAX_CHUNK_MESSAGE_BYTES, "BAD_VECTOR")
    content = message.data  # once: every access is a copy
    if not 1 <= len(content) <= CHUNK_BYTES:
        raise fault("BAD_VECTOR", f"a chunk of {len(content)} bytes (allowed: 1..{CHUNK_BYTES})")
    transcript1 = check_digest(message.transcript1, "the transcript of a chunk", "BAD_VECTOR")
    return Chunk(transcript1, message.stream, message.offset, content)


def _in_place(data: bytes) -> Chunk | None:
    """The chunk when ``data`` is, byte for byte, what ``masked_chunk`` writes for it; its data is not copied."""
    start = 2 + DIGEST_BYTES
    if len(data) > MAX_CHUNK_MESSAGE_BYTES or data[:2] != bytes((_TRANSCRIPT, DIGEST_BYTES)):
        return None
    found, at = {_STREAM: 0, _OFFSET: 0}, start
    for tag in (_STREAM, _OFFSET, _DATA):
        if data[at : at + 1] == bytes((tag,)):
            found[tag], at = _read_varint(data, at + 1)
    content = memoryview(data)[at:]
    if not 1 <= len(content) <= CHUNK_BYTES or found[_STREAM] >= 1 << 32 or found[_OFFSET] >= 1 << 64:
        return None
    transcript1, stream, offset = bytes(data[2:start]), found[_STREAM], found[_OFFSET]
    if data[:at] != _head(transcript1, stream, offset, len(content)):
        return None
    return Chunk(transcript1, stream, offset, content)


def _head(transcript1: bytes, stream: int, offset: int, size: int) -> bytes:
    """What stands before ``size`` bytes of data."""
    head = pb.MaskedChunk(transcript1=transcript1, stream=stream, offset=offset).SerializeToString()
    return head + bytes((_DATA,)) + _varint(size) if size else head


def _varint(number: int) -> bytes:
    """Base 128, lowest digits first, as protobuf writes numbers."""
    digits = bytearray()
    while number >= 0x80:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*digits, number))


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at ``at``, of at most ten digits, and where it ends; whether it was well-formed shows in ``_head``."""
    number = 0
    for shift, digit in enumerate(data[at : at + 10]):
        number |= (digit & 0x7F) << 7 * shift
        at += 1
        if digit < 0x80:
            break
    return number, at
