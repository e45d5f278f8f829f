"""A malicious coordinator and its colluding nodes, written from the protocol's description alone.

``Relay`` carries the messages of one session and keeps what it sent and got; what it composes are the messages that an
honest coordinator would send, for a test to change on the way. ``Puppet`` is a node that checks nothing and whose
secrets the adversary has. What both together can compute is in ``adversary_knowledge``.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedsecure.crypto.agreement import AgreementKey
from fedsecure.crypto.keyschedule import StreamId, pair_mask_key, pair_sign, self_mask_key, share_key
from fedsecure.crypto.keystream import Mask, Prg, add_masks
from fedsecure.crypto.sealedshares import SharePair, open_shares, seal_shares
from fedsecure.crypto.secretbytes import fresh_secret
from fedsecure.crypto.shamir import split_secret
from fedsecure.crypto.signatures import SigningIdentity
from fedsecure.crypto.transcripts import sign_payload, transcript_hash
from fedsecure.errors import SecAggError
from fedsecure.secagg.manifest import CohortManifest
from fedsecure.secagg.memory import MemoryOnly
from fedsecure.secagg.node import SecAggNode, SessionDue
from fedsecure.secagg.spec import StreamSpec, Weighting
from fedsecure.secagg.streams import Place, Stream, layout_digest
from fedsecure.secagg.transcript import config_digest, keys_transcript, survivors_transcript, vector_digest
from fedsecure.secagg.v1 import secagg_pb2 as pb

EXPERIMENT = hashlib.sha256(b"the plan").hexdigest()
PURPOSE = "update"
NAMES = ("ada", "bea", "cyd", "dot", "eve", "fay")
LENGTH = 5


def new_identity() -> SigningIdentity:
    return SigningIdentity(Ed25519PrivateKey.generate())


def stream(name: str, ring_bits: int, values: int) -> Stream:
    places = (Place("w", "float32", (values,)),)
    bits = 16 if ring_bits == 32 else 30
    spec = StreamSpec(name, values + 1, ring_bits, bits, 1.0, Weighting.NONE, 1, layout_digest(places))
    return Stream(spec, places)


def make_vectors(streams: Sequence[Stream], seed: int, node: str) -> dict[str, Any]:
    """Vectors all over the ring: nothing in them tells a mask from a value."""
    rng = np.random.default_rng([seed, *node.encode()])
    types = {32: np.uint32, 64: np.uint64}
    return {
        s.spec.name: rng.integers(0, 2**s.spec.ring_bits, s.spec.length, types[s.spec.ring_bits], endpoint=False)
        for s in streams
    }


class Lab:
    """A cohort of ``nodes`` nodes with pinned keys, what each would contribute, and each one's memory."""

    def __init__(self, nodes: int, *, seed: int = 0, prg: Prg = Prg.AES_256_CTR, values: int = LENGTH - 1) -> None:
        self.names = NAMES[:nodes]
        self.identities = {name: new_identity() for name in self.names}
        manifest = CohortManifest.form(
            "heart-study", "trial", 1, {n: i.public_bytes for n, i in self.identities.items()}
        )
        for name, identity in self.identities.items():
            manifest = manifest.signed(name, identity)
        self.manifest = manifest
        self.threshold = manifest.threshold.required
        self.streams = (stream("fedavg.update.a", 64, values), stream("fedavg.update.b", 32, values))
        self.vectors = {name: make_vectors(self.streams, seed, name) for name in self.names}
        self.memories = {name: MemoryOnly() for name in self.names}
        self.state = hashlib.sha256(b"the model").digest()
        self.now = time.time_ns() // 1_000_000
        self.prg = prg

    def config(self, **changes: Any) -> bytes:
        """The session's configuration as bytes, with any field of the message changed."""
        message = pb.SessionConfig(
            experiment_id=EXPERIMENT,
            round=1,
            purpose=PURPOSE,
            attempt=0,
            cohort_digest=self.manifest.digest,
            global_state_digest=self.state,
            prev_result_digest=b"",
            threshold=self.threshold,
            min_survivors=self.threshold,
            prg=int(self.prg),
            streams=[spec_message(s.spec) for s in self.streams],
            dp_digest=b"",
            coordinator_nonce=hashlib.sha256(str(time.perf_counter_ns()).encode()).digest(),
            deadline_unix_ms=self.now + 60_000,
        )
        for name, value in changes.items():
            if name == "streams":
                del message.streams[:]
                message.streams.extend(value)
            else:
                setattr(message, name, value)
        return message.SerializeToString(deterministic=True)

    def due(self, node: str, **changes: Any) -> SessionDue:
        """What ``node`` knows of the session by itself."""
        due = SessionDue(
            node=node,
            manifest=self.manifest,
            experiment=EXPERIMENT,
            round=1,
            purpose=PURPOSE,
            streams=self.streams,
            state_digest=self.state,
            prev_result=b"",
        )
        return replace(due, **changes)

    def node(self, name: str, **changes: Any) -> SecAggNode:
        """The real machine of ``name``, opened anew; ``now_ms`` is the lab's clock."""
        return SecAggNode(
            self.due(name, **changes),
            self.identities[name],
            {stream: vector.copy() for stream, vector in self.vectors[name].items()},
            self.memories[name],
            now_ms=lambda: self.now,
        )

    def puppet(self, name: str, **keys: Any) -> Puppet:
        return Puppet(self, name, **keys)

    def cast(self, *colluders: str) -> dict[str, Any]:
        """Every node of the cohort: the real machine, or a puppet for each of ``colluders``."""
        return {n: self.puppet(n) if n in colluders else self.node(n) for n in self.names}

    def total(self, nodes: Iterable[str]) -> dict[str, Any]:
        """The plain sum of the vectors of ``nodes``."""
        chosen = [self.vectors[n] for n in nodes]
        return {s.spec.name: sum_of([v[s.spec.name] for v in chosen]) for s in self.streams}


