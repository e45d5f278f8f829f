"""What a history of Gaussian mechanisms costs: (epsilon, delta) for one record, as an upper bound.

Releases over all records compose into one Gaussian mechanism, whose epsilon is exact. Poisson samples are composed
numerically over their privacy loss (PRV: Gopi, Lee and Wutschitz 2021), by Opacus. RDP says first how large a grid that
takes, and is the answer where none is large enough. Opacus' third accountant, by the limit theorem of Gaussian DP,
reports less than was spent, and has no place here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from fedsecure.privacy.gaussian import combined_mu, exact_gaussian_epsilon
from fedsecure.privacy.spend import Spend, merged

__all__ = ["Accountant", "Bound", "bound", "default_delta", "epsilon", "exact_gaussian_epsilon", "quick_epsilon"]

#: How a bound was found. ``exact``: the formula for releases over all records, which bounds samples from above.
Accountant = Literal["exact", "prv", "rdp"]
#: Below this noise multiplier a sample hides next to nothing: it counts as all records.
LEAST_SAMPLED_SIGMA = 0.1
#: Above this epsilon, which protects nobody, RDP's bound is told.
MOST_PRV = 300.0
#: Below this delta, rounding in PRV's convolutions could tell.
LEAST_PRV_DELTA = 1e-11
#: An epsilon from which there is nothing left to tell: it counts as infinite.
ABSURD = 1e6


@dataclass(frozen=True, slots=True)
class Bound:
    """An upper bound of epsilon, and which accountant gave it."""

    epsilon: float
    accountant: Accountant


def default_delta(records: int) -> float:
    """1 / (10 n): a tenth of what showing one of ``records`` at random would have. ``ValueError`` for none."""
    if records < 1:
        raise ValueError(f"no delta for {records} records")
    return 1.0 / (10.0 * records)


def epsilon(history: Iterable[Spend], delta: float) -> float:
    """Upper bound of the epsilon of ``history`` at ``delta``: 0 for an empty one, infinite from ``ABSURD`` on.
    ``ValueError`` unless 0 < ``delta`` < 1. The order of the history does not matter."""
    return bound(history, delta).epsilon


def bound(history: Iterable[Spend], delta: float) -> Bound:
    """As ``epsilon``, with the accountant that says so. PRV's is about 0.4 % above the truth, or 0.001."""
    if not 0 < delta < 1:
        raise ValueError(f"no epsilon for delta {delta}")
    found = _bound(merged(history), delta)
    return found if found.epsilon < ABSURD else Bound(math.inf, found.accountant)


def quick_epsilon(history: Iterable[Spend], delta: float) -> float:
    """As ``epsilon``, in a millisecond and never below it: without PRV, so up to some tenths above."""
    if not 0 < delta < 1:
        raise ValueError(f"no epsilon for delta {delta}")
    found = _quick(merged(history), delta).epsilon
    return found if found < ABSURD else math.inf


@lru_cache(maxsize=1024)
def _bound(history: tuple[Spend, ...], delta: float) -> Bound:
    best = _quick(history, delta)
    if best.epsilon > MOST_PRV or delta < LEAST_PRV_DELTA:
        return best
    parts = folded(history)
    if all(spend.q == 1 for spend in parts):
        return best
    from fedsecure.privacy.prv import prv_epsilon

    close = prv_epsilon(parts, delta, best.epsilon)
    return Bound(close, "prv") if close is not None and close < best.epsilon else best


@lru_cache(maxsize=1024)
def _quick(history: tuple[Spend, ...], delta: float) -> Bound:
    """The better of the formula with every sample taken as all records, and RDP."""
    best = Bound(exact_gaussian_epsilon(combined_mu(history), delta), "exact")
    whole = [spend for spend in history if _counts_whole(spend)]
    if whole and exact_gaussian_epsilon(combined_mu(whole), delta) >= ABSURD:  # RDP's numbers could overflow
        return best
    parts = folded(history)
    if all(spend.q == 1 for spend in parts):
        return best
    from fedsecure.privacy.renyi import rdp_epsilon

    found = rdp_epsilon(parts, delta)
    return Bound(found, "rdp") if found < best.epsilon else best


def folded(history: Sequence[Spend]) -> tuple[Spend, ...]:
    """The same history with all that counts as taken over all records as one release: its epsilon is the same, or
    larger where a sample counts so. ``ValueError`` where ``combined_mu`` of that is infinite."""
    whole = [spend for spend in history if _counts_whole(spend)]
    sampled = [spend for spend in history if not _counts_whole(spend)]
    return (*sampled, *([Spend(1 / combined_mu(whole), 1.0, 1)] if whole else ()))


def _counts_whole(spend: Spend) -> bool:
    return spend.q == 1 or spend.sigma < LEAST_SAMPLED_SIGMA
