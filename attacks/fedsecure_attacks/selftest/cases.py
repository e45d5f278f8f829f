"""One answer of the self-test, and the world that its attacks are tried in."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fedsecure_attacks.embedding import pixels, random_networks
from fedsecure_attacks.images.frame import Frame
from fedsecure_attacks.observation import Outsider
from fedsecure_attacks.records import Candidates, Labelled, Pools
from fedsecure_attacks.selftest.people import SIDE, pictures
from fedsecure_attacks.statistics.intervals import auc_interval
from fedsecure_attacks.statistics.roc import auc
from fedsecure_attacks.statistics.scores import Floats, Scores
from fedsecure_attacks.statistics.tail import tail_test
from fedsecure_attacks.verdict import DIRECTION_CONFIDENCE, TAIL_ALPHA

__all__ = ["Answer", "World", "by_area", "by_silence", "by_tail"]

NETWORKS = 2


@dataclass(frozen=True, slots=True)
class Answer:
    """``name``: what was tried. ``must``: what has to come out, and ``found``: what did, in words."""

    name: str
    must: str
    found: str
    passed: bool


@dataclass(frozen=True, eq=False)
class World:
    """Pictures of people who do not exist: ``pools``, shuffled into ``candidates`` of whom those ``inside`` are
    members, and what an outsider learns from the references."""

    pools: Pools
    candidates: Candidates
    inside: npt.NDArray[np.bool_] = field(repr=False)
    networks: Frame
    pixels: Frame

    @classmethod
    def of(cls, seed: int, members: int, nonmembers: int, reference: int) -> World:
        """As many people as said; few members are easily told, many hardly."""
        rng = np.random.default_rng([seed, members])
        pools = Pools(*(
            pictures(name, n, rng)
            for name, n in (("members", members), ("non-members", nonmembers), ("reference", reference))
        ))  # fmt: skip
        candidates, inside = pools.candidates(rng)
        networks = Frame.of(pools.reference, random_networks((1, SIDE, SIDE), 2, seed, NETWORKS))
        return cls(pools, candidates, inside, networks, Frame.of(pools.reference, pixels))

    def seen(self, released: Labelled) -> Outsider:
        """What an outsider sees of ``released``."""
        return Outsider(released, self.pools.reference, self.pools.members.counts())

    def scores(self, values: Floats) -> Scores:
        """Scores of the candidates, split by who is a member."""
        return Scores.of(values, self.inside)


def by_tail(name: str, scores: Scores, planted: int) -> Answer:
    """Passed when so many members stand above everybody else that it is no chance."""
    test = tail_test(scores)
    said = f"{test.count} of them stand above all others (p = {test.p:.1e})"
    return Answer(name, f"found: {planted} people", said, test.p < TAIL_ALPHA)


def by_area(name: str, scores: Scores) -> Answer:
    """Passed when the area lies above one half for certain."""
    low = auc_interval(scores, DIRECTION_CONFIDENCE).low
    return Answer(name, "found: area above 0.5", f"area {auc(scores):.3f}, at least {low:.3f}", low > 0.5)


def by_silence(name: str, scores: Scores) -> Answer:
    """Passed when neither area nor tail says anything."""
    interval, test = auc_interval(scores, DIRECTION_CONFIDENCE), tail_test(scores)
    quiet = interval.low <= 0.5 <= interval.high and test.p >= TAIL_ALPHA / 2
    return Answer(name, "nothing found", f"area {auc(scores):.3f}, tail p {test.p:.2g}", quiet)
