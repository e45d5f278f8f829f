"""What a node knows of the session that is due, from its own plan, policy and store, and how an offer is held to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedsecure.crypto.keystream import Prg
from fedsecure.crypto.signatures import SigningIdentity
from fedsecure.crypto.transcripts import transcript_hash
from fedsecure.errors import CertificateError, LocalProtocolError, SecAggError
from fedsecure.secagg.cohort.manifest import CohortManifest
from fedsecure.secagg.protocol.codec import fault
from fedsecure.secagg.protocol.sessionconfig import SessionConfig
from fedsecure.secagg.values.fixedpoint import ring_dtype
from fedsecure.secagg.values.noised import check_noised
from fedsecure.secagg.values.spec import check_offer
from fedsecure.secagg.values.streams import Stream
from fedsecure.tensors import Array

__all__ = ["LONGEST_MS", "SessionDue", "check_due", "check_own"]

#: No session lasts longer than this (ms): keys must not live for weeks because a coordinator says so.
LONGEST_MS = 7 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class SessionDue:
    """What must hold of the session, whatever the coordinator says.

    ``manifest``: the pinned one, signed by all. ``experiment``: the plan's digest (hex). ``purpose``: the exchange.
    ``streams``: as this node derives them. ``state_digest``: SHA-256 of the broadcast it computed from.
    ``prev_result``: ``result_digest`` of the run's last announced result, or empty. ``min_survivors``: the fewest nodes
    of a sum that plan and policy allow; the manifest's t counts besides. ``dp_digest``: of the noise it added
    (``noise.dp_digest``), or empty. ``prgs``: the keystreams it would use. ``attempts``: the numbers that sessions of
    this contribution have. ``is_of_model``: whether anything was broadcast that it was computed from.
    """

    node: str
    manifest: CohortManifest
    experiment: str
    round: int
    purpose: str
    streams: tuple[Stream, ...]
    state_digest: bytes
    prev_result: bytes
    min_survivors: int
    dp_digest: bytes = b""
    prgs: tuple[Prg, ...] = tuple(Prg)
    attempts: range = range(2**32)
    is_of_model: bool = True

    @property
    def model(self) -> bytes:
        """What ``SessionMemory`` tells sums apart by: of one model, all are over the same nodes. Where none was
        broadcast, as for numbers of records, each round counts as of its own: nodes may come and go."""
        return self.state_digest if self.is_of_model else transcript_hash("round", self.round.to_bytes(8, "big"))

    @property
    def least(self) -> int:
        """The fewest nodes of a sum that this node takes part in: t, or more."""
        return max(self.min_survivors, self.manifest.threshold.required)


def check_due(due: SessionDue, data: bytes, now_ms: int) -> SessionConfig:
    """The configuration in ``data`` when it is the one that is due.

    Raises ``SecAggError``: BAD_CONFIG naming the field that differs; BAD_COHORT for another cohort than the pinned
    one; DEADLINE when it has passed already.
    """
    config = SessionConfig.from_bytes(data)
    if config.cohort_digest != due.manifest.digest:
        raise SecAggError(
            f"BAD_COHORT: the session is for cohort {config.cohort_digest.hex()[:16]}…, but "
            f"{due.manifest.digest.hex()[:16]}… is pinned",
            hint="compare the cohort's manifest with the other operators; the coordinator may have an older one",
        )
    for field, found, wanted in (
        ("experiment", config.experiment, due.experiment),
        ("round", config.round + 1, due.round + 1),  # people count from 1
        ("purpose", config.purpose, due.purpose),
        ("state_digest", config.state_digest, due.state_digest),
        ("prev_result", config.prev_result, due.prev_result),
        ("dp_digest", config.dp_digest, due.dp_digest),
        ("threshold", config.threshold, due.manifest.threshold.required),
    ):
        if found != wanted:
            raise fault("BAD_CONFIG", f"{field} {_shown(found)} where {_shown(wanted)} is due")
    for field, number, least, most in (
        ("min_survivors", config.min_survivors, due.least, len(due.manifest.nodes)),
        ("attempt", config.attempt + 1, due.attempts.start + 1, due.attempts.stop),
    ):
        if not least <= number <= most:
            raise fault("BAD_CONFIG", f"{field} {number} where {least}..{most} is due")
    if config.prg not in due.prgs:
        raise fault("BAD_CONFIG", f"prg {config.prg.name} is not allowed here")
    check_offer([stream.spec for stream in due.streams], config.streams)
    if config.deadline_ms <= now_ms:
        raise SecAggError("DEADLINE: the session's deadline has passed", hint="compare the clocks of both machines")
    if config.deadline_ms > now_ms + LONGEST_MS:
        raise fault("BAD_CONFIG", f"deadline_ms is more than {LONGEST_MS // 86_400_000} days away")
    return config


def check_own(due: SessionDue, identity: SigningIdentity, vectors: Mapping[str, Array]) -> None:
    """Raise ``LocalProtocolError`` unless ``vectors`` are those of the streams due, with the noise due (none, or what
    was drawn for this contribution), and ``identity`` is the node's."""
    specs = {stream.spec.name: stream.spec for stream in due.streams}
    if set(vectors) != set(specs):
        raise LocalProtocolError(f"vectors {sorted(vectors)} where the streams {sorted(specs)} are due")
    for name, spec in specs.items():
        vector = vectors[name]
        if vector.shape != (spec.length,) or vector.dtype != ring_dtype(spec.ring_bits):
            raise LocalProtocolError(f"stream {name}: a vector of {vector.dtype}{list(vector.shape)}")
    check_noised(vectors, (due.experiment, due.purpose, due.round), due.dp_digest)
    try:
        member = due.manifest.member(due.node)
    except CertificateError as error:
        raise LocalProtocolError(str(error), hint=error.hint) from None
    if member.public_bytes != identity.public_bytes:
        raise LocalProtocolError(f"node {due.node} has another identity key than cohort {due.manifest.cohort} names")


def _shown(value: bytes | str | int) -> str:
    text = value.hex() if isinstance(value, bytes) else str(value)
    return (text[:16] + "…" if len(text) > 16 else text) or "none"
