"""What a session is about: one configuration for all its nodes, hashed as the bytes in which it travels."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fedsecure.crypto.keystream import Prg
from fedsecure.crypto.transcripts import DIGEST_BYTES
from fedsecure.errors import ConfigError
from fedsecure.secagg.cohort.threshold import MAX_NODES, MIN_NODES
from fedsecure.secagg.protocol.codec import PURPOSE, decode, fault
from fedsecure.secagg.v1 import secagg_pb2 as pb
from fedsecure.secagg.values.spec import MAX_STREAMS, StreamSpec, Weighting

__all__ = ["MAX_CONFIG_BYTES", "NONCE_BYTES", "SessionConfig"]

#: No configuration comes near this size: 16 streams of less than 400 bytes each, and 500 bytes.
MAX_CONFIG_BYTES = 16 << 10
#: Size of the coordinator's nonce (bytes).
NONCE_BYTES = 32
_EXPERIMENT = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """``experiment``: the plan's digest, 64 hexadecimal digits. ``purpose``: the exchange. ``round`` and ``attempt``
    from 0. ``cohort_digest``, ``state_digest``: 32 bytes. ``prev_result``, ``dp_digest``: 32 bytes, or empty for none.
    ``threshold``: t. ``min_survivors``: the fewest contributors of a sum. ``nonce``: 32 bytes. ``deadline_ms``: Unix
    time in milliseconds, after which no node answers.

    Raises ``ConfigError`` naming the field that is out of its range.
    """

    experiment: str
    round: int
    purpose: str
    attempt: int
    cohort_digest: bytes
    state_digest: bytes
    prev_result: bytes
    threshold: int
    min_survivors: int
    prg: Prg
    streams: tuple[StreamSpec, ...]
    dp_digest: bytes
    nonce: bytes
    deadline_ms: int

    def __post_init__(self) -> None:
        for field, fits, allowed in (
            ("experiment", _EXPERIMENT.fullmatch(self.experiment), "64 hexadecimal digits"),
            ("round", 0 <= self.round < 2**63, "0..2^63-1"),
            ("purpose", PURPOSE.fullmatch(self.purpose), "lower-case letters, digits and _.-, at most 64"),
            ("attempt", 0 <= self.attempt < 2**32, "0..2^32-1"),
            ("cohort_digest", len(self.cohort_digest) == DIGEST_BYTES, "32 bytes"),
            ("state_digest", len(self.state_digest) == DIGEST_BYTES, "32 bytes"),
            ("prev_result", len(self.prev_result) in {0, DIGEST_BYTES}, "0 or 32 bytes"),
            ("threshold", MIN_NODES <= self.threshold <= MAX_NODES, f"{MIN_NODES}..{MAX_NODES}"),
            ("min_survivors", self.threshold <= self.min_survivors <= MAX_NODES, f"threshold..{MAX_NODES}"),
            ("prg", self.prg in tuple(Prg), "1, 2"),
            ("streams", 1 <= len(self.streams) <= MAX_STREAMS, f"1..{MAX_STREAMS} streams"),
            ("streams", len({spec.name for spec in self.streams}) == len(self.streams), "names that differ"),
            ("dp_digest", len(self.dp_digest) in {0, DIGEST_BYTES}, "0 or 32 bytes"),
            ("nonce", len(self.nonce) == NONCE_BYTES, f"{NONCE_BYTES} bytes"),
            ("deadline_ms", 0 < self.deadline_ms < 2**63, "1..2^63-1"),
        ):
            if not fits:
                raise ConfigError(f"session configuration: {field} is out of range (allowed: {allowed})")

    @property
    def nbytes(self) -> int:
        """Bytes of one node's masked vectors."""
        return sum(spec.nbytes for spec in self.streams)

    def to_bytes(self) -> bytes:
        """The bytes that travel, are hashed, and are the same for every node."""
        return pb.SessionConfig(
            experiment_id=self.experiment,
            round=self.round,
            purpose=self.purpose,
            attempt=self.attempt,
            cohort_digest=self.cohort_digest,
            global_state_digest=self.state_digest,
            prev_result_digest=self.prev_result,
            threshold=self.threshold,
            min_survivors=self.min_survivors,
            prg=f"KEYSTREAM_{self.prg.name}",
            streams=[_stream_message(spec) for spec in self.streams],
            dp_digest=self.dp_digest,
            coordinator_nonce=self.nonce,
            deadline_unix_ms=self.deadline_ms,
        ).SerializeToString(deterministic=True)

    @classmethod
    def from_bytes(cls, data: bytes) -> SessionConfig:
        """Read one strictly. Raises ``SecAggError`` BAD_CONFIG naming the field."""
        message = decode(pb.SessionConfig, data, MAX_CONFIG_BYTES, "BAD_CONFIG")
        if len(message.streams) > MAX_STREAMS:
            raise fault("BAD_CONFIG", f"{len(message.streams)} streams (allowed: 1..{MAX_STREAMS})")
        try:
            return cls(
                experiment=message.experiment_id,
                round=message.round,
                purpose=message.purpose,
                attempt=message.attempt,
                cohort_digest=message.cohort_digest,
                state_digest=message.global_state_digest,
                prev_result=message.prev_result_digest,
                threshold=message.threshold,
                min_survivors=message.min_survivors,
                prg=_prg(message.prg),
                streams=tuple(_stream(spec) for spec in message.streams),
                dp_digest=message.dp_digest,
                nonce=message.coordinator_nonce,
                deadline_ms=message.deadline_unix_ms,
            )
        except ConfigError as error:
            raise fault("BAD_CONFIG", str(error)) from None


def _prg(number: int) -> Prg:
    try:
        return Prg(number)
    except ValueError:
        raise ConfigError(f"session configuration: prg {number} (allowed: 1, 2)") from None


def _stream_message(spec: StreamSpec) -> pb.StreamSpec:
    return pb.StreamSpec(
        name=spec.name,
        length=spec.length,
        ring_bits=spec.ring_bits,
        frac_bits=spec.frac_bits,
        clip_abs=spec.clip_abs,
        weighting=f"WEIGHTING_{spec.weighting.name}",
        layout_digest=spec.layout_digest,
        max_count=spec.max_count,
    )


def _stream(message: pb.StreamSpec) -> StreamSpec:
    try:
        weighting = Weighting(int(message.weighting))
    except ValueError:
        raise ConfigError(f"session configuration: weighting {message.weighting} (allowed: 0, 1, 2)") from None
    return StreamSpec(
        name=message.name,
        length=message.length,
        ring_bits=message.ring_bits,
        frac_bits=message.frac_bits,
        clip_abs=message.clip_abs,
        weighting=weighting,
        max_count=message.max_count,
        layout_digest=message.layout_digest,
    )
