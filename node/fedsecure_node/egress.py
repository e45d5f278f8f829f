"""The gate: the only way from the node to the wire. Check, log, hold if the institution says so, then send."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fedsecure.errors import DataError
from fedsecure.files import write_durably
from fedsecure.method import Method
from fedsecure.plan import Plan
from fedsecure.policy import Policy
from fedsecure.privacy.labels import NONE, Guarantee
from fedsecure.schema import Contribution
from fedsecure.tensors import Array
from fedsecure.wire.codec import Payload, upload_key
from fedsecure.wire.v1 import coordinator_pb2 as pb
from fedsecure_node.checking import check_contribution
from fedsecure_node.keys import ExchangeKey
from fedsecure_node.log.audited import Audited, audit_line
from fedsecure_node.log.chain import MASKED, UNMASKED
from fedsecure_node.log.decisions import note
from fedsecure_node.log.masks import MaskedSum, leaving
from fedsecure_node.log.noised import as_told
from fedsecure_node.log.records import Destination, release_body
from fedsecure_node.log.releaselog import ReleaseLog
from fedsecure_node.log.releases import NEVER_SENT, Release
from fedsecure_node.log.sums import SumNotes
from fedsecure_node.plans.institution import CurrentPolicy
from fedsecure_node.store.runbook import Finished
from fedsecure_node.store.store import Store

__all__ = ["Cleared", "ClearedVectors", "Gate", "MaskedVectors", "Uplink"]

_KEY = object()


@dataclass(frozen=True)
class Cleared:
    """A release that may be sent. Only ``Gate`` makes one, after checks and log: what an uplink takes is this."""

    number: int
    key: pb.UploadKey
    payload: Payload = field(repr=False)
    _made_by: object = field(repr=False, default=None)

    def __post_init__(self) -> None:
        if self._made_by is not _KEY:
            raise TypeError("a cleared release comes from the gate alone")


class MaskedVectors(Protocol):
    """This node's vectors of one session, masked: only t nodes of the cohort together can take the masks off a sum."""

    @property
    def stream_sha256(self) -> Sequence[bytes]:
        """SHA-256 of each stream's masked bytes, in the session's order."""
        ...

    @property
    def done(self) -> bytes:
        """``Signed{MaskedDone}``, which follows the last chunk."""
        ...

    def chunks(self) -> Iterator[bytes]:
        """The ``MaskedChunk`` messages, anew at each call."""
        ...


@dataclass(frozen=True)
class ClearedVectors:
    """Masked vectors that may be sent. Only ``Gate`` makes one, after the log says that they leave."""

    number: int
    header: pb.MaskedHeader
    vectors: MaskedVectors = field(repr=False)
    _made_by: object = field(repr=False, default=None)

    def __post_init__(self) -> None:
        if self._made_by is not _KEY:
            raise TypeError("cleared vectors come from the gate alone")


class Uplink(Protocol):
    """How cleared bytes reach the coordinator."""

    def upload(self, cleared: Cleared) -> None:
        """Send, resuming where the coordinator's copy ends; returns when it acknowledged all of it."""
        ...


