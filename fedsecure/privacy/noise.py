"""Where noise and samples come from: the three sources that a plan may name (``NoiseKind``).

``csprng``   Gaussian by Box and Muller in double precision, from AES-256-CTR under keys of the operating system. The
             sum is rounded to the tensor's own precision, whose last bits depend on the sum: fit for models that are
             trained on, less for single numbers (Mironov 2012; Jin et al. 2022).
``discrete`` The sum leaves floating point before there is noise: it is rounded to the grid of 2^-20 of the sensitivity,
             discrete Gaussian noise is added as whole numbers (Canonne, Kamath and Steinke 2020), and what is given out
             are points of the grid. Rounding moves each coordinate by half a grid step, so a record counts for
             1 + sqrt(d) 2^-20 of the sensitivity, and there is that much more noise.
``torch``    PyTorch's generator. Whoever knows its seed, or 624 of its words, repeats the noise: no guarantee.

The first two accept no seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import torch

from fedsecure.crypto.discretegaussian import MAX_VARIANCE, MIN_VARIANCE, discrete_gaussian
from fedsecure.crypto.uniform import random_words
from fedsecure.errors import ConfigError
from fedsecure.plan.privacy import NoiseKind
from fedsecure.privacy.context import NoiseSource

__all__ = ["FRACTION_BITS", "CsprngNoise", "DiscreteNoise", "TorchNoise", "noise_source"]

#: ``discrete``: the grid is 2^-20 of the sensitivity.
FRACTION_BITS = 20
#: No point of the grid lies beyond this: the sum of so many records at their clip is none that a node has.
MAX_POINT = 1 << 53
#: Coordinates that get noise at a time, so that their words stay in the processor's cache.
BLOCK = 1 << 15

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


def noise_source(kind: NoiseKind, seed: int | None = None) -> NoiseSource:
    """The source that a plan names. ``seed``: for ``torch`` alone; without it, PyTorch's global generator as whoever
    seeded it left it. Raises ``ConfigError`` for a seed where none may be."""
    if kind == "torch":
        return TorchNoise(None if seed is None else torch.Generator().manual_seed(seed))
    if seed is not None:
        raise ConfigError(f"noise {kind!r} accepts no seed: noise that can be repeated hides nothing")
    return CsprngNoise() if kind == "csprng" else DiscreteNoise()


class _SystemNoise:
    """Poisson samples and noisy counts from the operating system's generator."""

    def sample(self, records: int, q: float) -> Integers:
        """A 64-bit word for each record, which is in where its word lies below floor(q 2^64)."""
        below = _sampling_bound(q)
        if below >> 64:
            return np.arange(records, dtype=np.int64)
        return np.flatnonzero(random_words(records) < np.uint64(below)).astype(np.int64, copy=False)

    def count(self, counts: Integers, *, sigma: float) -> Integers:
        """``counts`` plus discrete Gaussian noise."""
        return counts + discrete_gaussian(counts.size, _variance(sigma, 1)).reshape(counts.shape)


class CsprngNoise(_SystemNoise):
    """See ``csprng`` above."""

    def add(self, sums: Sequence[torch.Tensor], *, sensitivity: float, sigma: float) -> list[torch.Tensor]:
        """See ``NoiseSource.add``."""
        std = sigma * sensitivity
        found = []
        for each in sums:
            flat = _doubles(each)
            for start in range(0, flat.size, BLOCK):
                part = flat[start : start + BLOCK]
                part += std * gaussian(part.size)
            found.append(_like(flat, each))
        return found


class DiscreteNoise(_SystemNoise):
    """See ``discrete`` above."""

    def add(self, sums: Sequence[torch.Tensor], *, sensitivity: float, sigma: float) -> list[torch.Tensor]:
        """See ``NoiseSource.add``. Raises ``ConfigError`` for a sigma so small that the noise is below the grid."""
        grid = sensitivity * 2.0**-FRACTION_BITS
        steps = Fraction(1 << FRACTION_BITS) + _root_above(sum(each.numel() for each in sums))
        variance = _variance(sigma, steps)
        found = []
        for each in sums:
            points = _points(_doubles(each), grid)
            for start in range(0, points.size, BLOCK):
                part = points[start : start + BLOCK]
                part += discrete_gaussian(part.size, variance)
            found.append(_like(points.astype(np.float64) * grid, each))
        return found


