"""Which tensors of a schema's summed half travel in which stream, and how they become one flat vector.

Tensors of one kind and one range make a stream: whole numbers with f = 0, floats with the largest f at which the sum of
the whole cohort cannot wrap. Whatever weights the nodes multiply by shows in the schema: a summed tensor of the role
``records`` or ``class_weight`` that may exceed 1. What that gives today, for 50 nodes:

    FedAvg, FedSPM, FedDRM   n * parameter      |w| <= 1e3, n <= 1e7      64-bit, f = 24
                             mass, posterior    |p| <= 1, n <= 1e7        64-bit, f = 34
                             log_likelihood     |l| <= 1e4, n <= 1e7      64-bit, f = 20
                             records            n <= 1e7                  64-bit, f = 0
    FedAF, holders           mean_logits        |v| <= 20                 64-bit, f = 53
                             soft_labels        r <= 1                    64-bit, f = 57
    FedAF, holders_weighted  both, times n      n <= 1e7                  64-bit, f = 29 and 34

At f = 24 and 50 nodes of 1000 records, rounding moves a mean by at most 50 * 2^-25 / 50000 = 3e-11: a thousandth of
what float32 resolves at 1, and less than the rounding of n * w to float32 itself. Sending n * (w - w_t) with B = 1
would give f = 34, which nothing needs; it would pay only in the 32-bit ring with public weights (half the bytes, f = 30
at B = 1), where numbers of records are no secret.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from fedsecure.crypto.transcripts import transcript_hash
from fedsecure.errors import ConfigError, DataError, SecAggError
from fedsecure.schema import Axis, Schema, TensorSpec
from fedsecure.secagg.values.fixedpoint import dequantise, largest_frac_bits, quantise, ring_dtype, signed
from fedsecure.secagg.values.spec import MAX_COUNT, StreamSpec, Weighting
from fedsecure.tensors import Array, Tensors

__all__ = ["SMALL", "Place", "Stream", "derive_streams", "flatten", "layout_digest", "unflatten"]

#: Floats without weights take the 32-bit ring from this many values on; below, eight bytes a value cost nothing.
SMALL = 2**16
#: Whole numbers are summed exactly below this: float64, which they pass through, has 53 bits.
MAX_WHOLE = 2**53
_INTEGERS = ("int32", "int64")
_FLOATS = ("float32", "float64")


@dataclass(frozen=True, slots=True)
class Place:
    """One tensor of a stream: its elements stand one after the other, in C order."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Its elements."""
        return math.prod(self.shape)

    @property
    def is_integer(self) -> bool:
        """Whether its sum is of whole numbers."""
        return self.dtype in _INTEGERS


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream and the tensors in it, in name order; the clipped count follows the last."""

    spec: StreamSpec
    places: tuple[Place, ...]

    def __post_init__(self) -> None:
        if self.spec.length != sum(place.size for place in self.places) + 1:
            raise ConfigError(f"stream {self.spec.name}: its length is not that of its tensors and the clipped count")
        if self.spec.layout_digest != layout_digest(self.places):
            raise ConfigError(f"stream {self.spec.name}: its layout_digest is not that of its tensors")


def layout_digest(places: Sequence[Place]) -> bytes:
    """H("layout", name, dtype, shape, …), each length of a shape as eight big-endian bytes: equal digests, one way to
    flatten."""
    items: list[bytes] = []
    for place in places:
        shape = b"".join(length.to_bytes(8, "big") for length in place.shape)
        items += [place.name.encode(), place.dtype.encode(), shape]
    return transcript_hash("layout", *items)


def derive_streams(schema: Schema, *, prefix: str, nodes: int) -> tuple[Stream, ...]:
    """The streams of ``schema.summed`` for a cohort of ``nodes``, ordered by name: the same wherever it is derived.

    ``prefix``: method and exchange, as in ``fedspm.update``; a stream is named ``<prefix>.<its first tensor>``. Raises
    ``ConfigError`` naming a tensor that cannot be summed under masks, or a range that no ring holds.
    """
    max_count = _max_count(schema)
    groups: dict[tuple[bool, float], list[TensorSpec]] = {}
    for spec in sorted(schema.summed, key=lambda s: s.name):
        groups.setdefault((spec.dtype in _INTEGERS, _bound(spec)), []).append(spec)
    streams = [
        _stream(f"{prefix}.{specs[0].name}", specs, integer, bound, 1 if integer else max_count, nodes)
        for (integer, bound), specs in groups.items()
    ]
    return tuple(sorted(streams, key=lambda stream: stream.spec.name))


def _max_count(schema: Schema) -> int:
    """The largest number that a node may have multiplied its floats by; 1 when the schema names none."""
    weights = (schema.of_role("summed", "records"), schema.of_role("summed", "class_weight"))
    return max((int(spec.high) for spec in weights if spec is not None), default=1)


def _bound(spec: TensorSpec) -> float:
    """max |value| of a tensor that can be summed. Raises ``ConfigError`` naming it."""
    if spec.dtype not in (*_INTEGERS, *_FLOATS):
        raise ConfigError(f"tensor {spec.name}: {spec.dtype} cannot be summed under masks")
    if any(isinstance(length, Axis) for length in spec.shape):
        raise ConfigError(f"tensor {spec.name}: a shape that nodes choose cannot be summed under masks")
    bound = max(abs(spec.low), abs(spec.high))
    if not (math.isfinite(bound) and bound > 0):
        raise ConfigError(f"tensor {spec.name}: without a finite range it cannot be summed under masks")
    return float(bound)


def _stream(name: str, specs: list[TensorSpec], integer: bool, bound: float, count: int, nodes: int) -> Stream:
    if count > MAX_COUNT:
        raise ConfigError(f"stream {name}: counts of up to {count} (allowed: <= {MAX_COUNT})")
    if integer and bound * nodes >= MAX_WHOLE:
        raise ConfigError(f"stream {name}: whole numbers whose sum may reach 2^53 cannot be summed under masks")
    places = tuple(Place(s.name, s.dtype, tuple(d for d in s.shape if isinstance(d, int))) for s in specs)
    values = sum(place.size for place in places)
    ring_bits = 32 if not integer and count == 1 and values >= SMALL else 64
    weighting = Weighting.COUNTS if count > 1 else Weighting.NONE
    clip_abs = bound / count
    if Fraction(clip_abs) * count < Fraction(bound):  # rounded down: a value at the bound would be clipped
        clip_abs = math.nextafter(clip_abs, math.inf)
    best = largest_frac_bits(ring_bits, clip_abs, nodes * count, nodes, name=f"stream {name}")
    spec = StreamSpec(
        name, values + 1, ring_bits, 0 if integer else best, clip_abs, weighting, count, layout_digest(places)
    )
    return Stream(spec, places)


def flatten(stream: Stream, summed: Mapping[str, Array], *, nodes: int, weight: float = 1.0) -> tuple[Array, int]:
    """This node's vector on the ring (length,), and how many of its values were clipped.

    ``nodes``: the cohort's size, which bounds the clipped count that is written. ``weight``: this node's public weight,
    where the stream has such. Raises ``DataError`` naming a tensor that is missing, of another dtype or shape, or not
    finite.
    """
    spec = stream.spec
    if weight != 1.0 and spec.weighting != Weighting.PUBLIC:
        raise ConfigError(f"stream {spec.name}: weight {weight} where the stream has no public weights")
    vector = np.empty(spec.length, ring_dtype(spec.ring_bits))
    at = clipped = 0
    for place in stream.places:
        array = summed.get(place.name)
        if array is None:
            raise DataError(f"tensor {place.name}: missing from what stream {spec.name} sums")
        if array.dtype.name != place.dtype or array.shape != place.shape:
            found = f"{array.dtype.name}{list(array.shape)}"
            raise DataError(f"tensor {place.name}: {found} where {place.dtype}{list(place.shape)} is due")
        clipped += quantise(
            array,
            vector[at : at + place.size],
            ring_bits=spec.ring_bits,
            frac_bits=spec.frac_bits,
            bound=spec.value_bound,
            weight=weight,
            name=place.name,
        )
        at += place.size
    vector[at] = min(clipped, spec.clipped_limit(nodes))
    return vector, clipped


def unflatten(stream: Stream, total: Array, *, contributors: int, nodes: int, headroom: int = 0) -> tuple[Tensors, int]:
    """The summed tensors (float64, whole numbers int64), and how many values were clipped in all.

    ``total``: the unmasked sum (length,) of ``contributors`` of a cohort of ``nodes``. ``headroom``: what their noise
    may add to an element, in ring units (``NoiseSpec.headroom``). Raises ``SecAggError`` naming the tensor whose sum
    its contributors cannot have given.
    """
    spec = stream.spec
    if total.shape != (spec.length,) or total.dtype != ring_dtype(spec.ring_bits):
        raise SecAggError(
            f"BAD_SUM: stream {spec.name}: a sum of {total.dtype}{list(total.shape)} where {spec.length} are due"
        )
    limit, at = spec.limit(contributors) + headroom, 0
    arrays: dict[str, Array] = {}
    for place in stream.places:
        values = dequantise(
            total[at : at + place.size], frac_bits=spec.frac_bits, limit=limit, name=place.name
        ).reshape(place.shape)
        arrays[place.name] = values.astype(np.int64) if place.is_integer else values
        at += place.size
    clipped = int(signed(total[at:])[0])
    if not 0 <= clipped <= contributors * spec.clipped_limit(nodes):
        raise SecAggError(f"BAD_SUM: stream {spec.name}: {clipped} clipped values: a corrupt or hostile contribution")
    return Tensors(arrays), clipped
