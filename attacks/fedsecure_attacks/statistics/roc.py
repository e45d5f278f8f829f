"""Receiver operating characteristic: the area under it, and true-positive rates at a low false-positive rate.

The threshold at a false-positive rate alpha is an order statistic of the non-members' scores, and only members strictly
above it count, so that ties speak against the attacker and the rate is kept for certain. With fewer than
``MIN_FALSE`` / alpha non-members a rate at alpha is not measurable; it is then not reported as zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from fedsecure_attacks.statistics.scores import Floats, Scores

__all__ = [
    "MIN_FALSE",
    "NotMeasurable",
    "Rate",
    "Roc",
    "allowed_above",
    "auc",
    "is_measurable",
    "precision_at_prior",
    "roc",
    "tpr_at",
]

#: A false-positive rate is measured by at least so many non-members above the threshold.
MIN_FALSE = 10


@dataclass(frozen=True, slots=True)
class Rate:
    """``count`` of ``of`` members above the threshold, at a false-positive rate of at most ``fpr``; ``false`` of the
    non-members were above it, too (fewer than ``allowed`` only where scores are tied)."""

    fpr: float
    count: int
    of: int
    false: int
    allowed: int = 0

    @property
    def value(self) -> float:
        """The true-positive rate, in [0, 1]."""
        return self.count / self.of


@dataclass(frozen=True, slots=True)
class NotMeasurable:
    """No rate, and ``why``."""

    fpr: float
    why: str


def auc(scores: Scores) -> float:
    """P(member above non-member) + P(tie) / 2, in [0, 1] (Mann and Whitney)."""
    ranks = rankdata(np.concatenate([scores.members, scores.nonmembers]))  # (n1 + n0,), ties averaged
    n1, n0 = scores.n1, scores.n0
    return float((ranks[:n1].sum() - n1 * (n1 + 1) / 2) / (n1 * n0))


def is_measurable(nonmembers: int, fpr: float) -> bool:
    """Whether so many non-members can tell a rate at ``fpr``."""
    return nonmembers * fpr >= MIN_FALSE - 1e-9


def allowed_above(nonmembers: int, fpr: float) -> int:
    """How many of the non-members may be above the threshold at ``fpr``."""
    return math.floor(fpr * nonmembers + 1e-9)


def threshold_at(nonmembers: Floats, fpr: float) -> float:
    """The score that at most a share ``fpr`` of the non-members is strictly above."""
    allowed = allowed_above(len(nonmembers), fpr)
    ordered = np.sort(nonmembers)[::-1]  # (n0,), descending
    return float(ordered[allowed]) if allowed < len(ordered) else -math.inf


def tpr_at(scores: Scores, fpr: float) -> Rate | NotMeasurable:
    """The share of members above the threshold at ``fpr`` in (0, 1)."""
    if not 0 < fpr < 1:
        raise ValueError(f"a false-positive rate of {fpr} (allowed: between 0 and 1)")
    if scores.are_tied:
        return NotMeasurable(fpr, "all scores are equal")
    if not is_measurable(scores.n0, fpr):
        least = math.ceil(MIN_FALSE / fpr - 1e-9)
        return NotMeasurable(fpr, f"{scores.n0} non-members are too few (at least {least})")
    threshold = threshold_at(scores.nonmembers, fpr)
    count, false = int((scores.members > threshold).sum()), int((scores.nonmembers > threshold).sum())
    return Rate(fpr, count, scores.n1, false, allowed_above(scores.n0, fpr))


@dataclass(frozen=True, eq=False)
class Roc:
    """The curve: at each threshold, from the largest score down, the shares of non-members (``fpr``) and members
    (``tpr``) at or above it; both (k,), rising from 0 to 1."""

    fpr: Floats
    tpr: Floats


def roc(scores: Scores) -> Roc:
    """The empirical curve, one corner for each distinct score."""
    thresholds = np.unique(np.concatenate([scores.members, scores.nonmembers]))[::-1]  # descending
    above1 = scores.n1 - np.searchsorted(np.sort(scores.members), thresholds, side="left")
    above0 = scores.n0 - np.searchsorted(np.sort(scores.nonmembers), thresholds, side="left")
    return Roc(np.concatenate([[0.0], above0 / scores.n0]), np.concatenate([[0.0], above1 / scores.n1]))


def precision_at_prior(rate: Rate, prior: float) -> float | None:
    """The share of the accused who are members, when a share ``prior`` of the candidates is; the false-positive rate
    counts as what it was allowed to be. ``None`` when nobody is accused."""
    accused = prior * rate.value + (1 - prior) * rate.fpr
    return prior * rate.value / accused if accused > 0 else None
