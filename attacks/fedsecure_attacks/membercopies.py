"""Members who are in a released set as they are, or nearly: a fact about them, whoever is compared with whom.

Sought among all members that were given, before those who are in both pools are taken out. Rows of few values repeat
by chance: where people who are out are in the set as well, members have to be in it clearly more often.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from scipy.stats import hypergeom

from fedsecure_attacks.images.resemblance import Flags, Nearness, copied
from fedsecure_attacks.records import Labelled
from fedsecure_attacks.verdict import TAIL_ALPHA

__all__ = ["NO_COPIES", "MemberCopies", "copies_among"]

#: People in both pools are one person each while so many times fewer records repeat within a pool: by chance, more
#: would repeat within pools than between them.
RARELY = 10


@dataclass(frozen=True, slots=True)
class MemberCopies:
    """Members released bit for bit (``exact``), those and all that are in the set ``nearly``, and people who are out
    who are (``outside``, ``outside_exact``). ``certain``: whether the members are no chance."""

    exact: int = 0
    nearly: int = 0
    outside_exact: int = 0
    outside: int = 0
    certain: bool = False

    @property
    def leaks(self) -> tuple[int, int]:
        """Members who are a leak by themselves: bit for bit, and in all."""
        return (self.exact, self.nearly) if self.certain else (0, 0)

    def counts(self) -> dict[str, int]:
        """For a report."""
        found = {
            "members_released_bit_for_bit": self.exact,
            "nonmembers_released_bit_for_bit": self.outside_exact,
            "nonmembers_released_or_nearly": self.outside,
        }
        return {**found, "people_released_or_nearly": self.nearly} if self.certain else found

    def notes(self) -> list[str]:
        """What a reader should know."""
        if not self.outside:
            return []
        how = "bit for bit" if self.outside == self.outside_exact else "as they are, or nearly"
        return [f"{self.outside} non-members are in the released set {how}: such records repeat by chance"]


NO_COPIES = MemberCopies()


def copies_among(members: Labelled, nonmembers: Labelled, released: Labelled) -> MemberCopies:
    """Who of the given pools is in ``released``; all of one shape. A person in both pools is a member."""
    near = Nearness.of(max(members, nonmembers, key=len))
    known = set(released.fingerprints())
    keys, others = members.fingerprints(), nonmembers.fingerprints()
    exact = np.array([key in known for key in keys], dtype=np.bool_)
    inside = copied(released, members, near)[1] | exact
    if not inside.any():
        return NO_COPIES
    exact_out = np.array([key in known for key in others], dtype=np.bool_)
    outside = copied(released, nonmembers, near)[1] | exact_out
    left = outside & ~_one_person(keys, others)
    count, chance = int(inside.sum()), int(left.sum())
    p = float(hypergeom.sf(count - 1, len(members) + len(nonmembers), len(members), count + chance))
    return MemberCopies(
        int(exact.sum()), count, int((exact_out & left).sum()), chance, certain=not chance or p < TAIL_ALPHA
    )


def _one_person(keys: list[bytes], others: list[bytes]) -> Flags:
    """Which non-members (n,) stand in the other pool, too, where such are no chance."""
    members, nonmembers = Counter(keys), Counter(others)
    twins = np.array([members[key] == 1 and nonmembers[key] == 1 for key in others], dtype=np.bool_)
    repeated = sum(many > 1 for pool in (members, nonmembers) for many in pool.values())
    return twins if RARELY * repeated <= int(twins.sum()) else np.zeros_like(twins)
