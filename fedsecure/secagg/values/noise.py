"""Distributed differential privacy: each node's share of discrete Gaussian noise, added on the ring before the masks.

A record adds to the values of a stream at most a vector of norm C; a node rounds its sum once. So one record more or
less moves the d elements of a ring vector by at most Delta = C 2^f + sqrt(d) (C alone for whole numbers, where nothing
is rounded). What remains of the noise of any sum that can be unmasked, when n_c nodes tell theirs, must have the
variance (sigma Delta)^2: each node adds (sigma Delta)^2 / (t - n_c), for at least t shares are in every sum. With more
colluders than the masks withstand, a vector may lie open with nothing but its own share, which is then all of it: that
is local differential privacy.

The sum of discrete Gaussians is nearly one: Kairouz, Liu and Steinke (ICML 2021, arXiv 2102.06387) bound the logarithm
of the ratio of probabilities of an element by tau = 10 sum_{k<n} exp(-2 pi^2 s^2 k / (k + 1)), s^2 the variance of one
of n shares. For s >= 3, which is required, that is below 1e-36.

What decides is computed with fractions, and rounded so that there is never less noise. Which sums of a plan have any
says ``masked_plan.noised_streams``; where no ``NoiseSpec`` is given not a bit of a session differs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from fedsecure.crypto.discretegaussian import MAX_VARIANCE, discrete_gaussian
from fedsecure.crypto.framing import length_prefixed
from fedsecure.crypto.transcripts import transcript_hash
from fedsecure.errors import ConfigError
from fedsecure.secagg.cohort.threshold import Threshold
from fedsecure.secagg.values.fixedpoint import BLOCK, signed
from fedsecure.secagg.values.streams import MAX_WHOLE, Stream
from fedsecure.tensors import Array

__all__ = ["MIN_STD", "NoiseSpec", "add_noise", "by_stream", "dp_digest", "fit_noise", "kls_gap"]

#: s, the standard deviation of a share in ring units, is at least this: far below, a sum of shares is not Gaussian.
MIN_STD = 3
#: An element of a sum of n shares lies beyond 12 s sqrt(n) with a probability of at most 2 exp(-72) < 2^-102.
DEVIATIONS = 12
#: C and sigma lie between these, and are fractions of integers that are not longer than this (bits).
MIN_CLIP, MAX_CLIP = Fraction(1, 1 << 60), Fraction(1 << 62)
MIN_SIGMA, MAX_SIGMA = Fraction(1, 1 << 20), Fraction(1 << 20)
MAX_FRACTION_BITS = 256
#: A square root is rounded up to a multiple of 2^-32.
ROOT_BITS = 32


@dataclass(frozen=True, slots=True)
class NoiseSpec:
    """The noise of one stream. ``record_clip``: C, the most that the values (without 2^f) of one record, added or
    removed, change the stream's values by in Euclidean norm. ``sigma``: the noise multiplier, of which the guarantee
    follows. ``nodes``: N of the cohort. ``colluders``: n_c, from 0 to N - 1, who may tell their shares.

    C must hold of the numbers that are rounded: a sum in floating point, whose own rounding depends on every record,
    has to be exact to well below 2^-f, or each record be rounded to the grid before. Only the caller can say that the
    stream is linear in records; a sum of models that were trained is not.

    Raises ``ConfigError`` naming the stream: not of the 64-bit ring, a number out of range, s < 3, or a sum that could
    wrap around with its noise (``fit_noise`` makes room).
    """

    stream: Stream
    record_clip: Fraction
    sigma: Fraction
    nodes: int
    colluders: int

    def __post_init__(self) -> None:
        _check_numbers(self)
        if self.variance < MIN_STD**2:
            raise ConfigError(
                f"{self._title}: a share has a standard deviation of {math.sqrt(self.variance):.3g} ring units "
                f"(allowed: >= {MIN_STD})",
                hint="raise sigma, or scale the values so that a record counts for more units",
            )
        if self.variance > MAX_VARIANCE or self.most >= self._room:
            raise ConfigError(
                f"{self._title}: a sum of {self.nodes} nodes with its noise can wrap around",
                hint="use fewer fractional bits (fit_noise finds how many), or a smaller sigma",
            )

    @property
    def _title(self) -> str:
        return f"noise of stream {self.name}"

    @property
    def _is_whole(self) -> bool:
        return all(place.is_integer for place in self.stream.places)

    @property
    def _room(self) -> int:
        """What no element may reach: whole numbers pass through float64."""
        return MAX_WHOLE if self._is_whole else 1 << (self.stream.spec.ring_bits - 1)

    @property
    def name(self) -> str:
        """Of the stream."""
        return self.stream.spec.name

    @property
    def values(self) -> int:
        """d: the stream's elements but the clipped count, which is not told where there is noise."""
        return self.stream.spec.length - 1

    @property
    def sensitivity(self) -> Fraction:
        """Delta: what a record changes the ring vector by at most, in ring units and Euclidean norm, rounded up."""
        clip = self.record_clip * (1 << self.stream.spec.frac_bits)
        return clip if self._is_whole else clip + _root_up(Fraction(self.values))

    @property
    def shares(self) -> int:
        """How many shares of noise no adversary knows in any sum: t - n_c, or 1 where the masks may not hold."""
        threshold = Threshold(self.nodes)
        return threshold.required - self.colluders if self.colluders <= threshold.colluders else 1

    @property
    def variance(self) -> Fraction:
        """s^2 = (sigma Delta)^2 / shares: of what one node adds, in ring units."""
        return self._total_variance / self.shares

    @property
    def _total_variance(self) -> Fraction:
        return (self.sigma * self.sensitivity) ** 2

    def headroom(self, contributors: int) -> int:
        """12 s sqrt(n), rounded up: what the noise of n nodes adds to an element at most, in ring units."""
        return math.ceil(_root_up(DEVIATIONS**2 * contributors * self.variance))

    @property
    def most(self) -> int:
        """The most that an element of a sum can be, noise counted in."""
        return self.stream.spec.limit(self.nodes) + self.headroom(self.nodes)

    @property
    def gap(self) -> float:
        """g = d tau: the noise of a sum has in every point a probability within a factor e^g, or e^-g, of the
        discrete Gaussian's of the same variance. An (eps, delta) of that one becomes (eps + 2g, e^g delta); with eps
        left as it is, delta + (1 + e^eps) (e^g - 1)."""
        return self.values * kls_gap(self.variance, self.nodes)

    def to_bytes(self) -> bytes:
        """What nodes must agree on, in one spelling. The variance is in it, so that versions that would compute
        another do not add up their noise."""
        numbers = (self.record_clip, self.sigma, self.nodes, self.colluders, self.variance)
        return length_prefixed(self.name.encode(), *(str(number).encode() for number in numbers))


