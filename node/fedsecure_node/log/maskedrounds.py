"""The sums under masks that this node's log tells of: those that it is inside, and those that were made without it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fedsecure_node.log.chain import ANNOUNCED, CLOSED, UNMASKED
from fedsecure_node.log.releases import Release

__all__ = ["MaskedRound", "known_sums", "masked_rounds"]


@dataclass(frozen=True, slots=True)
class MaskedRound:
    """A sum that was read or could be: the release of this node in it, or, with ``inside`` False, the one that it is
    without; the cohort by name and its nodes, and U3, whose sum it is."""

    release: int
    plan: str
    name: str
    method: str
    round: int
    exchange: str
    cohort: str
    nodes: tuple[str, ...]
    survivors: tuple[str, ...]
    inside: bool

    def __str__(self) -> str:
        return f"{self.name}, round {self.round + 1} {self.exchange}"


def masked_rounds(releases: Iterable[Release], cohort: str = "") -> list[MaskedRound]:
    """The sums that ``releases`` are inside, in the log's order; of the cohort of this name alone, if one is given."""
    return [each for each in known_sums(releases, cohort) if each.inside]


def known_sums(releases: Iterable[Release], cohort: str = "") -> list[MaskedRound]:
    """As ``masked_rounds``, with those that were announced as made without this node, though it had contributed."""
    found = []
    for release in releases:
        for event in release.events:
            if event.kind in (UNMASKED, ANNOUNCED):
                found.append(_sum(release, event.body["survivors"], inside=True))
            elif event.kind == CLOSED and "announced" in event.body:
                found.append(_sum(release, event.body["announced"]["survivors"], inside=False))
    return [each for each in found if not cohort or each.cohort == cohort]


def _sum(release: Release, survivors: Iterable[str], *, inside: bool) -> MaskedRound:
    about, plan, key = release.body["secagg"]["cohort"], release.body["plan"], release.key
    return MaskedRound(
        release.number,
        key.plan,
        str(plan["name"]),
        str(plan["method"]),
        key.round,
        key.exchange,
        str(about["name"]),
        tuple(about["nodes"]),
        tuple(survivors),
        inside,
    )
