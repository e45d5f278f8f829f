"""Fixed point in the rings Z/2^32 and Z/2^64: what a masked sum is made of, and when it is exact.

A value v travels as q = rint(v * 2^f), two's complement in R bits. The product of a float32 and a power of two is exact
in float32 and float64, and rint rounds ties to even (IEEE 754-2019, 5.3.1), so every platform gives the same bits. The
sum S of the q_i of n nodes, read as a signed integer, is their sum in the integers when

    W * B * 2^f + n/2 < 2^(R-1),

where B bounds a value and W is the sum of the nodes' weights (n where nobody has one). Then S/2^f is within
n * 2^-(f+1) of the sum of the v_i. Bounds are compared as fractions: no rounding decides whether a sum may wrap.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from fedsecure.errors import ConfigError, DataError, SecAggError
from fedsecure.tensors import Array

__all__ = [
    "BLOCK",
    "RING_BITS",
    "Weight",
    "check_no_wraparound",
    "dequantise",
    "largest_frac_bits",
    "quantise",
    "ring_dtype",
    "signed",
    "sum_limit",
    "weighted_bound",
]

#: R, the ring sizes there are (bits).
RING_BITS = (32, 64)
#: Values that are converted at once: copies stay in the cache and never grow with the vector.
BLOCK = 2**16
#: A weight or a sum of weights, taken exactly.
Weight = int | float | Fraction

_UNSIGNED: dict[int, np.dtype[Any]] = {32: np.dtype(np.uint32), 64: np.dtype(np.uint64)}
_SIGNED: dict[int, np.dtype[Any]] = {32: np.dtype(np.int32), 64: np.dtype(np.int64)}


def ring_dtype(ring_bits: int) -> np.dtype[Any]:
    """The unsigned integers whose own wraparound is the ring's. Raises ``ConfigError`` for another size than 32, 64."""
    if ring_bits not in _UNSIGNED:
        raise ConfigError(f"ring_bits: {ring_bits} (allowed: 32, 64)")
    return _UNSIGNED[ring_bits]


def _most(frac_bits: int, bound: float, weight: Weight, nodes: int) -> Fraction:
    """W * B * 2^f + n/2: no sum of the quantised values is larger."""
    return Fraction(weight) * Fraction(bound) * (1 << frac_bits) + Fraction(nodes, 2)


def _no_wraparound(ring_bits: int, frac_bits: int, bound: float, weight: Weight, nodes: int) -> bool:
    """Whether that is below 2^(R-1), exactly."""
    return _most(frac_bits, bound, weight, nodes) < 1 << (ring_bits - 1)


def check_no_wraparound(
    ring_bits: int, frac_bits: int, bound: float, weight: Weight, nodes: int, *, name: str = "stream"
) -> None:
    """Raise ``ConfigError`` naming the stream and the largest f unless the sum of ``nodes`` contributions is exact.

    ``bound``: B > 0. ``weight``: W, the sum of all weights. ``frac_bits``: f, 0 to R - 1.
    """
    ring_dtype(ring_bits)
    if not 0 <= frac_bits < ring_bits:
        raise ConfigError(f"{name}: frac_bits {frac_bits} is out of range (allowed: 0..{ring_bits - 1})")
    if not (math.isfinite(bound) and bound > 0):
        raise ConfigError(f"{name}: clip_abs {bound} is not a positive number")
    if nodes < 1 or weight < 0:
        raise ConfigError(f"{name}: {nodes} nodes of total weight {weight} give no sum")
    if not _no_wraparound(ring_bits, frac_bits, bound, weight, nodes):
        raise ConfigError(
            f"{name}: a sum of {nodes} nodes with clip_abs {bound:g} and {frac_bits} fractional bits can wrap around "
            f"in {ring_bits} bits",
            hint=_advice(ring_bits, bound, weight, nodes),
        )


def _advice(ring_bits: int, bound: float, weight: Weight, nodes: int) -> str:
    best = _largest(ring_bits, bound, weight, nodes)
    if best is not None:
        return f"set at most {best} fractional bits"
    return "use the 64-bit ring" if ring_bits == 32 else "lower clip_abs or the largest count"


def _largest(ring_bits: int, bound: float, weight: Weight, nodes: int) -> int | None:
    fitting = (f for f in reversed(range(ring_bits)) if _no_wraparound(ring_bits, f, bound, weight, nodes))
    return next(fitting, None)


