"""Tiny plans with DP-SGD, records for them, and sources of noise that show what they were given."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fedsecure.config import validate
from fedsecure.data.dataset import Dataset
from fedsecure.method import ClientContext
from fedsecure.methods import build_method
from fedsecure.plan import Plan
from fedsecure.plan.presets import preset_settings
from fedsecure.privacy.context import NoiseSource, PrivacyContext
from fedsecure.privacy.noise import noise_source
from fedsecure.schema import Contribution
from fedsecure.tensors import Tensors

CLASSES = ("a", "b", "c")
TASK = {"kind": "image", "classes": list(CLASSES), "shape": [1, 8, 8], "mean": [0.4], "std": [0.3]}
SMALL_ROUTER = {"name": "convnet", "depth": 1, "width": 3}
#: name -> method and its settings: every way to train by DP-SGD.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "fedavg": ("fedavg", {"local_steps": 3}),
    "fedspm 1x": ("fedspm", {"router": SMALL_ROUTER}),
    "fedspm Cx": ("fedspm", {"router": SMALL_ROUTER, "encoders": "separate"}),
    "fedspm batch": ("fedspm", {"router": SMALL_ROUTER, "e_step": "batch"}),
    "fedspm explicit": ("fedspm", {"router": SMALL_ROUTER, "parametrisation": "explicit"}),
    "feddrm": ("feddrm", {"router": SMALL_ROUTER}),
    "feddrm shared": ("feddrm", {"backbone": "shared", "branch": 5}),
}


def dp_plan(variant: str, *, privacy: dict[str, Any] | None = None, rounds: int = 2, **more: Any) -> Plan:
    """A plan of ``VARIANTS``; ``privacy=None``: the same without."""
    name, method = VARIANTS[variant]
    raw = {
        "format": 1,
        "name": "tiny",
        "rounds": rounds,
        "task": TASK,
        "model": {"name": "convnet", "depth": 1, "width": 4},
        "method": preset_settings("protective", name, {"name": name, **method, **more}),
        "cohort": {"min_nodes": 2, "nodes": ["one", "two"]},
    }
    if privacy is not None:
        raw["privacy"] = {"kind": "dp-sgd", "sigma": 1.0, **privacy}
    return validate(Plan, json.loads(json.dumps(raw)), "tiny plan")


def records(count: int = 18, seed: int = 0) -> Dataset:
    """``count`` records of three classes, at random."""
    rng = np.random.default_rng([seed, 3])
    y = np.arange(count, dtype=np.int64) % len(CLASSES)
    return Dataset(rng.random((count, 1, 8, 8)).astype(np.float32), y, CLASSES)


def without(data: Dataset, left_out: int) -> Dataset:
    """``data`` without one record."""
    kept = np.arange(len(data)) != left_out
    return Dataset(data.x[kept], data.y[kept], data.classes)


class Exact:
    """No noise, and all records in every batch; keeps the sums it was given, and with what sensitivity and sigma."""

    def __init__(self) -> None:
        self.sums: list[torch.Tensor] = []
        self.asked: list[tuple[float, float]] = []

    def add(self, sums: Any, *, sensitivity: float, sigma: float) -> list[torch.Tensor]:
        self.sums.append(torch.cat([each.double().flatten() for each in sums]))
        self.asked.append((sensitivity, sigma))
        return [each.clone() for each in sums]

    def sample(self, records: int, q: float) -> Any:
        return np.arange(records)

    def count(self, counts: Any, *, sigma: float) -> Any:
        return counts


def context(
    plan: Plan, data: Dataset, noise: NoiseSource | None = None, records: int | None = None, **more: Any
) -> ClientContext:
    """A context with the plan's privacy; its reports lie in ``.report.__self__``."""
    assert plan.privacy is not None
    privacy = PrivacyContext(
        settings=plan.privacy,
        counts=tuple(int(n) for n in data.counts()),
        records=len(data) if records is None else records,
        noise=noise_source("csprng") if noise is None else noise,
    )
    return ClientContext(**{"node": "one", "round": 0, "seed": 5, "privacy": privacy} | more, report={}.__setitem__)


def exchange(plan: Plan) -> str:
    return "round" if plan.method.name == "fedavg" else "update"


def update(
    plan: Plan,
    data: Dataset,
    ctx: ClientContext,
    local: Tensors | None = None,
    change: Callable[[str, Any], Any] | None = None,
) -> tuple[Tensors, Contribution]:
    """One round from a fresh server, whose broadcast tensors ``change`` may change; the contribution is checked."""
    method = build_method(plan)
    sent = method.broadcast(exchange(plan), method.init_server(0))
    if change is not None:
        sent = Tensors({name: change(name, array) for name, array in sent.items()})
    kept, made = method.client_update(exchange(plan), sent, Tensors() if local is None else local, data, ctx)
    method.schema(exchange(plan)).check(made)
    return kept, made
