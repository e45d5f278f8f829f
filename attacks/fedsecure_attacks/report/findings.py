"""What in a report's figures speaks for a leak, in plain words: from the attacks themselves, not from the sentence that
the audit gives as its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fedsecure_attacks.report.figure import Report, rate_key, short
from fedsecure_attacks.verdict import RATE_ALPHA, TAIL_ALPHA, Thresholds

__all__ = ["Finding", "accepted", "findings", "gloss", "one_in", "per_hundred", "thousands"]

#: Attacks that look for people who were released as they are, for averages, for means, and for over-fitting.
KINDS = {
    "copy-scan": "copy", "nearest-neighbour": "copy", "nearest-neighbour-pixels": "copy", "average-scan": "average",
    "image-likelihood": "average", "loss": "model", "lira": "model", "rmia": "model",
}  # fmt: skip

#: What an attack asks, by the beginning of its name.
_ASKS = {
    "copy-scan": "who is in it as they are, or nearly so?",
    "average-scan": "who is in an average of two or three?",
    "mean-tracing": "whose record draws the averages towards itself?",
    "nearest-neighbour": "who is nearest to something released?",
    "image-likelihood": "who is in the average that an image started from?",
    "loss": "whom does a model trained on it know best?",
    "lira": "whom does a model trained on it know best?",
    "rmia": "whom does a model trained on it know best?",
    "combined": "all attacks together",
    "exact": "the averages themselves, released as they are",
}

_DEFAULTS = {key: value for key, value in asdict(Thresholds()).items() if key in {"tpr", "auc", "fpr", "twins"}}


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


def gloss(name: str) -> str:
    """An attack's name with what it asks."""
    asks = next((words for begin, words in _ASKS.items() if name.startswith(begin)), "")
    return f"“{short(name)}” ({asks})" if asks else f"“{short(name)}”"


def findings(report: Report) -> tuple[Finding, ...]:
    """Strongest first: released bit for bit, or nearly, copies by the exact test, rates, areas; one for each attack.
    None without the verdict LEAK."""
    if report["verdict"] != "LEAK":
        return ()
    found, told = [*_bits(report), *_nearly(report)], set()
    attacks = sorted(report["attacks"].items(), key=lambda item: (item[0] != report["primary"], item[0]))
    for look in (_tail, _rate, _area):
        for name, attack in attacks:
            if name not in told and (said := look(name, attack, report)) is not None:
                told.add(name)
                found.append(said)
    return tuple(found)


def _bits(report: Report) -> list[Finding]:
    count, outside = _count(report, "members_released_bit_for_bit"), _count(report, "nonmembers_released_bit_for_bit")
    if count < 1 or (outside and not _count(report, "people_released_or_nearly")):
        return []  # none, or no more of them than repeat by chance
    people = "The record of 1 member is" if count == 1 else f"The records of {count:,} members are"
    words = f"{people} in it as they are, value for value."
    return [Finding("bits", words, _sure("whoever holds it holds their records", outside))]


def _nearly(report: Report) -> list[Finding]:
    """Records that are in a release but for rounding, a mirror image, a shift or brightness."""
    outside = _count(report, "nonmembers_released_or_nearly")
    more = _count(report, "people_released_or_nearly") - _count(report, "members_released_bit_for_bit")
    if more < 1:
        return []
    people = "The record of 1 person is" if more == 1 else f"The records of {more:,} people are"
    words = f"{people} in it nearly as they are: mirrored, turned, shifted, or at another brightness."
    return [Finding("copy", words, _sure("nothing but these records comes so near to them", outside))]


def _sure(because: str, outside: int) -> str:
    """``outside``: people who are out and in the release as well."""
    if not outside:
        return f"Certain for these: {because}."
    others = "1 person who is out is" if outside == 1 else f"{outside:,} people who are out are"
    return f"For no one of them alone: {others} in it as well, by chance. But members clearly more often."


def _count(report: Report, key: str) -> int:
    """Of the report's counts; none where it has no such."""
    value = report["counts"].get(key)
    return value if isinstance(value, int) else 0


def _tail(name: str, attack: Mapping[str, Any], report: Report) -> Finding | None:
    p, count = attack.get("tail_test_p_adjusted"), attack.get("tail_test_count")
    if p is None or not count or p >= TAIL_ALPHA:
        return None
    of, others = thousands(attack.get("members")), thousands(attack.get("nonmembers"))
    return Finding(
        KINDS.get(name, "mean"),
        f"The attack {gloss(name)} puts {count:,} of {of} members ahead of every one of {others} other people.",
        f"If nothing were given away, so many at the top would happen {one_in(p)}.",
    )


def accepted(report: Report) -> Mapping[str, float]:
    """What the plan accepts: ``tpr``, ``auc``, ``fpr`` and ``twins``, or what audits accept by default."""
    return {**_DEFAULTS, **{k: v for k, v in report["plan"].get("thresholds", {}).items() if k in _DEFAULTS}}


def _rate(name: str, attack: Mapping[str, Any], report: Report) -> Finding | None:
    limits = accepted(report)
    key = rate_key(attack, limits["fpr"])
    interval = attack.get(f"{key}_interval")
    if key is None or attack[key] is None or not interval or interval["low"] <= limits["tpr"]:
        return None
    p = attack.get(f"{key}_p_adjusted")
    if attack.get("judged_by_rates") is False or (p is not None and p >= RATE_ALPHA):
        return None
    count, of = attack.get(f"{key}_count"), attack.get("members")
    who = f"{count:,} of {of:,} members, " if count is not None and of else ""
    sure = per_hundred(interval.get("confidence", 0.95))
    return Finding(
        KINDS.get(name, "mean"),
        f"The attack {gloss(name)} picks out {who}{per_hundred(attack[key])} of 100, while it wrongly picks "
        f"{per_hundred(limits['fpr'])} of 100 others. Accepted beforehand: {per_hundred(limits['tpr'])} of 100 "
        "members.",
        f"With {sure} % confidence, at least {per_hundred(interval['low'])} of 100 members are picked out.",
    )


def _area(name: str, attack: Mapping[str, Any], report: Report) -> Finding | None:
    limit = accepted(report)["auc"]
    interval = attack.get("auc_interval_joint") or attack.get("auc_interval")
    if attack["auc"] is None or not interval or interval["low"] <= limit or attack.get("judged_by_rates") is False:
        return None
    return Finding(
        KINDS.get(name, "mean"),
        f"The attack {gloss(name)} puts a member ahead of somebody else in {per_hundred(attack['auc'])} of 100 pairs. "
        f"Chance gives 50; accepted beforehand: {per_hundred(limit)}.",
        f"With 95 % confidence over all attacks together, it is at least {per_hundred(interval['low'])} of 100 pairs.",
    )
