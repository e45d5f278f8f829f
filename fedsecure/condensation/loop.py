"""The condensation loop: pixels are optimised until class means of condensed images match those of the records."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from fedsecure.condensation.augment import Augmentation, draw_augmentation
from fedsecure.condensation.matching import Loss
from fedsecure.condensation.means import ClassMeans, ClassRecords, batch_means, exact_means, synthetic_means
from fedsecure.condensation.resampling import is_new_draw
from fedsecure.errors import DataError
from fedsecure.method import Cancelled, ClientContext
from fedsecure.models import Network, Parameters
from fedsecure.optimizers import SGD, Adam, Optimizer
from fedsecure.plan.methods import FedAFSettings, FedDMSettings
from fedsecure.randomness import torch_generator

__all__ = ["Condensed", "Draw", "Matcher", "match", "record_matcher"]

#: Draws the parameters that the steps of draw ``index`` (from 0) match under.
Draw = Callable[[int], Parameters]


class Matcher(Protocol):
    """What the condensed images are matched with; steps come in order, from 0."""

    def real(self, step: int) -> ClassMeans:
        """The means to match at ``step``, without gradient."""
        ...

    def synthetic(self, pixels: torch.Tensor) -> ClassMeans:
        """Those of the condensed images (H, P, *shape) under the same network; with gradient."""
        ...


@dataclass(frozen=True)
class Condensed:
    """Condensed images (H, P, *shape), float32, and the loss terms of the first and the last step."""

    images: torch.Tensor
    first: dict[str, float]
    last: dict[str, float]


def record_matcher(
    settings: FedAFSettings | FedDMSettings, network: Network, records: ClassRecords, draw: Draw, ctx: ClientContext
) -> Matcher:
    """Means of the ``records`` themselves, without differential privacy, under the networks that ``draw`` gives.

    With exact means the records are read once for each network draw; with batch means at every step.
    """
    return _RecordMatcher(settings, network, records, draw, ctx)


def match(
    settings: FedAFSettings | FedDMSettings, matcher: Matcher, images: torch.Tensor, loss: Loss, ctx: ClientContext
) -> Condensed:
    """Optimise ``images`` (H, P, *shape) for ``settings.steps`` steps.

    Pixels are not clipped to the range of real ones (F11); they are held within ±``pixel_bound``, which is far outside
    it and is the range that the schema promises. Raises ``Cancelled`` when asked to stop, ``DataError`` when the loss
    is not finite.
    """
    pixels = images.detach().clone().requires_grad_(True)  # (H, P, *shape)
    optimizer = _optimizer(settings, pixels)
    first: dict[str, float] = {}
    last: dict[str, float] = {}
    for step in range(settings.steps):
        if ctx.cancelled():
            raise Cancelled("condensation was asked to stop")
        real = matcher.real(step)
        terms = loss(real, matcher.synthetic(pixels), step)
        total = torch.stack(list(terms.values())).sum()
        last = {name: float(value.detach()) for name, value in terms.items()}
        first = first or last
        if not all(math.isfinite(value) for value in last.values()):
            raise DataError(
                f"condensation: the loss is not finite at step {step + 1} of {settings.steps}",
                hint=f"the plan's method.lr_img of {settings.lr_img:g} is too large, or the model has diverged",
            )
        optimizer.zero_grad()
        total.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        with torch.no_grad():
            pixels.clamp_(-settings.pixel_bound, settings.pixel_bound)
        ctx.progress(step + 1, settings.steps)
    return Condensed(pixels.detach(), first, last)


def _optimizer(settings: FedAFSettings | FedDMSettings, pixels: torch.Tensor) -> Optimizer:
    if settings.image_optimizer == "sgd":
        return SGD([pixels], lr=settings.lr_img, momentum=settings.momentum_img)
    return Adam([pixels], lr=settings.lr_img)


class _RecordMatcher:
    """The network of the current draw, its augmentations, and the means of the records under them."""

    def __init__(
        self,
        settings: FedAFSettings | FedDMSettings,
        network: Network,
        records: ClassRecords,
        draw: Draw,
        ctx: ClientContext,
    ) -> None:
        self._settings, self._network, self._records, self._draw = settings, network, records, draw
        self._batches = torch_generator(ctx.seed, "real batches", ctx.round)
        self._augment = torch_generator(ctx.seed, "augmentation", ctx.round)
        self._draws = 0
        self._parameters: Parameters = {}
        self._augmentations: list[Augmentation] | None = None
        self._means: ClassMeans | None = None

    def real(self, step: int) -> ClassMeans:
        """Means of the records at ``step``; steps come in order."""
        settings = self._settings
        if is_new_draw(settings.resample, settings.resample_interval, step):
            self._parameters = self._draw(self._draws)
            self._draws += 1
            self._means = None
        if settings.real_means == "batch":
            self._new_augmentations()
            return batch_means(
                self._network, self._parameters, self._records, settings.real_batch, self._batches, self._augmentations
            )
        if self._means is None:
            # The augmentation lasts as long as the network does: the cached means hold under this one only.
            self._new_augmentations()
            self._means = exact_means(self._network, self._parameters, self._records, self._augmentations)
        return self._means

    def synthetic(self, pixels: torch.Tensor) -> ClassMeans:
        """Means of the condensed images under the same network and augmentations; with gradient."""
        return synthetic_means(self._network, self._parameters, pixels, self._augmentations)

    def _new_augmentations(self) -> None:
        if self._settings.augment == "dsa":
            self._augmentations = [draw_augmentation(self._augment) for _ in self._records.held]
