"""The messages of a session's five legs, and how they are signed: every size and count checked before it is used.

What is signed travels as bytes and is parsed after its signature was checked. Every fault is a ``SecAggError`` that
begins with an abort code. Node ids in a list stand in order, none twice, so that a set of nodes has one encoding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from fedsecure.crypto.agreement import PUBLIC_BYTES
from fedsecure.crypto.sealedshares import SEALED_BYTES
from fedsecure.crypto.shamir import SHARE_BYTES
from fedsecure.crypto.signatures import SIGNATURE_BYTES, SigningIdentity
from fedsecure.crypto.transcripts import check_signature, sign_payload
from fedsecure.errors import CertificateError
from fedsecure.secagg.cohort.manifest import CohortManifest
from fedsecure.secagg.cohort.threshold import MAX_NODES
from fedsecure.secagg.protocol.aborts import Abort, AbortCode, abort_bytes, code_of, parse_abort
from fedsecure.secagg.protocol.chunks import (
    CHUNK_BYTES,
    MAX_CHUNK_MESSAGE_BYTES,
    Chunk,
    masked_chunk,
    parse_masked_chunk,
)
from fedsecure.secagg.protocol.codec import check_digest, check_node, check_nodes, decode, fault
from fedsecure.secagg.protocol.results import SessionResult, parse_result, result_digest
from fedsecure.secagg.protocol.sessionconfig import SessionConfig
from fedsecure.secagg.v1 import secagg_pb2 as pb
from fedsecure.secagg.values.spec import MAX_STREAMS

__all__ = [
    "ADVERTISE", "CHUNK_BYTES", "CONSISTENCY", "MASKED_DONE", "MAX_CHUNK_MESSAGE_BYTES", "MAX_LEG_BYTES",
    "MAX_SIGNED_BYTES", "Abort", "AbortCode", "Advertisement", "Chunk", "OwnerShare", "SessionConfig", "SessionResult",
    "abort_bytes", "code_of", "consistency", "consistency_set", "encrypted_shares", "inbox", "key_list", "masked_chunk",
    "masked_done", "open_signed", "parse_abort", "parse_advertise", "parse_consistency", "parse_consistency_set",
    "parse_encrypted_shares", "parse_inbox", "parse_key_list", "parse_masked_chunk", "parse_masked_done",
    "parse_result", "parse_survivors", "parse_unmask_shares", "result_digest", "sign", "survivors", "unmask_shares",
]  # fmt: skip

#: What a signature of each signed message is for.
ADVERTISE, MASKED_DONE, CONSISTENCY = "advertise", "masked-done", "consistency"
#: Payload, signature and signer of the longest signed message.
MAX_SIGNED_BYTES = 1 << 10
#: The longest message of any leg but the chunks of leg 2: 64 entries of less than half a KiB.
MAX_LEG_BYTES = 64 << 10


def sign(identity: SigningIdentity, label: str, payload: bytes, *, signer: str) -> bytes:
    """``Signed``: ``payload`` and the signature for ``label`` by ``identity``, which is that of node ``signer``."""
    signature = sign_payload(identity, label, payload)
    return pb.Signed(payload=payload, signature=signature, signer=signer).SerializeToString(deterministic=True)


def open_signed(data: bytes, label: str, manifest: CohortManifest) -> tuple[str, bytes]:
    """Signer and payload of a ``Signed`` whose signature is that of a node of ``manifest`` for ``label``.

    Raises ``SecAggError`` BAD_SIGNATURE: malformed, a signer that is not in the cohort, or another signature.
    """
    code = "BAD_SIGNATURE"
    message = decode(pb.Signed, data, MAX_SIGNED_BYTES, code)
    signer = check_node(message.signer, "a signed message", code)
    if len(message.signature) != SIGNATURE_BYTES:
        raise fault(code, f"the signature of {signer} has {len(message.signature)} bytes, not {SIGNATURE_BYTES}")
    try:
        key = manifest.member(signer).public_bytes
    except CertificateError:
        raise fault(code, f"node {signer} signed, which is not in the cohort") from None
    check_signature(key, label, message.payload, message.signature, signer)
    return signer, message.payload


@dataclass(frozen=True, slots=True)
class Advertisement:
    """Leg 0: a node's fresh public keys (X25519, 32 bytes) and the commitment to its self-mask seed, for one
    configuration and cohort."""

    config_digest: bytes
    cohort_digest: bytes
    node: str
    share_pk: bytes
    mask_pk: bytes
    seed_commit: bytes

    def to_bytes(self) -> bytes:
        """The payload that is signed."""
        return pb.Advertise(
            config_digest=self.config_digest,
            cohort_digest=self.cohort_digest,
            node_id=self.node,
            share_pk=self.share_pk,
            mask_pk=self.mask_pk,
            self_seed_commit=self.seed_commit,
        ).SerializeToString(deterministic=True)


def parse_advertise(payload: bytes) -> Advertisement:
    """Read an ``Advertise``. Keys are of the right size; whether they are weak shows in ``check_public``. Raises
    ``SecAggError`` BAD_KEY."""
    code = "BAD_KEY"
    message = decode(pb.Advertise, payload, MAX_SIGNED_BYTES, code)
    node = check_node(message.node_id, "an advertisement", code)
    for key in (message.share_pk, message.mask_pk):
        if len(key) != PUBLIC_BYTES:
            raise fault(code, f"a key of {node} has {len(key)} bytes, not {PUBLIC_BYTES}")
    return Advertisement(
        check_digest(message.config_digest, f"the configuration's digest from {node}", code),
        check_digest(message.cohort_digest, f"the cohort's digest from {node}", code),
        node,
        message.share_pk,
        message.mask_pk,
        check_digest(message.self_seed_commit, f"the commitment of {node}", code),
    )


def key_list(advertised: Iterable[bytes]) -> bytes:
    """Leg 1: the ``Signed`` bytes of every node of U1, in order of their ids."""
    return pb.KeyList(advertise=[pb.Signed.FromString(data) for data in advertised]).SerializeToString()


def parse_key_list(data: bytes) -> tuple[bytes, ...]:
    """The ``Signed`` bytes in a ``KeyList``, at most 64. Raises ``SecAggError`` BAD_KEY."""
    return _signed_bytes(decode(pb.KeyList, data, MAX_LEG_BYTES, "BAD_KEY").advertise, "a list of keys", "BAD_KEY")


def encrypted_shares(transcript1: bytes, sealed: Mapping[str, bytes]) -> bytes:
    """Leg 1, the answer: sealed shares (83 bytes each) by receiver."""
    ct = [pb.ShareCt(to=node, ct=sealed[node]) for node in sorted(sealed)]
    return pb.EncryptedShares(transcript1=transcript1, ct=ct).SerializeToString(deterministic=True)


def parse_encrypted_shares(data: bytes) -> tuple[bytes, dict[str, bytes]]:
    """T1 and the sealed shares by receiver. Raises ``SecAggError`` BAD_SHARE."""
    message = decode(pb.EncryptedShares, data, MAX_LEG_BYTES, "BAD_SHARE")
    nodes = check_nodes((item.to for item in message.ct), "sealed shares", "BAD_SHARE")
    transcript1 = check_digest(message.transcript1, "the transcript of sealed shares", "BAD_SHARE")
    return transcript1, _sealed(nodes, (item.ct for item in message.ct))


def inbox(sealed: Mapping[str, bytes], shared: Sequence[str]) -> bytes:
    """Leg 2: what came for one node, by sender, and U2, the nodes that shared."""
    message = pb.Inbox(u2=shared)
    for node in sorted(sealed):
        item = getattr(message, "in").add(ct=sealed[node])
        setattr(item, "from", node)
    return message.SerializeToString(deterministic=True)


def parse_inbox(data: bytes) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Sealed shares by sender, and U2 in order. Raises ``SecAggError`` BAD_SHARE."""
    message = decode(pb.Inbox, data, MAX_LEG_BYTES, "BAD_SHARE")
    items = getattr(message, "in")
    senders = check_nodes((getattr(item, "from") for item in items), "an inbox", "BAD_SHARE")
    return _sealed(senders, (item.ct for item in items)), check_nodes(message.u2, "the list U2", "BAD_SHARE")


