"""The routing encoder that a plan means when it names none (FedSPM page, P11)."""

from __future__ import annotations

from fedsecure.plan.methods import RoutedSettings
from fedsecure.plan.models import LeNetSettings, MLPSettings, ModelSettings
from fedsecure.plan.task import ImageTask, TableTask

__all__ = ["router_of"]

#: A side of this many pixels outlives two 5x5 convolutions without padding.
_ROOMY = 16


def router_of(method: RoutedSettings, task: ImageTask | TableTask) -> ModelSettings:
    """``method.router``, or: for images a LeNet with embedding 32, padded when they are small; for tables an MLP."""
    if method.router is not None:
        return method.router
    if not isinstance(task, ImageTask):
        return MLPSettings(name="mlp", hidden=(32,))
    small = min(task.shape[1:]) < _ROOMY
    return LeNetSettings(name="lenet", channels=(16, 32), hidden=128, padding=2 if small else 0, embedding=32)