def _check_numbers(noise: NoiseSpec) -> None:
    """Raise ``ConfigError`` naming what is out of its range."""
    spec, title = noise.stream.spec, f"noise of stream {noise.stream.spec.name}"
    if spec.ring_bits != 64:
        raise ConfigError(f"{title}: the {spec.ring_bits}-bit ring has no room for noise (allowed: 64)")
    nodes = Threshold(noise.nodes).nodes
    if not 0 <= noise.colluders < nodes:
        raise ConfigError(f"{title}: {noise.colluders} colluders of {nodes} nodes (allowed: 0..{nodes - 1})")
    for field, low, high in (("record_clip", MIN_CLIP, MAX_CLIP), ("sigma", MIN_SIGMA, MAX_SIGMA)):
        number = getattr(noise, field)
        if not isinstance(number, Fraction):
            raise ConfigError(f"{title}: {field} is not a fraction", hint="pass Fraction(…): nothing is rounded unseen")
        if max(number.numerator.bit_length(), number.denominator.bit_length()) > MAX_FRACTION_BITS:
            raise ConfigError(f"{title}: {field} has more than {MAX_FRACTION_BITS} bits")
        if not low <= number <= high:
            raise ConfigError(f"{title}: {field} {float(number):g} (allowed: {float(low):g}..{float(high):g})")


