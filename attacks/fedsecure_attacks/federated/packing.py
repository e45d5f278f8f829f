"""A federated shadow as plain arrays, and back."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from fedsecure.models import Parameters, state_specs
from fedsecure.plan import Plan
from fedsecure.tensors import Array
from fedsecure_attacks.federated.shadows import FederatedShadow
from fedsecure_attacks.observation import Round
from fedsecure_attacks.records import Labelled
from fedsecure_attacks.splits import Mask

__all__ = ["NAMES", "pack", "unpack"]

#: The arrays of a shadow.
NAMES = (
    "models", "x", "y", "rounds", "mean_logits", "soft_labels", "held", "global_logits", "own_logits", "plan", "about",
)  # fmt: skip


def pack(shadow: FederatedShadow) -> dict[str, Array]:
    """``models`` (T + 1, P): parameters in name order, the last row trained; ``x``, ``y`` of all rounds and which of
    the ``rounds`` each record is of; the logits (T, C, C); ``held`` (T, C); ``plan``, its canonical bytes; ``about``:
    residual, steps, accuracy or NaN."""
    classes = len(shadow.plan.task.classes)
    held = np.zeros((len(shadow.rounds), classes), np.bool_)
    released, mean, soft = [], [], []
    for t, each in enumerate(shadow.rounds):
        assert each.released is not None
        assert each.mean_logits is not None
        assert each.soft_labels is not None
        held[t, list(each.held)] = True
        released.append(each.released)
        mean.append(each.mean_logits)
        soft.append(each.soft_labels)
    accuracy = np.nan if shadow.accuracy is None else shadow.accuracy
    return {
        "models": np.stack([_flat(w) for w in (*(r.w for r in shadow.rounds), shadow.final)]),
        "x": np.concatenate([s.x for s in released]),
        "y": np.concatenate([s.y for s in released]),
        "rounds": np.repeat(np.arange(len(released)), [len(s) for s in released]),
        "mean_logits": np.stack(mean),
        "soft_labels": np.stack(soft),
        "held": held,
        "global_logits": shadow.global_logits,
        "own_logits": shadow.own_logits,
        "plan": np.frombuffer(shadow.plan.canonical(), np.uint8),
        "about": np.array([shadow.residual, shadow.steps, accuracy], np.float64),
    }


def unpack(arrays: Mapping[str, Array], pool: Labelled, inside: Mask) -> FederatedShadow:
    """What ``pack`` packed. Raises ``ValueError`` when the arrays do not go with each other, or the plan is none of
    this version's."""
    plan = _plan(arrays["plan"])
    models = [_parameters(plan, row) for row in arrays["models"]]
    residual, steps, accuracy = arrays["about"].tolist()
    rounds = []
    for t in range(plan.rounds):
        here = arrays["rounds"] == t
        rounds.append(
            Round(
                models[t],
                Labelled(f"released in round {t + 1}", arrays["x"][here], arrays["y"][here]),
                arrays["mean_logits"][t],
                tuple(np.flatnonzero(arrays["held"][t]).tolist()),
                arrays["soft_labels"][t],
            )
        )
    return FederatedShadow(
        plan, tuple(rounds), models[-1], arrays["global_logits"], arrays["own_logits"], inside,
        pool.counts(inside), residual, int(steps), None if np.isnan(accuracy) else accuracy,
    )  # fmt: skip


def _plan(array: Array) -> Plan:
    return Plan.model_validate_json(array.tobytes(), strict=False)


def _flat(w: Parameters) -> Array:
    return np.concatenate([w[name].numpy().ravel() for name in sorted(w)])


def _parameters(plan: Plan, row: Array) -> Parameters:
    found, at = {}, 0
    for spec in state_specs(plan.model, plan.task):  # in name order
        shape = tuple(int(length) for length in spec.shape if isinstance(length, int))
        size = int(np.prod(shape))
        found[spec.name] = torch.tensor(row[at : at + size].reshape(shape))
        at += size
    if at != len(row):
        raise ValueError(f"{len(row)} parameters where the network has {at}")
    return found
