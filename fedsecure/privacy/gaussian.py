"""The Gaussian mechanism over all records: its exact (epsilon, delta), for one release or many."""

from __future__ import annotations

import math
from collections.abc import Iterable

from fedsecure.privacy.spend import Spend

__all__ = ["combined_mu", "exact_gaussian_epsilon", "gaussian_delta"]


def combined_mu(history: Iterable[Spend]) -> float:
    """mu of all these releases together, each taken over all records: sqrt(sum of steps / sigma^2); infinite where that
    is more than a float holds. Samples cost less than all records do, so for them it is an upper bound."""
    try:
        return math.sqrt(math.fsum(spend.steps / spend.sigma / spend.sigma for spend in history))
    except OverflowError:
        return math.inf


def gaussian_delta(mu: float, epsilon: float) -> float:
    """The least delta at ``epsilon`` of a Gaussian mechanism with sensitivity / standard deviation = ``mu`` (Balle and
    Wang 2018, theorem 8): Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu)."""
    from scipy.special import log_ndtr

    if mu <= 0:
        return 0.0
    first, second = float(log_ndtr(mu / 2 - epsilon / mu)), float(log_ndtr(-mu / 2 - epsilon / mu))
    return math.exp(first) * -math.expm1(min(0.0, epsilon + second - first))


def exact_gaussian_epsilon(mu: float, delta: float) -> float:
    """The least epsilon at ``delta`` of a Gaussian mechanism with sensitivity / standard deviation = ``mu``, to twelve
    digits and never below. ``ValueError`` unless 0 < ``delta`` < 1 and ``mu`` >= 0."""
    if not (0 < delta < 1 and mu >= 0):
        raise ValueError(f"no epsilon for mu {mu} and delta {delta}")
    if math.isinf(mu):
        return math.inf
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    low, high = 0.0, mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta))  # by concentrated DP, always enough
    while (middle := (low + high) / 2) not in (low, high) and high - low > 1e-12 * high:
        low, high = (low, middle) if gaussian_delta(mu, middle) <= delta else (middle, high)
    return high
