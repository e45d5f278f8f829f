"""What the coordinator announces of a masked sum: the chain from one sum to the parameters of exchanges after it."""

from __future__ import annotations

from dataclasses import dataclass

from fedsecure.crypto.transcripts import transcript_hash
from fedsecure.secagg.protocol.codec import check_digest, check_nodes, check_purpose, decode, fault
from fedsecure.secagg.v1 import secagg_pb2 as pb
from fedsecure.secagg.values.spec import MAX_STREAMS

__all__ = ["MAX_RESULT_BYTES", "SessionResult", "parse_result", "result_digest"]

#: 64 node ids, 18 digests, and the name of an exchange.
MAX_RESULT_BYTES = 8 << 10
_CODE = "BAD_TRANSCRIPT"


@dataclass(frozen=True, slots=True)
class SessionResult:
    """``transcript3``: T3, of the session. ``sum_sha256``: of each stream's unmasked ring elements, little endian.
    ``survivors``: U3, in order. ``next_state_digest``: SHA-256 of the broadcast that the update gave, or of a later one
    in which no sum was announced since. ``round`` (from 0) and ``purpose`` (the exchange): whose sum it is."""

    transcript3: bytes
    sum_sha256: tuple[bytes, ...]
    survivors: tuple[str, ...]
    next_state_digest: bytes
    round: int
    purpose: str

    def to_bytes(self) -> bytes:
        """The bytes that travel."""
        return pb.Result(
            transcript3=self.transcript3,
            sum_sha256=self.sum_sha256,
            u3=self.survivors,
            next_state_digest=self.next_state_digest,
            round=self.round,
            purpose=self.purpose,
        ).SerializeToString(deterministic=True)


def parse_result(data: bytes) -> SessionResult:
    """Read a ``Result`` strictly. Raises ``SecAggError`` BAD_TRANSCRIPT."""
    message = decode(pb.Result, data, MAX_RESULT_BYTES, _CODE)
    if not 1 <= len(message.sum_sha256) <= MAX_STREAMS:
        raise fault(_CODE, f"a result of {len(message.sum_sha256)} streams (allowed: 1..{MAX_STREAMS})")
    return SessionResult(
        check_digest(message.transcript3, "a result's transcript", _CODE),
        tuple(check_digest(digest, "a result's digest of a sum", _CODE) for digest in message.sum_sha256),
        check_nodes(message.u3, "a result", _CODE),
        check_digest(message.next_state_digest, "a result's digest of the next broadcast", _CODE),
        message.round,
        check_purpose(message.purpose, "a result", _CODE),
    )


def result_digest(data: bytes) -> bytes:
    """H("result", bytes): what the next session's configuration names as ``prev_result``; empty for empty bytes."""
    return transcript_hash("result", data) if data else b""
