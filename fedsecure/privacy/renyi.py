"""Renyi differential privacy of the sampled Gaussian mechanism: a quick bound, looser than PRV's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fedsecure.privacy.spend import Spend

__all__ = ["ORDERS", "rdp_epsilon"]

#: Orders alpha > 1 that are tried: fractional ones matter for large epsilon, large ones for small.
ORDERS: tuple[float, ...] = (
    *(1 + x / 20 for x in range(1, 20)),
    *(2 + x / 8 for x in range(64)),
    *(float(x) for x in range(10, 65)),
    *(float(round(64 * 2 ** (x / 4))) for x in range(1, 33)),
)


def rdp_epsilon(history: Sequence[Spend], delta: float) -> float:
    """Epsilon at ``delta`` by the best order (Canonne, Kamath and Steinke 2020, proposition 12); not below 0."""
    orders = np.array(ORDERS)  # (orders,)
    spent = np.zeros_like(orders)  # RDP at each order
    for spend in history:
        spent += spend.steps * _rdp(spend.sigma, spend.q)
    found = spent + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
    return max(0.0, float(found.min()))


@lru_cache(maxsize=4096)
def _rdp(sigma: float, q: float) -> npt.NDArray[np.float64]:
    """RDP of one release at each of ``ORDERS`` (Mironov, Talwar and Zhang 2019): (orders,)."""
    if q == 1:
        return np.array(ORDERS) / (2 * sigma * sigma)
    moments = [_whole(sigma, q, int(a)) if a == int(a) else _fractional(sigma, q, a) for a in ORDERS]
    return np.asarray(np.maximum(moments, 0) / (np.array(ORDERS) - 1), np.float64)


def _whole(sigma: float, q: float, order: int) -> float:
    """log A of a whole order: the binomial sum of their section 3.3, in logarithms."""
    from scipy.special import gammaln, logsumexp

    i = np.arange(order + 1, dtype=np.float64)
    binomial = gammaln(order + 1) - gammaln(i + 1) - gammaln(order - i + 1)
    terms = binomial + i * math.log(q) + (order - i) * math.log1p(-q) + i * (i - 1) / (2 * sigma * sigma)
    return float(logsumexp(terms))


def _fractional(sigma: float, q: float, order: float) -> float:
    """log A of any small order: the mean of (1 - q + q exp((2 x - 1) / (2 sigma^2)))^order over x ~ N(0, sigma^2), by
    the trapezoid rule, whose error for so smooth a bell is below 1e-14 at twenty points a standard deviation."""
    from scipy.special import logsumexp

    x = np.arange(-15 * sigma, order + 15 * sigma, sigma / 20)
    ratio = np.logaddexp(math.log1p(-q), math.log(q) + (2 * x - 1) / (2 * sigma * sigma))
    terms = order * ratio - x * x / (2 * sigma * sigma)
    return float(logsumexp(terms)) - math.log(20 * math.sqrt(2 * math.pi))
