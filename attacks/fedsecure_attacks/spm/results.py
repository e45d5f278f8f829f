"""The report of ``audit spm``, strict JSON."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fedsecure_attacks.mechanism.scoring import PRIMARY
from fedsecure_attacks.reporthead import controls_json, report_head
from fedsecure_attacks.spm.audit import SpmAudit
from fedsecure_attacks.statistics.roc import Rate
from fedsecure_attacks.statistics.theory import auc_of, tpr_of
from fedsecure_attacks.strictjson import attack_json

__all__ = ["spm_report", "theory_of"]

#: Points of a theory curve, from this false-positive rate to 1.
POINTS, LEAST_FPR = 41, 1e-3


def spm_report(audit: SpmAudit) -> dict[str, Any]:
    """The report. The same plan, records, seed and halves give the same bytes."""
    effects = theory_of(audit)
    fprs = [round(f, 9) for f in np.geomspace(LEAST_FPR, 1.0, POINTS).tolist()]
    return {
        **report_head("spm", audit.verdict, primary=PRIMARY, plan=audit.plan, inputs=audit.inputs),
        "counts": audit.counts,
        "notes": list(audit.notes),
        "controls": controls_json(audit.controls),
        "attacks": {result.name: attack_json(result) for result in audit.results},
        "threat_model": "T3",
        "surface": "summed update",
        "hidden_by_masks": list(audit.hidden),
        "people": _people(audit),
        "roc": {
            name: {key: list(getattr(a.curve, key)) for key in ("fpr", "tpr", "low", "high")}
            for name, a in audit.attacks.items()
        },
        "theory": {
            name: {"fpr": fprs, "tpr": [round(v, 9) for v in tpr_of(effect, fprs).tolist()]}
            for name, effect in effects.items()
        },
        "measured": {
            **audit.measured,
            "areas_by_theory": {name: auc_of(effect) for name, effect in effects.items()},
        },
    }  # fmt: skip


def theory_of(audit: SpmAudit) -> dict[str, float]:
    """Effect sizes d' of mean gradients: as the members' exact mean was attacked, and by the closed form
    sqrt(d_eff / n) with the effective rank of gradients, for the node's n records and for those of all nodes."""
    found = {} if audit.effect is None else {"exact mean gradient": audit.effect}
    rank, members = audit.measured["effective_rank"], audit.counts["members_a_half"]
    found["closed form, node"] = math.sqrt(rank / members)
    found["closed form, sum"] = math.sqrt(rank / (members * audit.measured["nodes"]))
    return found


def _people(audit: SpmAudit) -> dict[str, Any]:
    """Members of one run who are told at the accepted false-positive rate."""
    primary = audit.attacks[PRIMARY].tpr
    members = audit.counts["members_a_half"]
    if not isinstance(primary, Rate):
        return {"exposed": None, "of": members, "confidence": 0.95, "reason": primary.why}
    interval = audit.attacks[PRIMARY].tpr_interval
    assert interval is not None
    return {
        "exposed": round(primary.value * members),
        "of": members,
        "confidence": interval.confidence,
        "low": math.floor(interval.low * members),
        "high": math.ceil(interval.high * members),
        "by_chance": primary.fpr * members,
    }
