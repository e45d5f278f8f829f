"""What leaves an audit of files open, or has to be told beside it: people in both pools, classes with too few people,
classes that one side lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedsecure_attacks.records import Candidates, Labelled
from fedsecure_attacks.verdict import Thresholds

__all__ = ["about_classes", "about_small_classes", "about_twins"]

#: Classes that are named one by one.
NAMED = 10


def about_twins(
    members: Labelled, nonmembers: Labelled, twins: int, inner: int, thresholds: Thresholds
) -> tuple[list[str], list[str]]:
    """(notes, doubts). ``twins``: records in both pools. ``inner``: members that repeat another."""
    notes, doubts = [], []
    if twins:
        notes.append(f"{twins} records are in both pools and were left out of both")
    if inner:
        notes.append(f"{inner} members repeat another member: each counts double in every mean")
    share = twins / min(len(members), len(nonmembers))
    if share > thresholds.twins:
        doubts.append(f"{twins} records are in both pools ({share:.0%}, allowed {thresholds.twins:.0%})")
    return notes, doubts


def about_small_classes(sizes: Mapping[int, int], released: Labelled, least: int) -> list[str]:
    """Doubts: classes of which something was released, though fewer than ``least`` members have them. ``sizes``:
    members of each class."""
    small = {c: sizes.get(c, 0) for c in np.unique(released.y).tolist() if sizes.get(c, 0) < least}
    if not small:
        return []
    who = f"class {next(iter(small))} has" if len(small) == 1 else f"classes {_listed(list(small))} have"
    low, high = min(small.values()), max(small.values())
    many = f"{high} member{'' if high == 1 else 's'}" if low == high else f"{low} to {high} members"
    each = " each" if len(small) > 1 and low == high else ""
    return [f"{who} {many}{each} (at least {least} for anything of a class to be released)"]


def about_classes(released: Labelled, candidates: Candidates, reference: Labelled) -> list[str]:
    """Notes on classes that one side lacks."""
    known, out = set(np.unique(released.y).tolist()), set(np.unique(reference.y).tolist())
    absent = sorted(set(np.unique(candidates.y).tolist()) - known)
    unknown = sorted(known - out)
    notes = []
    if absent:
        notes.append(f"classes {_listed(absent)}: nothing of them was released; which classes are is disclosed by that")
    if unknown:
        notes.append(f"classes {_listed(unknown)}: no reference has them, so mean-tracing leaves them out")
    return notes


def _listed(classes: Sequence[int]) -> str:
    more = f" and {len(classes) - NAMED} more" if len(classes) > NAMED else ""
    return ", ".join(map(str, classes[:NAMED])) + more
