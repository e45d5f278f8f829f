"""Questions with a known answer, asked in every audit: one that cannot find its own planted leak, or that finds one
where there is none, is INVALID.

*planted*: one in a hundred members, copied into the released set, must be found. *blind*: the same attacks on a set
made from other people must find nothing; where they do, members and non-members differ by more than membership.
*oracle*: the exact class means, released as they are, must be attacked as well as theory says (F5), no better and no
worse.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from fedsecure_attacks.images.copies import copy_scan, exact_copies
from fedsecure_attacks.images.frame import Frame
from fedsecure_attacks.images.neighbour import raw_neighbour
from fedsecure_attacks.images.tracing import contrast, mean_tracing, trace
from fedsecure_attacks.observation import Outsider
from fedsecure_attacks.records import Candidates, Labelled, Pools
from fedsecure_attacks.statistics.intervals import auc_interval
from fedsecure_attacks.statistics.roc import auc
from fedsecure_attacks.statistics.scores import Floats, Scores
from fedsecure_attacks.statistics.tail import tail_test
from fedsecure_attacks.verdict import DIRECTION_CONFIDENCE, TAIL_ALPHA, Control

__all__ = ["blind", "exact_means_effects", "oracle", "planted"]

Flags = npt.NDArray[np.bool_]
#: Share of members that is planted, and how far theory may be off on records that are not Gaussian.
PLANTED, TOLERANCE = 0.01, 0.06
#: Members of a class that the oracle needs.
LEAST = 5


def planted(seen: Outsider, candidates: Candidates, inside: Flags, generator: np.random.Generator) -> Control:
    """Whether members that are put into the released set are found, and rank above every non-member."""
    members = np.flatnonzero(inside)
    count = min(len(seen.released), max(1, math.ceil(PLANTED * len(members))))
    chosen = generator.choice(members, count, replace=False)
    x, y = seen.released.x.copy(), seen.released.y.copy()
    x[:count], y[:count] = candidates.x[chosen], candidates.y[chosen]
    changed = replace(seen, released=Labelled(seen.released.name, x, y))
    exact = exact_copies(changed, candidates)
    scores = copy_scan(changed, candidates)
    above = int((scores[chosen] > scores[~inside].max()).sum())
    people = "member" if count == 1 else "members"
    said = f"{count} planted {people}: {above} rank above every non-member, {exact} are found bit for bit"
    return Control("planted", above == count and exact >= count, said)


def made_from(population: Labelled, like: Labelled) -> Labelled:
    """As many records of each class as ``like`` has, each an average of other people of ``population``."""
    x, y = [], []
    for c in np.unique(like.y).tolist():
        people = population.x[population.y == c]
        many = int((like.y == c).sum())
        if not len(people):
            continue
        for group in np.array_split(np.arange(len(people)), min(many, len(people))):
            x.append(people[group].mean(axis=0, dtype=np.float64))
            y.append(c)
    if not x:
        return population.take(np.arange(0))
    return Labelled("a set made from other people", np.stack(x).astype(np.float32), np.array(y, np.int64))


def blind(seen: Outsider, candidates: Candidates, inside: Flags, frame: Frame) -> Control:
    """Whether attacks on a set that is made from other people find nothing."""
    other = made_from(seen.population, seen.released)
    if not len(other):
        return Control("blind", False, "the references have none of the released classes, so nothing can be compared")
    unseeing = replace(seen, released=other)
    wrong = []
    attacks = {
        "mean-tracing": mean_tracing(unseeing, candidates, frame),
        "nearest-neighbour": raw_neighbour(unseeing, candidates, frame.embed),
    }
    areas = []
    for name, values in attacks.items():
        scores = Scores.of(values, inside)
        interval = auc_interval(scores, DIRECTION_CONFIDENCE)
        areas.append(f"{name} {auc(scores):.3f}")
        if not interval.low <= 0.5 <= interval.high or 2 * tail_test(scores).p < TAIL_ALPHA:
            wrong.append(name)
    said = "areas on a set made from other people: " + ", ".join(areas)
    if wrong:
        said += "; members and non-members differ by more than membership, or the references belong to neither"
    return Control("blind", not wrong, said)


def oracle(pools: Pools, candidates: Candidates, inside: Flags, frame: Frame) -> Control:
    """Whether the exact class means of the members are attacked as F5 says."""
    moved = _exact_means(candidates, inside, frame)
    counts = {c: int((pools.members.y == c).sum()) for c in moved}
    known = np.isin(candidates.y, list(moved))
    if not moved or not (known & inside).any() or not (known & ~inside).any():
        return Control("oracle", True, f"not asked: no class has {LEAST} members and references")
    found = Scores.of(trace(frame, candidates, moved, counts)[known], inside[known])
    said = [_expected(frame, c, m, counts[c]) for c, m in moved.items()]
    theory, value = float(np.average(said, weights=list(counts.values()))), auc(found)
    interval = auc_interval(found, 0.9999)
    tolerance = max((interval.high - interval.low) / 2, TOLERANCE)
    return Control(
        "oracle", abs(value - theory) <= tolerance, f"exact means: area {value:.3f}, theory (F5) {theory:.3f}"
    )


def exact_means_effects(candidates: Candidates, inside: Flags, frame: Frame) -> dict[int, tuple[float, int]]:
    """What F5 says of the members' exact class means, released as they are: class -> (d', members). It is what
    mean-tracing could reach at most, had the set matched them perfectly."""
    moved = _exact_means(candidates, inside, frame)
    counts = {c: int((inside & (candidates.y == c)).sum()) for c in moved}
    return {c: (_effect(frame, c, m, counts[c]), counts[c]) for c, m in moved.items()}


def _exact_means(candidates: Candidates, inside: Flags, frame: Frame) -> dict[int, Floats]:
    """Of each class with enough members and references, centred, (D,)."""
    x, y = candidates.x[inside], candidates.y[inside]
    centred, moved = frame.centred(x, y), {}
    for c in np.unique(y).tolist():
        here = y == c
        if here.sum() >= LEAST and c in frame.means and len(frame.held_out.get(c, ())) >= LEAST:
            moved[c] = centred[here].mean(axis=0)
    return moved


def _expected(frame: Frame, c: int, m: Floats, count: int) -> float:
    """The area that F5 says of the released mean ``m`` (D,) of class ``c``."""
    return float(norm.cdf(_effect(frame, c, m, count) / math.sqrt(2)))


def _effect(frame: Frame, c: int, m: Floats, count: int) -> float:
    """d' of it: members lie m'Am above people who are out, whose spread the references tell."""
    out = contrast(frame, frame.held_out[c], m, count)
    direct = frame.whitener.apply(m[None])[0] @ m
    offset = float((frame.whitener.apply(frame.held_out[c]) @ m).mean())
    return (float(direct) - offset) / (float(out.std()) or 1.0)