class Gate:
    """Holds the log and is asked for everything that would leave."""

    def __init__(self, store: Store, log: ReleaseLog, *, node_id: str, hold: bool) -> None:
        self._store = store
        self._log = log
        self._node = node_id
        self._hold = hold
        self.sums = SumNotes(log)

    def check(
        self,
        plan: Plan,
        method: Method,
        key: ExchangeKey,
        payload: Payload,
        counts: Array,
        policy: Policy,
        *,
        records: int | None = None,
        masks: MaskedSum | None = None,
    ) -> Contribution:
        """``check_contribution`` with what this run already released. Raises as it does; logs and sends nothing. Where
        ``masks`` have noise, ``payload`` has it on."""
        before = self._sent_before(key)
        payload = as_told(payload, masks, method.schema(key.exchange))
        named = self.upload_key(key, payload)
        return check_contribution(plan, method, named, payload, counts, policy, before, records=records, masks=masks)

    def log(
        self,
        plan: Plan,
        method: Method,
        finished: Finished,
        payload: Payload,
        contribution: Contribution,
        policy: CurrentPolicy,
        destination: Destination,
        until: str = "",
        masks: MaskedSum | None = None,
        guarantee: Guarantee = NONE,
        audited: Audited | None = None,
    ) -> Release:
        """Put a checked contribution into the log, once; hold it when the institution or its audit says so, or withhold
        it when that found a leak. ``until``: when its exchange is over (ISO 8601), after which a held one cannot be
        decided any more. Under ``masks`` its summed half does not leave with it. ``guarantee``: its label;
        ``audited``: what the log says of its audit, once: of a release that is there, its record is what counts."""
        key = finished.key
        release = self.find(key)
        if release is None:
            self._store.keep_policy(policy.digest, policy.text)
            if masks is not None:
                left = leaving(payload, masks)
                write_durably(self._store.runs.payload_path(left.digest()), left.data)
            body = release_body(
                plan, key, payload, contribution, method.schema(key.exchange),
                destination=destination, policy_digest=policy.digest, guarantee=guarantee, audited=audited or Audited(),
                class_floor=policy.policy.class_floor(plan), masks=masks, broadcast=finished.broadcast,
            )  # fmt: skip
            record = self._log.append("release", body, only_if=lambda _: None)
            release = self._log.releases()[record.seq]
        if release.state == "logged":
            self._decide(release, policy.policy, until)
        found = self.find(key)
        assert found is not None
        return found

    def _decide(self, release: Release, policy: Policy, until: str) -> None:
        """Whether a release that was just logged may leave: by its audit first, as its record tells it."""
        audited = Audited.of(release.body)
        if audited.then == "withhold":
            note(self._log, release.number, "withheld", {"reason": audit_line(release.body)})
        elif audited.then == "hold" or self._hold or policy.release.hold:
            hold = "the policy's release.hold" if policy.release.hold else "the daemon's --hold"
            why = f"its membership audit is {audit_line(release.body)}" if audited.then == "hold" else hold
            note(self._log, release.number, "held", {"reason": why, "until": until})

    def find(self, key: ExchangeKey) -> Release | None:
        """The release of a contribution, as the log tells it now."""
        found = [r for r in self._log.releases().values() if r.key == key]
        return found[-1] if found else None

    def send(self, release: Release, payload: Payload, uplink: Uplink) -> None:
        """Send a release that is logged and not held; the log says so before the first byte, and when it arrived."""
        if payload.digest() != release.payload:
            raise DataError(f"release {release.number}: its bytes are not those in the log; nothing was sent")
        if release.state != "sending":
            note(self._log, release.number, "sending")  # refused by the log when it is held or refused
        uplink.upload(Cleared(release.number, self.upload_key(release.key, payload), payload, _KEY))
        note(self._log, release.number, "acknowledged")

    def mask(
        self, release: Release, header: pb.MaskedHeader, vectors: MaskedVectors, transcript1: bytes
    ) -> ClearedVectors:
        """Let the summed half of a release leave under masks, in the session T1; the log says so first. Raises
        ``LocalProtocolError`` when the rest was not sent yet, or a sum with it was read already."""
        streams = [
            {"name": stream["name"], "sha256": digest.hex(), "bytes": stream["bytes"]}
            for stream, digest in zip(release.body["secagg"]["streams"], vectors.stream_sha256, strict=True)
        ]
        note(self._log, release.number, MASKED, {"transcript1": transcript1.hex(), "streams": streams})
        return ClearedVectors(release.number, header, vectors, _KEY)

    def unmask(self, release: Release, *, transcript3: bytes, survivors: Sequence[str]) -> None:
        """Note that this node's shares are about to leave, by which the sum over ``survivors`` can be read. Raises
        ``LocalProtocolError`` unless its masked vectors left, and no sum with them was read before."""
        fields = {"transcript3": transcript3.hex(), "survivors": list(survivors)}
        note(self._log, release.number, UNMASKED, fields)

    def close(self, release: Release, reason: str) -> None:
        """Note that a release will not be sent (any more), because its exchange is over."""
        if release.state in ("logged", "held", "cleared", "sending"):
            note(self._log, release.number, "lapsed" if release.state == "sending" else "unsent", {"reason": reason})

    def open_releases(self, plan_digest: str) -> list[Release]:
        """Releases of a run whose fate is not known yet."""
        return [
            r
            for r in self._log.releases().values()
            if r.key.plan == plan_digest and r.state in ("logged", "held", "cleared", "sending")
        ]

    def upload_key(self, key: ExchangeKey, payload: Payload) -> pb.UploadKey:
        """The message that names a contribution on the wire."""
        return upload_key(
            payload,
            node_id=self._node,
            plan_digest=key.plan,
            round_=key.round,
            attempt=key.attempt,
            exchange=key.exchange,
        )

    def _sent_before(self, key: ExchangeKey) -> int:
        return sum(
            r.total_bytes
            for r in self._log.releases().values()
            if r.key.plan == key.plan and r.key != key and r.state not in NEVER_SENT
        )
