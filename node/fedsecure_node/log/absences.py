"""Who was missing from the sums that this node is inside, and from which this node was, as its log tells: a coordinator
that leaves a node out of every other round learns about that node from the difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fedsecure.text import counted
from fedsecure_node.log.chain import CLOSED
from fedsecure_node.log.differences import difference_lines
from fedsecure_node.log.maskedrounds import MaskedRound
from fedsecure_node.log.releases import Release

__all__ = ["Standing", "absence_lines", "missed", "standing"]


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
