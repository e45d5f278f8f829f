"""Confidence intervals: of a share (Clopper and Pearson 1934), of an area under the curve over records (DeLong et al.
1988, on the logit scale; Newcombe 2006, method 5, where that has no variance), and over clusters (Student's t).

A *cluster* is one condensation of one class: records of one released mean are not independent of each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaincinv, ndtri
from scipy.stats import rankdata, t

from fedsecure_attacks.statistics.roc import auc
from fedsecure_attacks.statistics.scores import Floats, Scores

__all__ = ["Interval", "auc_interval", "cluster_interval", "share_interval"]

#: An area of exactly 0 or 1 has no variance; the root is looked for this far inside.
_INSIDE = 1e-12


@dataclass(frozen=True, slots=True)
class Interval:
    """``low`` <= ``high``, at ``confidence``, made by ``method``."""

    low: float
    high: float
    confidence: float
    method: str


def share_interval(count: int, of: int, confidence: float = 0.95) -> Interval:
    """Of a share, from ``count`` of ``of``: exact, never narrower than it says. Raises ``ValueError``."""
    if not (0 <= count <= of and of >= 1 and 0 < confidence < 1):
        raise ValueError(f"{count} of {of} at confidence {confidence}")
    tail = (1 - confidence) / 2
    low = 0.0 if count == 0 else float(betaincinv(count, of - count + 1, tail))
    high = 1.0 if count == of else float(betaincinv(count + 1, of - count, 1 - tail))
    return Interval(low, high, confidence, "Clopper-Pearson")


def auc_interval(scores: Scores, confidence: float = 0.95) -> Interval:
    """Of the area under the curve of one release, over its records."""
    value, z = auc(scores), float(ndtri((1 + confidence) / 2))
    variance = _delong_variance(scores)
    if 0 < value < 1 and variance > 0 and min(scores.n1, scores.n0) >= 2:
        logit, width = math.log(value / (1 - value)), z * math.sqrt(variance) / (value * (1 - value))
        return Interval(_expit(logit - width), _expit(logit + width), confidence, "DeLong, logit")
    return Interval(*_newcombe(value, scores.n1, scores.n0, z), confidence, "Newcombe, method 5")


def _expit(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def _delong_variance(scores: Scores) -> float:
    """Var(AUC) from the placements of each record among those of the other kind."""
    n1, n0 = scores.n1, scores.n0
    if n1 < 2 or n0 < 2:
        return 0.0
    both = rankdata(np.concatenate([scores.members, scores.nonmembers]))
    placed1 = (both[:n1] - rankdata(scores.members)) / n0  # (n1,)
    placed0 = 1 - (both[n1:] - rankdata(scores.nonmembers)) / n1  # (n0,)
    return float(placed1.var(ddof=1) / n1 + placed0.var(ddof=1) / n0)


def _newcombe(value: float, n1: int, n0: int, z: float) -> tuple[float, float]:
    """The areas whose own standard error does not exclude ``value``."""
    half = (n1 + n0) / 2 - 1

    def off(area: float) -> float:
        variance = area * (1 - area) / (n1 * n0) * (1 + half * ((1 - area) / (2 - area) + area / (1 + area)))
        return (area - value) ** 2 - z * z * variance

    low = 0.0 if value <= 0 else float(brentq(off, 0.0, min(value, 1 - _INSIDE)))
    high = 1.0 if value >= 1 else float(brentq(off, max(value, _INSIDE), 1.0))
    return low, high


def cluster_interval(values: Sequence[float] | Floats, confidence: float = 0.95) -> Interval | None:
    """Of the mean of ``values`` in [0, 1] (areas, rates), one for each cluster, and within [0, 1] itself; ``None`` with
    fewer than two clusters, which say nothing of how clusters differ."""
    array = np.asarray(values, dtype=np.float64)
    if len(array) < 2:
        return None
    mean, error = float(array.mean()), float(array.std(ddof=1)) / math.sqrt(len(array))
    width = float(t.ppf((1 + confidence) / 2, len(array) - 1)) * error
    return Interval(max(0.0, mean - width), min(1.0, mean + width), confidence, f"t over {len(array)} clusters")
