"""A node that colludes: it follows the protocol, checks nothing, and its secrets are the adversary's."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedsecure.crypto.agreement import AgreementKey
from fedsecure.crypto.keyschedule import StreamId, pair_mask_key, pair_sign, self_mask_key, share_key
from fedsecure.crypto.keystream import Mask, add_masks
from fedsecure.crypto.sealedshares import SharePair, open_shares, seal_shares
from fedsecure.crypto.secretbytes import fresh_secret
from fedsecure.crypto.shamir import split_secret
from fedsecure.crypto.signatures import SigningIdentity
from fedsecure.crypto.transcripts import sign_payload, transcript_hash
from fedsecure.errors import SecAggError
from fedsecure.secagg.protocol.transcript import config_digest, keys_transcript, survivors_transcript
from fedsecure.secagg.v1 import secagg_pb2 as pb
from fedsecure.secagg.values.streams import Stream


def signed(identity: SigningIdentity, label: str, payload: bytes, signer: str) -> bytes:
    signature = sign_payload(identity, label, payload)
    return pb.Signed(payload=payload, signature=signature, signer=signer).SerializeToString(deterministic=True)


@dataclass
class Handed:
    """Masked vectors as a puppet hands them out."""

    pieces: list[bytes]
    done: bytes
    stream_sha256: tuple[bytes, ...]

    def chunks(self) -> Iterable[bytes]:
        return iter(self.pieces)


class Puppet:
    """A node that follows the protocol and checks nothing; whatever is asked of it, it answers. ``share_key``,
    ``mask_key``: its keys, fresh unless given. Two puppets of one name are one node that signs two sets of keys."""

    def __init__(self, lab: Any, name: str, **keys: Any) -> None:
        self.lab, self.name = lab, name
        self.identity: SigningIdentity = keys.get("identity", lab.identities[name])
        self.share: AgreementKey = keys.get("share_key") or AgreementKey.generate()
        self.mask: AgreementKey = keys.get("mask_key") or AgreementKey.generate()
        self.seed = fresh_secret()
        self.index = lab.manifest.index(name)
        self.held: dict[str, SharePair] = {}
        self.config = self.t1 = self.t3 = b""
        self.u1: dict[str, Any] = {}
        self.u2: tuple[str, ...] = ()
        self.u3: tuple[str, ...] = ()

    def answer(self, leg: int, message: bytes) -> Any:
        return (self.advertise, self.deal, self.upload, self.confirm, self.unmask)[leg](message)

    def advertise(self, config: bytes) -> bytes:
        self.config = config
        payload = pb.Advertise(
            config_digest=config_digest(config),
            cohort_digest=self.lab.manifest.digest,
            node_id=self.name,
            share_pk=self.share.public,
            mask_pk=self.mask.public,
            self_seed_commit=transcript_hash("bcommit", bytes(self.seed)),
        ).SerializeToString(deterministic=True)
        return signed(self.identity, "advertise", payload, self.name)

    def deal(self, key_list: bytes) -> bytes:
        self.u1, self.t1 = read_keys(self.config, self.lab.manifest.digest, key_list)
        n, t = len(self.lab.names), self.lab.threshold
        keys = split_secret(self.mask.secret_for_sharing(), t, n)
        seeds = split_secret(self.seed, t, n)
        members = enumerate(self.lab.manifest.nodes)
        pairs = {m.node: SharePair(i + 1, keys[i], seeds[i]) for i, m in members}
        self.held[self.name] = pairs[self.name]
        out = pb.EncryptedShares(transcript1=self.t1)
        for peer in sorted(set(self.u1) - {self.name}):
            key = share_key(self.share.exchange(self.u1[peer].share_pk, peer), self.t1, self.name, peer)
            ct = seal_shares(key, pairs[peer], transcript=self.t1, sender=self.name, receiver=peer)
            out.ct.add(to=peer, ct=ct)
        return out.SerializeToString(deterministic=True)

    def upload(self, inbox: bytes) -> Handed:
        message = pb.Inbox.FromString(inbox)
        self.u2 = tuple(message.u2)
        for item in getattr(message, "in"):
            self.held.update(self.opened(getattr(item, "from"), item.ct))
        vectors = {name: vector.copy() for name, vector in self.lab.vectors[self.name].items()}
        for s in self.lab.streams:
            add_masks(vectors[s.spec.name], self.masks(s), self.lab.prg)
        return hand_out(self, vectors)

    def opened(self, sender: str, sealed: bytes) -> dict[str, SharePair]:
        key = share_key(self.share.exchange(self.u1[sender].share_pk, sender), self.t1, sender, self.name)
        try:
            pair = open_shares(key, sealed, transcript=self.t1, sender=sender, receiver=self.name, index=self.index)
        except SecAggError:
            return {}
        return {sender: pair}

    def masks(self, s: Stream) -> list[Mask]:
        stream_id = StreamId(s.spec.name, s.spec.ring_bits, s.spec.length)
        masks = [Mask(self_mask_key(self.seed, self.t1, self.name, stream_id))]
        for peer in set(self.u2) - {self.name}:
            shared = self.mask.exchange(self.u1[peer].mask_pk, peer)
            key = pair_mask_key(shared, self.t1, self.name, peer, stream_id)
            masks.append(Mask(key, pair_sign(self.name, peer) < 0))
        return masks

    def confirm(self, survivors: bytes) -> bytes:
        self.t3 = read_survivors(self.t1, self.u2, survivors)
        self.u3 = tuple(pb.Survivors.FromString(survivors).u3)
        return self.sign_t3(self.t3)

    def sign_t3(self, t3: bytes) -> bytes:
        payload = pb.Consistency(transcript3=t3).SerializeToString(deterministic=True)
        return signed(self.identity, "consistency", payload, self.name)

    def unmask(self, _consistency: bytes, u3: Iterable[str] = ()) -> bytes:
        """Its shares: seeds of ``u3``, or of the list it confirmed last, and private keys of the others."""
        survivors = set(u3 or self.u3)
        out = pb.UnmaskShares(transcript3=self.t3)
        for owner in sorted(set(self.held) & set(self.u2)):
            pair = self.held[owner]
            if owner in survivors:
                out.item.add(owner=owner, self_seed=pair.seed_share)
            else:
                out.item.add(owner=owner, mask_sk=pair.mask_share)
        return out.SerializeToString(deterministic=True)

    def everything(self) -> bytes:
        """Both shares of every owner: what no node may ever give."""
        out = pb.UnmaskShares(transcript3=self.t3)
        for owner, pair in sorted(self.held.items()):
            out.item.add(owner=owner, self_seed=pair.seed_share)
            out.item.add(owner=owner, mask_sk=pair.mask_share)
        return out.SerializeToString(deterministic=True)


def hand_out(puppet: Puppet, vectors: Mapping[str, Any]) -> Handed:
    pieces, digests = [], []
    for i, s in enumerate(puppet.lab.streams):
        data = vectors[s.spec.name].astype(f"<u{s.spec.ring_bits // 8}").tobytes()
        digests.append(hashlib.sha256(data).digest())
        chunk = pb.MaskedChunk(transcript1=puppet.t1, stream=i, offset=0, data=data)
        pieces.append(chunk.SerializeToString(deterministic=True))
    done = pb.MaskedDone(transcript1=puppet.t1, stream_sha256=digests).SerializeToString(deterministic=True)
    return Handed(pieces, signed(puppet.identity, "masked-done", done, puppet.name), tuple(digests))


def read_keys(config: bytes, cohort: bytes, key_list: bytes) -> tuple[dict[str, Any], bytes]:
    """U1, as node -> Advertise, and T1."""
    payloads = [s.payload for s in pb.KeyList.FromString(key_list).advertise]
    u1 = {pb.Advertise.FromString(p).node_id: p for p in payloads}
    t1 = keys_transcript(config_digest(config), cohort, u1)
    return {node: pb.Advertise.FromString(p) for node, p in u1.items()}, t1


def read_survivors(t1: bytes, u2: Sequence[str], survivors: bytes) -> bytes:
    """T3."""
    message = pb.Survivors.FromString(survivors)
    return survivors_transcript(t1, u2, dict(zip(message.u3, message.vector_digests, strict=True)))
