"""Whether a uniform number lies below exp(-g) for a rational g, decided in integers alone.

The number is drawn digit by digit: its first binary digits leave it in a short interval, exp(-g) lies between two
integers times 2^-b, and where the two intervals overlap more digits are drawn and b grows. exp(-g) is irrational for
every rational g > 0, so this ends with probability 1, and what is decided is exact: an event of probability exp(-g),
neither more nor less.
"""

from __future__ import annotations

import secrets
from fractions import Fraction

__all__ = ["Uniform", "exp_bounds"]

#: Binary digits that are drawn at a time.
DIGITS = 64
#: Binary digits beyond those asked for that ``exp_bounds`` computes with: they decide how narrow its bounds are, never
#: whether they are true.
GUARD = 24


def exp_bounds(exponent: Fraction, bits: int) -> tuple[int, int]:
    """Integers (low, high) with low <= 2^bits exp(-exponent) <= high, mostly two neighbours. ``exponent`` >= 0.

    The exponent is halved until it is at most 1/2, Taylor's series is summed there, and the result squared as often.
    """
    halvings = (exponent.numerator // exponent.denominator).bit_length() + 1
    width = bits + halvings + GUARD
    low, high = _series((exponent.numerator << width) // (exponent.denominator << halvings), width)
    for _ in range(halvings):
        low, high = low * low >> width, (high * high >> width) + 1
    return low >> (width - bits), (high >> (width - bits)) + 1


def _series(x: int, width: int) -> tuple[int, int]:
    """Bounds of 2^width exp(-y) for every y with x <= 2^width y <= x + 1, where x <= 2^(width - 1).

    Each term is computed from the one before with two roundings down and y replaced by x: it falls short by e_n <=
    e_(n-1) / 2 + 3 <= 6 units. So do the terms left out, which alternate in sign and shrink: 6 more.
    """
    term = total = 1 << width
    count = 0
    while term:
        count += 1
        term = (term * x >> width) // count
        total += -term if count % 2 else term
    slack = 6 * (count + 2)
    return max(total - slack, 0), total + slack


class Uniform:
    """A number that is uniform in [0, 1), known as far as it was needed: to its first ``bits`` binary digits, the
    integer ``digits``, which were drawn uniformly. Further ones come from the operating system's generator."""

    __slots__ = ("_bits", "_digits")

    def __init__(self, digits: int, bits: int) -> None:
        self._digits, self._bits = digits, bits

    def is_below_exp(self, exponent: Fraction) -> bool:
        """Whether it lies below exp(-exponent), ``exponent`` >= 0; the answers for several exponents agree."""
        if not exponent:
            return True
        while True:
            low, high = exp_bounds(exponent, self._bits)
            if self._digits < low:  # the number is below (digits + 1) / 2^bits
                return True
            if self._digits >= high:
                return False
            self._digits = self._digits << DIGITS | secrets.randbits(DIGITS)
            self._bits += DIGITS

    def __repr__(self) -> str:
        return f"Uniform({self._bits} bits)"
