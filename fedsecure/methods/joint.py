"""A routed model as one module: features, a node's own heads and the gate, to the joint loss of each record.

Elsewhere parameters are plain tensors that stand in for a network's own; gradients of single records need modules that
own them, the local heads included (privacy page, 2.1).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from fedsecure.mixture.experts import (
    head_logits,
    label_log_probabilities,
    predict_losses,
    responsibilities,
)
from fedsecure.mixture.gate import joint_logits, route_losses
from fedsecure.models import Encoder, Parameters

__all__ = ["BranchedFeatures", "JointLoss", "SeparateFeatures", "filled", "outer_name"]


class SeparateFeatures(nn.Module):
    """FedSPM's encoders: records to g (n, E, d) by ``theta`` and h (n, E, d') by ``nu``, E of each."""

    def __init__(self, theta: Sequence[Encoder], nu: Sequence[Encoder]) -> None:
        super().__init__()
        self.theta, self.nu = nn.ModuleList(theta), nn.ModuleList(nu)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Standardised records (n, *shape) to g and h."""
        return torch.stack([e(x) for e in self.theta], dim=1), torch.stack([e(x) for e in self.nu], dim=1)


class BranchedFeatures(nn.Module):
    """FedDRM's shared form: records through one ``backbone`` to the branches ``label`` (g) and ``node`` (h)."""

    def __init__(self, backbone: Encoder, label: nn.Module, node: nn.Module) -> None:
        super().__init__()
        self.backbone, self.label, self.node = backbone, label, node

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Standardised records (n, *shape) to g (n, 1, branch) and h (n, 1, branch)."""
        features = self.backbone(x)  # (n, dim)
        return self.label(features)[:, None], self.node(features)[:, None]


class _Heads(nn.Module):
    """``alpha`` (C, K) and ``beta`` (C, K, d): g (n, E, d) to the logits of labels, (n, C, K)."""

    def __init__(self, alpha: torch.Tensor, beta: torch.Tensor) -> None:
        super().__init__()
        self.alpha, self.beta = nn.Parameter(torch.empty_like(alpha)), nn.Parameter(torch.empty_like(beta))

    def forward(self, g: torch.Tensor) -> torch.Tensor:
        return head_logits(g, self.alpha, self.beta)

    def record_gradients(self, g: torch.Tensor, slopes: torch.Tensor) -> dict[nn.Parameter, torch.Tensor]:
        """What each record adds to the gradients, (n, *shape), of its ``slopes`` (n, C, K) along the logits."""
        features = g.expand(-1, slopes.shape[1], -1)  # (n, C, d)
        return {self.alpha: slopes, self.beta: slopes[..., None] * features[:, :, None]}


class _Gate(nn.Module):
    """``xi`` (m, C, d') and ``bias`` (m, C): h (n, E, d') to joint logits (n, m, C)."""

    def __init__(self, xi: torch.Tensor, bias: torch.Tensor) -> None:
        super().__init__()
        self.xi, self.bias = nn.Parameter(torch.empty_like(xi)), nn.Parameter(torch.empty_like(bias))

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        return joint_logits(h, self.xi, self.bias)

    def record_gradients(self, h: torch.Tensor, slopes: torch.Tensor) -> dict[nn.Parameter, torch.Tensor]:
        """What each record adds to the gradients, (n, *shape), of its ``slopes`` (n, m, C) along the logits."""
        features = h.expand(-1, slopes.shape[2], -1)  # (n, C, d')
        return {self.bias: slopes, self.xi: slopes[..., None] * features[:, None]}


class JointLoss(nn.Module):
    """Records to ``shares[0]`` * (share in f1) + ``shares[1]`` * (share in f2) of each, (n,).

    ``features``: records to g and h. ``parameters``: gives the shapes of ``alpha``, ``beta``, ``xi`` and ``bias``.
    ``index``: the node's row. ``constant``: what the gate's bias lacks, (m, C): the logarithm of mixing weights in the
    explicit form, else zeros.
    """

    def __init__(
        self,
        features: nn.Module,
        parameters: Parameters,
        index: int,
        constant: torch.Tensor,
        shares: tuple[float, float] = (1.0, 1.0),
    ) -> None:
        super().__init__()
        self.features = features
        self.heads = _Heads(parameters["alpha"], parameters["beta"])
        self.gate = _Gate(parameters["xi"], parameters["bias"])
        self._index, self._constant, self._shares = index, constant, shares

    def forward(self, x: torch.Tensor, y: torch.Tensor, w: torch.Tensor | None = None) -> torch.Tensor:
        """``w``: responsibilities (n, C), constants; left out, those (7) of the parameters of the moment."""
        g, h = self.features(x)
        label_log = label_log_probabilities(torch.log_softmax(self.heads(g), dim=2), y)  # (n, C)
        logits = self.gate(h) + self._constant  # (n, m, C)
        if w is None:
            w = responsibilities(logits[:, self._index].detach(), label_log.detach())
        predict, route = self._shares
        return predict * predict_losses(label_log, w) + route * route_losses(logits, w, self._index)


def outer_name(inner: str) -> str:
    """The name that a parameter of a ``JointLoss`` has among the shared parameters or the heads."""
    bare = inner.removeprefix("features.").removeprefix("heads.").removeprefix("gate.")
    return bare.replace(".network.", ".", 1)


def filled(module: JointLoss, parameters: Parameters, device: str) -> JointLoss:
    """``module``, whose networks may be blank, on ``device`` with copies of ``parameters``."""
    module.to_empty(device=device)
    with torch.no_grad():
        for inner, p in module.named_parameters():
            p.copy_(parameters[outer_name(inner)])
    return module
