"""What an attack says of a mechanism, from its scores over all shadows.

Areas are over clusters, one of each (shadow, class), which is what condensations are independent in. A rate is over all
records together, at one threshold; its interval is the wider of the exact one over records and Student's over shadows.
The tail test is exact within each shadow, since its splits are independent coins, and the least p counts as often as
there are shadows (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import binom, t

from fedsecure_attacks.mechanism.scoring import Scored
from fedsecure_attacks.records import Labels
from fedsecure_attacks.statistics.intervals import Interval, cluster_interval, share_interval
from fedsecure_attacks.statistics.roc import NotMeasurable, Rate, auc, threshold_at, tpr_at
from fedsecure_attacks.statistics.scores import Floats, Scores
from fedsecure_attacks.statistics.tail import TailTest, rate_p, tail_test
from fedsecure_attacks.verdict import DIRECTION_CONFIDENCE, Thresholds

__all__ = ["AttackOnMechanism", "Curve", "area_p", "measure_attack", "over_rate_p"]

#: Records of either kind that a cluster needs to have an area.
LEAST_RECORDS = 3
CONFIDENCE = 0.95
#: Points of a curve, from one non-member to all of them.
POINTS = 41


@dataclass(frozen=True, slots=True)
class Curve:
    """True-positive rates with their bands at the false-positive rates ``fpr``, all of one length, rising."""

    fpr: tuple[float, ...]
    tpr: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class AttackOnMechanism:
    """``auc``: mean over ``clusters``, with its t-interval, its standard ``error`` and the interval that the direction
    is judged by. ``tpr``: over all shadows' records together, of whom ``nonmembers`` were out, with ``tpr_interval``,
    and the rate of each shadow at that threshold. ``tail``: of the shadow with the least p, times their number."""

    auc: float
    interval: Interval | None
    tpr: Rate | NotMeasurable
    clusters: int
    nonmembers: int
    error: float | None
    direction: Interval | None
    tpr_interval: Interval | None
    rates: tuple[float, ...]
    tail: TailTest
    curve: Curve

    def to_json(self) -> dict[str, Any]:
        """As ``from_json`` reads it."""
        kind = "rate" if isinstance(self.tpr, Rate) else "not measurable"
        return {**asdict(self), "tpr": [kind, asdict(self.tpr)]}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> AttackOnMechanism:
        """Raises ``KeyError``, ``TypeError`` or ``ValueError`` for anything else."""
        kind, tpr = raw["tpr"]
        return cls(
            auc=float(raw["auc"]),
            interval=_interval(raw["interval"]),
            tpr=Rate(**tpr) if kind == "rate" else NotMeasurable(**tpr),
            clusters=int(raw["clusters"]),
            nonmembers=int(raw["nonmembers"]),
            error=None if raw["error"] is None else float(raw["error"]),
            direction=_interval(raw["direction"]),
            tpr_interval=_interval(raw["tpr_interval"]),
            rates=tuple(map(float, raw["rates"])),
            tail=TailTest(**raw["tail"]),
            curve=Curve(**{name: tuple(map(float, raw["curve"][name])) for name in ("fpr", "tpr", "low", "high")}),
        )


def _interval(raw: Mapping[str, Any] | None) -> Interval | None:
    return None if raw is None else Interval(**raw)


def measure_attack(name: str, scored: Sequence[Scored], labels: Labels, fpr: float) -> AttackOnMechanism:
    """Attack ``name`` over all shadows; ``labels``: the pool's classes (n,). Raises ``AuditError`` when a score is not
    finite, or one kind of records is missing."""
    each = [Scores.of(one.scores[name], one.inside) for one in scored]
    both = Scores(np.concatenate([s.members for s in each]), np.concatenate([s.nonmembers for s in each]))
    areas = _areas(name, scored, labels)
    tpr, rates = tpr_at(both, fpr), _rates(each, threshold_at(both.nonmembers, fpr))
    tails = [tail_test(s) for s in each]
    least = min(tails, key=lambda tail: tail.p)
    return AttackOnMechanism(
        auc=float(np.mean(areas)) if areas else 0.5,
        interval=cluster_interval(areas, CONFIDENCE),
        tpr=tpr,
        clusters=len(areas),
        nonmembers=both.n0,
        error=float(np.std(areas, ddof=1) / math.sqrt(len(areas))) if len(areas) > 1 else None,
        direction=cluster_interval(areas, DIRECTION_CONFIDENCE),
        tpr_interval=_rate_interval(tpr.count, tpr.of, rates) if isinstance(tpr, Rate) else None,
        rates=tuple(rates),
        tail=TailTest(least.count, least.members, least.nonmembers, min(1.0, least.p * len(tails))),
        curve=_curve(each, both),
    )


def _areas(name: str, scored: Sequence[Scored], labels: Labels) -> list[float]:
    found = []
    for one in scored:
        for c in np.unique(labels).tolist():
            here = labels == c
            inside = one.inside[here]
            if min(int(inside.sum()), int((~inside).sum())) >= LEAST_RECORDS:
                found.append(auc(Scores.of(one.scores[name][here], inside)))
    return found


def _rates(each: Sequence[Scores], threshold: float) -> list[float]:
    return [float((s.members > threshold).mean()) for s in each]


def _rate_interval(count: int, of: int, rates: Sequence[float]) -> Interval:
    """The wider of both at each end."""
    exact, over = share_interval(count, of, CONFIDENCE), cluster_interval(rates, CONFIDENCE)
    if over is None:
        return exact
    method = f"the wider of Clopper-Pearson and t over {len(rates)} shadows"
    return Interval(min(exact.low, over.low), max(exact.high, over.high), CONFIDENCE, method)


def _curve(each: Sequence[Scores], both: Scores) -> Curve:
    fprs = np.geomspace(1 / both.n0, 1.0, POINTS)
    tpr, low, high = [], [], []
    for fpr in fprs.tolist():
        threshold = threshold_at(both.nonmembers, fpr)
        count = int((both.members > threshold).sum())
        band = _rate_interval(count, both.n1, _rates(each, threshold))
        tpr.append(count / both.n1)
        low.append(band.low)
        high.append(band.high)
    return Curve(*(tuple(round(v, 9) for v in values) for values in (fprs.tolist(), tpr, low, high)))


def area_p(attack: AttackOnMechanism, thresholds: Thresholds) -> float:
    """The chance of such a mean area over clusters if the true one were what is accepted (one-sided t)."""
    if attack.error is None:
        return 1.0
    return _t_p(attack.auc - thresholds.auc, attack.error, attack.clusters)


def over_rate_p(attack: AttackOnMechanism, thresholds: Thresholds) -> float:
    """The same of the rate: the largest of the binomial chance over records, the t-test over shadows, and the chance
    that nothing but the threshold was lucky."""
    rate = attack.tpr
    if not isinstance(rate, Rate):
        return 1.0
    rates: Floats = np.asarray(attack.rates)
    over = _t_p(rate.value - thresholds.tpr, float(rates.std(ddof=1)) / math.sqrt(len(rates)), len(rates))
    by_records = float(binom.sf(rate.count - 1, rate.of, thresholds.tpr))
    by_threshold = rate_p(rate.count, rate.of, attack.nonmembers, rate.allowed)
    return max(over, by_records, by_threshold)


def _t_p(difference: float, error: float, clusters: int) -> float:
    if error <= 0:
        return 0.0 if difference > 0 else 1.0
    return float(t.sf(difference / error, clusters - 1))
