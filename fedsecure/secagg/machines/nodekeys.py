"""The secrets of one node in one session: two X25519 keys, a seed, and the shares that it holds of others' secrets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fedsecure.crypto.agreement import AgreementKey, check_public
from fedsecure.crypto.keyschedule import share_key
from fedsecure.crypto.keystream import Mask
from fedsecure.crypto.sealedshares import SharePair, open_shares, seal_shares
from fedsecure.crypto.secretbytes import fresh_secret, wipe
from fedsecure.crypto.shamir import split_secret
from fedsecure.crypto.transcripts import transcript_hash
from fedsecure.secagg.cohort.manifest import CohortManifest
from fedsecure.secagg.machines.masking import masks_of_node
from fedsecure.secagg.protocol.messages import Advertisement, OwnerShare
from fedsecure.secagg.values.spec import StreamSpec

__all__ = ["NodeKeys", "seed_commitment"]


def seed_commitment(seed: bytes | bytearray) -> bytes:
    """H("bcommit", b): tells a rebuilt self-mask seed from a wrong one, and nothing of it before."""
    return transcript_hash("bcommit", bytes(seed))


class NodeKeys:
    """Fresh secrets of ``node``; ``wipe`` overwrites them. Nothing here shows itself."""

    __slots__ = ("_held", "_manifest", "_mask", "_node", "_seed", "_share")

    def __init__(self, node: str, manifest: CohortManifest) -> None:
        self._node, self._manifest = node, manifest
        self._share, self._mask, self._seed = AgreementKey.generate(), AgreementKey.generate(), fresh_secret()
        #: owner -> (share of its private mask key, share of its seed)
        self._held: dict[str, tuple[bytearray, bytearray]] = {}

    def advertise(self, config_digest: bytes, cohort_digest: bytes) -> Advertisement:
        """The public halves and the commitment."""
        commit = seed_commitment(self._seed)
        return Advertisement(config_digest, cohort_digest, self._node, self._share.public, self._mask.public, commit)

    def seal(self, transcript1: bytes, peers: Mapping[str, Advertisement]) -> dict[str, bytes]:
        """Shares of both secrets for every peer, sealed for it; this node's own are kept. Raises ``SecAggError``
        BAD_KEY for a peer whose share key or mask key is weak."""
        manifest, secret = self._manifest, self._mask.secret_for_sharing()
        threshold, count = manifest.threshold.required, len(manifest.nodes)
        mask_shares, seed_shares = split_secret(secret, threshold, count), split_secret(self._seed, threshold, count)
        wipe(secret)
        own = manifest.index(self._node) - 1
        self._held[self._node] = bytearray(mask_shares[own]), bytearray(seed_shares[own])
        sealed = {}
        for peer, advertised in peers.items():
            check_public(advertised.mask_pk, peer)
            index = manifest.index(peer)
            key = self._share_key(transcript1, advertised, self._node, peer)
            pair = SharePair(index, mask_shares[index - 1], seed_shares[index - 1])
            sealed[peer] = seal_shares(key, pair, transcript=transcript1, sender=self._node, receiver=peer)
            wipe(key)
        return sealed

    def open(self, transcript1: bytes, peers: Mapping[str, Advertisement], sealed: Mapping[str, bytes]) -> None:
        """Keep what the peers sealed for this node. Raises ``SecAggError`` BAD_SHARE naming the sender."""
        index = self._manifest.index(self._node)
        for peer, text in sealed.items():
            key = self._share_key(transcript1, peers[peer], peer, self._node)
            pair = open_shares(key, text, transcript=transcript1, sender=peer, receiver=self._node, index=index)
            wipe(key)
            self._held[peer] = bytearray(pair.mask_share), bytearray(pair.seed_share)

    def masks(
        self, transcript1: bytes, peers: Mapping[str, Advertisement], specs: Iterable[StreamSpec]
    ) -> list[list[Mask]]:
        """Every mask that this node adds, by stream. The caller wipes them."""
        shared = {peer: self._mask.exchange(advertised.mask_pk, peer) for peer, advertised in peers.items()}
        try:
            return [masks_of_node(self._node, self._seed, shared, transcript1, spec) for spec in specs]
        finally:
            wipe(*shared.values())

    def wipe_own(self) -> None:
        """Overwrite the private keys and the seed, once the vectors are masked; the shares held stay."""
        self._share.wipe()
        self._mask.wipe()
        wipe(self._seed)

    def shares(self, survivors: Iterable[str], dropped: Iterable[str]) -> dict[str, OwnerShare]:
        """One share of every node: of a survivor's seed, or of a dropped node's private mask key."""
        seeds = {owner: OwnerShare("self_seed", bytes(self._held[owner][1])) for owner in survivors}
        return seeds | {owner: OwnerShare("mask_sk", bytes(self._held[owner][0])) for owner in dropped}

    def wipe(self) -> None:
        """Overwrite everything. May be called again."""
        self.wipe_own()
        for pair in self._held.values():
            wipe(*pair)
        self._held.clear()

    def __repr__(self) -> str:
        return f"NodeKeys({self._node})"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("the secrets of a session do not leave their process")

    def _share_key(self, transcript1: bytes, peer: Advertisement, sender: str, receiver: str) -> bytearray:
        shared = self._share.exchange(peer.share_pk, peer.node)
        try:
            return share_key(shared, transcript1, sender, receiver)
        finally:
            wipe(shared)
