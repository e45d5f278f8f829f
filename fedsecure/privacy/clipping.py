"""The clip: each record's gradient, over all parameters together, to a norm that is at most C in exact numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

__all__ = ["clipped_sums"]

#: Gradients are clipped to this much less than C, relatively, so that no rounding of double precision, in norms, in
#: factors or in the sum over a batch, makes a record count for more than C.
MARGIN = 2.0**-20
#: Columns that are taken to double precision at a time: on a CPU so few that they stay in its cache.
CPU_COLUMNS, GPU_COLUMNS = 1 << 12, 1 << 18


def clipped_sums(samples: Sequence[torch.Tensor], clip: float) -> list[torch.Tensor]:
    """The sums over records, float64, of ``samples`` (b, *shape) of each parameter, which together are one vector for
    each record, scaled down to a norm of at most ``clip`` where it is longer. A record whose vector is not finite
    counts for nothing."""
    flat = [_reachable(each).reshape(len(each), math.prod(each.shape[1:])) for each in samples]  # (b, values)
    norms = torch.stack([_squares(each) for each in flat]).sum(dim=0).sqrt()  # (b,)
    finite = norms.isfinite()
    if not finite.all():
        flat, norms = [each[finite] for each in flat], norms[finite]
    factors = (clip * (1.0 - MARGIN) / norms.clamp(min=torch.finfo(norms.dtype).tiny)).clamp(max=1.0)  # (b,)
    return [_scaled_sum(each, factors).reshape(s.shape[1:]) for each, s in zip(flat, samples, strict=True)]


def _reachable(each: torch.Tensor) -> torch.Tensor:
    """``each`` on a device that has double precision."""
    each = each.detach()
    return each.cpu() if each.device.type == "mps" else each


def _parts(flat: torch.Tensor) -> Iterator[tuple[slice, torch.Tensor]]:
    """Some columns of ``flat`` (b, values) at a time, in double precision."""
    step = CPU_COLUMNS if flat.device.type == "cpu" else GPU_COLUMNS
    for start in range(0, flat.shape[1], step):
        columns = slice(start, start + step)
        yield columns, flat[:, columns].double()


def _squares(flat: torch.Tensor) -> torch.Tensor:
    """The squared norm of each row of ``flat`` (b, values), (b,)."""
    total = torch.zeros(len(flat), dtype=torch.float64, device=flat.device)
    for _, part in _parts(flat):
        total += part.square().sum(dim=1)
    return total


def _scaled_sum(flat: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """The sum of rows of ``flat`` (b, values), each times its factor, (values,)."""
    total = torch.zeros(flat.shape[1], dtype=torch.float64, device=flat.device)
    for columns, part in _parts(flat):
        total[columns] = factors @ part
    return total
