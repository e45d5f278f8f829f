"""Samples of the discrete Gaussian: P(y) proportional to exp(-y^2 / 2 sigma^2) over the integers, exactly.

Canonne, Kamath and Steinke (NeurIPS 2020), algorithm 3: propose from a discrete Laplace distribution, accept with the
probability that is missing. Their scale t is here the power of two nearest to sigma, and the acceptances of u and of y
are one:

    u uniform in {0, 1/t, …, (t-1)/t};  v geometric, P(v) = (1 - 1/e) e^-v;  z = u + v;  y = t z, with a random sign
    accept with probability exp(-g),  g = z^2 / 2r + r/2 - v = (z - r)^2 / 2r + u >= 0,  r = (sigma / t)^2

(y = 0 with a minus is rejected), so that P(y) is proportional to e^-v exp(-g). No floating point takes part. Blocks of
candidates are decided together: exp(-g) is enclosed by two entries of a table, and a uniform number that lies between
them, one in some ten thousand, is decided by ``Uniform`` with as many digits as it takes. How long a call takes depends
on how many candidates were rejected, hardly on what the samples are.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fedsecure.crypto.exponential import Uniform, exp_bounds
from fedsecure.crypto.uniform import random_words

__all__ = ["MAX_VARIANCE", "MIN_VARIANCE", "discrete_gaussian"]

#: The variances that can be sampled. Up to the largest, a sample beyond 2^63 has a probability below 2^-1000.
MIN_VARIANCE, MAX_VARIANCE = Fraction(1, 16), Fraction(2**115)
#: Candidates that are decided together.
BLOCK = 1 << 14
#: z, r and g are enclosed to 2^-24.
FRACTION = 24
#: The table holds exp(-i / 2^12) for i up to 8 * 2^12, in units of 2^-63.
STEP, LAST = 12, 8 << 12
EXP_BITS = 63
#: Values of v that are told from one word; the rest, one in ten million, is left to ``Uniform``.
SHELLS = 16

Words = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def discrete_gaussian(count: int, variance: Fraction) -> Integers:
    """``count`` independent samples of variance parameter ``variance`` (sigma^2), int64 (count,).

    The randomness is that of AES-256-CTR under keys of the operating system's generator; there is no seed. Raises
    ``ValueError`` for a variance outside ``MIN_VARIANCE`` to ``MAX_VARIANCE``.
    """
    scale = _Scale.of(variance)
    samples = np.empty(count, np.int64)
    filled = 0
    while filled < count:
        candidates = min(BLOCK, 3 * (count - filled) + 16)
        words = random_words(3 * candidates).reshape(3, candidates)
        values, accepted, undecided = _decide(words, scale)
        for index in np.flatnonzero(undecided):
            value = _settle(words[:, index], scale)
            if value is not None:
                values[index], accepted[index] = value, True
        kept = values[accepted][: count - filled]
        samples[filled : filled + kept.size] = kept
        filled += kept.size
    return samples


@dataclass(frozen=True, slots=True)
class _Scale:
    """``shift``: t = 2^shift. ``ratio``: r, from 1/2 (for shift 0, ``MIN_VARIANCE``) to 2. ``factor``: bounds of
    1 / 2r, ``offset``: of r / 2, both in units of 2^-24."""

    shift: int
    ratio: Fraction
    factor: tuple[int, int]
    offset: tuple[int, int]

    @classmethod
    def of(cls, variance: Fraction) -> _Scale:
        """The smallest t with r <= 2. Raises ``ValueError`` for a variance out of range."""
        if not MIN_VARIANCE <= variance <= MAX_VARIANCE:
            raise ValueError("a discrete Gaussian of this variance cannot be sampled (allowed: 2^-4 to 2^115)")
        shift = 0
        while variance > 2 << 2 * shift:
            shift += 1
        ratio = variance * Fraction(1, 1 << 2 * shift)
        return cls(shift, ratio, _around(Fraction(1, 2 * ratio)), _around(Fraction(ratio, 2)))


def _around(number: Fraction) -> tuple[int, int]:
    """Bounds of ``number`` in units of 2^-24."""
    below = (number.numerator << FRACTION) // number.denominator
    return below, below + 1


@lru_cache(maxsize=1)
def _shells() -> tuple[Words, Words]:
    """Bounds of 2^64 e^-j: the lower ones for j = 16 to 1, ascending; the upper ones for j = 1 to 16, then no bound."""
    bounds = [exp_bounds(Fraction(j), 64) for j in range(1, SHELLS + 1)]
    lower = np.array([low for low, _ in reversed(bounds)], np.uint64)
    return lower, np.array([*(high for _, high in bounds), 2**64 - 1], np.uint64)


@lru_cache(maxsize=1)
def _exponentials() -> tuple[Words, Words]:
    """Bounds of 2^63 exp(-i / 2^12), i = 0 to ``LAST``; after the last lower one, 0 stands for all that is beyond."""
    width = 2 * EXP_BITS
    step_low, step_high = exp_bounds(Fraction(1, 1 << STEP), width)
    low = high = 1 << width
    lower, upper = [low >> EXP_BITS], [high >> EXP_BITS]
    for _ in range(LAST):
        low, high = low * step_low >> width, (high * step_high >> width) + 1
        lower.append(low >> EXP_BITS)
        upper.append((high >> EXP_BITS) + 1)
    return np.array([*lower, 0], np.uint64), np.array(upper, np.uint64)


def _decide(words: Words, scale: _Scale) -> tuple[Integers, Flags, Flags]:
    """Of each candidate (n,): its value, whether it is accepted, and whether these words do not tell.

    ``words`` (3, n): of the first, the highest bits are u and the lowest the sign; the second decides v, the third
    whether to accept.
    """
    lower, upper = _shells()
    v = SHELLS - np.searchsorted(lower, words[1], side="right")
    undecided = words[1] < upper[v]
    least, most = _exponents(words[0], v, scale)
    exp_lower, exp_upper = _exponentials()
    uniform = words[2] >> np.uint64(64 - EXP_BITS)
    accepted = uniform < exp_lower[np.clip((most >> (FRACTION - STEP)) + 1, 0, LAST + 1)]
    undecided |= ~accepted & (uniform < exp_upper[np.clip(least >> (FRACTION - STEP), 0, LAST)])
    values = (v << scale.shift) + _steps(words[0], scale.shift)
    negative = (words[0] & np.uint64(1)).astype(np.bool_)
    accepted &= ~undecided & ~(negative & (values == 0))
    return np.where(negative, -values, values), accepted, undecided


def _steps(word: Words, bits: int) -> Integers:
    """t u: the highest ``bits`` (0 to 57) of each word."""
    return (word >> np.uint64(1) >> np.uint64(63 - bits)).astype(np.int64)


def _exponents(word: Words, v: Integers, scale: _Scale) -> tuple[Integers, Integers]:
    """Bounds of g in units of 2^-24. With v < 16, z^2 stays below 2^32 of them and 1 / 2r below 2^28: no overflow."""
    known = min(scale.shift, FRACTION)
    z = (v << FRACTION) + (_steps(word, known) << (FRACTION - known))
    shift, (factor_low, factor_high), (low, high) = v << FRACTION, scale.factor, scale.offset
    least = ((z * z >> FRACTION) * factor_low >> FRACTION) + low - shift
    z += 1
    most = (((z * z >> FRACTION) + 1) * factor_high >> FRACTION) + 1 + high - shift
    return least, most


def _settle(words: Words, scale: _Scale) -> int | None:
    """The value of one candidate from its three words (3,) and as many more digits as it takes; None: rejected."""
    position, shell, uniform = (int(word) for word in words)
    u = Fraction(position >> (64 - scale.shift), 1 << scale.shift)
    geometric, v = Uniform(shell, 64), 0
    while geometric.is_below_exp(Fraction(v + 1)):
        v += 1
    exponent = Fraction((u + v - scale.ratio) ** 2, 2 * scale.ratio) + u
    accepted = Uniform(uniform >> (64 - EXP_BITS), EXP_BITS).is_below_exp(exponent)
    value, negative = int((u + v) * (1 << scale.shift)), position & 1
    if not accepted or (negative and value == 0):
        return None
    return -value if negative else value
