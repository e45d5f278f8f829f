"""What a record counts as in a noisy class sum: its features and logits, clipped to norm 1 (privacy page, 2.2).

Nothing here draws noise, and nothing but ``Embedding.sums`` reads a record.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from fedsecure.condensation.augment import Augmentation, draw_augmentation
from fedsecure.condensation.means import ClassMeans, ClassRecords
from fedsecure.errors import DataError
from fedsecure.models import Network, Parameters, outputs
from fedsecure.plan.privacy import CondensationPrivacy
from fedsecure.randomness import torch_generator

__all__ = ["CHUNK", "GRID", "Embedding", "clipped", "embedding"]

#: Records of one forward pass. The last is filled up with zeros, so that what a record becomes does not depend on how
#: many others there are.
CHUNK = 128
#: Noise images whose median norms are the clipping constants.
NORM_IMAGES = 256
#: Clipped vectors are whole multiples of 2^-28, rounded towards zero: sums of up to 2^24 of them are exact in float64,
#: so that no rounding adds to what a record moves.
GRID = 2.0**28
#: By so much more than its norm a vector is divided that is longer than 1: float64 rounds by far less.
MARGIN = 1e-9


@dataclass(frozen=True, repr=False)
class Embedding:
    """x -> [a P h(x) / C_h ; b f(x) / C_f], of d + C coordinates, under one network; no record decides any of it.

    ``feature_norm``, ``logit_norm``: C_h, C_f. ``projection``: P transposed, (D, d), or ``None`` for d = D.
    ``augmentations``: one for each held class, or ``None``.
    """

    network: Network
    parameters: Parameters
    feature_share: float
    logit_share: float
    feature_norm: float
    logit_norm: float
    projection: torch.Tensor | None = None
    augmentations: Sequence[Augmentation] | None = None

    def sums(self, records: ClassRecords) -> torch.Tensor:
        """Sums over each held class of its records' vectors, clipped to norm 1: float64 (H, d + C), no gradient.

        A record moves one row, by at most 1 in Euclidean norm, whatever the network is.
        """
        with torch.no_grad():
            return torch.stack([self._sum(h, group) for h, group in enumerate(records.records)])

    def means(self, images: torch.Tensor) -> ClassMeans:
        """Means of condensed ``images`` (H, P, *shape), clipped alike, in the network's own units; with gradient."""
        x = images.flatten(0, 1)  # (H * P, *shape)
        if self.augmentations is not None:
            x = torch.cat([augment(images[h]) for h, augment in enumerate(self.augmentations)])
        rows = self._rows(x)  # (H * P, d + C)
        rows = rows / torch.linalg.vector_norm(rows, dim=1, keepdim=True).clamp_min(1.0)
        return self.unscaled(rows.reshape(*images.shape[:2], -1).mean(dim=1))

    def unscaled(self, rows: torch.Tensor) -> ClassMeans:
        """Rows (H, d + C) in clipped units as features (H, d) and logits (H, C) in the network's own."""
        features, logits = self.split(rows)
        return ClassMeans(
            features * (self.feature_norm / self.feature_share), logits * (self.logit_norm / self.logit_share)
        )

    def split(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The features' and the logits' part of rows (n, d + C)."""
        width = rows.shape[1] - self.network.head.out_features
        return rows[:, :width], rows[:, width:]

    def _rows(self, x: torch.Tensor) -> torch.Tensor:
        """Records (n, *shape) to vectors (n, d + C), not clipped, in the precision of the parameters' outputs."""
        features, logits = outputs(self.network, self.parameters, x)  # (n, D), (n, C)
        return self._joined(features, logits)

    def _joined(self, features: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        if self.projection is not None:
            features = features @ self.projection.to(features.dtype)  # (n, d)
        return torch.cat(
            [features * (self.feature_share / self.feature_norm), logits * (self.logit_share / self.logit_norm)], dim=1
        )

    def _sum(self, position: int, group: torch.Tensor) -> torch.Tensor:
        width = self.network.head.in_features if self.projection is None else self.projection.shape[1]
        total = torch.zeros(width + self.network.head.out_features, dtype=torch.float64, device=group.device)
        for start in range(0, len(group), CHUNK):
            x = group[start : start + CHUNK]  # (n, *shape)
            real = len(x)
            x = torch.cat([x, x.new_zeros(CHUNK - real, *x.shape[1:])])
            x = self.augmentations[position](x) if self.augmentations is not None else x
            features, logits = outputs(self.network, self.parameters, x)
            total += clipped(self._joined(features[:real].double(), logits[:real].double())).sum(dim=0)
        return total


def clipped(rows: torch.Tensor) -> torch.Tensor:
    """Rows float64 (n, d) with norm at most 1 on the grid; one that is not finite becomes zeros."""
    finite = torch.isfinite(rows).all(dim=1, keepdim=True)
    rows = torch.where(finite, rows, torch.zeros_like(rows))
    norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True)  # (n, 1)
    rows = torch.where(norms > 1.0 - MARGIN, rows / (norms * (1.0 + MARGIN)), rows)
    rows = (rows * GRID).trunc() / GRID
    fits = torch.linalg.vector_norm(rows, dim=1, keepdim=True) <= 1.0  # always, and not left to the proof alone
    return torch.where(fits, rows, torch.zeros_like(rows))


def embedding(
    network: Network,
    parameters: Parameters,
    settings: CondensationPrivacy,
    shape: Sequence[int],
    held: Sequence[int],
    seed: int,
    *,
    augment: bool = False,
) -> Embedding:
    """The embedding under ``parameters``; noise images, projection and augmentations are drawn from ``seed``, which
    need not be secret. ``shape``: of one record.

    Raises ``DataError`` when noise images have no features or logits to speak of: the model has diverged.
    """
    device = next(iter(parameters.values())).device
    noise = torch.randn(NORM_IMAGES, *shape, generator=torch_generator(seed, "noise images")).to(device)
    with torch.no_grad():
        features, logits = outputs(network, parameters, noise)
    norms = [float(torch.linalg.vector_norm(part.double(), dim=1).median()) for part in (features, logits)]
    if not all(0 < norm < math.inf for norm in norms):
        raise DataError(
            f"the model's features and logits of noise images have median norms {norms[0]:g} and {norms[1]:g}",
            hint="the model has diverged; lower the plan's method.server.lr",
        )
    return Embedding(
        network,
        parameters,
        settings.feature_share,
        settings.logit_share,
        feature_norm=norms[0],
        logit_norm=norms[1],
        projection=_projection(settings.projection, features.shape[1], seed, device),
        augmentations=[draw_augmentation(torch_generator(seed, "augmentation", c)) for c in held] if augment else None,
    )


def _projection(width: int | None, features: int, seed: int, device: torch.device) -> torch.Tensor | None:
    """(D, d), entries N(0, 1/d): lengths are kept on average."""
    if width is None:
        return None
    drawn = torch.randn(features, width, generator=torch_generator(seed, "projection"))
    return drawn.to(device) / math.sqrt(width)
