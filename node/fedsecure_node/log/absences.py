"""Who was missing from the sums that this node is inside, as its log tells: a coordinator that leaves a node out of
every other round learns about that node from the difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fedsecure.text import counted
from fedsecure_node.log.chain import UNMASKED
from fedsecure_node.log.releases import Release

__all__ = ["MaskedRound", "absence_lines", "differing", "masked_rounds", "missed"]


@dataclass(frozen=True, slots=True)
class MaskedRound:
    """A sum that could be read: the release of this node in it, the cohort by name and its nodes, and U3, whose sum it
    is."""

    release: int
    plan: str
    name: str
    round: int
    exchange: str
    cohort: str
    nodes: tuple[str, ...]
    survivors: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name}, round {self.round + 1} {self.exchange}"


def masked_rounds(releases: Iterable[Release], cohort: str = "") -> list[MaskedRound]:
    """The sums that ``releases`` are inside, in the log's order; of the cohort of this name alone, if one is given."""
    found = []
    for release in releases:
        for event in release.events:
            if event.kind == UNMASKED:
                about, key = release.body["secagg"]["cohort"], release.key
                found.append(
                    MaskedRound(
                        release.number,
                        key.plan,
                        str(release.body["plan"]["name"]),
                        key.round,
                        key.exchange,
                        str(about["name"]),
                        tuple(about["nodes"]),
                        tuple(event.body["survivors"]),
                    )
                )
    return [each for each in found if not cohort or each.cohort == cohort]


def missed(rounds: Iterable[MaskedRound]) -> dict[str, int]:
    """Node -> in how many of ``rounds`` it was missing; nodes that never were are not in it."""
    counts = Counter(node for each in rounds for node in each.nodes if node not in each.survivors)
    return dict(sorted(counts.items()))


def differing(rounds: Iterable[MaskedRound]) -> Iterator[tuple[MaskedRound, MaskedRound, str]]:
    """Pairs of successive sums of one run and exchange whose nodes differ by one alone, and that node."""
    last: dict[tuple[str, str], MaskedRound] = {}
    for each in rounds:
        before = last.get((each.plan, each.exchange))
        if before is not None:
            apart = set(before.survivors) ^ set(each.survivors)
            if len(apart) == 1:
                yield before, each, apart.pop()
        last[each.plan, each.exchange] = each


def absence_lines(rounds: Iterable[MaskedRound]) -> list[str]:
    """For people: how often each node was missing, and what that shows. Empty when nobody ever was."""
    sums = list(rounds)
    lines = [
        f"node {node}: missing from {counted(count, 'sum')} of {len(sums)} that this node is inside"
        for node, count in missed(sums).items()
    ]
    about: dict[str, int] = Counter(node for _, _, node in differing(sums))
    for node, pairs in sorted(about.items()):
        lines.append(
            f"warning: {counted(pairs, 'pair')} of successive rounds differ by node {node} alone: where values change "
            f"little from round to round, the difference of two sums is about what {node} sent"
        )
    return lines
