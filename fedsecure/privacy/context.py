"""What a method is handed when a plan asks for differential privacy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from fedsecure.plan.privacy import AnyPrivacySettings

__all__ = ["NoiseSource", "PrivacyContext"]


class NoiseSource(Protocol):
    """Where noise and samples come from; ``fedsecure.privacy.noise`` makes them."""

    def add(self, sums: Sequence[torch.Tensor], *, sensitivity: float, sigma: float) -> list[torch.Tensor]:
        """``sums``, which together are one vector of which a record moves at most ``sensitivity`` in Euclidean norm,
        plus Gaussian noise of standard deviation ``sigma`` * ``sensitivity`` in every coordinate; new tensors, of the
        same shapes, dtypes and devices."""
        ...

    def sample(self, records: int, q: float) -> npt.NDArray[np.int64]:
        """Indices of a Poisson sample: each of ``records`` is in it with probability ``q``, independently; in order,
        possibly none."""
        ...

    def count(self, counts: npt.NDArray[np.int64], *, sigma: float) -> npt.NDArray[np.int64]:
        """``counts`` plus discrete Gaussian noise of standard deviation ``sigma``; not clipped."""
        ...


@dataclass(frozen=True, slots=True)
class PrivacyContext:
    """What ``client_update`` needs to be differentially private; all that it computes so was charged before.

    ``settings``: the plan's. ``counts``: this node's records per class as the run counts them, with noise: whole
    numbers that are not negative, in the order of the plan's classes; 0 for a class that takes no part. ``records``:
    how many this node has in all, those of classes that take no part included, which is public. Sampling rates and
    weights follow from it: ``len(data)``, without these, tells how many they are.
    """

    settings: AnyPrivacySettings
    counts: tuple[int, ...]
    records: int
    noise: NoiseSource = field(repr=False)
