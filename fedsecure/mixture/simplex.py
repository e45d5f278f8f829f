"""Mixing weights from a noisy sum: the nearest point of the simplex whose coordinates all have some weight."""

from __future__ import annotations

import torch

__all__ = ["onto_simplex"]


def onto_simplex(v: torch.Tensor, floor: float) -> torch.Tensor:
    """The point nearest to ``v`` (C,), which is finite, whose coordinates sum to 1 and are at least ``floor``, at most
    1 / C (Duchi et al. 2008, figure 1, on what is above the floor)."""
    total = 1.0 - len(v) * floor
    above = v.double() - floor
    ordered, _ = above.sort(descending=True)
    excess = (ordered.cumsum(0) - total) / torch.arange(1, len(v) + 1, dtype=torch.float64, device=v.device)  # (C,)
    last = int((ordered > excess).nonzero()[-1]) if total > 0 else 0
    return (above - excess[last]).clamp(min=0.0) + floor
