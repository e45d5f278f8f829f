"""A1, mean-tracing: a released set has, under any network of the family, the class means of the records it was made
from, so each of these records is correlated with it (audit page, A1; Homer et al. 2008, Dwork et al. 2015).

    s(x) = z' A (M - M0) - z' A z / (2 n),  z = phi(x) - mu,  M = mean of phi over the released records of x's class

``A`` whitens within classes. ``M0`` is the population's mean, or the mean that sets condensed from other people have:
condensing has a bias that all of them share, and against the population's mean it hides the members. Sets condensed
from other halves of the candidates are the strongest reference, for an attacker who has the list of them (F8).

Who has the broadcast models takes the features under them for phi, those of all rounds side by side: each round's set
was made under another model, and tells something else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedsecure_attacks.broadcast import features_under, side_by_side
from fedsecure_attacks.embedding import Embedding
from fedsecure_attacks.images.frame import Frame, by_class
from fedsecure_attacks.observation import Coordinator, Outsider, require
from fedsecure_attacks.records import Candidates, Labelled
from fedsecure_attacks.statistics.scores import Floats

__all__ = ["RoundsFrame", "centred_on", "class_means", "contrast", "mean_tracing", "multi_round", "trace"]


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
    """``parts``: the embedding of each round, under its model; ``frame``: the population in all of them together."""

    parts: tuple[Embedding, ...] = field(repr=False)
    frame: Frame

    @classmethod
    def of(cls, seen: Coordinator) -> RoundsFrame:
        """Of all rounds that ``seen`` knows. Compute it once for all centrings."""
        require(seen, Coordinator)
        parts = tuple(features_under(seen.plan, r.w) for r in seen.rounds)
        return cls(parts, Frame.of(seen.population, side_by_side(parts)))

    def means(self, sets: Sequence[Labelled | None]) -> dict[int, Floats]:
        """M - mu of each class (D,), each round's part of its own set; zero in rounds in which nothing of it was
        released."""
        width = [len(mu) for mu in self._split(next(iter(self.frame.means.values())))]
        found: dict[int, list[Floats]] = {}
        for t, (embed, released) in enumerate(zip(self.parts, sets, strict=True)):
            if released is None or not len(released):
                continue
            embedded = embed(released.x)
            for c in np.unique(released.y).tolist():
                if c in self.frame.means:
                    rows = found.setdefault(c, [np.zeros(w) for w in width])
                    rows[t] = embedded[released.y == c].mean(axis=0) - self._split(self.frame.means[c])[t]
        return {c: np.concatenate(rows) for c, rows in found.items()}

    def _split(self, row: Floats) -> list[Floats]:
        return np.split(row, len(self.parts))  # all rounds have one network, so one width


def multi_round(
    seen: Coordinator, candidates: Candidates, rounds: RoundsFrame, references: Sequence[Sequence[Labelled | None]] = ()
) -> Floats:
    """Scores (n,) by the sets of all rounds. ``references``: the sets of as many rounds of other runs, condensed from
    people who are no candidates, or from other halves of the candidates; without any, M0 is mu."""
    require(seen, Coordinator)
    moved = rounds.means([r.released for r in seen.rounds])
    return trace(rounds.frame, candidates, centred_on(moved, [rounds.means(sets) for sets in references]), seen.counts)


def trace(frame: Frame, candidates: Candidates, moved: Mapping[int, Floats], counts: Mapping[int, int]) -> Floats:
    """The scores (n,) against ``moved``: M - M0 of each class, (D,), of ``counts`` records each."""

    def score(c: int, z: Floats) -> Floats:
        return contrast(frame, z, moved[c], counts.get(c, 1))

    return by_class(frame, candidates, frame.centred(candidates.x, candidates.y), score, set(moved))


def contrast(frame: Frame, z: Floats, moved: Floats, count: int) -> Floats:
    """s(x) of centred records ``z`` (n, D) of one class: (n,)."""
    white = frame.whitener.apply(z)  # (n, D)
    return np.asarray(white @ moved - (white * z).sum(axis=1) / (2 * max(1, count)))
