"""A1, mean-tracing: a released set has, under any network of the family, the class means of the records it was made
from, so each of these records is correlated with it (audit page, A1; Homer et al. 2008, Dwork et al. 2015).

    s(x) = z' A (M - M0) - z' A z / (2 n),  z = phi(x) - mu,  M = mean of phi over the released records of x's class

``A`` whitens within classes. ``M0`` is the population's mean, or the mean that sets condensed from other people have:
condensing has a bias that all of them share, and against the population's mean it hides the members. Sets condensed
from other halves of the candidates are the strongest reference, for an attacker who has the list of them (F8).

Who has the broadcast models takes the features under them for phi, one round beside the other. Early sets match less
closely, so each round counts by how far its means lie from M0, against how far means of people do: as an equal, the
first round takes away more than it adds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedsecure_attacks.broadcast import features_under
from fedsecure_attacks.images.frame import Frame, by_class
from fedsecure_attacks.observation import Coordinator, Outsider, require
from fedsecure_attacks.records import Candidates, Labelled
from fedsecure_attacks.statistics.scores import Floats

__all__ = ["RoundsFrame", "centred_on", "class_means", "contrast", "excess", "mean_tracing", "multi_round", "trace"]


def class_means(frame: Frame, released: Labelled) -> dict[int, Floats]:
    """M - mu of each class that was released and that the population has, (D,)."""
    centred = frame.centred(released.x, released.y)
    return {c: centred[released.y == c].mean(axis=0) for c in np.unique(released.y).tolist() if c in frame.means}


def mean_tracing(seen: Outsider, candidates: Candidates, frame: Frame, references: Sequence[Labelled] = ()) -> Floats:
    """Scores (n,). ``references``: sets condensed from other people in the same way; without any, M0 is mu."""
    require(seen, Outsider)
    others = [class_means(frame, other) for other in references]
    return trace(frame, candidates, centred_on(class_means(frame, seen.released), others), seen.counts)


def centred_on(moved: Mapping[int, Floats], others: Sequence[Mapping[int, Floats]]) -> dict[int, Floats]:
    """``moved`` (class -> (D,)) without what ``others`` have of the same class on average, where they have it."""
    found = dict(moved)
    for c, m in moved.items():
        known = [each[c] for each in others if c in each]
        found[c] = m - np.mean(known, axis=0) if known else m
    return found


@dataclass(frozen=True, eq=False)
class RoundsFrame:
    """``frames``: the population under the model of each round."""

    frames: tuple[Frame, ...] = field(repr=False)

    @classmethod
    def of(cls, seen: Coordinator) -> RoundsFrame:
        """Of all rounds that ``seen`` knows. Compute it once for all centrings."""
        require(seen, Coordinator)
        return cls(tuple(Frame.of(seen.population, features_under(seen.plan, r.w)) for r in seen.rounds))

    def means(self, sets: Sequence[Labelled | None]) -> list[dict[int, Floats]]:
        """M - mu of each class (D,) that was released, of the set of each round under its model."""
        pairs = zip(self.frames, sets, strict=True)
        return [{} if released is None or not len(released) else class_means(f, released) for f, released in pairs]

    @property
    def held_out(self) -> dict[int, Floats]:
        """People who are out, of each class (n, T * D), all rounds side by side."""
        return {c: np.concatenate([f.held_out[c] for f in self.frames], axis=1) for c in self.frames[0].held_out}

    def centred(self, candidates: Candidates) -> Floats:
        """The candidates (n, T * D)."""
        return np.concatenate([f.centred(candidates.x, candidates.y) for f in self.frames], axis=1)


def multi_round(
    seen: Coordinator, candidates: Candidates, rounds: RoundsFrame, references: Sequence[Sequence[Labelled | None]] = ()
) -> Floats:
    """Scores (n,) by the sets of all rounds, each counting by how closely it follows the people. ``references``: the
    sets of as many rounds of other runs, condensed from people who are no candidates, or from other halves of the
    candidates; without any, M0 is mu. Rounds are whitened one by one: their covariance across rounds would take more
    people to know than there are."""
    require(seen, Coordinator)
    others = [rounds.means(sets) for sets in references]
    moved = [
        centred_on(own, [each[t] for each in others])
        for t, own in enumerate(rounds.means([r.released for r in seen.rounds]))
    ]
    far = [excess(f, own, seen.counts) for f, own in zip(rounds.frames, moved, strict=True)]

    def score(c: int, z: Floats) -> Floats:
        found, count = np.zeros(len(z)), seen.counts.get(c, 1)
        parts = np.split(z, len(rounds.frames), axis=1)  # all rounds have one network, so one width
        for frame, part, own, size in zip(rounds.frames, parts, moved, far, strict=True):
            if c in own:
                found += contrast(frame, part, own[c], count) / size
        return found

    return by_class(rounds, candidates, rounds.centred(candidates), score, set().union(*moved))


def excess(frame: Frame, moved: Mapping[int, Floats], counts: Mapping[int, int]) -> float:
    """How much farther, squared, the means of a set lie from M0 than means of as many people do, on average over
    classes: 1 for exact means, 1 + n tau^2 / lambda with a matching residual. At least 1."""
    rows = np.concatenate([frame.held_out[c] for c in moved] or [np.zeros((0, 1))])
    person = float((frame.whitener.apply(rows) * rows).sum(axis=1).mean()) if len(rows) else 0.0
    if person <= 0:
        return 1.0
    found = [float((frame.whitener.apply(m[None])[0] * m).sum()) * counts.get(c, 1) for c, m in moved.items()]
    return max(1.0, float(np.mean(found)) / person)


def trace(frame: Frame, candidates: Candidates, moved: Mapping[int, Floats], counts: Mapping[int, int]) -> Floats:
    """The scores (n,) against ``moved``: M - M0 of each class, (D,), of ``counts`` records each."""

    def score(c: int, z: Floats) -> Floats:
        return contrast(frame, z, moved[c], counts.get(c, 1))

    return by_class(frame, candidates, frame.centred(candidates.x, candidates.y), score, set(moved))


def contrast(frame: Frame, z: Floats, moved: Floats, count: int) -> Floats:
    """s(x) of centred records ``z`` (n, D) of one class: (n,)."""
    white = frame.whitener.apply(z)  # (n, D)
    return np.asarray(white @ moved - (white * z).sum(axis=1) / (2 * max(1, count)))
