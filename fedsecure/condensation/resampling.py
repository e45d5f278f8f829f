"""Which network the means are matched under: FedAF's and FedDM's draws around the downloaded parameters.

Every draw starts from the downloaded parameters w, which stay as they are; draws never compound (FedAF page, F1).
"""

from __future__ import annotations

from typing import Literal

import torch

from fedsecure.models import Network, Parameters, draw_parameters

__all__ = ["Resample", "draw_index", "interpolated", "is_new_draw", "perturbed"]

Resample = Literal["step", "interval", "round"]


def draw_index(resample: Resample, interval: int, step: int) -> int:
    """Number of the draw that ``step`` (from 0) uses: new every step, every ``interval`` steps, or one a round."""
    if resample == "step":
        return step
    return step // interval if resample == "interval" else 0


def is_new_draw(resample: Resample, interval: int, step: int) -> bool:
    """Whether ``step`` is the first of its draw."""
    return step == 0 or draw_index(resample, interval, step) != draw_index(resample, interval, step - 1)


def interpolated(network: Network, w: Parameters, gamma: float, generator: torch.Generator) -> Parameters:
    """FedAF: gamma * w + (1 - gamma) * w~, w~ a fresh draw of the network's initialiser (FedAF page, 2.2, F2)."""
    fresh = draw_parameters(network, generator)
    return {name: gamma * p + (1.0 - gamma) * fresh[name].to(p.device) for name, p in w.items()}


def perturbed(w: Parameters, rho: float, generator: torch.Generator) -> Parameters:
    """FedDM: w + rho * g / ||g||, g standard normal over all parameters, a step of norm ``rho`` (FedAF page, 2.8)."""
    noise = {name: torch.randn(p.shape, generator=generator) for name, p in w.items()}
    squares = torch.stack([g.double().square().sum() for g in noise.values()])
    scale = float(rho / squares.sum().sqrt().clamp_min(1e-30))
    return {name: p + scale * noise[name].to(p.device) for name, p in w.items()}
