"""How well a model does on records that it was not trained on."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from fedsecure.data.dataset import Dataset
from fedsecure.errors import DataError
from fedsecure.models import blank_network, outputs, standardise, state_specs, to_parameters
from fedsecure.plan import Plan
from fedsecure.tensors import Tensors

__all__ = ["evaluate", "predict"]

#: Records of one forward pass: few enough for a processor's cache.
CHUNK = 128


def predict(plan: Plan, model_state: Tensors, data: Dataset) -> torch.Tensor:
    """Logits (n, C), float32, of every record under ``model_state``, in batches and without gradient.

    Raises ``DataError`` naming the tensor when the state is not the plan's model, or when records have another shape.
    """
    header = model_state.header()
    for spec in state_specs(plan.model, plan.task):
        if spec.name not in header:
            raise DataError(f"tensor {spec.name}: the model has it but the state does not")
        spec.check_header(*header[spec.name], {})
    if data.x.shape[1:] != plan.task.feature_shape:
        raise DataError(f"data: records of shape {list(data.x.shape[1:])} where {list(plan.task.feature_shape)} is due")
    network, parameters = blank_network(plan.model, plan.task), to_parameters(model_state)
    x = torch.tensor(data.x)  # (n, *shape)
    with torch.no_grad():
        chunks = [
            outputs(network, parameters, standardise(plan.task, x[start : start + CHUNK]))[1]
            for start in range(0, len(x), CHUNK)
        ]
    return torch.cat(chunks)  # (n, C)


def evaluate(plan: Plan, model_state: Tensors, data: Dataset) -> dict[str, float]:
    """``accuracy`` (0 to 1), ``cross_entropy`` (mean, nats), and ``accuracy.<class>`` for each class that has records.

    Raises ``DataError`` when ``data`` is empty or does not go with the plan.
    """
    if not len(data):
        raise DataError("data: no records to evaluate on")
    logits = predict(plan, model_state, data)  # (n, C)
    y = torch.tensor(data.y)  # (n,)
    right = (logits.argmax(dim=1) == y).numpy()
    result = {"accuracy": float(right.mean()), "cross_entropy": float(F.cross_entropy(logits.double(), y))}
    for c, name in enumerate(data.classes):
        mine = data.y == c
        if np.any(mine):
            result[f"accuracy.{name}"] = float(right[mine].mean())
    return result
