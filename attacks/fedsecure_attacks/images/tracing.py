"""A1, mean-tracing: a released set has, under any network of the family, the class means of the records it was made
from, so each of these records is correlated with it (audit page, A1; Homer et al. 2008, Dwork et al. 2015).

    s(x) = z' A (M - M0) - z' A z / (2 n),  z = phi(x) - mu,  M = mean of phi over the released records of x's class

``A`` whitens within classes. ``M0`` is the population's mean, or the mean that sets condensed from other people have:
condensing has a bias that all of them share, and against the population's mean it hides the members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedsecure_attacks.images.frame import Frame, by_class
from fedsecure_attacks.observation import Outsider
from fedsecure_attacks.records import Candidates, Labelled
from fedsecure_attacks.statistics.scores import Floats

__all__ = ["class_means", "contrast", "mean_tracing", "trace"]


def class_means(frame: Frame, released: Labelled) -> dict[int, Floats]:
    """M - mu of each class that was released and that the population has, (D,)."""
    centred = frame.centred(released.x, released.y)
    return {c: centred[released.y == c].mean(axis=0) for c in np.unique(released.y).tolist() if c in frame.means}


def mean_tracing(seen: Outsider, candidates: Candidates, frame: Frame, references: Sequence[Labelled] = ()) -> Floats:
    """Scores (n,). ``references``: sets condensed from other people in the same way; without any, M0 is mu."""
    moved = class_means(frame, seen.released)
    if references:
        others = [class_means(frame, other) for other in references]
        for c in list(moved):
            known = [each[c] for each in others if c in each]
            if known:
                moved[c] = moved[c] - np.mean(known, axis=0)
    return trace(frame, candidates, moved, seen.counts)


def trace(frame: Frame, candidates: Candidates, moved: Mapping[int, Floats], counts: Mapping[int, int]) -> Floats:
    """The scores (n,) against ``moved``: M - M0 of each class, (D,), of ``counts`` records each."""

    def score(c: int, z: Floats) -> Floats:
        return contrast(frame, z, moved[c], counts.get(c, 1))

    return by_class(frame, candidates, frame.centred(candidates.x, candidates.y), score, set(moved))


def contrast(frame: Frame, z: Floats, moved: Floats, count: int) -> Floats:
    """s(x) of centred records ``z`` (n, D) of one class: (n,)."""
    white = frame.whitener.apply(z)  # (n, D)
    return np.asarray(white @ moved - (white * z).sum(axis=1) / (2 * max(1, count)))
