"""Does one round tell whether one person is in? Trials with the person, and without, on the same other people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsecure.errors import AuditError
from fedsecure_attacks.active.defences import Released
from fedsecure_attacks.statistics.intervals import Interval, auc_interval, cluster_interval, share_interval
from fedsecure_attacks.statistics.roc import NotMeasurable, Rate, auc, tpr_at
from fedsecure_attacks.statistics.scores import Scores
from fedsecure_attacks.verdict import Thresholds, Word

__all__ = ["Isolation", "isolation", "nothing_released", "trials"]

#: A round isolates a person when at least this share of the trials with the person is told, at FPR 0.01.
ISOLATED = 0.5


@dataclass(frozen=True)
class Isolation:
    """``auc``, mean over targets, with its interval over them (over trials with one target); ``tpr`` over all trials,
    with its interval."""

    auc: float
    interval: Interval
    tpr: Rate | NotMeasurable
    tpr_interval: Interval | None
    targets: int
    why: str = ""

    @property
    def isolates(self) -> bool:
        """Whether one round isolates one person."""
        return self.tpr_interval is not None and self.tpr_interval.low > ISOLATED

    def leaks(self, thresholds: Thresholds) -> bool:
        """Whether it tells more than what is accepted."""
        return self.interval.low > thresholds.auc or (
            self.tpr_interval is not None and self.tpr_interval.low > thresholds.tpr
        )

    def word(self, thresholds: Thresholds) -> Word:
        """LEAK, or, when both intervals are below what is accepted or nothing is released, NO-LEAK-DETECTED."""
        if self.leaks(thresholds):
            return Word.LEAK
        told = 0.0 if self.why else 1.0 if self.tpr_interval is None else self.tpr_interval.high
        below = self.interval.high <= thresholds.auc and told <= thresholds.tpr
        return Word.NO_LEAK_DETECTED if below else Word.INCONCLUSIVE

    def to_json(self, thresholds: Thresholds) -> dict[str, Any]:
        """For the report."""
        rate = self.tpr if isinstance(self.tpr, Rate) else None
        between = self.tpr_interval
        return {
            "auc": self.auc,
            "auc_interval": {"low": self.interval.low, "high": self.interval.high},
            "tpr_at_fpr_0.01": None if rate is None else rate.value,
            "tpr_at_fpr_0.01_reason": self.tpr.why if isinstance(self.tpr, NotMeasurable) else None,
            "tpr_at_fpr_0.01_interval": None if between is None else {"low": between.low, "high": between.high},
            "targets": self.targets,
            "trials": None if rate is None else rate.of,
            "one_round_isolates_one_person": self.isolates,
            "verdict": self.word(thresholds).value,
            "why": self.why or None,
        }


def trials(
    released: Released, target: int, coordinate: int, records: int, count: int, rng: np.random.Generator
) -> Scores:
    """``count`` means with the record ``target`` among ``records`` people, and as many without; the score is the mean's
    ``coordinate``. Raises ``AuditError`` when there are not so many others."""
    others = np.flatnonzero(np.arange(len(released.rows)) != target)
    if len(others) < records:
        raise AuditError(f"{len(others)} other people of the target's class ({records} are needed)")
    inside, outside = [], []
    for _ in range(count):
        drawn = rng.choice(others, records, replace=False)
        outside.append(released.mean(drawn, rng)[coordinate])
        inside.append(released.mean(np.concatenate([[target], drawn[1:]]), rng)[coordinate])
    return Scores(np.array(inside), np.array(outside))


def isolation(each: Sequence[Scores], fpr: float = 0.01) -> Isolation:
    """Of one or more targets. Thresholds are each target's own."""
    areas = [auc(one) for one in each]
    rates = [tpr_at(one, fpr) for one in each]
    wrong = next((rate for rate in rates if isinstance(rate, NotMeasurable)), None)
    interval = cluster_interval(areas) or auc_interval(each[0])
    if wrong is not None:
        return Isolation(float(np.mean(areas)), interval, wrong, None, len(each))
    known = [rate for rate in rates if isinstance(rate, Rate)]
    count, of = sum(r.count for r in known), sum(r.of for r in known)
    rate = Rate(fpr, count, of, sum(r.false for r in known))
    return Isolation(float(np.mean(areas)), interval, rate, share_interval(count, of), len(each))


def nothing_released(why: str, targets: int) -> Isolation:
    """Where nothing leaves there is nothing to tell."""
    half = Interval(0.5, 0.5, 0.95, "nothing is released")
    return Isolation(0.5, half, NotMeasurable(0.01, "nothing is released"), None, targets, why)
