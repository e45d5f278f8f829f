"""How condensed images begin (FedAF page, F9): noise, averages of records, or records themselves."""

from __future__ import annotations

from typing import Literal

import torch

__all__ = ["Init", "initial_images"]

Init = Literal["noise", "avg", "real"]


def initial_images(
    init: Init, init_n: int, ipc: int, records: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    """First condensed images of one class, (ipc, *shape), from its standardised ``records`` (n, *shape).

    ``noise``: standard normal; reads nothing but the shape. ``avg``: each the mean of ``init_n`` records, drawn
    without replacement where there are as many. ``real``: ``ipc`` records, each used once where there are as many:
    this publishes people, and exists to reproduce and to measure.
    """
    shape = records.shape[1:]
    if init == "noise":
        return torch.randn(ipc, *shape, generator=generator).to(records.device)
    if init == "avg":
        picks = torch.stack([_pick(len(records), init_n, generator) for _ in range(ipc)])  # (ipc, init_n)
        return records[picks.to(records.device)].mean(dim=1)  # (ipc, *shape)
    return records[_pick(len(records), ipc, generator).to(records.device)].clone()  # (ipc, *shape)


def _pick(population: int, count: int, generator: torch.Generator) -> torch.Tensor:
    if population >= count:
        return torch.randperm(population, generator=generator)[:count]
    return torch.randint(population, (count,), generator=generator)
