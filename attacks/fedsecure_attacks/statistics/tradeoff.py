"""A lower bound on epsilon against what was accounted, at several delta at once.

(epsilon, delta) differential privacy holds for a whole curve of pairs, and a mechanism that is not what was accounted
may show at a large delta long before it does at a small one. Bounds on the two rates at one threshold hold together,
and give a bound on epsilon at every delta (Nasr et al. 2023); several thresholds share the error (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedsecure_attacks.statistics.epsilon import bound_at, largest_certifiable
from fedsecure_attacks.statistics.scores import Floats, Scores

__all__ = ["Against", "Pair", "against_accounted"]


@dataclass(frozen=True, slots=True)
class Pair:
    """At ``delta``: ``lower`` <= epsilon, what was ``accounted``, and the ``largest`` that so many scores can show."""

    delta: float
    lower: float
    accounted: float
    largest: float

    @property
    def contradicts(self) -> bool:
        """Whether epsilon is larger than what was accounted."""
        return self.excess > 0

    @property
    def excess(self) -> float:
        """How far the bound is above what was accounted; negative below it."""
        return self.lower - self.accounted


@dataclass(frozen=True, slots=True)
class Against:
    """``pairs`` by rising delta, all at ``confidence`` together; from ``members`` and ``nonmembers`` scores."""

    pairs: tuple[Pair, ...]
    confidence: float
    members: int
    nonmembers: int
    method: str

    @property
    def worst(self) -> Pair:
        """Where the bound is furthest above, or least below, what was accounted."""
        return max(self.pairs, key=lambda pair: pair.excess)

    @property
    def can_tell(self) -> bool:
        """Whether a perfect attack on so many scores would contradict what was accounted."""
        return any(pair.largest > pair.accounted for pair in self.pairs)


def against_accounted(
    scores: Scores,
    accounted: Mapping[float, float],
    thresholds: Sequence[float] | Floats,
    *,
    confidence: float = 0.95,
) -> Against:
    """``accounted``: delta -> epsilon, at least one. ``thresholds``, at least one, must not depend on ``scores``."""
    if not accounted or not len(thresholds):
        raise ValueError(f"{len(accounted)} delta and {len(thresholds)} thresholds (at least 1 of each)")
    each = 1 - (1 - confidence) / len(thresholds)

    def pair(delta: float, eps: float) -> Pair:
        lower = max(0.0, *(bound_at(scores, float(t), delta, each) for t in thresholds))
        return Pair(delta, lower, eps, largest_certifiable(scores.n1, scores.n0, delta=delta, confidence=each))

    pairs = tuple(pair(delta, eps) for delta, eps in sorted(accounted.items()))
    method = f"Clopper-Pearson, Bonferroni over {len(thresholds)} thresholds"
    return Against(pairs, confidence, scores.n1, scores.n0, method)
