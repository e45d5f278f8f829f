"""Numerical composition of privacy loss (Gopi, Lee and Wutschitz 2021) by Opacus' building blocks, on a grid as fine as
the answer asks for. Opacus' own accountant fixes the error at 0.01: too coarse for small epsilon, and seconds of work
for large."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import numpy as np

from fedsecure.privacy.renyi import rdp_epsilon
from fedsecure.privacy.spend import Spend

__all__ = ["prv_epsilon"]

#: The error of epsilon that is aimed for: a share of it, within limits in units of epsilon.
RELATIVE_ERROR, LEAST_ERROR, MOST_ERROR = 2e-3, 2e-4, 0.2
#: The error of delta, as a share of delta.
DELTA_ERROR = 1e-3
#: Most points of the grid, which are 32 MiB an array; a coarser grid has a larger error.
MOST_POINTS = 1 << 22
#: Beyond the RDP bound, by the authors' own program (Opacus has the same).
MARGIN = 3.0


def prv_epsilon(history: Sequence[Spend], delta: float, rough: float) -> float | None:
    """Upper bound of epsilon at ``delta``; its error is in it. ``rough``: an upper bound that is known. ``None`` where
    no grid of ``MOST_POINTS`` is fine enough, or the composition fails its own checks."""
    from scipy.integrate import IntegrationWarning

    delta_error = DELTA_ERROR * delta
    steps = sum(spend.steps for spend in history)
    half = _half_width(history, delta_error, steps)
    per_point = math.sqrt(steps * math.log(12 / delta_error) / 2)  # error / mesh, their theorem 5.5
    error = min(max(RELATIVE_ERROR * rough, LEAST_ERROR), MOST_ERROR)
    error = max(error, 2 * half * per_point / MOST_POINTS)
    if error > MOST_ERROR:
        return None
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("error", IntegrationWarning)
        try:
            return _compose(history, delta, half, error / per_point, error)
        except (RuntimeError, ValueError, IntegrationWarning):
            return None


def _half_width(history: Sequence[Spend], delta_error: float, steps: int) -> float:
    """Half the width of the grid: what lies beyond has a probability that ``delta_error`` pays for (remark 5.6)."""
    each = max(rdp_epsilon([Spend(s.sigma, s.q, 1)], delta_error / (8 * steps)) for s in history)
    return max(rdp_epsilon(history, delta_error / 4), each) + MARGIN


def _compose(history: Sequence[Spend], delta: float, half: float, mesh: float, error: float) -> float:
    from opacus.accountants.analysis import prv

    domain = prv.Domain.create_aligned(-half, half, mesh)
    losses = [prv.PoissonSubsampledGaussianPRV(spend.q, spend.sigma) for spend in history]
    grids = [prv.discretize(prv.TruncatedPrivacyRandomVariable(x, domain.t_min, domain.t_max), domain) for x in losses]
    composed = prv.compose_heterogeneous(dprvs=grids, num_self_compositions=[spend.steps for spend in history])
    _, _, upper = composed.compute_epsilon(delta, DELTA_ERROR * delta, error)
    found = float(upper)
    return found if math.isfinite(found) else math.inf
