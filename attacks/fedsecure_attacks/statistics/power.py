"""What an audit of so many people can say, before it runs: the chance that it sees a leak of a given size, the fewest
people with whom "none detected" can be said, and the fewest copied people that stand out.

A leak is an effect size d' (``theory``): members' scores lie d' standard deviations above those of others. The
threshold at a false-positive rate is an order statistic of n0 scores, so the rate that it has in truth is
Beta(k + 1, n0 - k) whatever the scores are; areas are taken for normal on the logit scale, with the variance that two
normal distributions give (Bamber 1975). Where several findings may speak (area, rate, tail), the likeliest of them
counts alone; where all must stay silent, their chances to speak are added: both sides are understated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import owens_t
from scipy.stats import beta, binom, norm

from fedsecure_attacks.statistics.intervals import share_interval
from fedsecure_attacks.statistics.roc import MIN_FALSE, allowed_above, is_measurable
from fedsecure_attacks.statistics.scores import Floats
from fedsecure_attacks.statistics.tail import least_count, rate_p
from fedsecure_attacks.statistics.theory import auc_of, tpr_of
from fedsecure_attacks.verdict import RATE_ALPHA, TAIL_ALPHA, Thresholds

__all__ = [
    "Needed", "chance_to_clear", "people_needed", "planted_needed", "power_of", "records_needed", "visible_effect",
]  # fmt: skip

#: Attacks of ``audit files``: those whose areas and rates count, and all whose tails do.
RATED, TAILS = 7, 9
CONFIDENCE = 0.95
#: Quantiles by which a Beta distribution is summed up.
_NODES = (np.arange(256) + 0.5) / 256
#: The largest effect and number of members that are looked at: beyond, the answer is "never".
_MOST_EFFECT, _MOST_MEMBERS = 12.0, 1 << 26
#: The effect beyond which an area is as good as one.
_MOST_AREA = 6.0


@dataclass(frozen=True, slots=True)
class Needed:
    """Records to be held for an audit: who was in, and who was not (references come on top)."""

    members: int
    nonmembers: int


def power_of(
    n1: int, n0: int, thresholds: Thresholds, effect: float, *, rated: int = RATED, tails: int = TAILS
) -> float:
    """The chance, in [0, 1], that one attack of ``effect`` d' >= 0 against ``n1`` members and ``n0`` others is called
    LEAK by its area, its rate or its tail; at least. ``rated`` and ``tails``: attacks that share the error. Raises
    ``ValueError``."""
    _check(n1, n0, effect)
    return max(
        _by_area(n1, n0, thresholds, effect, rated),
        _by_rate(n1, n0, thresholds, effect, rated),
        _by_tail(n1, n0, effect, tails),
    )


def visible_effect(
    n1: int, n0: int, thresholds: Thresholds, *, chance: float = 0.8, rated: int = RATED
) -> float | None:
    """The least d' that is called LEAK with ``chance``; ``None`` when no leak would be."""

    def off(effect: float) -> float:
        return power_of(n1, n0, thresholds, effect, rated=rated) - chance

    return None if off(_MOST_EFFECT) < 0 else float(brentq(off, 0.0, _MOST_EFFECT, xtol=1e-3)) if off(0) < 0 else 0.0


def chance_to_clear(n1: int, n0: int, thresholds: Thresholds, *, effect: float = 0.0, rated: int = RATED) -> float:
    """The chance, at least, that an audit ends as NO-LEAK-DETECTED when all its ``rated`` attacks have ``effect``
    (nothing leaks, by default) and its controls are as they must be."""
    _check(n1, n0, effect)
    if not is_measurable(n0, thresholds.fpr):
        return 0.0
    counts = np.arange(n1 + 1)
    allowed = int(np.searchsorted(_upper(counts, n1), thresholds.tpr, side="right")) - 1
    if allowed < 0:
        return 0.0
    above = float(np.mean(binom.sf(allowed, n1, tpr_of(effect, _true_rates(n0, thresholds.fpr)))))
    return max(0.0, 1 - above - rated * _area_open(n1, n0, thresholds.auc, effect) - TAIL_ALPHA)


def people_needed(
    thresholds: Thresholds, *, chance: float = 0.8, per_member: float = 1.0, effect: float = 0.0, rated: int = RATED
) -> Needed:
    """The fewest members, with ``per_member`` non-members for each and never fewer than the rate needs, with whom
    NO-LEAK-DETECTED is said with ``chance`` when nothing beyond ``effect`` leaks. Raises ``ValueError`` when no number
    of people is enough: then the thresholds ask for less than chance gives, or for less than ``effect``."""
    if not 0 < chance < 1 or per_member <= 0:
        raise ValueError(f"chance {chance} (allowed: between 0 and 1), {per_member} non-members a member (positive)")

    def others(n1: int) -> int:
        return max(math.ceil(per_member * n1), math.ceil(MIN_FALSE / thresholds.fpr - 1e-9))

    def enough(n1: int) -> bool:
        return chance_to_clear(n1, others(n1), thresholds, effect=effect, rated=rated) >= chance

    if thresholds.tpr <= float(tpr_of(effect, thresholds.fpr)) or thresholds.auc <= auc_of(effect):
        raise ValueError(
            f"no number of people shows a rate of at most {thresholds.tpr:g} at {thresholds.fpr:g} and an area of at "
            f"most {thresholds.auc:g}"
        )
    high = 16
    while not enough(high):
        high *= 2
        if high > _MOST_MEMBERS:
            raise ValueError(f"more than {_MOST_MEMBERS} members would be needed")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return Needed(high, others(high))


