"""Lower bounds on epsilon from what an attack achieved, valid at a stated confidence.

(epsilon, delta) differential privacy bounds every attack: TPR <= e^eps FPR + delta, and the same of its complement
(Kairouz, Oh and Viswanath 2015). Bounds on both rates by Clopper and Pearson, each at half the error, give a bound on
epsilon. A threshold that was chosen on the scores it is evaluated on would make it too large (no leak, yet epsilon > 0
most of the time): it is chosen on one half of the records and evaluated on the other, or several fixed ones share the
error (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedsecure_attacks.statistics.intervals import share_interval
from fedsecure_attacks.statistics.scores import Floats, Scores

__all__ = ["EpsilonBound", "bonferroni_bound", "bound_at", "halves", "largest_certifiable", "split_bound"]

#: Thresholds that are tried on the first half: quantiles of its scores.
CANDIDATES = 64


@dataclass(frozen=True, slots=True)
class EpsilonBound:
    """``low`` >= 0: with ``confidence``, no smaller epsilon fits. ``largest``: what a perfect attack on as many records
    would have shown, so that a small bound is not read as slack. ``members``, ``nonmembers``: evaluated."""

    low: float
    largest: float
    confidence: float
    delta: float
    members: int
    nonmembers: int
    method: str


def _bound(above1: int, n1: int, above0: int, n0: int, delta: float, confidence: float) -> float:
    """The larger of both directions; they hold together, for they follow from the same two rates."""
    tpr = share_interval(above1, n1, confidence).low
    fpr = share_interval(above0, n0, confidence).high
    sides = ((tpr - delta, fpr), (1 - fpr - delta, 1 - tpr))
    return max((math.log(top / bottom) for top, bottom in sides if top > 0 and bottom > 0), default=0.0)


def largest_certifiable(n1: int, n0: int, *, delta: float = 0.0, confidence: float = 0.95) -> float:
    """The bound that a perfect attack on ``n1`` members and ``n0`` non-members gives; finite."""
    return max(0.0, _bound(n1, n1, 0, n0, delta, confidence))


def split_bound(
    scores: Scores, generator: np.random.Generator, *, delta: float = 0.0, confidence: float = 0.95
) -> EpsilonBound | None:
    """The threshold is chosen on a random half, and evaluated on the other. ``None`` with fewer than four records of
    either kind."""
    if min(scores.n1, scores.n0) < 4:
        return None
    first, second = halves(scores, generator)
    thresholds = np.unique(
        np.quantile(np.concatenate([first.members, first.nonmembers]), np.linspace(0, 1, CANDIDATES))
    )
    chosen = max(thresholds, key=lambda t: bound_at(first, float(t), delta, confidence))
    low = max(0.0, bound_at(second, float(chosen), delta, confidence))
    return _reported(second, low, delta, confidence, "split half")


def bonferroni_bound(
    scores: Scores, thresholds: Sequence[float] | Floats, *, delta: float = 0.0, confidence: float = 0.95
) -> EpsilonBound:
    """The best of ``thresholds``, which must not depend on ``scores`` (they come from references); each bound holds
    with a share of the error."""
    if not len(thresholds):
        raise ValueError("no thresholds")
    each = 1 - (1 - confidence) / len(thresholds)
    low = max(0.0, *(bound_at(scores, float(t), delta, each) for t in thresholds))
    return _reported(scores, low, delta, confidence, f"Bonferroni over {len(thresholds)} thresholds")


def _reported(scores: Scores, low: float, delta: float, confidence: float, method: str) -> EpsilonBound:
    largest = largest_certifiable(scores.n1, scores.n0, delta=delta, confidence=confidence)
    return EpsilonBound(low, largest, confidence, delta, scores.n1, scores.n0, method)


def bound_at(scores: Scores, threshold: float, delta: float, confidence: float) -> float:
    """The bound at one threshold that does not depend on ``scores``; it may be negative, and holds for every ``delta``
    together."""
    above1, above0 = int((scores.members > threshold).sum()), int((scores.nonmembers > threshold).sum())
    return _bound(above1, scores.n1, above0, scores.n0, delta, confidence)


def halves(scores: Scores, generator: np.random.Generator) -> tuple[Scores, Scores]:
    """Two random halves, of members and of non-members."""
    parts = []
    for values in (scores.members, scores.nonmembers):
        order = generator.permutation(len(values))
        parts.append((values[order[: len(values) // 2]], values[order[len(values) // 2 :]]))
    (m1, m2), (o1, o2) = parts
    return Scores(m1, o1), Scores(m2, o2)
