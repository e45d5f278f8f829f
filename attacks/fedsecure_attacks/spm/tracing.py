"""B1 and B2: mean-tracing where the mean is of gradients, or of routing features (audit page, 1.3).

B1. After a round the node's parameters have moved by its mean gradient, so every member's gradient is correlated with
the update; in a sum over all nodes n is that of all (Leemann et al. 2023; Azize and Basu 2024). That is the first order
of how much the round lowered the record's loss, which is an attack of its own where steps are many.

B2. Where the routing head is at its optimum, the mean of p_i(x) h(x) over everybody is the mean of h over node i times
rho_i: an attacker who knows the population reads the node's mean of h off the head that every node is sent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import norm

from fedsecure_attacks.embedding import pixels
from fedsecure_attacks.images.frame import Frame, by_class
from fedsecure_attacks.records import Candidates, Labelled
from fedsecure_attacks.statistics.roc import auc
from fedsecure_attacks.statistics.scores import Floats, Scores

__all__ = ["Traced", "area_of", "implied_mean", "trace"]

#: Records that theory needs, and how near to 0 or 1 an area has an effect size.
LEAST, CLOSE = 5, 1e-9


@dataclass(frozen=True, eq=False)
class Traced:
    """The population's and the pool's vectors of one round or head. ``centred`` (n, D): the pool's, without the means
    of their classes."""

    frame: Frame
    centred: Floats = field(repr=False)
    candidates: Candidates

    @classmethod
    def of(cls, pool: Labelled, population: Labelled, vectors: Floats, others: Floats) -> Traced:
        """``vectors`` (n, D) of the pool, ``others`` of the population, who are no candidates."""
        frame = Frame.of(population, lambda x: others.copy() if len(x) == len(others) else pixels(x))
        centred = vectors.copy()
        for c in np.unique(pool.y).tolist():
            here = pool.y == c
            centred[here] = centred[here] - frame.means[c] if c in frame.means else 0.0
        return cls(frame, centred, Candidates(pool.x, pool.y))

    @property
    def effective_rank(self) -> float:
        """d_eff: the sum of lam / (lam + ridge) over the eigenvalues of the population's covariance."""
        values = self.frame.whitener.values
        return float((values / (values + self.frame.whitener.ridge)).sum())

    @property
    def lengths(self) -> Floats:
        """z' A z of each record of the pool, (n,)."""
        return np.asarray((self.frame.whitener.apply(self.centred) * self.centred).sum(axis=1))

    def middle(self, counts: Mapping[int, int]) -> Floats:
        """The population's mean for so many records of each class, (D,)."""
        known = {c: n for c, n in counts.items() if c in self.frame.means}
        parts = [self.frame.means[c] * n for c, n in known.items()]
        return np.asarray(np.sum(parts, axis=0) / max(1, sum(known.values())))

    def scores(self, moved: Floats, records: int) -> Floats:
        """(n,), by class. ``moved``: the release less what the population's mean would have been; of ``records``."""
        whitener = self.frame.whitener

        def score(c: int, z: Floats) -> Floats:
            white = whitener.apply(z)
            return np.asarray(white @ moved - (white * z).sum(axis=1) / (2 * max(1, records)))

        return by_class(self.frame, self.candidates, self.centred, score, set(self.frame.means))

    def exact(self, inside: np.ndarray) -> tuple[Floats, float] | None:
        """Scores (n,) against the exact mean of those who are ``inside`` (n,), and the effect size that theory gives
        them: one who is in adds z' A z / n of his own to what his score would be (F1). That is added to the scores of
        those who are out, for gradients are no Gaussians. ``None`` with too few."""
        members = int(inside.sum())
        if min(members, len(inside) - members) < LEAST:
            return None
        scores = np.asarray(self.frame.whitener.apply(self.centred) @ self.centred[inside].mean(axis=0))
        null, own = scores[~inside], self.lengths[~inside] / members
        area = auc(Scores(null + own, null))
        return scores, math.sqrt(2) * float(norm.ppf(min(max(area, CLOSE), 1 - CLOSE)))


def trace(traced: Traced, release: Floats, counts: Mapping[int, int], records: int) -> Floats:
    """Scores (n,) against ``release`` (D,), in which the node has ``counts`` of each class among ``records``."""
    return traced.scores(release - traced.middle(counts), records)


def area_of(effect: float) -> float:
    """The area under the curve of an effect size."""
    return float(norm.cdf(effect / math.sqrt(2)))


def implied_mean(features: Floats, posterior: Floats) -> Floats:
    """The node's mean of h (D,) that its routing head implies: the mean of ``features`` (n, D) of the pooled
    population, weighted by its ``posterior`` (n,)."""
    return np.asarray(posterior @ features / max(float(posterior.sum()), 1e-12))
