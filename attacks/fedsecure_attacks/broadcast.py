"""What records are compared in by somebody who has the broadcast models: features or logits under them, as nodes
compute them."""

from __future__ import annotations

import numpy as np
import torch

from fedsecure.models import Parameters, blank_network, outputs, standardise
from fedsecure.plan import Plan
from fedsecure.plan.methods import FedAFSettings
from fedsecure_attacks.embedding import CHUNK, Embedding
from fedsecure_attacks.records import Images
from fedsecure_attacks.statistics.scores import Floats

__all__ = ["features_under", "logits_under", "side_by_side"]


def features_under(plan: Plan, w: Parameters) -> Embedding:
    """h_w: features (n, D) under the plan's network."""
    return lambda x: _outputs(plan, w, x)[0]


def logits_under(plan: Plan, w: Parameters) -> Embedding:
    """f_w: logits (n, C), bounded where the plan bounds those of a record."""
    bound = plan.method.max_logit if isinstance(plan.method, FedAFSettings) else None

    def embed(x: Images) -> Floats:
        logits = _outputs(plan, w, x)[1]
        return logits if bound is None else logits.clip(-bound, bound)

    return embed


def side_by_side(parts: tuple[Embedding, ...]) -> Embedding:
    """All ``parts``, concatenated."""
    return lambda x: np.concatenate([embed(x) for embed in parts], axis=1)


def _outputs(plan: Plan, w: Parameters, x: Images) -> tuple[Floats, Floats]:
    network = blank_network(plan.model, plan.task)
    parts: tuple[list[Floats], list[Floats]] = ([], [])
    with torch.no_grad():
        for at in range(0, max(1, len(x)), CHUNK):
            found = outputs(network, w, standardise(plan.task, torch.tensor(x[at : at + CHUNK])))
            for part, tensor in zip(parts, found, strict=True):
                part.append(np.asarray(tensor.double().numpy()))
    return np.concatenate(parts[0]), np.concatenate(parts[1])
