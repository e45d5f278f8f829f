"""A malicious coordinator and its colluding nodes, written from the protocol's description alone.

``Relay`` carries the messages of one session and keeps what it sent and got; what it composes are the messages that an
honest coordinator would send, for a test to change on the way. What it and the colluding nodes of ``adversary_puppet``
can compute together is in ``adversary_knowledge``.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from adversary_puppet import Handed, Puppet
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedsecure.crypto.keystream import Prg
from fedsecure.crypto.signatures import SigningIdentity
from fedsecure.errors import SecAggError
from fedsecure.secagg.cohort.manifest import CohortManifest
from fedsecure.secagg.machines.memory import MemoryOnly
from fedsecure.secagg.machines.node import SecAggNode, SessionDue
from fedsecure.secagg.protocol.transcript import vector_digest
from fedsecure.secagg.v1 import secagg_pb2 as pb
from fedsecure.secagg.values.spec import StreamSpec, Weighting
from fedsecure.secagg.values.streams import Place, Stream, layout_digest

EXPERIMENT = hashlib.sha256(b"the plan").hexdigest()
PURPOSE = "update"
NAMES = ("ada", "bea", "cyd", "dot", "eve", "fay", "gil")
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
            min_survivors=3,
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
