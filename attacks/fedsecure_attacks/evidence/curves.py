"""Curves of a report: true-positive rates at false-positive rates that are the same for every attack of an audit, with
their intervals; and what theory says could be reached."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedsecure_attacks.statistics.intervals import share_interval
from fedsecure_attacks.statistics.scores import Floats, Scores
from fedsecure_attacks.statistics.theory import tpr_of

__all__ = ["curve", "effects_curve", "rates"]

POINTS, DIGITS = 24, 6
#: Lists of one length by name.
Curve = dict[str, list[float]]


def rates(nonmembers: int, points: int = POINTS) -> Floats:
    """False-positive rates from 1 / n0 to 1, evenly on a logarithmic scale, each a whole number of people."""
    counts = np.unique(np.round(np.geomspace(1, nonmembers, points)).astype(int))
    return np.asarray(counts / nonmembers)


def curve(scores: Scores, confidence: float = 0.95) -> Curve:
    """``fpr``, ``tpr``, and the ends of each point's interval (Clopper and Pearson), ``low`` and ``high``. A threshold
    is the order statistic that so many non-members are above; ties count against the attacker."""
    fpr = rates(scores.n0)
    ordered = np.sort(scores.nonmembers)[::-1]  # (n0,), descending
    found: Curve = {"fpr": [], "tpr": [], "low": [], "high": []}
    for rate in fpr.tolist():
        allowed = round(rate * scores.n0)
        above = int((scores.members > ordered[allowed]).sum()) if allowed < scores.n0 else scores.n1
        interval = share_interval(above, scores.n1, confidence)
        for name, value in (("fpr", rate), ("tpr", above / scores.n1), ("low", interval.low), ("high", interval.high)):
            found[name].append(round(value, DIGITS))
    return found


def effects_curve(effects: Mapping[int, tuple[float, int]], fpr: Floats) -> Curve:
    """The mean of the curves of effects d' (theory), class -> (d', members)."""
    weights = np.array([count for _, count in effects.values()], dtype=np.float64)
    with np.errstate(all="ignore"):  # the ends of the scale have infinite quantiles, which is right
        each = np.stack([tpr_of(effect, fpr) for effect, _ in effects.values()])  # (classes, k)
    mean = weights @ each / weights.sum()
    return {"fpr": np.round(fpr, DIGITS).tolist(), "tpr": np.round(mean, DIGITS).tolist()}
