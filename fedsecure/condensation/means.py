"""Class means of features and logits: of a node's records, and of its condensed images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from fedsecure.data.dataset import Dataset
from fedsecure.models import Network, Parameters, outputs, standardise
from fedsecure.plan.task import Task

__all__ = ["ClassMeans", "ClassRecords", "batch_means", "class_records", "exact_means", "synthetic_means"]

#: Records of one forward pass where the result does not depend on it: few enough for a processor's cache.
CHUNK = 128

#: One differentiable map of images (n, *shape) for each held class, the same for records and condensed images.
Augmentations = Sequence[Callable[[torch.Tensor], torch.Tensor]]


@dataclass(frozen=True)
class ClassMeans:
    """Means by held class: ``features`` (H, D) and ``logits`` (H, C), rows in the order of the held classes."""

    features: torch.Tensor
    logits: torch.Tensor


@dataclass(frozen=True, repr=False)
class ClassRecords:
    """Standardised records of each held class, (n_c, *shape) float32, beside the class numbers."""

    held: tuple[int, ...]
    records: tuple[torch.Tensor, ...]

    def __repr__(self) -> str:
        return f"ClassRecords({[(c, len(r)) for c, r in zip(self.held, self.records, strict=True)]})"


def class_records(task: Task, data: Dataset, held: Sequence[int], device: str = "cpu") -> ClassRecords:
    """The records of the ``held`` classes, standardised, in the data set's own order within a class."""
    groups = [standardise(task, torch.tensor(data.x[data.y == c], device=device)) for c in held]
    return ClassRecords(tuple(held), tuple(groups))


def exact_means(
    network: Network,
    parameters: Parameters,
    records: ClassRecords,
    augmentations: Augmentations | None = None,
    logit_clip: float | None = None,
) -> ClassMeans:
    """Means over all records of each held class, without gradient, summed in float64.

    ``logit_clip`` bounds every logit of every record to ±clip before the mean, so that one record moves a mean of n
    by at most 2·clip/n in each coordinate; it leaves the features as they are.
    """
    rows = []
    with torch.no_grad():
        for position, group in enumerate(records.records):
            sums: list[torch.Tensor] = []
            for start in range(0, len(group), CHUNK):
                x = group[start : start + CHUNK]
                x = augmentations[position](x) if augmentations else x
                features, logits = outputs(network, parameters, x)  # (n, D), (n, C)
                logits = logits if logit_clip is None else logits.clamp(-logit_clip, logit_clip)
                part = torch.cat([features, logits], dim=1).double().sum(dim=0)  # (D + C,)
                sums.append(part)
            rows.append((torch.stack(sums).sum(dim=0) / len(group), features.shape[1]))
    means = torch.stack([row for row, _ in rows]).float()  # (H, D + C)
    width = rows[0][1]
    return ClassMeans(means[:, :width], means[:, width:])


def batch_means(
    network: Network,
    parameters: Parameters,
    records: ClassRecords,
    batch: int,
    generator: torch.Generator,
    augmentations: Augmentations | None = None,
) -> ClassMeans:
    """Means over min(``batch``, n_c) records of each held class, drawn without replacement; without gradient.

    (FedAF page, section 2.3: B = min(256, N_kc).)
    """
    drawn = []
    for group in records.records:
        take = min(batch, len(group))
        index = torch.randperm(len(group), generator=generator)[:take]
        drawn.append(group[index.to(group.device)])
    return exact_means(network, parameters, ClassRecords(records.held, tuple(drawn)), augmentations)


def synthetic_means(
    network: Network, parameters: Parameters, images: torch.Tensor, augmentations: Augmentations | None = None
) -> ClassMeans:
    """Means over the P condensed images of each class, with gradient; ``images`` is (H, P, *shape)."""
    num_held, ipc = images.shape[:2]
    if augmentations is None:
        x = images.flatten(0, 1)  # (H * P, *shape)
    else:
        x = torch.cat([augment(images[h]) for h, augment in enumerate(augmentations)])  # (H * P, *shape)
    features, logits = outputs(network, parameters, x)  # (H * P, D), (H * P, C)
    by_class = [t.reshape(num_held, ipc, -1).mean(dim=1) for t in (features, logits)]  # (H, D), (H, C)
    return ClassMeans(*by_class)
