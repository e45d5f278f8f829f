"""The experts: a node's component heads, the E-step, the prediction part's M-step, and the node's predictive."""

from __future__ import annotations

import torch

__all__ = [
    "head_log_probabilities",
    "head_logits",
    "label_log_probabilities",
    "mixture_prediction",
    "predict_loss",
    "predict_losses",
    "responsibilities",
]


def head_log_probabilities(g: torch.Tensor, alpha: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    """log P_ic(k | x) = log softmax_k of ``head_logits`` of one node, shape (n, C, K)."""
    return torch.log_softmax(head_logits(g, alpha, beta), dim=2)


def head_logits(g: torch.Tensor, alpha: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    """alpha_ick + beta_ick . g_c(x) of one node, shape (n, C, K).

    ``g``: prediction features (n, E, d), E = 1 or C. ``alpha``: (C, K). ``beta``: (C, K, d).
    """
    components, num_classes, dim = beta.shape
    if g.shape[1] == 1:
        flat = g[:, 0] @ beta.reshape(components * num_classes, dim).T  # (n, C K)
        return flat.reshape(-1, components, num_classes) + alpha
    return torch.einsum("ncd,ckd->nck", g, beta) + alpha


def label_log_probabilities(log_probabilities: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """log P_ic(y_j | x_j), shape (n, C), of ``log_probabilities`` (n, C, K) and labels (n,)."""
    return log_probabilities.gather(2, y[:, None, None].expand(-1, log_probabilities.shape[1], 1))[:, :, 0]


def responsibilities(own_logits: torch.Tensor, label_log: torch.Tensor) -> torch.Tensor:
    """(7): w_jc proportional to e^{s_ic(x_j)} P_ic(y_j | x_j) over the components of the record's own node, (n, C).

    ``own_logits``: the node's row of joint logits (n, C). ``label_log``: log P_ic(y_j | x_j), (n, C).
    """
    return torch.softmax(own_logits + label_log, dim=1)


def predict_loss(label_log: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """f1 of one node: the mean of -sum_c w_jc log P_ic(y_j | x_j), a scalar (page, 2.6)."""
    return predict_losses(label_log, w).mean()


def predict_losses(label_log: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The share of each record in f1, -sum_c w_jc log P_ic(y_j | x_j), (n,)."""
    return -(w * label_log).sum(dim=1)


def mixture_prediction(
    omega: torch.Tensor, log_probabilities: torch.Tensor, *, likeliest: bool = False
) -> torch.Tensor:
    """(11): P_i(k | x) = sum_c omega_ic(x) P_ic(k | x), (n, K); with ``likeliest`` that of argmax_c omega alone."""
    if likeliest:
        best = omega.argmax(dim=1)  # (n,)
        return log_probabilities[torch.arange(len(best)), best].exp()
    return torch.einsum("nc,nck->nk", omega, log_probabilities.exp())