class TorchNoise:
    """See ``torch`` above. ``generator``: on the CPU; ``None`` for the global one."""

    def __init__(self, generator: torch.Generator | None = None) -> None:
        self._generator = generator

    def add(self, sums: Sequence[torch.Tensor], *, sensitivity: float, sigma: float) -> list[torch.Tensor]:
        """See ``NoiseSource.add``."""
        std = sigma * sensitivity
        return [each + (std * self._normal(each.numel())).reshape(each.shape).to(each) for each in sums]

    def sample(self, records: int, q: float) -> Integers:
        """See ``NoiseSource.sample``."""
        drawn = torch.rand(records, generator=self._generator, dtype=torch.float64)
        return np.asarray((drawn < q).nonzero()[:, 0].numpy())

    def count(self, counts: Integers, *, sigma: float) -> Integers:
        """``counts`` plus rounded Gaussian noise."""
        return counts + np.rint(sigma * self._normal(counts.size).numpy()).astype(np.int64).reshape(counts.shape)

    def _normal(self, count: int) -> torch.Tensor:
        return torch.normal(0.0, 1.0, (count,), generator=self._generator, dtype=torch.float64)


def gaussian(count: int) -> Floats:
    """``count`` independent samples of N(0, 1), float64 (count,), by Box and Muller (1958): sqrt(-2 ln u) cos, sin of
    2 pi v, with u in (0, 1] in steps of 2^-64 where it is smallest, so that samples reach to 9.4."""
    half = (count + 1) // 2
    words = random_words(2 * half)
    radius = np.sqrt(-2.0 * np.log((words[:half].astype(np.float64) + 1.0) * 2.0**-64))
    angle = words[half:].astype(np.float64) * (2.0 * math.pi * 2.0**-64)
    return np.concatenate((radius * np.cos(angle), radius * np.sin(angle)))[:count]


def _sampling_bound(q: float) -> int:
    """floor(q 2^64), at most 2^64."""
    if not 0 < q <= 1:
        raise ValueError(f"a sampling rate of {q} (allowed: above 0, at most 1)")
    return math.floor(Fraction(q) * (1 << 64))


def _variance(sigma: float, steps: int | Fraction) -> Fraction:
    """(sigma * steps)^2, which the discrete Gaussian can have. Raises ``ConfigError`` else."""
    variance = (Fraction(sigma) * steps) ** 2
    if not MIN_VARIANCE <= variance <= MAX_VARIANCE:
        raise ConfigError(f"noise of sigma {sigma:g} lies outside what can be sampled", hint="use another sigma")
    return variance


def _root_above(number: int) -> Fraction:
    """sqrt(number), or at most 2^-16 more."""
    return Fraction(math.isqrt(number << 32) + 1, 1 << 16)


def _doubles(each: torch.Tensor) -> Floats:
    """Its values, flat, as a copy on the CPU."""
    return each.detach().to("cpu", torch.float64).reshape(-1).numpy().copy()


def _points(flat: Floats, grid: float) -> Integers:
    """The nearest points of the grid; those beyond what a sum can be are held there, and what is not a number is 0."""
    points = np.nan_to_num(np.rint(flat / grid), nan=0.0, posinf=MAX_POINT, neginf=-MAX_POINT)
    found: Integers = np.clip(points, -MAX_POINT, MAX_POINT).astype(np.int64)
    return found


def _like(flat: npt.NDArray[np.floating], each: torch.Tensor) -> torch.Tensor:
    """``flat`` in the shape, on the device and of the dtype of ``each``."""
    return torch.from_numpy(flat).reshape(each.shape).to(each)
