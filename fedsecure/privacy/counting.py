"""A node's records by class, counted once a run with noise: by these counts, and by no others, it is decided what takes
part. The total is public: the adjacency is zero-out, under which a record is replaced by one that contributes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedsecure.plan.privacy import PrivacySettings

if TYPE_CHECKING:  # it imports torch
    from fedsecure.privacy.context import NoiseSource

__all__ = ["counted_once", "kept_records", "taking_part_counts"]

#: A class of which fewer are counted takes part nowhere: it has nothing to divide by.
LEAST = 1


def counted_once(counts: npt.NDArray[np.int64], settings: PrivacySettings, noise: NoiseSource) -> tuple[int, ...]:
    """``counts`` (num_classes,) with the plan's noise, cut off at 0. One ``Spend(count_sigma, 1, 1)``, which must have
    been charged: a record is in one class, so it moves one count, by one."""
    noisy = noise.count(counts, sigma=settings.count_sigma)  # (num_classes,)
    return tuple(max(int(count), 0) for count in noisy)


def taking_part_counts(counts: Sequence[int], floor: int) -> tuple[int, ...]:
    """``counts``, with 0 for each class below ``floor``, and below one record in any case."""
    return tuple(count if count >= max(floor, LEAST) else 0 for count in counts)


def kept_records(labels: npt.NDArray[np.int64], counts: Sequence[int]) -> npt.NDArray[np.int64]:
    """Indices, in order, of the records (``labels``: (n,)) whose class takes part by ``counts``."""
    takes_part = np.asarray(counts, np.int64) > 0  # (num_classes,)
    return np.flatnonzero(takes_part[labels])
