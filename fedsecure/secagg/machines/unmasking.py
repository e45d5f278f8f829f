"""The coordinator's last step: rebuild what the masks of a sum are made of, take them away, and see whether it is one.

Everything rebuilt is overwritten before this returns. No vector of a single node is ever unmasked: the seed of a node
that dropped out is never rebuilt, nor the private mask key of one that did not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fedsecure.crypto.agreement import AgreementKey
from fedsecure.crypto.keystream import Prg, add_masks
from fedsecure.crypto.recovery import recover_secret
from fedsecure.crypto.secretbytes import wipe
from fedsecure.errors import SecAggError
from fedsecure.secagg.cohort.manifest import CohortManifest
from fedsecure.secagg.machines.masking import masks_to_remove, wipe_masks
from fedsecure.secagg.machines.nodekeys import seed_commitment
from fedsecure.secagg.protocol.messages import Advertisement, OwnerShare
from fedsecure.secagg.values.fixedpoint import signed
from fedsecure.secagg.values.noise import NoiseSpec
from fedsecure.secagg.values.spec import StreamSpec
from fedsecure.tensors import Array

__all__ = ["MaskedSum", "check_range", "unmask"]


@dataclass(frozen=True, slots=True)
class MaskedSum:
    """What is known when enough nodes gave shares. ``survivors``: U3; ``dropped``: U2 without U3. ``answers``: holder
    -> owner -> share. ``totals``: the masked sums, stream by stream, which ``unmask`` lays bare in place. ``noises``:
    of the streams that have noise, by name."""

    manifest: CohortManifest
    prg: Prg
    specs: tuple[StreamSpec, ...]
    transcript1: bytes
    advertised: Mapping[str, Advertisement]
    survivors: tuple[str, ...]
    dropped: tuple[str, ...]
    answers: Mapping[str, Mapping[str, OwnerShare]]
    totals: Sequence[Array]
    noises: Mapping[str, NoiseSpec] = field(default_factory=dict)


def unmask(masked: MaskedSum, *, threads: int = 1) -> tuple[str, ...]:
    """Unmask ``masked.totals``, in one pass over each; returns findings in words about shares that did not fit.

    Who is at fault for such a share cannot be told: its holder may have changed it, or its owner dealt it. Raises
    ``SecAggError``: BAD_SHARE or TOO_FEW_SHARES when a secret cannot be rebuilt (the totals are then still masked),
    BAD_SUM as ``check_range``.
    """
    shares = _Shares(masked)
    seeds: dict[str, bytearray] = {}
    shared: dict[tuple[str, str], bytearray] = {}
    try:
        for owner in masked.survivors:
            seeds[owner] = shares.rebuild(owner, _is_seed_of(masked.advertised[owner].seed_commit))
        for owner in masked.dropped:
            shared |= _pair_secrets(masked, owner, shares)
        for spec, total in zip(masked.specs, masked.totals, strict=True):
            masks = masks_to_remove(seeds, shared, masked.transcript1, spec)
            try:
                add_masks(total, masks, masked.prg, threads=threads)
            finally:
                wipe_masks(masks)
    finally:
        wipe(*seeds.values(), *shared.values())
    contributors, nodes = len(masked.survivors), len(masked.manifest.nodes)
    for spec, total in zip(masked.specs, masked.totals, strict=True):
        noise = masked.noises.get(spec.name)
        headroom = noise.headroom(contributors) if noise else 0
        check_range(spec, total, contributors=contributors, nodes=nodes, headroom=headroom)
    return tuple(shares.findings)


def check_range(spec: StreamSpec, total: Array, *, contributors: int, nodes: int, headroom: int = 0) -> None:
    """Raise ``SecAggError`` BAD_SUM naming the stream when an element of ``total`` lies outside what ``contributors``
    of a cohort of ``nodes`` can give, all of whom keep to the stream's bound. ``headroom``: what their noise adds."""
    reading, limit = signed(total), spec.limit(contributors) + headroom
    values, clipped = reading[:-1], int(reading[-1])
    outside = values.size and max(int(values.max()), -int(values.min())) > limit
    if outside or not 0 <= clipped <= contributors * spec.clipped_limit(nodes):
        raise SecAggError(
            f"BAD_SUM: stream {spec.name}: the sum lies outside what its contributors can give",
            hint="a contribution was corrupt or hostile; no part of this sum may be used",
        )


class _Shares:
    """The shares that the holders gave, and what did not fit among them."""

    def __init__(self, masked: MaskedSum) -> None:
        self._masked = masked
        self._holders = {masked.manifest.index(holder): holder for holder in masked.answers}
        #: Holders of a share that did not fit: tried last from then on, so that many wrong shares cost little time.
        self._doubtful: set[int] = set()
        #: In words, of each owner whose shares were looked at.
        self.findings: list[str] = []

    def rebuild(self, owner: str, accept: Callable[[bytearray], bool]) -> bytearray:
        """The secret of ``owner`` that ``accept`` knows; the caller wipes it. Raises as ``unmask``."""
        shares = {index: self._masked.answers[holder][owner].value for index, holder in self._holders.items()}
        sound = {index: share for index, share in shares.items() if index not in self._doubtful}
        threshold = self._masked.manifest.threshold.required
        try:
            found = recover_secret(sound, threshold, owner, accept)
        except SecAggError:
            if not self._doubtful:
                raise
            found = recover_secret(shares, threshold, owner, accept)
        for index in found.inconsistent:
            self._doubtful.add(index)
            holder = self._holders[index]
            self.findings.append(
                f"the share of {owner} held by {holder} does not fit the others: {holder} changed it, "
                f"or {owner} dealt it"
            )
        return found.secret


def _pair_secrets(masked: MaskedSum, dropped: str, shares: _Shares) -> dict[tuple[str, str], bytearray]:
    """(survivor, dropped) -> X25519 of their mask keys, from the private mask key of ``dropped``."""
    secret = shares.rebuild(dropped, _is_key_of(masked.advertised[dropped].mask_pk))
    key = AgreementKey(secret)
    wipe(secret)
    try:
        return {(node, dropped): key.exchange(masked.advertised[node].mask_pk, node) for node in masked.survivors}
    finally:
        key.wipe()


def _is_seed_of(commitment: bytes) -> Callable[[bytearray], bool]:
    return lambda secret: seed_commitment(secret) == commitment


def _is_key_of(public: bytes) -> Callable[[bytearray], bool]:
    def accept(secret: bytearray) -> bool:
        key = AgreementKey(secret)
        key.wipe()
        return key.public == public

    return accept
