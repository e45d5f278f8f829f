"""Sliced Wasserstein distance between two mean-logit vectors, that is two point masses (FedAF page, section 2.4).

For a direction t on the unit sphere of R^C the one-dimensional distance of the projections is |t·(u - v)|, so the
expectation over t has a closed form, and projections drawn at random only add noise to it.
"""

from __future__ import annotations

import math

import torch

__all__ = ["kappa", "projections", "swd_monte_carlo", "swd_p1", "swd_p2sq"]

#: Keeps the gradient of the square root finite where both vectors agree (squared logits).
EPSILON = 1e-12


def kappa(num_classes: int) -> float:
    """E|t·e| for t uniform on the unit sphere of R^C: Gamma(C/2) / (sqrt(pi) Gamma((C+1)/2)); 0.25869 for C = 10."""
    log_ratio = math.lgamma(num_classes / 2) - math.lgamma((num_classes + 1) / 2)
    return math.exp(log_ratio) / math.sqrt(math.pi)


def swd_p1(u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Order 1, closed form: kappa_C * ||u - v||; rows (H, C) to (H,). Its gradient has length kappa_C."""
    squares = (u - v).square().sum(dim=-1)  # (H,)
    return kappa(u.shape[-1]) * (squares + EPSILON).sqrt()


def swd_p2sq(u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Order 2, squared, closed form: ||u - v||^2 / C; rows (H, C) to (H,)."""
    return (u - v).square().mean(dim=-1)  # (H,)


def projections(num_projections: int, num_classes: int, generator: torch.Generator) -> torch.Tensor:
    """Directions uniform on the unit sphere, (L, C), float32."""
    directions = torch.randn(num_projections, num_classes, generator=generator)  # (L, C)
    lengths: torch.Tensor = directions.norm(dim=1, keepdim=True)  # (L, 1)
    return directions / lengths.clamp_min(EPSILON)


def swd_monte_carlo(u: torch.Tensor, v: torch.Tensor, directions: torch.Tensor) -> torch.Tensor:
    """Order 1, estimated with unit ``directions`` (L, C): mean |t·(u - v)|; rows (H, C) to (H,)."""
    distances: torch.Tensor = torch.matmul(u - v, directions.T)  # (H, L)
    return distances.abs().mean(dim=-1)  # (H,)
