"""Which classes a node holds: those with so many records that their mean is not a person (FedAF page, F6 and F7)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedsecure.data.dataset import Dataset
from fedsecure.method import ClientContext

__all__ = ["class_counts", "held_classes"]


def class_counts(data: Dataset, ctx: ClientContext) -> npt.NDArray[np.int64]:
    """Records per class (num_classes,): of the data or, under differential privacy, as the run counts them with noise,
    because what is held can be seen."""
    return data.counts() if ctx.privacy is None else np.asarray(ctx.privacy.counts, np.int64)


def held_classes(counts: npt.NDArray[np.int64], min_count: int) -> tuple[int, ...]:
    """Classes with at least ``min_count`` records, ascending. Nothing of the others is averaged or condensed."""
    return tuple(int(c) for c in np.flatnonzero(counts >= max(1, min_count)))