def largest_frac_bits(ring_bits: int, bound: float, weight: Weight, nodes: int, *, name: str = "stream") -> int:
    """The largest f that ``check_no_wraparound`` allows. Raises ``ConfigError`` when not even f = 0 fits."""
    check_no_wraparound(ring_bits, 0, bound, weight, nodes, name=name)
    return _largest(ring_bits, bound, weight, nodes) or 0


def sum_limit(frac_bits: int, bound: float, weight: Weight, nodes: int) -> int:
    """The most that |S| can be when every contribution keeps to B: floor(W * B * 2^f + n/2)."""
    return math.floor(_most(frac_bits, bound, weight, nodes))


def weighted_bound(bound: float, weight: Weight) -> float:
    """B * weight, rounded towards zero, so that rounding never adds to what the no-wraparound bound counts."""
    exact = Fraction(bound) * Fraction(weight)
    nearest = float(exact)
    return math.nextafter(nearest, 0.0) if Fraction(nearest) > exact else nearest


def quantise(
    values: Array, out: Array, *, ring_bits: int, frac_bits: int, bound: float, weight: float = 1.0, name: str
) -> int:
    """Write rint(weight * clip(v, -B, B) * 2^f) of every value into ``out``; returns how many were clipped.

    ``values``: floats or integers, any shape. ``out``: the ring's dtype, one-dimensional, as many elements. ``weight``:
    a public weight, 0 to 1; 1 leaves the values as they are. Raises ``DataError`` naming the tensor for NaN or
    infinities (``out`` is then of no use), ``ConfigError`` when a single value may leave the ring.
    """
    check_no_wraparound(ring_bits, frac_bits, bound, 1, 1, name=f"tensor {name}")
    if not 0 <= weight <= 1:
        raise ConfigError(f"tensor {name}: weight {weight} is out of range (allowed: 0..1)")
    if out.shape != (values.size,) or out.dtype != ring_dtype(ring_bits):
        raise ValueError(f"tensor {name}: {values.size} values do not go into {out.dtype}{list(out.shape)}")
    limit, scale = weighted_bound(bound, weight), 2.0**frac_bits
    flat, elements, clipped = values.reshape(-1), signed(out), 0
    narrow = flat.dtype == np.float32 and weight == 1.0  # then every step below is exact in float32 as well
    buffer = np.empty(min(BLOCK, flat.size), np.float32 if narrow else np.float64)
    for start in range(0, flat.size, BLOCK):
        part = flat[start : start + BLOCK]
        block: Array = buffer[: part.size]
        if max(float(part.max()), -float(part.min())) <= bound:  # NaN is never <=
            block[:] = part
        else:
            block = part.astype(np.float64)
            clipped += _clip(block, bound, values, name)
        if weight != 1.0:
            block *= weight
            np.clip(block, -limit, limit, out=block)
        block *= scale
        np.rint(block, out=block)
        elements[start : start + BLOCK] = block  # whole numbers that fit: two's complement
    return clipped


def _clip(block: Array, bound: float, values: Array, name: str) -> int:
    """Clip ``block``, a part of ``values``, in place; returns how many of its values lay outside the bound."""
    if not np.isfinite(block).all():
        bad = values.size - int(np.isfinite(values).sum())
        raise DataError(f"tensor {name}: {bad} of {values.size} values are not finite")
    outside = int(np.count_nonzero(np.abs(block) > bound))
    np.clip(block, -bound, bound, out=block)
    return outside


def signed(total: Array) -> Array:
    """The signed reading of ring elements: the same bits. Raises ``ValueError`` for another dtype."""
    for ring_bits, dtype in _UNSIGNED.items():
        if total.dtype == dtype:
            return total.view(_SIGNED[ring_bits])
    raise ValueError(f"{total.dtype} is no ring of secure aggregation")


def dequantise(total: Array, *, frac_bits: int, limit: int, name: str) -> Array:
    """S / 2^f of every element of an unmasked sum, float64: exact below 2^53, else S rounded once.

    ``limit``: ``sum_limit`` of those who contributed. Raises ``SecAggError`` naming the tensor when an element lies
    beyond it: no contributions that keep to the bound can have given that.
    """
    reading = signed(total)
    if reading.size and max(int(reading.max()), -int(reading.min())) > limit:
        raise SecAggError(
            f"BAD_SUM: tensor {name}: the sum lies outside what its contributors can give",
            hint="a contribution was corrupt or hostile; no part of this sum may be used",
        )
    return reading.astype(np.float64) * 2.0**-frac_bits