def sum_of(vectors: Sequence[Any]) -> Any:
    total = np.zeros_like(vectors[0])
    for vector in vectors:
        total += vector
    return total


def spec_message(spec: StreamSpec, **changes: Any) -> Any:
    message = pb.StreamSpec(
        name=spec.name,
        length=spec.length,
        ring_bits=spec.ring_bits,
        frac_bits=spec.frac_bits,
        clip_abs=spec.clip_abs,
        weighting=int(spec.weighting),
        layout_digest=spec.layout_digest,
        max_count=spec.max_count,
    )
    for name, value in changes.items():
        setattr(message, name, value)
    return message


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

    def __init__(self, lab: Lab, name: str, **keys: Any) -> None:
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
        return self.sign_t3(self.t3)

    def sign_t3(self, t3: bytes) -> bytes:
        payload = pb.Consistency(transcript3=t3).SerializeToString(deterministic=True)
        return signed(self.identity, "consistency", payload, self.name)

    def unmask(self, _consistency: bytes, u3: Iterable[str] = ()) -> bytes:
        """Its shares: seeds of ``u3`` (whatever it was shown: of everybody of U2), private keys of the others."""
        survivors = set(u3) or set(self.u2)
        out = pb.UnmaskShares(transcript3=self.t3)
        for owner in sorted(self.held):
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


@dataclass
class Relay:
    """One session as the coordinator carries it: ``sent[node][leg]`` and ``got[node][leg]``, the bytes of each."""

    lab: Lab
    config: bytes
    cast: dict[str, Any]
    sent: dict[str, dict[int, bytes]] = field(default_factory=dict)
    got: dict[str, dict[int, Any]] = field(default_factory=dict)
    aborts: dict[str, SecAggError] = field(default_factory=dict)

    def ask(self, node: str, leg: int, message: bytes) -> Any:
        """Give ``message`` to ``node`` and keep its answer. Raises what the node raises; both are kept."""
        try:
            answer = self.cast[node].answer(leg, message)
        except SecAggError as error:
            self.aborts[node] = error
            raise
        self.sent.setdefault(node, {}).setdefault(leg, message)
        if leg == 2:
            pieces = [bytes(c) for c in answer.chunks()]
            answer = Handed(pieces, bytes(answer.done), tuple(answer.stream_sha256))
        self.got.setdefault(node, {}).setdefault(leg, answer)
        return answer

    def who(self, leg: int) -> list[str]:
        """Those who answered ``leg``, in order."""
        return sorted(n for n, answers in self.got.items() if leg in answers)

    def key_list(self, nodes: Iterable[str] = ()) -> bytes:
        chosen = sorted(nodes) or self.who(0)
        return pb.KeyList(advertise=[pb.Signed.FromString(self.got[n][0]) for n in chosen]).SerializeToString()

    def inbox(self, to: str, u2: Iterable[str] = ()) -> bytes:
        chosen = sorted(u2) or self.who(1)
        message = pb.Inbox(u2=chosen)
        for sender in chosen:
            for ct in pb.EncryptedShares.FromString(self.got[sender][1]).ct:
                if ct.to == to:
                    getattr(message, "in").add(**{"from": sender, "ct": ct.ct})
        return message.SerializeToString()

    def survivors(self, u3: Iterable[str] = (), **digests: bytes) -> bytes:
        chosen = sorted(u3) or self.who(2)
        found = {n: digests.get(n) or vector_digest(self.got[n][2].stream_sha256) for n in chosen}
        return pb.Survivors(u3=chosen, vector_digests=[found[n] for n in chosen]).SerializeToString()

    def consistency(self, *messages: bytes) -> bytes:
        chosen = messages or [self.got[n][3] for n in self.who(3)]
        return pb.ConsistencySet(consistency=[pb.Signed.FromString(m) for m in chosen]).SerializeToString()

    def message(self, node: str, leg: int) -> bytes:
        """What an honest coordinator sends ``node`` in ``leg``."""
        if leg == 0:
            return self.config
        makers = {1: self.key_list, 3: self.survivors, 4: self.consistency}
        return self.inbox(node) if leg == 2 else makers[leg]()

    def run(self, first: int = 0, last: int = 4, nodes: Iterable[str] = ()) -> Relay:
        """Carry legs ``first`` to ``last`` honestly among ``nodes``."""
        for leg in range(first, last + 1):
            messages = {n: self.message(n, leg) for n in sorted(nodes) or sorted(self.cast)}
            for node, message in messages.items():
                self.ask(node, leg, message)
        return self
