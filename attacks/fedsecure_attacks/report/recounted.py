"""Whether the figures of a report fit each other: what follows from others is computed again."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from fedsecure_attacks.report.figure import Report, rate_key, short
from fedsecure_attacks.report.findings import accepted
from fedsecure_attacks.reporthead import plan_sha256
from fedsecure_attacks.statistics.intervals import share_interval
from fedsecure_attacks.statistics.multiplicity import holm
from fedsecure_attacks.statistics.roc import allowed_above
from fedsecure_attacks.statistics.tail import rate_p

__all__ = ["misfits"]

#: What rounding may do.
NEAR = 1e-6
#: Of more people than this nothing is computed again: it would take long, and no audit has them.
MOST_PEOPLE = 10**7


def misfits(report: Report) -> Iterator[str]:
    """Figures of ``report``, which follows the schema, that do not fit others: one line each."""
    plan = report["plan"]
    if report["plan_sha256"] != plan_sha256(plan):
        yield "plan_sha256 is not that of its plan"
    for name in ("mode", "primary"):
        if plan.get(name, report[name]) != report[name]:
            yield f"plan.{name} is {short(str(plan[name]))}"
    fpr, released = accepted(report)["fpr"], report["mode"] in {"files", "release"}
    for name, attack in report["attacks"].items():
        at, key = f"attacks.{short(name)}", rate_key(attack, fpr)
        yield from _within(f"{at}.auc", attack["auc"], attack.get("auc_interval"))
        yield from _wider(f"{at}.auc_interval_joint", attack.get("auc_interval_joint"), attack.get("auc_interval"))
        if key is not None:
            yield from _within(f"{at}.{key}", attack[key], attack.get(f"{key}_interval"))
        if released:
            yield from _tail(at, attack)
            yield from _rate(at, key, attack, fpr)
    if released or report["mode"] == "spm":
        yield from _together(report, fpr)
    yield from _told(report.get("people"))


def _within(at: str, value: float | None, between: Mapping[str, Any] | None) -> Iterator[str]:
    if value is not None and between and not between["low"] - NEAR <= value <= between["high"] + NEAR:
        yield f"{at} is outside of its interval"


def _wider(at: str, joint: Mapping[str, Any] | None, one: Mapping[str, Any] | None) -> Iterator[str]:
    if joint and one and (joint["low"] > one["low"] + NEAR or joint["high"] < one["high"] - NEAR):
        yield f"{at} is narrower than auc_interval"


def _same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-12)


def _compared(attack: Mapping[str, Any]) -> tuple[int, int] | None:
    """Members and others, where anything can be computed from them."""
    members, others = attack.get("members"), attack.get("nonmembers")
    if members is None or others is None or not (members and others and members + others <= MOST_PEOPLE):
        return None
    return int(members), int(others)


def _tail(at: str, attack: Mapping[str, Any]) -> Iterator[str]:
    count, p, people = attack.get("tail_test_count"), attack.get("tail_test_p"), _compared(attack)
    if count is None or p is None or people is None:
        return
    members, others = people
    if count > members:
        yield f"{at}.tail_test_count is more than its members"
    elif not _same(p, _tail_p(int(count), members, others)):
        yield f"{at}.tail_test_p does not follow from tail_test_count"


def _tail_p(count: int, members: int, others: int) -> float:
    """``statistics.tail.tail_p`` at once."""
    both = members + others
    logs = (math.lgamma(members + 1), -math.lgamma(members - count + 1), -math.lgamma(both + 1))
    return math.exp(min(0.0, math.fsum((*logs, math.lgamma(both - count + 1)))))


def _rate(at: str, key: str | None, attack: Mapping[str, Any], fpr: float) -> Iterator[str]:
    people = _compared(attack)
    if key is None or attack[key] is None or people is None or (count := attack.get(f"{key}_count")) is None:
        return
    members, others = people
    between, p = attack.get(f"{key}_interval"), attack.get(f"{key}_p")
    if count > members or not _same(attack[key], count / members):
        yield f"{at}.{key} does not follow from its count"
        return
    if between and between.get("method") == "Clopper-Pearson" and 0 < between.get("confidence", 0.95) < 1:
        again = share_interval(int(count), members, between.get("confidence", 0.95))
        if not (_same(between["low"], again.low) and _same(between["high"], again.high)):
            yield f"{at}.{key}_interval does not follow from its count"
    allowed = allowed_above(others, fpr)
    if p is not None and allowed < others and not _same(p, rate_p(int(count), members, others, allowed)):
        yield f"{at}.{key}_p does not follow from its count"


def _together(report: Report, fpr: float) -> Iterator[str]:
    """The p of all attacks together (Holm); what masks hide is not among them."""
    hidden = report.get("hidden_by_masks", ())
    attacks = [(name, attack) for name, attack in report["attacks"].items() if name not in hidden]
    keys = {name: rate_key(attack, fpr) for name, attack in attacks}
    rates = {n: f"{keys[n]}_p" for n, a in attacks if a.get("judged_by_rates") is not False}
    for of in ({name: "tail_test_p" for name, _ in attacks}, rates):
        raw = {n: p for n, a in attacks if n in of and isinstance(p := a.get(of[n]), int | float)}
        for name, p in holm(raw).items():
            told = report["attacks"][name].get(f"{of[name]}_adjusted")
            if told is not None and not _same(told, p):
                yield f"attacks.{short(name)}.{of[name]}_adjusted does not follow from the p of all attacks"


def _told(people: Mapping[str, Any] | None) -> Iterator[str]:
    if not people or people["exposed"] is None:
        return
    low, high = people.get("low"), people.get("high")
    if people["exposed"] > people["of"]:
        yield "people.exposed is more than all of them"
    elif (low is not None and low > people["exposed"]) or (high is not None and high < people["exposed"]):
        yield "people.exposed is outside of its interval"
