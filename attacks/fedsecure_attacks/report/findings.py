"""What in a report's figures speaks for a leak, in plain words: from the attacks themselves, not from the sentence that
the audit gives as its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedsecure_attacks.report.figure import Report, rate_key, short

__all__ = ["Finding", "findings", "one_in", "per_hundred", "thousands"]

TAIL_ALPHA = 1e-3
#: Attacks that look for people who were released as they are, for averages, for means, and for over-fitting.
KINDS = {
    "copy-scan": "copy", "nearest-neighbour": "copy", "nearest-neighbour-pixels": "copy", "average-scan": "average",
    "image-likelihood": "average", "loss": "model", "lira": "model", "rmia": "model",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finding:
    """``kind``: "bits", "copy", "average", "mean" or "model". ``words``: what was found. ``sure``: how sure that is."""

    kind: str
    words: str
    sure: str


def thousands(value: object) -> str:
    """A count as people read it; "some" when there is none."""
    return f"{value:,}" if isinstance(value, int | float) else "some"


def per_hundred(share: float) -> str:
    """A share of one as a number of 100, one digit where it matters."""
    value = 100 * share
    return f"{value:.0f}" if value >= 10 or value == round(value) else f"{value:.1f}"


def one_in(p: float) -> str:
    """A small chance in words."""
    if p <= 0 or 1 / p > 1e9:
        return "less than once in a thousand million times"
    return f"about once in {round(1 / p, 0 if p > 0.01 else -1):,.0f} times"


def findings(report: Report) -> tuple[Finding, ...]:
    """Strongest first: released bit for bit, copies by the exact test, rates, areas. None without the verdict LEAK."""
    if report["verdict"] != "LEAK":
        return ()
    found = _bits(report)
    attacks = sorted(report["attacks"].items(), key=lambda item: (item[0] != report["primary"], item[0]))
    for look in (_tail, _rate, _area):
        found += [said for name, attack in attacks if (said := look(name, attack, report)) is not None]
    return tuple(found)


def _bits(report: Report) -> list[Finding]:
    count = report["counts"].get("members_released_bit_for_bit")
    if not isinstance(count, int) or count < 1:
        return []
    people = (
        "1 member is in it exactly as they are" if count == 1 else f"{count:,} members are in it exactly as they are"
    )
    return [Finding("bits", f"{people}, value for value.", "Certain: whoever holds it holds these records.")]


def _tail(name: str, attack: Mapping[str, Any], report: Report) -> Finding | None:
    p, count = attack.get("tail_test_p_adjusted"), attack.get("tail_test_count")
    if p is None or not count or p >= TAIL_ALPHA:
        return None
    of, others = thousands(attack.get("members")), thousands(attack.get("nonmembers"))
    return Finding(
        KINDS.get(name, "mean"),
        f"The attack {short(name)} ranks {count:,} of {of} members above every one of {others} others.",
        f"If nothing showed, so many at the top would happen {one_in(p)}.",
    )


def _thresholds(report: Report) -> Mapping[str, float]:
    given = report["plan"].get("thresholds", {})
    return {"tpr": given.get("tpr", 0.02), "auc": given.get("auc", 0.55), "fpr": given.get("fpr", 0.01)}


def _rate(name: str, attack: Mapping[str, Any], report: Report) -> Finding | None:
    accepted = _thresholds(report)
    key = rate_key(attack, accepted["fpr"])
    interval = attack.get(f"{key}_interval")
    if key is None or attack[key] is None or not interval or interval["low"] <= accepted["tpr"]:
        return None
    if attack.get("judged_by_rates") is False:
        return None
    count, of = attack.get(f"{key}_count"), attack.get("members")
    who = f"{count:,} of {of:,} members" if count is not None and of else f"{per_hundred(attack[key])} of 100 members"
    return Finding(
        KINDS.get(name, "mean"),
        f"The attack {short(name)} tells {who} while wrongly accusing {per_hundred(accepted['fpr'])} of 100 others. "
        f"You accept {per_hundred(accepted['tpr'])} of 100 members.",
        f"With {per_hundred(interval.get('confidence', 0.95))} % confidence it is at least "
        f"{per_hundred(interval['low'])} of 100.",
    )


def _area(name: str, attack: Mapping[str, Any], report: Report) -> Finding | None:
    accepted = _thresholds(report)["auc"]
    interval = attack.get("auc_interval_joint") or attack.get("auc_interval")
    if attack["auc"] is None or not interval or interval["low"] <= accepted or attack.get("judged_by_rates") is False:
        return None
    return Finding(
        KINDS.get(name, "mean"),
        f"Under {short(name)}, a member scores above somebody else in {per_hundred(attack['auc'])} pairs of 100. "
        f"Chance gives 50; you accept {per_hundred(accepted)}.",
        f"With {per_hundred(0.95)} % confidence, for all attacks together, it is at least "
        f"{per_hundred(interval['low'])} of 100.",
    )
