"""What condensation minimises: FedAF's and FedDM's losses between class means (FedAF page, sections 2.3 and 2.8)."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fedsecure.condensation.means import ClassMeans
from fedsecure.condensation.swd import projections, swd_monte_carlo, swd_p1, swd_p2sq
from fedsecure.plan.methods import FedAFSettings, FedDMSettings
from fedsecure.randomness import torch_generator

__all__ = ["Loss", "fedaf_loss", "feddm_loss", "squared_distance"]

#: (means of records, means of condensed images, step) -> terms by name; their sum is minimised.
Loss = Callable[[ClassMeans, ClassMeans, int], dict[str, torch.Tensor]]


def squared_distance(real: torch.Tensor, synthetic: torch.Tensor) -> torch.Tensor:
    """Sum over classes and coordinates of squared differences of means (H, D); not averaged. A scalar."""
    return (real - synthetic).square().sum()


def fedaf_loss(settings: FedAFSettings, global_logits: torch.Tensor, mask: torch.Tensor, seed: int) -> Loss:
    """L_DM + lambda_loc * sum_c SWD(u_c, v_c) over the held classes.

    ``global_logits`` (H, C): rows v_c of the held classes, constant; ``mask`` (H,) bool: whether v_c is known. A class
    whose v_c is not known has no SWD term. Terms: ``dm`` and, unless it is off altogether, ``swd`` (with its weight).
    """
    with_swd = settings.lambda_loc > 0 and bool(mask.any())
    known = mask.nonzero().flatten()  # (M,)
    target = global_logits[known].detach()  # (M, C)

    def loss(real: ClassMeans, synthetic: ClassMeans, step: int) -> dict[str, torch.Tensor]:
        terms = {"dm": squared_distance(real.features, synthetic.features)}
        if with_swd:
            u = synthetic.logits[known]  # (M, C)
            terms["swd"] = settings.lambda_loc * _swd(settings, u, target, seed, step).sum()
        return terms

    return loss


def _swd(settings: FedAFSettings, u: torch.Tensor, v: torch.Tensor, seed: int, step: int) -> torch.Tensor:
    if settings.swd == "p1":
        return swd_p1(u, v)
    if settings.swd == "p2sq":
        return swd_p2sq(u, v)
    generator = torch_generator(seed, "projections", step)
    directions = projections(settings.num_projections, u.shape[1], generator)
    return swd_monte_carlo(u, v, directions.to(u.device))


def feddm_loss(settings: FedDMSettings) -> Loss:
    """Features and, with ``match_logits``, logits of the same perturbed network. Terms: ``dm`` and ``logits``."""

    def loss(real: ClassMeans, synthetic: ClassMeans, step: int) -> dict[str, torch.Tensor]:
        del step
        terms = {"dm": squared_distance(real.features, synthetic.features)}
        if settings.match_logits:
            terms["logits"] = squared_distance(real.logits, synthetic.logits)
        return terms

    return loss