def _root_up(number: Fraction) -> Fraction:
    """The square root, exact or rounded up by at most 2^-32."""
    scaled = math.ceil(number * (1 << 2 * ROOT_BITS))
    return Fraction(math.isqrt(scaled - 1) + 1 if scaled else 0, 1 << ROOT_BITS)


def kls_gap(variance: Fraction, shares: int) -> float:
    """tau of the sum of ``shares`` discrete Gaussians of ``variance`` each (>= 1/4), for one element; rounded up, to
    the smallest float where it is less than that."""
    terms = (math.exp(-2 * math.pi**2 * float(variance) * k / (k + 1)) for k in range(1, shares))
    return math.nextafter(10 * math.fsum(terms) * (1 + 2.0**-32), math.inf) if shares > 1 else 0.0


def fit_noise(stream: Stream, *, record_clip: Fraction, sigma: Fraction, nodes: int, colluders: int) -> NoiseSpec:
    """The noise of ``stream`` with as many of its fractional bits as leave room for it: the session's stream is then
    ``.stream`` of what is returned. Node and coordinator find the same. Raises ``ConfigError`` as ``NoiseSpec``."""
    for frac_bits in range(stream.spec.frac_bits, 0, -1):
        candidate = Stream(replace(stream.spec, frac_bits=frac_bits), stream.places)
        try:
            return NoiseSpec(candidate, record_clip, sigma, nodes, colluders)
        except ConfigError:
            continue
    lowest = Stream(replace(stream.spec, frac_bits=0), stream.places)
    return NoiseSpec(lowest, record_clip, sigma, nodes, colluders)


def by_stream(noises: Iterable[NoiseSpec]) -> dict[str, NoiseSpec]:
    """Stream name -> its noise, ordered. Raises ``ConfigError`` when a stream has two, or cohorts differ."""
    found: dict[str, NoiseSpec] = {}
    for noise in sorted(noises, key=lambda each: each.name):
        if noise.name in found:
            raise ConfigError(f"noise of stream {noise.name} is given twice")
        found[noise.name] = noise
    if len({(noise.nodes, noise.colluders) for noise in found.values()}) > 1:
        raise ConfigError("noise: its streams are for cohorts or colluders of different numbers")
    return found


def dp_digest(noises: Sequence[NoiseSpec]) -> bytes:
    """H("dp", each noise by stream name) for ``SessionConfig.dp_digest``; empty where there is none."""
    found = by_stream(noises)
    return transcript_hash("dp", *(noise.to_bytes() for noise in found.values())) if found else b""


def add_noise(vector: Array, noise: NoiseSpec) -> None:
    """Add one node's share to its ring vector (length,), in place, and set the clipped count at the end to 0: how many
    values were clipped depends on records, too. Raises ``ConfigError`` for a vector that is not the stream's, or that
    is read-only. Twice on one vector is twice the noise: see ``NoisedVectors``, which nothing is added to again."""
    _check_vector(vector, noise)
    elements = signed(vector)
    for start in range(0, noise.values, BLOCK):
        part = elements[start : min(start + BLOCK, noise.values)]
        part += discrete_gaussian(part.size, noise.variance)
    elements[-1] = 0


def _check_vector(vector: Array, noise: NoiseSpec) -> None:
    if vector.dtype.name != "uint64" or vector.shape != (noise.stream.spec.length,) or not vector.flags.writeable:
        raise ConfigError(
            f"noise of stream {noise.name}: a vector of {vector.dtype}{list(vector.shape)} where uint64"
            f"[{noise.stream.spec.length}] is due, to be written to"
        )
