"""Records that stick out under a model: the first guard against models that are built to single somebody out.

A class mean over n records tells whether one of them is in it by about z / sqrt(n), with z how far its output lies from
the others' in their own standard deviations (audit page, F1 and A7). An honest model puts nobody far out; a crafted one
puts one person out and everybody else in one place. Here the spread is robust, so that the one does not hide behind the
spread that it makes.

No guarantee follows: a model can be crafted under which a person sticks out in no single output. Noise is a guarantee.
Units, as against outputs, tell nothing: under honest networks, too, there are units that one record alone turns on.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["LEAST_OF_A_CLASS", "spreads"]

Floats = npt.NDArray[np.float64]
#: Standard deviations of a normal distribution in its median absolute deviation, and in its nine-tenths one.
_MAD, _NINE_TENTHS = 1.4826, 1.0 / 1.6449
#: Of fewer records nobody can say who sticks out.
LEAST_OF_A_CLASS = 8
#: Most outputs whose differences in pairs are looked at, too.
MOST_IN_PAIRS = 32
#: Values that are compared at a time.
_AT_ONCE = 1 << 21
#: What float32 arithmetic makes of equal records, relative to the outputs' size.
_ROUNDING = 1e-5


def spreads(outputs: npt.NDArray[np.float32], y: npt.NDArray[np.int64]) -> Floats:
    """How far each record sticks out of its class: (n,), in robust standard deviations; 0 in a class of fewer than
    ``LEAST_OF_A_CLASS``. The largest over outputs (n, k), and over differences of two outputs, in which one that is
    like the rest in each would stick out; ``inf`` where all others agree and it does not."""
    found = np.zeros(len(y))
    for c in np.unique(y).tolist():
        here = np.flatnonzero(y == c)
        if len(here) >= LEAST_OF_A_CLASS:
            found[here] = _most(outputs[here].astype(np.float64))
    return found


def _most(rows: Floats) -> Floats:
    """(n,): the largest over columns of ``rows`` (n, k) and differences of two of them."""
    left, right = np.triu_indices(rows.shape[1] if rows.shape[1] <= MOST_IN_PAIRS else 0, 1)  # (p,)
    rounding = _ROUNDING * np.abs(rows).max(axis=0)  # (k,)
    most = _deviations(rows, rounding)
    at_once = max(1, _AT_ONCE // len(rows))
    for start in range(0, len(left), at_once):
        pairs = slice(start, start + at_once)
        one, other = left[pairs], right[pairs]
        most = np.maximum(most, _deviations(rows[:, one] - rows[:, other], np.maximum(rounding[one], rounding[other])))
    return most


def _deviations(rows: Floats, rounding: Floats) -> Floats:
    """The largest over columns of |value - median| / spread, (n,). The spread is the larger of what the median and the
    nine-tenths absolute deviation make of it: values that repeat have no median deviation. Less than ``rounding`` (k,)
    is no difference."""
    away = np.abs(rows - np.median(rows, axis=0))  # (n, k)
    middle, ninth = (len(rows) - 1) // 2, int(0.9 * (len(rows) - 1))
    ranked = np.partition(away, (middle, ninth), axis=0)
    spread = np.maximum(ranked[middle] * _MAD, ranked[ninth] * _NINE_TENTHS)  # (k,)
    differs, has_spread = away > rounding, spread > rounding
    out = np.divide(away, spread, out=np.full_like(away, np.inf), where=has_spread)
    return np.asarray(np.where(differs, out, 0.0).max(axis=1))
