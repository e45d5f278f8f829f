"""What attacks on a mechanism found, as entries of its report."""

from __future__ import annotations

from typing import Any

from fedsecure_attacks.mechanism.deciding import Judged
from fedsecure_attacks.mechanism.measures import AttackOnMechanism
from fedsecure_attacks.statistics.roc import NotMeasurable, Rate, precision_at_prior
from fedsecure_attacks.strictjson import PRIORS, interval_json
from fedsecure_attacks.verdict import Thresholds

__all__ = ["attack_entry", "curve_entry", "short_entry"]


def attack_entry(name: str, attack: AttackOnMechanism, judged: Judged, thresholds: Thresholds) -> dict[str, Any]:
    """What the attack ``name`` found in the cell that tells most, with its p adjusted over all cells and attacks."""
    key, rate = f"tpr_at_fpr_{thresholds.fpr:g}", attack.tpr
    if isinstance(rate, NotMeasurable):
        rated: dict[str, Any] = {key: None, f"{key}_reason": rate.why, f"{key}_interval": None}
    else:
        rated = {
            key: rate.value,
            f"{key}_count": rate.count,
            f"{key}_false": rate.false,
            f"{key}_interval": interval_json(attack.tpr_interval),
            f"{key}_p_adjusted": judged.adjusted[judged.worst, name, "rate"],
            f"{key}_precision": {f"{prior:g}": precision_at_prior(rate, prior) for prior in PRIORS},
        }
    return {
        "auc": attack.auc,
        "auc_interval": interval_json(attack.interval),
        "auc_p_adjusted": judged.adjusted[judged.worst, name, "area"],
        "clusters": attack.clusters,
        **rated,
        "tail_test_p": attack.tail.p,
        "tail_test_p_adjusted": judged.adjusted[judged.worst, name, "tail"],
        "tail_test_count": attack.tail.count,
        "members": rate.of if isinstance(rate, Rate) else attack.tail.members,
        "nonmembers": attack.nonmembers,
        "judged_by_rates": True,
    }


def short_entry(attack: AttackOnMechanism, thresholds: Thresholds) -> dict[str, Any]:
    """What an attack found in one cell of many: area and rate with their intervals."""
    rate, between, over = attack.tpr, attack.interval, attack.tpr_interval
    return {
        "auc": attack.auc,
        "low": None if between is None else between.low,
        "high": None if between is None else between.high,
        "clusters": attack.clusters,
        f"tpr_at_fpr_{thresholds.fpr:g}": rate.value if isinstance(rate, Rate) else None,
        "reason": "" if isinstance(rate, Rate) else rate.why,
        "low_tpr": None if over is None else over.low,
        "high_tpr": None if over is None else over.high,
    }


def curve_entry(attack: AttackOnMechanism) -> dict[str, Any]:
    """The curve of an attack, with its bands."""
    curve = attack.curve
    return {"fpr": list(curve.fpr), "tpr": list(curve.tpr), "low": list(curve.low), "high": list(curve.high)}
