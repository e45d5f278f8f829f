"""The gate: joint logits over (node, component), routing, and the surrogate of the routing part's M-step."""

from __future__ import annotations

import torch

__all__ = [
    "component_posterior",
    "joint_logits",
    "log_joint_posterior",
    "route_loss",
    "route_losses",
    "routing_scores",
]


def joint_logits(h: torch.Tensor, xi: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """s_ic(x) = bias_ic + xi_ic . h_c(x), shape (n, m, C).

    ``h``: routing features (n, E, d') with E = 1 (encoder shared by the components, 1x) or E = C (Cx). ``xi``:
    (m, C, d'). ``bias``: (m, C): b in the absorbed form, gamma + log(rho pi) in the explicit one (page, 2.5).
    """
    m, components, dim = xi.shape
    if h.shape[1] == 1:
        flat = h[:, 0] @ xi.reshape(m * components, dim).T  # (n, m C)
        return flat.reshape(-1, m, components) + bias
    return torch.einsum("ncd,mcd->nmc", h, xi) + bias


def log_joint_posterior(logits: torch.Tensor) -> torch.Tensor:
    """log P(node = i, component = c | x), shape (n, m, C): log-softmax of joint logits over all m C of them."""
    return torch.log_softmax(logits.flatten(1), dim=1).reshape(logits.shape)


def routing_scores(logits: torch.Tensor, log_rho: torch.Tensor | None = None) -> torch.Tensor:
    """logsumexp_c s_ic(x), shape (n, m): log P(node = i | x) up to a constant of the row; its argmax is (10).

    ``log_rho``: (m,); when given it is taken off, which leaves the density ratios alone (``route_prior = "density"``).
    """
    scores = torch.logsumexp(logits, dim=2)  # (n, m)
    return scores if log_rho is None else scores - log_rho


def component_posterior(logits: torch.Tensor, node: int) -> torch.Tensor:
    """omega_ic(x) = P(component = c | x) of one node, shape (n, C): softmax of its own row of joint logits (11)."""
    return torch.softmax(logits[:, node], dim=1)


def route_loss(logits: torch.Tensor, w: torch.Tensor, node: int) -> torch.Tensor:
    """f2 of one node: the mean of -sum_c w_jc log softmax_(k,l)(s)[(i, c)], a scalar (page, 2.4 and 2.6).

    The surrogate of Q2 is minus n times this plus constants. ``w``: responsibilities (n, C).
    """
    return route_losses(logits, w, node).mean()


def route_losses(logits: torch.Tensor, w: torch.Tensor, node: int) -> torch.Tensor:
    """The share of each record in f2, -sum_c w_jc log softmax_(k,l)(s)[(i, c)], (n,)."""
    own = log_joint_posterior(logits)[:, node]  # (n, C)
    return -(w * own).sum(dim=1)
