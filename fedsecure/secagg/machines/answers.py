"""What the nodes of one session answered, leg by leg, each answer checked as far as the coordinator can."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from fedsecure.crypto.agreement import check_public
from fedsecure.secagg.cohort.manifest import CohortManifest
from fedsecure.secagg.machines.vectors import Upload
from fedsecure.secagg.protocol.advertised import check_distinct, open_advertisement
from fedsecure.secagg.protocol.codec import fault
from fedsecure.secagg.protocol.messages import (
    CONSISTENCY,
    MASKED_DONE,
    Advertisement,
    OwnerShare,
    SessionConfig,
    open_signed,
    parse_consistency,
    parse_encrypted_shares,
    parse_masked_done,
    parse_unmask_shares,
)
from fedsecure.secagg.protocol.transcript import config_digest, keys_transcript, survivors_transcript, vector_digest
from fedsecure.tensors import Array

__all__ = ["Answers"]


class Answers:
    """The answers and what follows from them: T1, U2, the vectors' digests, T3. Every fault is a ``SecAggError``."""

    def __init__(self, config: SessionConfig, manifest: CohortManifest) -> None:
        self._manifest, self._streams = manifest, len(config.streams)
        self._cohort_digest = config.cohort_digest
        self.config_bytes = config.to_bytes()
        self.config_digest = config_digest(self.config_bytes)
        #: By leg: node -> SHA-256 of its answer.
        self._digests: tuple[dict[str, bytes], ...] = tuple({} for _ in range(5))
        self._signed: dict[str, bytes] = {}
        self._payloads: dict[str, bytes] = {}
        self._confirmed: dict[str, bytes] = {}
        self._sealed: dict[str, dict[str, bytes]] = {}
        #: Node -> keys that it advertised; node -> digest of its complete vectors; holder -> owner -> share.
        self.advertised: dict[str, Advertisement] = {}
        self.vectors: dict[str, bytes] = {}
        self.shares: dict[str, dict[str, OwnerShare]] = {}
        #: U2 in order.
        self.shared: tuple[str, ...] = ()
        self.transcript1 = self.transcript3 = b""

    def of(self, leg: int) -> dict[str, bytes]:
        """Those who answered ``leg`` as they may."""
        return self._digests[leg]

    def repeats(self, node: str, leg: int, data: bytes) -> bool:
        """Whether ``data`` is what ``node`` answered to ``leg`` before."""
        return 0 <= leg < 5 and self._digests[leg].get(node) == hashlib.sha256(data).digest()

    def take(self, node: str, leg: int, data: bytes) -> None:
        """An answer to leg 0, 1, 3 or 4."""
        {0: self._advertise, 1: self._share, 3: self._confirm, 4: self._unmask}[leg](node, data)
        self._digests[leg][node] = hashlib.sha256(data).digest()

    def take_done(self, node: str, data: bytes, upload: Upload | None) -> list[Array]:
        """The end of leg 2; returns the vectors that ``upload`` holds."""
        transcript1, digests = parse_masked_done(self._open(node, MASKED_DONE, data))
        if transcript1 != self.transcript1:
            raise fault("BAD_TRANSCRIPT", f"the masked vectors of {node} are of another session")
        if len(digests) != self._streams:
            raise fault("BAD_VECTOR", f"{node} signed {len(digests)} vectors where {self._streams} are due")
        if upload is None:
            raise fault("BAD_VECTOR", f"{node} ended an upload that it never began")
        vectors = upload.finish(digests)
        self.vectors[node] = vector_digest(digests)
        self._digests[2][node] = hashlib.sha256(data).digest()
        return vectors

    def set_keys(self, nodes: Iterable[str]) -> list[bytes]:
        """U1 is ``nodes``: sets T1, returns what each signed."""
        self.advertised = {node: self.advertised[node] for node in nodes}
        payloads = {node: self._payloads[node] for node in self.advertised}
        self.transcript1 = keys_transcript(self.config_digest, self._cohort_digest, payloads)
        return [self._signed[node] for node in self.advertised]

    def set_shared(self, nodes: Iterable[str]) -> tuple[str, ...]:
        """U2 is ``nodes``."""
        self.shared = tuple(nodes)
        return self.shared

    def sealed_for(self, node: str) -> dict[str, bytes]:
        """What the others of U2 sealed for ``node``, by sender."""
        return {sender: self._sealed[sender][node] for sender in self.shared if sender != node}

    def set_survivors(self) -> dict[str, bytes]:
        """U3 is everybody whose vectors are complete: sets T3, returns the digests of their vectors."""
        self.transcript3 = survivors_transcript(self.transcript1, self.shared, self.vectors)
        return self.vectors

    def confirmations(self, nodes: Iterable[str]) -> list[bytes]:
        """What each of ``nodes`` signed of T3."""
        return [self._confirmed[node] for node in nodes]

    def forget_shares(self) -> None:
        """Let go of every share, sealed or not."""
        self.shares.clear()
        self._sealed.clear()

    def _open(self, node: str, label: str, data: bytes) -> bytes:
        """The payload that ``node`` itself signed."""
        signer, payload = open_signed(data, label, self._manifest)
        if signer != node:
            raise fault("BAD_SIGNATURE", f"{node} sent what {signer} signed")
        return payload

    def _advertise(self, node: str, data: bytes) -> None:
        found, payload = open_advertisement(data, self._manifest, self.config_digest, self._cohort_digest)
        if found.node != node:
            raise fault("BAD_SIGNATURE", f"{node} sent what {found.node} signed")
        for key in (found.share_pk, found.mask_pk):
            check_public(key, node)
        check_distinct((*self.advertised.values(), found))
        self._signed[node], self._payloads[node], self.advertised[node] = data, payload, found

    def _share(self, node: str, data: bytes) -> None:
        transcript1, sealed = parse_encrypted_shares(data)
        if transcript1 != self.transcript1:
            raise fault("BAD_TRANSCRIPT", f"the sealed shares of {node} are of another session")
        if set(sealed) != set(self.advertised) - {node}:
            raise fault("BAD_SHARE", f"the sealed shares of {node} are not for exactly the other nodes")
        self._sealed[node] = sealed

    def _confirm(self, node: str, data: bytes) -> None:
        if parse_consistency(self._open(node, CONSISTENCY, data)) != self.transcript3:
            raise fault("BAD_TRANSCRIPT", f"{node} confirmed another list of survivors")
        self._confirmed[node] = data

    def _unmask(self, node: str, data: bytes) -> None:
        transcript3, items = parse_unmask_shares(data)
        if transcript3 != self.transcript3:
            raise fault("BAD_TRANSCRIPT", f"the unmasking shares of {node} are for another sum")
        if set(items) != set(self.shared):
            raise fault("BAD_SHARE", f"{node} gave shares of other nodes than those that shared")
        for owner, share in items.items():
            if share.kind != ("self_seed" if owner in self.vectors else "mask_sk"):
                raise fault("BAD_SHARE", f"{node} gave the wrong share of {owner}")
        self.shares[node] = items
