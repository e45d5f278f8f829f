"""The coordinator's training of the global model on the union of condensed data (FedAF page, 2.2, F12 to F14)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F

from fedsecure.errors import DataError
from fedsecure.method import Cancelled, ServerContext
from fedsecure.methods.lgkm import SoftLabels, lgkm_loss
from fedsecure.models import Network, Parameters, outputs
from fedsecure.optimizers import SGD, Adam, Optimizer
from fedsecure.plan.methods import ServerTraining
from fedsecure.randomness import torch_generator

__all__ = ["Matching", "stratified_order", "train_on_condensed"]


@dataclass(frozen=True)
class Matching:
    """FedAF's further loss: ``weight`` (lambda_glob) times LGKM over the mini-batch, or (``full``) over all of S."""

    soft: SoftLabels
    weight: float
    scope: Literal["batch", "full"]


def train_on_condensed(
    network: Network,
    w: Parameters,
    images: torch.Tensor,
    labels: torch.Tensor,
    settings: ServerTraining,
    ctx: ServerContext,
    matching: Matching | None = None,
) -> Parameters:
    """Train on ``images`` (S, *shape) and ``labels`` (S,) from ``w``, which stays as it is; returns the new parameters.

    Minimises mean cross-entropy plus, with ``matching``, its loss. A new optimiser each round, constant learning rate.
    Reports ``server_ce``, ``server_lgkm`` and ``server_accuracy`` (on the condensed data), each the mean of the last
    epoch. Raises ``Cancelled`` when asked to stop, ``DataError`` when the loss is not finite.
    """
    trained = {name: p.detach().clone().requires_grad_(True) for name, p in w.items()}
    optimizer = _optimizer(settings, list(trained.values()))
    generator = torch_generator(ctx.seed, "server batches", ctx.round)
    sums: dict[str, float] = {}
    for epoch in range(settings.epochs):
        sums = {"server_ce": 0.0, "server_accuracy": 0.0} | ({"server_lgkm": 0.0} if matching else {})
        for index in _batches(labels, settings, generator):
            if ctx.cancelled():
                raise Cancelled("training was asked to stop")
            optimizer.zero_grad()
            parts = _losses(network, trained, images, labels, index.to(labels.device), matching)
            parts["loss"].backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            for name in sums:
                sums[name] += float(parts[name].detach()) * len(index) / len(labels)
        if not torch.isfinite(torch.tensor(list(sums.values()))).all():
            raise DataError(
                f"training on condensed data: the loss is not finite in epoch {epoch + 1}",
                hint=f"lower the plan's method.server.lr of {settings.lr:g}",
            )
        ctx.progress(epoch + 1, settings.epochs)
    for name, value in sums.items():
        ctx.report(name, value)
    return {name: p.detach() for name, p in trained.items()}


def _losses(
    network: Network,
    parameters: Parameters,
    images: torch.Tensor,
    labels: torch.Tensor,
    index: torch.Tensor,
    matching: Matching | None,
) -> dict[str, torch.Tensor]:
    y = labels[index]  # (B,)
    logits = outputs(network, parameters, images[index])[1]  # (B, C)
    ce = F.cross_entropy(logits, y)
    parts = {"server_ce": ce, "loss": ce, "server_accuracy": (logits.argmax(dim=1) == y).float().mean()}
    if matching:
        if matching.scope == "full":
            y, logits = labels, outputs(network, parameters, images)[1]  # (S,), (S, C)
        parts["server_lgkm"] = lgkm_loss(logits, y, matching.soft)
        parts["loss"] = ce + matching.weight * parts["server_lgkm"]
    return parts


def _optimizer(settings: ServerTraining, parameters: list[torch.Tensor]) -> Optimizer:
    if settings.optimizer == "sgd":
        return SGD(parameters, lr=settings.lr, momentum=settings.momentum, weight_decay=settings.weight_decay)
    return Adam(parameters, lr=settings.lr, weight_decay=settings.weight_decay)


def _batches(labels: torch.Tensor, settings: ServerTraining, generator: torch.Generator) -> Iterator[torch.Tensor]:
    if settings.sampling == "stratified":
        order = stratified_order(labels.cpu(), generator)
    else:
        order = torch.randperm(len(labels), generator=generator)
    for start in range(0, len(order), settings.batch):
        yield order[start : start + settings.batch]


def stratified_order(labels: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A random order of ``labels`` (S,) that spreads every class evenly, so that each batch holds its share of each.

    The i-th of a class's n records, shuffled, comes at (i + u) / n with one u uniform on [0, 1) a class (F14).
    """
    place = torch.empty(len(labels), dtype=torch.float64)
    for c in sorted(set(labels.tolist())):
        members = (labels == c).nonzero().flatten()
        members = members[torch.randperm(len(members), generator=generator)]
        offset = torch.rand(1, generator=generator, dtype=torch.float64)
        place[members] = (torch.arange(len(members), dtype=torch.float64) + offset) / len(members)
    return place.argsort(stable=True)
