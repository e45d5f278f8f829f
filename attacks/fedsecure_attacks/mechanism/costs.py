"""What a sweep takes: relative costs of its parts, and the time that is left."""

from __future__ import annotations

import time
from collections.abc import Callable

from fedsecure_attacks.mechanism.makers import AnySetting
from fedsecure_attacks.mechanism.setting import Setting

__all__ = ["Clock", "attack_cost", "shadow_cost"]

#: Images that cost as much as what a step costs by itself.
STEP = 50.0
#: Steps and batch of a model that is trained on a set.
MODEL_STEPS, MODEL_BATCH = 300, 256
#: A setting with a residual is taken to need so many times its steps.
LONGER = 2.0


def shadow_cost(setting: AnySetting, classes: int) -> float:
    """Of one set, in images that pass a network."""
    steps = setting.steps * (LONGER if setting.residual else 1.0)
    one = steps * (STEP + classes * setting.ipc)
    if isinstance(setting, Setting):
        return one
    return setting.rounds * (setting.nodes * one + setting.server_steps * (STEP + MODEL_BATCH))


def attack_cost(setting: AnySetting, classes: int, sets: int, models: bool) -> float:
    """Of attacking all ``sets`` of a cell."""
    model = MODEL_STEPS * (STEP + min(MODEL_BATCH, classes * setting.ipc)) if models else 0.0
    return sets * (model + 5000.0)


class Clock:
    """Tells the seconds that are left from what was done since it began; what is read from a cache tells nothing."""

    def __init__(self, total: float, now: Callable[[], float] = time.monotonic) -> None:
        self.total, self.done, self._worked = total, 0.0, 0.0
        self._now, self._began = now, now()

    def add(self, cost: float, *, worked: bool) -> None:
        """``cost`` of the total is done; ``worked``: it was computed and not read."""
        self.done += cost
        self._worked += cost if worked else 0.0

    def grow(self, cost: float) -> None:
        """More is to be done than was known."""
        self.total += cost

    @property
    def left(self) -> float | None:
        """Seconds; ``None`` while nothing was computed."""
        if not self._worked:
            return None
        return (self._now() - self._began) * max(0.0, self.total - self.done) / self._worked
