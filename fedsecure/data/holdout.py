"""Holding records out to test on: class by class, drawn at random, a function of the labels and the seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedsecure.errors import DataError
from fedsecure.randomness import numpy_generator

if TYPE_CHECKING:
    from fedsecure.data.dataset import Dataset

__all__ = ["holdout", "holdout_index"]

Index = npt.NDArray[np.int64]


def holdout(data: Dataset, fraction: float, seed: int) -> tuple[Dataset, Dataset]:
    """(rest, held out): of each class the ``fraction`` nearest in whole records, drawn at random; both in the order
    of ``data``.

    Of a class with two records or more at least one is on either side; a single record stays in the rest. Raises
    ``DataError`` when nothing can be held out.
    """
    rest, out = holdout_index(data.y, len(data.classes), fraction, seed)
    return data.subset(rest), data.subset(out)


def holdout_index(y: Index, num_classes: int, fraction: float, seed: int, *labels: str) -> tuple[Index, Index]:
    """``holdout`` as ascending positions in ``y``, int64 (n,) below ``num_classes``; ``labels`` set its stream of
    randomness apart."""
    if not 0 < fraction < 1:
        raise DataError(f"cannot hold out the fraction {fraction:g} of the records (allowed: between 0 and 1)")
    rng = numpy_generator(seed, "partition", "holdout", *labels)
    out = np.zeros(len(y), dtype=np.bool_)
    for c in range(num_classes):
        index = rng.permutation(np.flatnonzero(y == c))  # (n_c,)
        if len(index) > 1:
            take = min(max(int(fraction * len(index) + 0.5), 1), len(index) - 1)
            out[index[:take]] = True
    if not out.any():
        raise DataError(
            f"{len(y)} records leave none to test on: no class has two",
            hint="take more records, or name a source of test records (simulation.test)",
        )
    return np.flatnonzero(~out).astype(np.int64), np.flatnonzero(out).astype(np.int64)
