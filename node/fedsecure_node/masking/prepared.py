"""A stored contribution as the vectors of a session: read back from the disk, compared with the log, quantised."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from fedsecure.errors import SecAggError
from fedsecure.secagg.values.noised import NoisedVectors
from fedsecure.secagg.values.streams import flatten
from fedsecure.tensors import Array, Tensors
from fedsecure.wire.codec import Payload
from fedsecure_node.log.masks import MaskedSum
from fedsecure_node.log.releases import Release

__all__ = ["prepare"]


def prepare(payload: Payload, masks: MaskedSum, release: Release) -> Mapping[str, Array]:
    """Stream name -> this node's vector on the ring (length,), without masks. ``payload``: both halves, as stored:
    where noise is due, its summed half is the vectors with it, and no more is added here.

    Raises ``SecAggError`` BAD_VECTOR when the summed half is not the one in the log, BAD_COHORT when the log names
    another cohort, ``DataError`` naming a tensor that does not fit its stream.
    """
    noted = release.body["secagg"]
    if noted["cohort"]["digest"] != masks.cohort:
        raise SecAggError(
            f"BAD_COHORT: release {release.number} is for version {noted['cohort']['version']} of the cohort, pinned "
            f"is version {masks.manifest.version}",
            hint="a manifest that is replaced counts from the next exchange on",
        )
    if hashlib.sha256(payload.summed).hexdigest() != noted["summed"]["sha256"]:
        raise SecAggError(f"BAD_VECTOR: release {release.number}: its summed half is not the one in the log")
    if masks.noises:
        return NoisedVectors.from_bytes(payload.summed)
    summed = Tensors.from_bytes(payload.summed)
    return {stream.spec.name: flatten(stream, summed, nodes=masks.nodes)[0] for stream in masks.streams}
