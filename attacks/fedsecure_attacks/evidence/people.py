"""How many people: told apart in all, in each class, and the twenty who stood out most."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsecure_attacks.records import Labelled
from fedsecure_attacks.statistics.roc import NotMeasurable, is_measurable, threshold_at
from fedsecure_attacks.statistics.scores import Floats
from fedsecure_attacks.verdict import TAIL_ALPHA, AttackResult

__all__ = ["classes_of", "copied_people", "people_told", "two_digits", "worst_of"]

Flags = npt.NDArray[np.bool_]
MOST_WORST = 20


def copied_people(copies: tuple[int, int], of: int) -> dict[str, Any]:
    """``people`` of a report, of members who were released bit for bit, and of all who were as they are or nearly."""
    exact, nearly = copies
    how = "released bit for bit" if exact >= nearly else "released as they are, or nearly"
    return {"exposed": max(exact, nearly), "how": how, "by_chance": 0.0, "of": of}


def people_told(results: Sequence[AttackResult], primary: str, copies: tuple[int, int], members: int) -> dict[str, Any]:
    """How many members, of ``members`` that were given: released as they are (``copies``: bit for bit, and in all); or
    of those compared: above every other under an attack whose tail speaks; or told by the
    primary attack at the accepted false-positive rate; whichever is most beyond what chance gives."""
    result = next(r for r in results if r.name == primary)
    of = result.tail.members
    found: list[dict[str, Any]] = []
    if any(copies):
        found.append(copied_people(copies, members))
    tails = [r for r in results if r.tail_adjusted < TAIL_ALPHA]
    if tails:
        top = max(tails, key=lambda r: r.tail.count)
        chance = top.tail.members / (top.tail.nonmembers + 1)
        found.append(
            {"exposed": top.tail.count, "how": f"attack {top.name}, ahead of every other person", "by_chance": chance}
        )
    if not isinstance(result.tpr, NotMeasurable) and result.tpr_interval is not None:
        low, high = result.tpr_interval.low * of, result.tpr_interval.high * of
        how = f"attack {primary}; {result.tpr.false:,} of {result.tail.nonmembers:,} others were wrongly picked, too"
        found.append({
            "exposed": result.tpr.count, "how": how, "by_chance": of * result.tpr.false / result.tail.nonmembers,
            "low": math.floor(low), "high": math.ceil(high), "confidence": result.tpr_interval.confidence,
        })  # fmt: skip
    if not found:
        assert isinstance(result.tpr, NotMeasurable)
        return {"exposed": None, "of": of, "reason": result.tpr.why}
    best = max(found, key=lambda one: float(one["exposed"]) - float(one["by_chance"]))
    return {"of": of, **best, "by_chance": round(best["by_chance"], 2)}


def classes_of(members: Labelled, released: Labelled, least: int) -> list[dict[str, Any]]:
    """Members and released records of each class of either."""
    rows = []
    for c in sorted(set(np.unique(members.y).tolist()) | set(np.unique(released.y).tolist())):
        many, made = int((members.y == c).sum()), int((released.y == c).sum())
        below = made > 0 and many < least
        rows.append({"class": c, "members": many, "released": made, "n_min": least, "below_minimum": below})
    return rows


def two_digits(value: float) -> float:
    """Rounded to two significant digits: enough to read, too little to know a record by."""
    return float(f"{value:.2g}")


def worst_of(
    scores: Mapping[str, Floats],
    inside: Flags,
    classes: npt.NDArray[np.int64],
    *,
    primary: str,
    fpr: float,
    name: Callable[[int], str | None],
    size: Callable[[npt.NDArray[np.int64]], Floats],
) -> list[dict[str, Any]]:
    """The members that most attacks tell, then those that the primary attack ranks highest: at most twenty. ``name``:
    the salted id of a candidate. ``size``: how unusual candidates are, (k,) for indices (k,)."""
    told = np.zeros(len(inside), dtype=int)
    for values in scores.values():
        out = values[~inside]
        edge = threshold_at(out, fpr) if is_measurable(len(out), fpr) else float(out.max())
        told += values > edge
    out = np.sort(scores[primary][~inside])
    percentile = 100 * np.searchsorted(out, scores[primary], side="left") / len(out)
    order = np.lexsort((-percentile, -told))
    chosen = order[inside[order]][:MOST_WORST]
    sizes = size(chosen)
    counts = {c: int((inside & (classes == c)).sum()) for c in np.unique(classes).tolist()}
    return [
        {
            "record": name(i), "class": int(classes[i]), "n": counts[int(classes[i])],
            "percentile": round(float(percentile[i]), 1), "attacks": int(told[i]), "size": two_digits(float(one)),
        }
        for i, one in zip(chosen.tolist(), sizes, strict=True)
    ]  # fmt: skip
