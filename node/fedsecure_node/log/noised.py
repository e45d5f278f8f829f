"""A contribution whose summed half has this node's share of noise on it, from before it is stored.

What is kept, logged and masked is its ring vectors with noise. No copy without noise is on the disk, and none is needed
again: a session, its repetition and the preview read the same bytes.
"""

from __future__ import annotations

import numpy as np

from fedsecure.errors import DataError, SecAggError
from fedsecure.schema import Schema
from fedsecure.secagg.values.fixedpoint import signed
from fedsecure.secagg.values.noised import NoisedVectors
from fedsecure.secagg.values.streams import flatten, unflatten
from fedsecure.tensors import Array, Tensors
from fedsecure.wire.codec import Payload
from fedsecure_node.keys import ExchangeKey
from fedsecure_node.log.masks import MaskedSum

__all__ = ["as_told", "by_stream", "with_noise"]


def with_noise(payload: Payload, masks: MaskedSum | None, key: ExchangeKey) -> Payload:
    """``payload`` as it is to be stored: with noise drawn once on what ``masks`` says has some, or as it is where they
    say none. To be called once for what was computed. Raises ``ConfigError``, ``DataError`` naming a tensor."""
    if masks is None or not masks.noises:
        return payload
    summed = Tensors.from_bytes(payload.summed)
    vectors = {stream.spec.name: flatten(stream, summed, nodes=masks.nodes)[0] for stream in masks.streams}
    noised = NoisedVectors.draw(
        vectors, masks.streams, masks.noises, experiment=key.plan, purpose=key.exchange, round_=key.round
    )
    return Payload(noised.to_bytes(), payload.released)


def as_told(payload: Payload, masks: MaskedSum | None, schema: Schema) -> Payload:
    """A stored ``payload`` with tensors in place of vectors, for checks and people: each as the ring says, with its
    noise, moved into the range that ``schema`` allows. It is never sent. Raises ``SecAggError`` BAD_VECTOR or BAD_SUM
    for vectors that no contribution gives, ``DataError`` when they are not those of the streams."""
    if masks is None or not masks.noises:
        return payload
    noised = NoisedVectors.from_bytes(payload.summed)
    if set(noised) != {stream.spec.name for stream in masks.streams} or noised.dp_digest != masks.dp_digest:
        raise DataError("the stored vectors are not those of the streams and the noise that are due")
    headroom = {noise.name: noise.headroom(1) for noise in masks.noises}
    found: dict[str, Array] = {}
    for stream in masks.streams:
        name = stream.spec.name
        room = headroom.get(name, 0)
        tensors, _ = unflatten(stream, noised[name], contributors=1, nodes=masks.nodes, headroom=room)
        found.update(tensors)
    tensors_ = {s.name: found[s.name].clip(s.low, s.high).astype(s.dtype) for s in schema.summed}
    return Payload(Tensors(tensors_).to_bytes(), payload.released)


def by_stream(summed: bytes, frac_bits: dict[str, int]) -> Tensors:
    """The vectors in a stored summed half as flat float64 arrays by stream, without the clipped count: a log record
    names streams, and no tensors in them. ``frac_bits`` of each. Raises ``SecAggError`` for damaged ones."""
    noised = NoisedVectors.from_bytes(summed)
    try:
        return Tensors(
            {name: np.ldexp(signed(v[:-1]).astype(np.float64), -frac_bits[name]) for name, v in noised.items()}
        )
    except KeyError:
        raise SecAggError("BAD_VECTOR: stored vectors with noise are of other streams than the log names") from None
