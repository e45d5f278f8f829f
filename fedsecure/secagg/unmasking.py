"""The coordinator's last step: rebuild what the masks of a sum are made of, take them away, and see whether it is one.

Everything rebuilt is overwritten before this returns. No vector of a single node is ever unmasked: the seed of a node
that dropped out is never rebuilt, nor the private mask key of one that did not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fedsecure.crypto.agreement import AgreementKey
from fedsecure.crypto.keystream import Prg, add_masks
from fedsecure.crypto.recovery import recover_secret
from fedsecure.crypto.secretbytes import wipe
from fedsecure.errors import SecAggError
from fedsecure.secagg.fixedpoint import signed
from fedsecure.secagg.manifest import CohortManifest
from fedsecure.secagg.masking import masks_to_remove, wipe_masks
from fedsecure.secagg.messages import Advertisement, OwnerShare
from fedsecure.secagg.nodekeys import seed_commitment
from fedsecure.secagg.spec import StreamSpec
from fedsecure.tensors import Array

__all__ = ["MaskedSum", "check_range", "unmask"]


@dataclass(frozen=True, slots=True)
class MaskedSum:
    """What is known when enough nodes gave shares. ``survivors``: U3; ``dropped``: U2 without U3. ``answers``: holder
    -> owner -> share. ``totals``: the masked sums, stream by stream, which ``unmask`` lays bare in place."""

    manifest: CohortManifest
    prg: Prg
    specs: tuple[StreamSpec, ...]
    transcript1: bytes
    advertised: Mapping[str, Advertisement]
    survivors: tuple[str, ...]
    dropped: tuple[str, ...]
    answers: Mapping[str, Mapping[str, OwnerShare]]
    totals: Sequence[Array]


def unmask(masked: MaskedSum, *, threads: int = 1) -> tuple[str, ...]:
    """Unmask ``masked.totals``, in one pass over each; returns findings in words about shares that did not fit.

    Who is at fault for such a share cannot be told: its holder may have changed it, or its owner dealt it. Raises
    ``SecAggError``: BAD_SHARE or TOO_FEW_SHARES when a secret cannot be rebuilt (the totals are then still masked),
    BAD_SUM as ``check_range``.
    """
    findings: list[str] = []
    seeds: dict[str, bytearray] = {}
    shared: dict[tuple[str, str], bytearray] = {}
    try:
        for owner in masked.survivors:
            commitment = masked.advertised[owner].seed_commit
            seeds[owner] = _rebuild(masked, owner, _is_seed_of(commitment), findings)
        for owner in masked.dropped:
            shared |= _pair_secrets(masked, owner, findings)
        for spec, total in zip(masked.specs, masked.totals, strict=True):
            masks = masks_to_remove(seeds, shared, masked.transcript1, spec)
            try:
                add_masks(total, masks, masked.prg, threads=threads)
            finally:
                wipe_masks(masks)
    finally:
        wipe(*seeds.values(), *shared.values())
    for spec, total in zip(masked.specs, masked.totals, strict=True):
        check_range(spec, total, contributors=len(masked.survivors), nodes=len(masked.manifest.nodes))
    return tuple(findings)


def check_range(spec: StreamSpec, total: Array, *, contributors: int, nodes: int) -> None:
    """Raise ``SecAggError`` BAD_SUM naming the stream when an element of ``total`` lies outside what ``contributors``
    of a cohort of ``nodes`` can give, all of whom keep to the stream's bound."""
    reading, limit = signed(total), spec.limit(contributors)
    values, clipped = reading[:-1], int(reading[-1])
    outside = values.size and max(int(values.max()), -int(values.min())) > limit
    if outside or not 0 <= clipped <= contributors * spec.clipped_limit(nodes):
        raise SecAggError(
            f"BAD_SUM: stream {spec.name}: the sum lies outside what its contributors can give",
            hint="a contribution was corrupt or hostile; no part of this sum may be used",
        )


def _pair_secrets(masked: MaskedSum, dropped: str, findings: list[str]) -> dict[tuple[str, str], bytearray]:
    """(survivor, dropped) -> X25519 of their mask keys, from the private mask key of ``dropped``."""
    secret = _rebuild(masked, dropped, _is_key_of(masked.advertised[dropped].mask_pk), findings)
    key = AgreementKey(secret)
    wipe(secret)
    try:
        return {(node, dropped): key.exchange(masked.advertised[node].mask_pk, node) for node in masked.survivors}
    finally:
        key.wipe()


def _rebuild(masked: MaskedSum, owner: str, accept: Callable[[bytearray], bool], findings: list[str]) -> bytearray:
    """The secret of ``owner`` that ``accept`` knows, from what the holders gave; shares that do not fit are noted."""
    manifest = masked.manifest
    holders = {manifest.index(holder): holder for holder in masked.answers}
    shares = {index: masked.answers[holder][owner].value for index, holder in holders.items()}
    found = recover_secret(shares, manifest.threshold.required, owner, accept)
    findings.extend(
        f"the share of {owner} held by {holders[index]} does not fit the others: "
        f"{holders[index]} changed it, or {owner} dealt it"
        for index in found.inconsistent
    )
    return found.secret


def _is_seed_of(commitment: bytes) -> Callable[[bytearray], bool]:
    return lambda secret: seed_commitment(secret) == commitment


def _is_key_of(public: bytes) -> Callable[[bytearray], bool]:
    def accept(secret: bytearray) -> bool:
        key = AgreementKey(secret)
        key.wipe()
        return key.public == public

    return accept
