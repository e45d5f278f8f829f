"""What a malicious coordinator and its colluders can compute from everything that they saw of a session.

A sum over a set of honest nodes is *learned* when every mask on it can be computed: the seeds of all of them, and the
pair masks between them and everybody outside the set (those inside cancel). ``learned_sums`` takes away what can be
taken away and looks whether the plain sum is left, for every set of honest nodes; it believes nothing but numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, combinations
from typing import Any

import numpy as np
from adversary import Relay, sum_of
from adversary_puppet import Handed, Puppet, read_keys

from fedsecure.crypto.agreement import AgreementKey
from fedsecure.crypto.keyschedule import StreamId, pair_mask_key, pair_sign, self_mask_key
from fedsecure.crypto.keystream import Mask, add_masks
from fedsecure.crypto.shamir import combine_shares
from fedsecure.crypto.transcripts import transcript_hash
from fedsecure.errors import SecAggError
from fedsecure.secagg.v1 import secagg_pb2 as pb

__all__ = ["Knowledge", "learned_sums", "subsets"]


class Knowledge:
    """Of one session: shares, keys and masked vectors, from the relay's record and from ``puppets``' secrets."""

    def __init__(self, relay: Relay, puppets: Iterable[Puppet] = ()) -> None:
        self.relay, self.lab = relay, relay.lab
        self.puppets = tuple(puppets)
        self.seed_shares: dict[str, dict[int, bytes]] = {}
        self.key_shares: dict[str, dict[int, bytes]] = {}
        self.private = {p.mask.public: p.mask for p in self.puppets}
        for puppet in self.puppets:
            self._read_held(puppet)
        for node in relay.got:
            if isinstance(relay.got[node].get(4), bytes):
                self.learn(node, relay.got[node][4])
        self.honest = tuple(n for n in self.lab.names if n not in {p.name for p in self.puppets})

    def _read_held(self, puppet: Puppet) -> None:
        held = dict(puppet.held)
        for sender, answers in self.relay.got.items():
            if sender in held or not isinstance(answers.get(1), bytes) or not puppet.t1:
                continue
            for ct in pb.EncryptedShares.FromString(answers[1]).ct:
                if ct.to == puppet.name and sender in puppet.u1:
                    held.update(puppet.opened(sender, ct.ct))
        for owner, pair in held.items():
            self.seed_shares.setdefault(owner, {})[pair.index] = pair.seed_share
            self.key_shares.setdefault(owner, {})[pair.index] = pair.mask_share

    def learn(self, holder: str, unmask_shares: bytes) -> None:
        """Take in an ``UnmaskShares`` message of ``holder``."""
        index = self.lab.manifest.index(holder)
        for item in pb.UnmaskShares.FromString(unmask_shares).item:
            if item.WhichOneof("value") == "self_seed":
                self.seed_shares.setdefault(item.owner, {})[index] = item.self_seed
            else:
                self.key_shares.setdefault(item.owner, {})[index] = item.mask_sk

    def advertised(self, owner: str) -> Any:
        return pb.Advertise.FromString(pb.Signed.FromString(self.relay.got[owner][0]).payload)

    def seed(self, owner: str) -> bytes | None:
        """The self-mask seed of ``owner``, if enough of its shares are known."""
        for secret in _combinations(self.seed_shares.get(owner, {}), self.lab.threshold, owner):
            if transcript_hash("bcommit", secret) == self.advertised(owner).self_seed_commit:
                return secret
        return None

    def mask_key(self, public: bytes, owner: str) -> AgreementKey | None:
        """The private key of ``public``: a colluder's own, or rebuilt from shares."""
        if public not in self.private:
            for secret in _combinations(self.key_shares.get(owner, {}), self.lab.threshold, owner):
                key = AgreementKey(secret)
                self.private[key.public] = key
        return self.private.get(public)

    def has_both(self, owner: str) -> bool:
        """Whether both secrets of ``owner`` are known, which opens its vector."""
        return self.seed(owner) is not None and self.mask_key(self.advertised(owner).mask_pk, owner) is not None

    def stripped(self, node: str, inside: set[str]) -> list[Any] | None:
        """The masked vectors of ``node`` without every mask that can be computed, but for those with ``inside``."""
        handed = self.relay.got.get(node, {}).get(2)
        if not isinstance(handed, Handed):
            return None
        u1, t1 = read_keys(self.relay.sent[node][0], self.lab.manifest.digest, self.relay.sent[node][1])
        u2 = pb.Inbox.FromString(self.relay.sent[node][2]).u2
        vectors = joined(handed, [s.spec.ring_bits for s in self.lab.streams])
        for vector, s in zip(vectors, self.lab.streams, strict=True):
            stream = StreamId(s.spec.name, s.spec.ring_bits, s.spec.length)
            masks = list(self._pair_masks(node, u1, t1, set(u2) - {node} - inside, stream))
            if (seed := self.seed(node)) is not None:
                masks.append(Mask(self_mask_key(seed, t1, node, stream), subtract=True))
            add_masks(vector, masks, self.lab.prg)
        return vectors

    def _pair_masks(self, node: str, u1: Any, t1: bytes, peers: set[str], stream: StreamId) -> Iterator[Mask]:
        for peer in sorted(peers & set(u1)):
            own, theirs = self.mask_key(u1[node].mask_pk, node), self.mask_key(u1[peer].mask_pk, peer)
            if own is not None:
                shared = own.exchange(u1[peer].mask_pk, peer)
            elif theirs is not None:
                shared = theirs.exchange(u1[node].mask_pk, node)
            else:
                continue
            yield Mask(pair_mask_key(shared, t1, node, peer, stream), subtract=pair_sign(node, peer) > 0)

    def learned_sums(self) -> set[frozenset[str]]:
        """Every set of honest nodes whose plain sum comes out, in any stream."""
        found = set()
        for chosen in subsets(self.honest):
            parts = [self.stripped(node, set(chosen)) for node in chosen]
            if any(part is None for part in parts):
                continue
            true = self.lab.total(chosen)
            for i, s in enumerate(self.lab.streams):
                total = sum_of([part[i] for part in parts if part is not None])
                if np.array_equal(total, true[s.spec.name]):
                    found.add(frozenset(chosen))
        return found


def learned_sums(*sessions: Knowledge) -> set[frozenset[str]]:
    """What several sessions over the same vectors give together."""
    return set().union(*(knowledge.learned_sums() for knowledge in sessions))


def joined(handed: Handed, ring_bits: Sequence[int]) -> list[Any]:
    """The masked vectors of all streams, from their chunks."""
    parts: list[list[bytes]] = [[] for _ in ring_bits]
    for piece in handed.pieces:
        chunk = pb.MaskedChunk.FromString(piece)
        parts[chunk.stream].append(chunk.data)
    return [np.frombuffer(b"".join(p), f"<u{b // 8}").copy() for p, b in zip(parts, ring_bits, strict=True)]


def subsets(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Every set of at least one of ``names``."""
    return chain.from_iterable(combinations(names, k) for k in range(1, len(names) + 1))


def _combinations(shares: dict[int, bytes], threshold: int, owner: str) -> Iterator[bytes]:
    for chosen in combinations(sorted(shares), threshold):
        try:
            yield bytes(combine_shares({x: shares[x] for x in chosen}, threshold, owner))
        except SecAggError:
            continue
