"""Numerical composition of privacy loss (Gopi, Lee and Wutschitz 2021) by Opacus' building blocks, on a grid as fine as
the answer asks for. Opacus' own accountant fixes the error at 0.01: too coarse for small epsilon, and seconds of work
for large."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import cast

import numpy as np

from fedsecure.privacy.renyi import rdp_epsilon
from fedsecure.privacy.spend import Spend
from fedsecure.rootlogger import root_logger_kept
from fedsecure.warned import own_filters

__all__ = ["prv_epsilon"]

#: The error of epsilon that is aimed for: a share of it, within limits in units of epsilon.
RELATIVE_ERROR, LEAST_ERROR, MOST_ERROR = 4e-3, 1e-3, 0.2
#: The error of delta, as a share of delta.
DELTA_ERROR = 1e-3
#: Most points of the grid, which are 16 MiB an array; a coarser grid has a larger error.
MOST_POINTS = 1 << 21
#: Beyond the RDP bound, by the authors' own program (Opacus has the same).
MARGIN = 3.0


def prv_epsilon(history: Sequence[Spend], delta: float, rough: float) -> float | None:
    """Upper bound of epsilon at ``delta``; its error is in it. ``rough``: an upper bound that is known. ``None`` where
    no grid of ``MOST_POINTS`` is fine enough, or the composition fails its own checks."""
    steps = sum(spend.steps for spend in history)
    half = _half_width(history, DELTA_ERROR * delta, steps)
    per_point = math.sqrt(steps * math.log(12 / (DELTA_ERROR * delta)) / 2)  # error / mesh, their theorem 5.5
    finest = 2 * half * per_point / (MOST_POINTS - 2)
    found: float | None = None
    while True:
        error = max(min(max(RELATIVE_ERROR * rough, LEAST_ERROR), MOST_ERROR), finest)
        if error > MOST_ERROR:
            return found
        better = _composed(history, delta, half, error / per_point, error)
        found = better if found is None or better is None else min(found, better)
        # RDP can be far above: what was found says better how fine the grid should be.
        if found is None or error <= max(2 * RELATIVE_ERROR * found, LEAST_ERROR, finest):
            return found
        rough = found


def _half_width(history: Sequence[Spend], delta_error: float, steps: int) -> float:
    """Half the width of the grid: what lies beyond has a probability that ``delta_error`` pays for (remark 5.6)."""
    each = max(rdp_epsilon([Spend(s.sigma, s.q, 1)], delta_error / (8 * steps)) for s in history)
    return max(rdp_epsilon(history, delta_error / 4), each) + MARGIN


@functools.cache
def _opacus() -> ModuleType:
    """Opacus' module, which touches the root logger when it is imported."""
    with root_logger_kept():
        from opacus.accountants.analysis import prv
    return cast(ModuleType, prv)


def _composed(history: Sequence[Spend], delta: float, half: float, mesh: float, error: float) -> float | None:
    """On one grid; ``None`` where it fails its own checks."""
    from scipy.integrate import IntegrationWarning

    prv = _opacus()
    points = 1 << math.ceil(math.log2(2 * half / mesh + 2))  # a power of two, for the transforms
    domain = prv.Domain((1 - points // 2) * mesh, points // 2 * mesh, points)
    losses = [prv.PoissonSubsampledGaussianPRV(spend.q, spend.sigma) for spend in history]
    with own_filters(), np.errstate(all="ignore"):
        warnings.simplefilter("error", IntegrationWarning)
        try:
            cut = [prv.TruncatedPrivacyRandomVariable(loss, domain.t_min, domain.t_max) for loss in losses]
            grids = [prv.discretize(loss, domain) for loss in cut]
            whole = prv.compose_heterogeneous(dprvs=grids, num_self_compositions=[spend.steps for spend in history])
            upper = float(whole.compute_epsilon(delta, DELTA_ERROR * delta, error)[2])
        except (RuntimeError, ValueError, IntegrationWarning):
            return None
    return upper if math.isfinite(upper) else None
