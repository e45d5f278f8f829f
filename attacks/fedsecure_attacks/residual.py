"""How far condensed images are from what they were matched to."""

from __future__ import annotations

import numpy as np
import torch

from fedsecure.condensation.means import ClassRecords, exact_means, synthetic_means
from fedsecure.models import Network, draw_parameters
from fedsecure.randomness import torch_generator

__all__ = ["MOST_LONGER", "matching_residual"]

#: How much longer than its ``steps`` a setting may take that is matched until a residual is reached.
MOST_LONGER = 8
#: Fresh networks that the residual is measured under.
PROBES = 5


def matching_residual(network: Network, records: ClassRecords, images: torch.Tensor, seed: int) -> float:
    """Mean over fresh networks and classes of the squared distance between the means of features of ``records`` and of
    ``images`` (H, P, *shape) of the same classes."""
    found = []
    with torch.no_grad():
        for probe in range(PROBES):
            w = draw_parameters(network, torch_generator(seed, "probe", probe))
            real, made = exact_means(network, w, records), synthetic_means(network, w, images)
            found.append(float((real.features - made.features).square().sum(dim=1).mean()))
    return float(np.mean(found))
