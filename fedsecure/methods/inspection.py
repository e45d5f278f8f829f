"""What a broadcast model makes of each record, before it is used: the node looks for records that stick out."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from fedsecure.data.dataset import Dataset
from fedsecure.method import Method
from fedsecure.methods.answering import Answering
from fedsecure.methods.base import ModelMethod
from fedsecure.mixture.gate import joint_logits
from fedsecure.models import outputs, standardise, to_parameters
from fedsecure.tensors import Array, Tensors

__all__ = ["inspect"]

#: Records of one pass.
INSPECTED = 256


def inspect(method: Method, broadcast: Tensors, data: Dataset, *, device: str = "cpu") -> Iterator[Array]:
    """In parts, and in the order of ``data``: each record's outputs under the broadcast model, float32 (n, k): logits
    of methods with one model, joint logits of routing of those that route. Nothing where nothing is broadcast, or where
    the method is not known here."""
    if not len(broadcast) or not isinstance(method, ModelMethod | Answering):
        return
    w = to_parameters(broadcast.under("model") if isinstance(method, ModelMethod) else broadcast, device)
    for start in range(0, len(data), INSPECTED):
        x = standardise(method.plan.task, torch.tensor(data.x[start : start + INSPECTED], device=device))
        with torch.no_grad():
            if isinstance(method, ModelMethod):
                found = outputs(method.network, w, x)[1]
            else:
                found = joint_logits(method.route_features(w, x), w["xi"], method.bias(w)).flatten(1)  # (n, m C)
        yield found.cpu().numpy()
