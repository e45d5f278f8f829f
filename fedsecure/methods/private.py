"""FedSPM and FedDRM under differential privacy: one joint M-step, and mixing weights that are released with noise.

Both losses are one loss of a record, so a step has one backward pass and one clip over encoders, gate and local heads
(privacy page, 2.1). The E-step reads parameters as broadcast and heads as the mechanism left them; responsibilities
are a record's own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from fedsecure.errors import LocalProtocolError
from fedsecure.method import ClientContext
from fedsecure.methods.joint import JointLoss, filled, outer_name
from fedsecure.methods.sgd import step_rate
from fedsecure.mixture.simplex import onto_simplex
from fedsecure.models import Parameters
from fedsecure.plan.methods import MStep
from fedsecure.plan.privacy import DPSGDSettings
from fedsecure.privacy.clipping import clipped_sums
from fedsecure.privacy.context import PrivacyContext
from fedsecure.tensors import Array

__all__ = ["MIXING_FLOOR", "joint_steps", "linear_mass", "private_mixing", "private_settings", "shared_mixing"]

#: No mixing weight that is released is below this.
MIXING_FLOOR = 1e-3
#: Where noise is shared, a record's responsibilities are multiples of 2^-20: of less than 2^33 records, float64 holds
#: their sum without rounding, which is what a share's sensitivity is for.
GRID_BITS = 20


def private_settings(ctx: ClientContext) -> tuple[PrivacyContext, DPSGDSettings]:
    """What ``ctx`` says of privacy. Raises ``LocalProtocolError`` when that is not DP-SGD."""
    if ctx.privacy is None or not isinstance(ctx.privacy.settings, DPSGDSettings):
        raise LocalProtocolError("what this node is to compute is DP-SGD, but it was handed no settings of that")
    return ctx.privacy, ctx.privacy.settings


def joint_steps(
    loss: JointLoss,
    parameters: Parameters,
    moved_by: Sequence[tuple[MStep, Sequence[str]]],
    columns: Sequence[torch.Tensor],
    rounds: int,
    ctx: ClientContext,
) -> Parameters:
    """``parameters``, all of which ``loss`` has, after the plan's steps of DP-SGD.

    ``moved_by``: the settings of each M-step (rate, schedule, momentum, weight decay, which spares ``bias``) and the
    prefixes of what it moves.
    """
    from fedsecure.privacy.dpsgd import Group, dp_sgd  # imports Opacus, which takes seconds

    module = filled(loss, parameters, ctx.device)
    names = [name for name, _ in module.named_parameters()]
    groups = []
    for settings, prefixes in moved_by:
        moved = [name for name in names if outer_name(name).startswith(tuple(prefixes))]
        for bare in (False, True):
            own = tuple(name for name in moved if (outer_name(name) == "bias") is bare)
            decay = 0.0 if bare else settings.weight_decay
            if own:
                groups.append(Group(own, step_rate(settings, ctx.round, rounds), settings.momentum, decay))
    trained = dp_sgd(module, groups, columns, ctx)
    return {outer_name(name): p for name, p in trained.items()}


def private_mixing(w: torch.Tensor, before: torch.Tensor | None, ctx: ClientContext) -> torch.Tensor:
    """pi of this node (C,): in rounds 0, ``mixing_every``, … the sum of the responsibilities ``w`` (n', C) with noise,
    over n, moved onto the simplex; in between what it was ``before``, or even weights where it was never released."""
    privacy, settings = private_settings(ctx)
    components = w.shape[1]
    if components == 1 or ctx.round % settings.mixing_every:
        return w.new_full((components,), 1.0 / components) if before is None else before
    (clean,) = clipped_sums([w], 1.0)  # (C,): a record's responsibilities have a norm of at most 1
    (noisy,) = privacy.noise.add([clean], sensitivity=1.0, sigma=settings.mixing_sigma)
    return onto_simplex(noisy / privacy.records, MIXING_FLOOR).to(w)


def linear_mass(w: torch.Tensor, ctx: ClientContext) -> Array:
    """What the node's records add to its row of a sum whose noise is shared, float64 (C,): without any noise, so it may
    leave, and be stored, with this node's share alone. In rounds 0, ``mixing_every``, … the sum of the responsibilities
    ``w`` (n', C), each record's rounded down to the grid, with a norm of at most 1; zeros in between."""
    _, settings = private_settings(ctx)
    if ctx.round % settings.mixing_every:
        return np.zeros(w.shape[1])
    one = 1 << GRID_BITS
    units = (w.double().clamp(0.0, 1.0) * one).floor().long().cpu().numpy()  # (n', C)
    excess = np.maximum(units.sum(axis=1) - one, 0)  # a softmax may sum to a little more than 1
    units[np.arange(len(units)), units.argmax(axis=1)] -= excess
    return np.asarray(units.clip(min=0).sum(axis=0) / one, np.float64)


def shared_mixing(mass: Array, heard: Sequence[int], sizes: Array | None, before: Array) -> Array:
    """rho_i pi_ic (m, C), float64, from a ``mass`` (m, C) with the cohort's noise, for the rows ``heard``; the others
    keep the share they had ``before``, for there is nothing but noise in them. ``sizes``: records of each node (m,)
    where they are shared; else they are as the noisy rows sum up. All of it is of the sum alone."""
    kept = before.astype(np.float64)
    rows = [i for i in heard if mass[i].sum() > 0]
    if not rows:
        return kept
    size = mass[rows].sum(axis=1) if sizes is None else sizes[rows].astype(np.float64)  # (H,)
    pi = [onto_simplex(torch.from_numpy(mass[i] / mass[i].sum()), MIXING_FLOOR).numpy() for i in rows]  # (H, C)
    others = np.delete(kept, rows, axis=0).sum()
    kept[rows] = np.stack(pi) * (size / size.sum() * (1.0 - others))[:, None]
    return kept
