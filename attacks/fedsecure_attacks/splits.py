"""Which records of a pool a set is made from: each with probability one half, an independent coin for each, so that one
split labels all records at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedsecure.randomness import numpy_generator

__all__ = ["Mask", "coin"]

Mask = npt.NDArray[np.bool_]


def coin(n: int, seed: int, number: int) -> Mask:
    """Split ``number``: (n,), each record in with probability one half."""
    return np.asarray(numpy_generator(seed, "split", number).random(n) < 0.5)