def records_needed(
    thresholds: Thresholds, *, chance: float = 0.8, per_member: float = 1.0, effect: float = 0.0, rated: int = RATED
) -> int:
    """The members of ``people_needed``."""
    return people_needed(thresholds, chance=chance, per_member=per_member, effect=effect, rated=rated).members


def planted_needed(n1: int, n0: int, *, tails: int = TAILS) -> int | None:
    """The fewest people, scoring above everybody who is out, that the tail test calls LEAK by one of ``tails`` attacks
    alone; ``None`` when not even all members would do. (Records released bit for bit are LEAK from the first.)"""
    return least_count(n1, n0, TAIL_ALPHA / tails)


def _check(n1: int, n0: int, effect: float) -> None:
    if n1 < 1 or n0 < 1 or not 0 <= effect < math.inf:
        raise ValueError(f"{n1} members, {n0} non-members and an effect of {effect} (at least 1, 1 and 0)")


def _true_rates(n0: int, fpr: float) -> Floats:
    """Quantiles of the false-positive rate that the threshold has in truth (256,)."""
    allowed = allowed_above(n0, fpr)
    return np.asarray(beta.ppf(_NODES, allowed + 1, n0 - allowed))


def _upper(counts: np.ndarray, of: int) -> Floats:
    """Clopper and Pearson's upper ends for ``counts`` of ``of``."""
    found = beta.ppf((1 + CONFIDENCE) / 2, counts + 1, np.maximum(of - counts, 1e-300))
    return np.asarray(np.where(counts == of, 1.0, found))


def _by_rate(n1: int, n0: int, thresholds: Thresholds, effect: float, rated: int) -> float:
    if not is_measurable(n0, thresholds.fpr):
        return 0.0
    allowed = allowed_above(n0, thresholds.fpr)

    def speaks(count: int) -> bool:
        low = share_interval(count, n1, CONFIDENCE).low
        return low > thresholds.tpr and rate_p(count, n1, n0, allowed) < RATE_ALPHA / rated

    if not speaks(n1):
        return 0.0
    low, high = 0, n1  # the least count that speaks is in (low, high]
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if speaks(middle) else (middle, high)
    return float(np.mean(binom.sf(high - 1, n1, tpr_of(effect, _true_rates(n0, thresholds.fpr)))))


def _by_tail(n1: int, n0: int, effect: float, tails: int) -> float:
    """The share of others that would score above the highest of n0 is Beta(1, n0)."""
    least = planted_needed(n1, n0, tails=tails)
    if least is None:
        return 0.0
    return float(np.mean(binom.sf(least - 1, n1, tpr_of(effect, beta.ppf(_NODES, 1, n0)))))


def _logit(area: float) -> float:
    return math.log(area) - math.log1p(-area)


def _spread(n1: int, n0: int, effect: float) -> float:
    """The standard deviation of the estimated area on the logit scale."""
    area = auc_of(effect)
    both = area - 2 * float(owens_t(effect / math.sqrt(2), 1 / math.sqrt(3)))  # two members above one who is out
    variance = (area * (1 - area) + (n1 + n0 - 2) * (both - area**2)) / (n1 * n0)
    return math.sqrt(variance) / (area * (1 - area))


def _by_area(n1: int, n0: int, thresholds: Thresholds, effect: float, rated: int) -> float:
    if thresholds.auc >= 1 or min(n1, n0) < 2:
        return 0.0
    z = float(norm.ppf(1 - (1 - CONFIDENCE) / (2 * rated)))
    accepted = _logit(thresholds.auc)
    grid = np.linspace(0.0, _MOST_AREA, 121)
    logits, spreads = np.array([(_logit(auc_of(d)), _spread(n1, n0, d)) for d in grid]).T
    speaks = np.flatnonzero(logits - z * spreads > accepted)
    if not len(speaks):
        return 0.0
    least = logits[speaks[0]]  # estimates above it have a lower end above what is accepted
    upto = grid <= effect + 1e-9  # a larger leak is seen no less often; the normal approximation is poor near one
    at = np.append(logits[upto], _logit(auc_of(min(effect, _MOST_AREA))))
    spread = np.append(spreads[upto], _spread(n1, n0, min(effect, _MOST_AREA)))
    return float(norm.cdf((at - least) / spread).max())


def _area_open(n1: int, n0: int, accepted: float, effect: float) -> float:
    """The chance that the upper end of an area's interval is above what is accepted."""
    if accepted >= 1:
        return 0.0
    spread = _spread(n1, n0, min(effect, _MOST_AREA))
    return float(
        norm.sf((_logit(accepted) - _logit(auc_of(min(effect, _MOST_AREA)))) / spread - norm.ppf((1 + CONFIDENCE) / 2))
    )
