"""The unit of privacy accounting: some releases of one Gaussian mechanism."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Spend", "merged"]


@dataclass(frozen=True, slots=True)
class Spend:
    """``steps`` releases of the Gaussian mechanism with noise multiplier ``sigma`` (standard deviation over
    sensitivity), each over a Poisson sample of rate ``q`` (1: all records). Adjacency: a record is replaced by one that
    contributes nothing. Raises ``ValueError`` for numbers that are none of a mechanism."""

    sigma: float
    q: float
    steps: int

    def __post_init__(self) -> None:
        if not (math.isfinite(self.sigma) and self.sigma > 0 and 0 < self.q <= 1 and self.steps >= 1):
            raise ValueError(f"no such Gaussian mechanism: sigma {self.sigma}, q {self.q}, {self.steps} steps")


def merged(spends: Iterable[Spend]) -> tuple[Spend, ...]:
    """The same history with one entry for each (sigma, q), ordered: its epsilon is the same."""
    steps: dict[tuple[float, float], int] = {}
    for spend in spends:
        steps[spend.sigma, spend.q] = steps.get((spend.sigma, spend.q), 0) + spend.steps
    return tuple(Spend(sigma, q, count) for (sigma, q), count in sorted(steps.items()))
