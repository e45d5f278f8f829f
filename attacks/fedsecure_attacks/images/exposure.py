"""Who is exposed most: how far a person stands out decides what a mean tells of them, whatever the attack (F1)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from fedsecure_attacks.images.frame import Frame
from fedsecure_attacks.records import Labelled
from fedsecure_attacks.statistics.scores import Floats

__all__ = ["exposure", "worst_exposed"]


def exposure(members: Labelled, frame: Frame, counts: Mapping[int, int], tau2: float = 0.0) -> Floats:
    """|z|_A^2 / n of each of ``members`` (m,): the squared effect d'^2 of the best attack on the mean of the n records
    of its class (``counts``), released with noise of variance ``tau2`` in each coordinate. 0 for classes that the
    population of ``frame`` lacks.

    In the space of ``frame``; the whitening has a ridge there, so it is an ordering first and a size second.
    """
    centred, found = frame.centred(members.x, members.y), np.zeros(len(members))
    for c in np.unique(members.y).tolist():
        if c not in frame.means:
            continue
        here, n = members.y == c, max(1, counts.get(c, 1))
        white = frame.whitener.apply(centred[here], n * tau2)
        found[here] = (white * centred[here]).sum(axis=1) / n
    return found


def worst_exposed(sizes: Floats, most: int = 20) -> npt.NDArray[np.int64]:
    """Indices of the ``most`` largest of ``sizes``, the largest first; of equal ones the first."""
    return np.argsort(-sizes, kind="stable")[:most]
