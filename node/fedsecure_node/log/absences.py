"""Who was missing from the sums that this node is inside, and from which this node was, as its log tells: a coordinator
that leaves a node out of every other round learns about that node from the difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fedsecure.text import counted
from fedsecure_node.log.chain import ANNOUNCED, CLOSED, UNMASKED
from fedsecure_node.log.differences import difference_lines
from fedsecure_node.log.releases import Release

__all__ = ["MaskedRound", "Standing", "absence_lines", "known_sums", "masked_rounds", "missed", "standing"]


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


def missed(rounds: Iterable[MaskedRound]) -> dict[str, int]:
    """Node -> in how many of ``rounds`` it was missing; nodes that never were are not in it."""
    counts = Counter(node for each in rounds for node in each.nodes if node not in each.survivors)
    return dict(sorted(counts.items()))


def absence_lines(rounds: Iterable[MaskedRound]) -> list[str]:
    """For people: how often each node was missing, and what that shows. Empty when nobody ever was. ``rounds``: as
    ``known_sums`` gives them."""
    sums = list(rounds)
    inside = [each for each in sums if each.inside]
    lines = [
        f"node {node}: missing from {counted(count, 'sum')} of {len(inside)} that this node is inside"
        for node, count in missed(inside).items()
    ]
    return lines + difference_lines(sums)


@dataclass(frozen=True, slots=True)
class Standing:
    """What became of this node's own contributions. ``contributed``: to how many sums, of which ``sums`` were read with
    it inside, or could be. ``left_out``: by name those made without it. ``unknown``: those of which it cannot know,
    since its masked vectors left, and nothing was announced to it."""

    contributed: int
    sums: int
    left_out: tuple[str, ...]
    unknown: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "contributed": self.contributed,
            "sums": self.sums,
            "left_out": list(self.left_out),
            "unknown": list(self.unknown),
        }

    def lines(self) -> list[str]:
        """For people; empty when each contribution is inside its sum."""
        if self.contributed == self.sums:
            return []
        times = f"this node contributed {counted(self.contributed, 'time')} and was in {counted(self.sums, 'sum')}"
        out = f"; left out of: {'; '.join(self.left_out)}" if self.left_out else ""
        unknown = f"; not known, its masked vectors left: {'; '.join(self.unknown)}" if self.unknown else ""
        return [times + out + unknown]


def standing(releases: Iterable[Release], cohort: str = "") -> Standing:
    """Of the contributions whose exchange is over, those of further attempts at one exchange as one; to the cohort of
    this name alone, if one is given."""
    found: dict[tuple[str, int, int], list[Release]] = {}
    last: dict[str, tuple[int, int]] = {}
    for release in releases:
        key = release.key
        last[key.plan] = max(last.get(key.plan, (0, 0)), (key.round, key.step))
        if release.is_masked and (not cohort or release.body["secagg"]["cohort"]["name"] == cohort):
            found.setdefault((key.plan, key.round, key.step), []).append(release)
    fates = {place: _fate(tries, went_on=last[place[0]] > place[1:]) for place, tries in found.items()}
    return Standing(
        sum(1 for fate in fates.values() if fate),
        sum(1 for fate in fates.values() if fate == "in"),
        tuple(_name(found[place][-1]) for place, fate in fates.items() if fate == "out"),
        tuple(_name(found[place][-1]) for place, fate in fates.items() if fate == "unknown"),
    )


def _fate(tries: list[Release], *, went_on: bool) -> str:
    """``in``, ``out``, ``unknown``, ``none`` where no sum is known to have been made, ``""`` for one that is open or
    was never contributed. ``went_on``: as later releases show, where the log has no note of its end."""
    states = {release.state for release in tries}
    if states & {"unmasked", "announced"}:
        return "in"
    closed = [event.body for release in tries for event in release.events if event.kind == CLOSED]
    if any("announced" in body for body in closed):
        return "out"
    if states & {"unread", "unsure"} or (went_on and states & {"masked", "confirmed"}):
        return "unknown"
    if any(body["went_on"] for body in closed) or (went_on and "acknowledged" in states):
        return "out"
    return "none" if closed and not states & {"acknowledged", "masked", "confirmed"} else ""


def _name(release: Release) -> str:
    return f"{release.body['plan']['name']}, round {release.key.round + 1} {release.key.exchange}"
