"""The exact tail test: how many members score above every non-member, and how likely that is by chance.

If members and non-members are exchangeable, each of the C(n1 + n0, k) choices of the top k is as likely, so
P(the top k are all members) = C(n1, k) / C(n1 + n0, k). Nothing is assumed of the scores' distribution. A handful of
copied people shows here while the area under the curve stays at one half.

The same of a rate: at least c members are above the (k + 1)-th of the non-members just when at most k of the top c + k
records are non-members, which has a hypergeometric chance. With k = 0 it is the test of the tail.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.stats import hypergeom

from fedsecure_attacks.statistics.scores import Scores

__all__ = ["TailTest", "least_count", "rate_p", "tail_p", "tail_test"]


@dataclass(frozen=True, slots=True)
class TailTest:
    """``count`` (k) of ``members`` strictly above all ``nonmembers``; ``p``, in (0, 1]."""

    count: int
    members: int
    nonmembers: int
    p: float


def tail_p(count: int, members: int, nonmembers: int) -> float:
    """C(n1, k) / C(n1 + n0, k)."""
    if not 0 <= count <= members or nonmembers < 1:
        raise ValueError(f"{count} of {members} members above {nonmembers} non-members")
    logs = (math.log((members - i) / (members + nonmembers - i)) for i in range(count))
    return math.exp(math.fsum(logs))


def rate_p(count: int, members: int, nonmembers: int, allowed: int) -> float:
    """The chance that ``count`` and more of ``members`` score above the threshold that ``allowed`` of ``nonmembers``
    are above, when nothing tells the two apart; ties count against the attacker."""
    if not (0 <= count <= members and 0 <= allowed < nonmembers):
        raise ValueError(f"{count} of {members} members above a threshold that {allowed} of {nonmembers} are above")
    return float(hypergeom.cdf(allowed, members + nonmembers, nonmembers, count + allowed))


def tail_test(scores: Scores) -> TailTest:
    """The test on ``scores``; ties count against the attacker."""
    count = int((scores.members > scores.nonmembers.max()).sum())
    return TailTest(count, scores.n1, scores.n0, tail_p(count, scores.n1, scores.n0))


def least_count(members: int, nonmembers: int, p: float) -> int | None:
    """The fewest exposed members that the test can show at ``p``: its power. ``None`` when not even all of them do."""
    for count in range(1, members + 1):
        if tail_p(count, members, nonmembers) < p:
            return count
    return None
