"""A4, the likelihood ratio of one image: was this record one of the g whose average the image started from? (audit
page, A4 and F6). Sharp for sets that start from records or from averages of few."""

from __future__ import annotations

import numpy as np

from fedsecure_attacks.images.frame import Frame, by_class
from fedsecure_attacks.observation import Outsider
from fedsecure_attacks.records import Candidates
from fedsecure_attacks.statistics.scores import Floats

__all__ = ["GROUPS", "image_likelihood"]

#: Records that an image may be the average of: nobody says how many, so each is tried.
GROUPS = (1, 2, 5, 10, 20, 50)


def image_likelihood(seen: Outsider, candidates: Candidates, frame: Frame, group: int) -> Floats:
    """Scores (n,) for averages of ``group``: max_j z' C^-1 (s_j - mu) / g - z' C^-1 z / (2 g^2), C = Sigma / g and the
    ridge; in the space of ``frame``, pixels usually."""
    released = frame.centred(seen.released.x, seen.released.y)
    images = {c: released[seen.released.y == c] for c in np.unique(seen.released.y).tolist() if c in frame.means}

    def score(c: int, z: Floats) -> Floats:
        white = frame.whitener.apply(z) * group  # (n, D); (Sigma / g)^-1
        return np.asarray((white @ images[c].T).max(axis=1) / group - (white * z).sum(axis=1) / (2 * group**2))

    return by_class(frame, candidates, frame.centred(candidates.x, candidates.y), score, set(images))