def masked_done(transcript1: bytes, stream_sha256: Sequence[bytes]) -> bytes:
    """Leg 2, the payload that is signed at its end: SHA-256 of every masked vector."""
    return pb.MaskedDone(transcript1=transcript1, stream_sha256=stream_sha256).SerializeToString(deterministic=True)


def parse_masked_done(payload: bytes) -> tuple[bytes, tuple[bytes, ...]]:
    """T1 and the digests. Raises ``SecAggError`` BAD_VECTOR."""
    code = "BAD_VECTOR"
    message = decode(pb.MaskedDone, payload, MAX_SIGNED_BYTES, code)
    if not 1 <= len(message.stream_sha256) <= MAX_STREAMS:
        raise fault(code, f"digests of {len(message.stream_sha256)} streams (allowed: 1..{MAX_STREAMS})")
    transcript1 = check_digest(message.transcript1, "the transcript of the masked vectors", code)
    return transcript1, tuple(check_digest(d, "the digest of a masked vector", code) for d in message.stream_sha256)


def survivors(vectors: Mapping[str, bytes]) -> bytes:
    """Leg 3: U3, and the ``vector_digest`` of each of its nodes."""
    nodes = sorted(vectors)
    return pb.Survivors(u3=nodes, vector_digests=[vectors[node] for node in nodes]).SerializeToString()


