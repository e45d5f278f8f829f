"""A report as strict JSON: rates are shares of one, counts stand beside every rate, and what is not defined is null
with a reason beside it. Per-record scores are membership data themselves and are never in it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fedsecure_attacks.reporthead import controls_json, report_head
from fedsecure_attacks.statistics.intervals import Interval
from fedsecure_attacks.statistics.roc import NotMeasurable, Rate, precision_at_prior
from fedsecure_attacks.verdict import AttackResult

if TYPE_CHECKING:
    from fedsecure_attacks.files import FilesAudit

__all__ = ["attack_json", "dump", "files_report", "interval_json"]

#: Shares of candidates that might be members, for which the precision is told.
PRIORS = (0.01, 0.1, 0.5)


def dump(report: dict[str, Any]) -> str:
    """One spelling, with no NaN or infinity. Raises ``ValueError`` for one."""
    return json.dumps(report, indent=2, sort_keys=True, allow_nan=False) + "\n"


def files_report(audit: FilesAudit) -> dict[str, Any]:
    """The report of ``audit files``. The same inputs and seed give the same bytes."""
    plan = audit.profile.to_json()
    return {
        **report_head("files", audit.verdict, primary=plan["primary"], plan=plan, inputs=audit.inputs),
        "counts": audit.counts,
        "notes": list(audit.notes),
        "controls": controls_json(audit.controls),
        "attacks": {result.name: attack_json(result) for result in audit.results},
        "threat_model": "T1",
        **audit.evidence,
    }


def attack_json(result: AttackResult) -> dict[str, Any]:
    """One attack's entry in ``attacks``."""
    key = f"tpr_at_fpr_{result.tpr.fpr:g}"
    return {
        "auc": result.auc,
        "auc_interval": interval_json(result.interval),
        "auc_interval_joint": interval_json(result.joint),
        **_rate(key, result),
        "tail_test_p": result.tail.p,
        "tail_test_p_adjusted": result.tail_adjusted,
        "tail_test_count": result.tail.count,
        "members": result.tail.members,
        "nonmembers": result.tail.nonmembers,
        "judged_by_rates": result.rates,
    }


def _rate(key: str, result: AttackResult) -> dict[str, Any]:
    if isinstance(result.tpr, NotMeasurable):
        return {key: None, f"{key}_reason": result.tpr.why, f"{key}_interval": None}
    rate: Rate = result.tpr
    assert result.tpr_interval is not None
    return {
        key: rate.value,
        f"{key}_count": rate.count,
        f"{key}_false": rate.false,
        f"{key}_interval": interval_json(result.tpr_interval),
        f"{key}_p": result.rate_p,
        f"{key}_p_adjusted": result.rate_adjusted,
        f"{key}_precision": {f"{prior:g}": precision_at_prior(rate, prior) for prior in PRIORS},
    }


def interval_json(interval: Interval | None) -> dict[str, Any] | None:
    """Its ends, its confidence and how it was found; None of none."""
    if interval is None:
        return None
    return {
        "low": interval.low,
        "high": interval.high,
        "confidence": round(interval.confidence, 12),
        "method": interval.method,
    }
