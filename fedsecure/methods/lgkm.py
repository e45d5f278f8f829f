"""FedAF's local-global knowledge matching: the model's soft labels of a class are drawn to the nodes' (page, 2.3)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

__all__ = ["SoftLabels", "lgkm_loss"]

#: Soft labels are kept above this before their logarithm is taken.
FLOOR = 1e-8


@dataclass(frozen=True)
class SoftLabels:
    """Global soft labels ``r`` (C, C), row c for class c, constant; ``mask`` (C,) bool: whether any node holds c."""

    r: torch.Tensor
    mask: torch.Tensor
    tau: float


def lgkm_loss(logits: torch.Tensor, labels: torch.Tensor, soft: SoftLabels) -> torch.Tensor:
    """(1/|Y|) sum over classes c present of 1/2 [KL(r_c || t_c) + KL(t_c || r_c)], a scalar.

    ``logits`` (n, C), ``labels`` (n,); t_c = softmax(mean of the logits labelled c / tau), which alone carries the
    gradient. Classes that no node holds add nothing. KL sums over outputs; there is no factor tau^2 (F15, F18).
    """
    num_classes = logits.shape[1]
    one_hot = F.one_hot(labels, num_classes).to(logits.dtype)  # (n, C)
    counts = one_hot.sum(dim=0)  # (C,)
    present = counts > 0
    means = (one_hot.T @ logits)[present] / counts[present, None]  # (|Y|, C)
    log_t = F.log_softmax(means / soft.tau, dim=1)  # (|Y|, C)
    r = soft.r[present].clamp_min(FLOOR)  # (|Y|, C)
    log_r = r.log()
    both = (r * (log_r - log_t) + log_t.exp() * (log_t - log_r)).sum(dim=1) / 2  # (|Y|,)
    return (both * soft.mask[present].to(both.dtype)).sum() / present.sum()