def parse_survivors(data: bytes) -> dict[str, bytes]:
    """U3 in order: node -> digest of its vectors. Raises ``SecAggError`` BAD_TRANSCRIPT."""
    code = "BAD_TRANSCRIPT"
    message = decode(pb.Survivors, data, MAX_LEG_BYTES, code)
    nodes = check_nodes(message.u3, "the list U3", code)
    if len(message.vector_digests) != len(nodes):
        raise fault(code, f"{len(message.vector_digests)} digests of vectors for {len(nodes)} survivors")
    digests = (check_digest(digest, "the digest of a vector", code) for digest in message.vector_digests)
    return dict(zip(nodes, digests, strict=True))


def consistency(transcript3: bytes) -> bytes:
    """Leg 3, the payload that is signed: T3, the one sum that the signer will help to unmask."""
    return pb.Consistency(transcript3=transcript3).SerializeToString()


def parse_consistency(payload: bytes) -> bytes:
    """T3. Raises ``SecAggError`` BAD_TRANSCRIPT."""
    message = decode(pb.Consistency, payload, MAX_SIGNED_BYTES, "BAD_TRANSCRIPT")
    return check_digest(message.transcript3, "the transcript of a confirmation", "BAD_TRANSCRIPT")


def consistency_set(confirmed: Iterable[bytes]) -> bytes:
    """Leg 4: the ``Signed`` confirmations of at least t survivors."""
    return pb.ConsistencySet(consistency=[pb.Signed.FromString(data) for data in confirmed]).SerializeToString()


def parse_consistency_set(data: bytes) -> tuple[bytes, ...]:
    """The ``Signed`` bytes in a ``ConsistencySet``, at most 64. Raises ``SecAggError`` BAD_TRANSCRIPT."""
    message = decode(pb.ConsistencySet, data, MAX_LEG_BYTES, "BAD_TRANSCRIPT")
    return _signed_bytes(message.consistency, "a set of confirmations", "BAD_TRANSCRIPT")


@dataclass(frozen=True, slots=True)
class OwnerShare:
    """One share (33 bytes) of one secret of its owner: its self-mask seed, or its private mask key; never both."""

    kind: Literal["self_seed", "mask_sk"]
    value: bytes = field(repr=False)


def unmask_shares(transcript3: bytes, items: Mapping[str, OwnerShare]) -> bytes:
    """Leg 4, the answer: one share for every node of U2."""
    shares = [pb.Share(owner=owner, **{items[owner].kind: items[owner].value}) for owner in sorted(items)]
    return pb.UnmaskShares(transcript3=transcript3, item=shares).SerializeToString(deterministic=True)


def parse_unmask_shares(data: bytes) -> tuple[bytes, dict[str, OwnerShare]]:
    """T3 and the shares by owner. Raises ``SecAggError`` BAD_SHARE."""
    code = "BAD_SHARE"
    message = decode(pb.UnmaskShares, data, MAX_LEG_BYTES, code)
    owners = check_nodes((item.owner for item in message.item), "unmasking shares", code)
    transcript3 = check_digest(message.transcript3, "the transcript of unmasking shares", code)
    return transcript3, {owner: _owner_share(owner, item) for owner, item in zip(owners, message.item, strict=True)}


def _owner_share(owner: str, item: pb.Share) -> OwnerShare:
    kind = item.WhichOneof("value")
    value = b"" if kind is None else getattr(item, kind)
    if kind is None or len(value) != SHARE_BYTES:
        raise fault("BAD_SHARE", f"the share of {owner} has {len(value)} bytes, not {SHARE_BYTES}")
    return OwnerShare(kind, value)


def _sealed(nodes: Sequence[str], texts: Iterable[bytes]) -> dict[str, bytes]:
    found = dict(zip(nodes, texts, strict=True))
    for node, text in found.items():
        if len(text) != SEALED_BYTES:
            raise fault("BAD_SHARE", f"sealed shares of {node} have {len(text)} bytes, not {SEALED_BYTES}")
    return found


def _signed_bytes(messages: Sequence[pb.Signed], what: str, code: str) -> tuple[bytes, ...]:
    if len(messages) > MAX_NODES:
        raise fault(code, f"{what} of {len(messages)} nodes (allowed: <= {MAX_NODES})")
    return tuple(message.SerializeToString(deterministic=True) for message in messages)
