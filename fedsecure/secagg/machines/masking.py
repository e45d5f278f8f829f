"""Which masks a node adds, and which the coordinator takes away: every key of a mask is derived here.

Node u of U2 uploads x_u + PRG(b_u) + sum over v of U2 of ± PRG(s_uv), + where u has the smaller id. In the sum over U3
the pair masks of its members cancel. What is left to take away are the self masks of U3, and the pair masks between U3
and those of U2 that are not in it (Bonawitz et al. 2017, section 4).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fedsecure.crypto.keyschedule import StreamId, pair_mask_key, pair_sign, self_mask_key
from fedsecure.crypto.keystream import Mask
from fedsecure.crypto.secretbytes import wipe
from fedsecure.secagg.values.spec import StreamSpec

__all__ = ["masks_of_node", "masks_to_remove", "wipe_masks"]

Secret = bytes | bytearray


def masks_of_node(
    node: str, seed: Secret, shared: Mapping[str, Secret], transcript1: bytes, spec: StreamSpec
) -> list[Mask]:
    """What ``node`` adds to its vector of one stream: its self mask, and one mask for every peer of U2.

    ``seed``: b, 32 bytes. ``shared``: peer -> X25519 of their mask keys. The caller wipes the masks.
    """
    stream = _stream_id(spec)
    masks = [Mask(self_mask_key(seed, transcript1, node, stream))]
    for peer, secret in shared.items():
        key = pair_mask_key(secret, transcript1, node, peer, stream)
        masks.append(Mask(key, subtract=pair_sign(node, peer) < 0))
    return masks


def masks_to_remove(
    seeds: Mapping[str, Secret], shared: Mapping[tuple[str, str], Secret], transcript1: bytes, spec: StreamSpec
) -> list[Mask]:
    """What the coordinator adds to the sum of one stream to lay it bare.

    ``seeds``: b of every node of U3. ``shared``: (survivor, dropped) -> X25519 of their mask keys. The caller wipes
    the masks.
    """
    stream = _stream_id(spec)
    masks = [Mask(self_mask_key(seed, transcript1, owner, stream), subtract=True) for owner, seed in seeds.items()]
    for (survivor, dropped), secret in shared.items():
        key = pair_mask_key(secret, transcript1, survivor, dropped, stream)
        masks.append(Mask(key, subtract=pair_sign(survivor, dropped) > 0))
    return masks


def wipe_masks(masks: Iterable[Mask]) -> None:
    """Overwrite the keys of masks that were made here."""
    for mask in masks:
        if isinstance(mask.key, bytearray):
            wipe(mask.key)


def _stream_id(spec: StreamSpec) -> StreamId:
    return StreamId(spec.name, spec.ring_bits, spec.length)
