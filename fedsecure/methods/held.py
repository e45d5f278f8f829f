"""Which classes a node holds: those with so many records that their mean is not a person (FedAF page, F6 and F7)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["held_classes"]


def held_classes(counts: npt.NDArray[np.int64], min_count: int) -> tuple[int, ...]:
    """Classes with at least ``min_count`` records, ascending. Nothing of the others is averaged or condensed."""
    return tuple(int(c) for c in np.flatnonzero(counts >= max(1, min_count)))
