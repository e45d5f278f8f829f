"""Condensed data as it is kept, released and gathered."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from fedsecure.condensation.initial import initial_images
from fedsecure.condensation.means import ClassRecords
from fedsecure.errors import DataError
from fedsecure.method import Aggregate, ClientContext
from fedsecure.plan.methods import CondensationSettings
from fedsecure.randomness import torch_generator
from fedsecure.tensors import Tensors

__all__ = ["gather", "pack", "starting_images"]


def pack(images: torch.Tensor, held: Sequence[int]) -> Tensors:
    """Images (H, P, *shape) of the ``held`` classes as ``images`` (H * P, *shape) and ``labels`` (H * P,)."""
    flat = images.detach().flatten(0, 1).to("cpu", torch.float32).numpy().copy()
    return Tensors({"images": flat, "labels": np.repeat(np.asarray(held, dtype=np.int64), images.shape[1])})


def starting_images(
    settings: CondensationSettings, records: ClassRecords, kept: Tensors, ctx: ClientContext
) -> torch.Tensor:
    """Images (H, P, *shape) that condensation starts from.

    ``kept`` is last round's condensed data (empty for a fresh start). A class that it holds continues from there, one
    that it lacks starts anew, and one that the node no longer holds is left behind.
    """
    shape = tuple(records.records[0].shape[1:])
    started = []
    for c, group in zip(records.held, records.records, strict=True):
        before = kept["images"][kept["labels"] == c] if "images" in kept else np.empty((0, *shape), np.float32)
        if before.shape == (settings.ipc, *shape):
            started.append(torch.tensor(before, device=group.device))
            continue
        generator = torch_generator(ctx.seed, "initial images", ctx.round, c)
        started.append(initial_images(settings.init, settings.init_n, settings.ipc, group, generator))
    bound = settings.pixel_bound
    return torch.stack(started).clamp(-bound, bound)  # (H, P, *shape)


def gather(aggregate: Aggregate, settings: CondensationSettings, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The union of the nodes' condensed data in node-id order: images (S, *shape), labels (S,).

    Raises ``DataError`` naming the node when a class comes with another number of images than ``ipc``, and when no
    node sent any.
    """
    images, labels = [], []
    for node in sorted(aggregate.released):
        released = aggregate.released[node]
        counts = np.bincount(released["labels"])
        if (bad := np.flatnonzero((counts != 0) & (counts != settings.ipc))).size:
            c = int(bad[0])
            raise DataError(
                f"tensor labels of node {node}: {counts[c]} images of class {c} where {settings.ipc} are due"
            )
        images.append(torch.tensor(released["images"], device=device))
        labels.append(torch.tensor(released["labels"], device=device))
    if not sum(len(y) for y in labels):
        raise DataError(
            f"no condensed data: no node holds a class with method.min_count = {settings.min_count} records",
            hint="lower min_count in a new plan, or let nodes with more records join",
        )
    return torch.cat(images), torch.cat(labels)
