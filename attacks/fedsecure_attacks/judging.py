"""From scores to results: every attack of an audit measured in the same way."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from fedsecure_attacks.statistics.intervals import auc_interval, share_interval
from fedsecure_attacks.statistics.roc import Rate, auc, tpr_at
from fedsecure_attacks.statistics.scores import Floats, Scores
from fedsecure_attacks.statistics.tail import rate_p, tail_test
from fedsecure_attacks.verdict import DIRECTION_CONFIDENCE, AttackResult, Thresholds, adjusted

__all__ = ["COPY_SCANS", "measure"]

CONFIDENCE = 0.95
#: Attacks that are judged by their tail alone.
COPY_SCANS = ("copy-scan", "average-scan")


def measure(
    scores: Mapping[str, Floats], inside: npt.NDArray[np.bool_], thresholds: Thresholds
) -> tuple[AttackResult, ...]:
    """``scores``: by attack, (n,). ``inside`` (n,): who is a member. Raises ``AuditError`` naming the attack when a
    score is not finite, or one kind is missing."""
    joint = 1 - (1 - CONFIDENCE) / max(1, sum(name not in COPY_SCANS for name in scores))
    return adjusted([_one(name, Scores.of(values, inside), thresholds, joint) for name, values in scores.items()])


def _one(name: str, scores: Scores, thresholds: Thresholds, joint: float) -> AttackResult:
    tpr = tpr_at(scores, thresholds.fpr)
    return AttackResult(
        name,
        auc(scores),
        auc_interval(scores, CONFIDENCE),
        auc_interval(scores, joint),
        auc_interval(scores, DIRECTION_CONFIDENCE),
        tpr,
        share_interval(tpr.count, tpr.of, CONFIDENCE) if isinstance(tpr, Rate) else None,
        tail_test(scores),
        rates=name not in COPY_SCANS,
        tied=scores.are_tied,
        rate_p=rate_p(tpr.count, scores.n1, scores.n0, tpr.allowed) if isinstance(tpr, Rate) else None,
    )
