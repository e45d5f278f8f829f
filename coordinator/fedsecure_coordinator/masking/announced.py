"""From an unmasked sum to what is kept of it, and to what nodes are told of it with their next exchange."""

from __future__ import annotations

from collections.abc import Sequence

from fedsecure.secagg.machines.coordinator import Sums
from fedsecure.secagg.protocol.results import SessionResult
from fedsecure.secagg.values.noise import NoiseSpec
from fedsecure.secagg.values.streams import Stream, unflatten
from fedsecure.tensors import Array, Tensors
from fedsecure_coordinator.store.sums import MaskedSum

__all__ = ["announcement", "summed_tensors"]


def summed_tensors(
    sums: Sums, streams: Sequence[Stream], nodes: int, noises: Sequence[NoiseSpec] = ()
) -> tuple[Tensors, int]:
    """The sum as the method named its tensors, as ``sum_contributions`` gives it, and how many values were clipped.

    ``nodes``: the cohort's size. ``noises``: of those nodes, by which the sum may be larger. Raises ``SecAggError``
    BAD_SUM for a sum that its contributors cannot have given.
    """
    arrays: dict[str, Array] = {}
    clipped, many = 0, len(sums.survivors)
    headroom = {noise.name: noise.headroom(many) for noise in noises}
    for stream in streams:
        name = stream.spec.name
        room = headroom.get(name, 0)
        tensors, more = unflatten(stream, sums.vectors[name], contributors=many, nodes=nodes, headroom=room)
        arrays.update(tensors)
        clipped += more
    return Tensors(arrays), clipped


def announcement(last: MaskedSum | None, broadcast: str) -> bytes:
    """``Result`` of a run's last sum, with the broadcast (hex digest) that followed; empty when there was no sum."""
    if last is None:
        return b""
    digests = tuple(bytes.fromhex(digest) for digest in last.sum_digests)
    result = SessionResult(
        bytes.fromhex(last.transcript),
        digests,
        last.survivors,
        bytes.fromhex(broadcast),
        round=last.round,
        purpose=last.exchange,
    )
    return result.to_bytes()
