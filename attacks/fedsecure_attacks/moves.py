"""How far a gradient moves a parameter: SGD with momentum that starts at zero, over the steps of one round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsecure_attacks.statistics.scores import Floats

__all__ = ["Moved"]


@dataclass(frozen=True, slots=True)
class Moved:
    """How parameters are moved: rate, momentum, weight decay."""

    lr: float
    momentum: float
    weight_decay: float

    def _each(self, steps: int) -> Floats:
        """What a gradient of one in each step moves by, (steps,), in units of the rate."""
        left = np.arange(steps, 0, -1)  # steps that it takes part in
        return np.asarray((1 - self.momentum**left) / (1 - self.momentum), np.float64)

    def weights(self, steps: int) -> Floats:
        """(steps,): how much each step's gradient weighs in the sum of all moves; they sum to one."""
        each = self._each(steps)
        return np.asarray(each / each.sum())

    def length(self, steps: int) -> float:
        """What a gradient of one in every step moves a parameter by, in all."""
        return float(self.lr * self._each(steps).sum())
