"""The run that a shadow is: its plan, who has which records, and FedAF with an ear on what its nodes send."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from fedsecure.data.dataset import Dataset
from fedsecure.errors import AuditError
from fedsecure.method import ClientContext
from fedsecure.methods.fedaf import FedAF
from fedsecure.plan import Plan
from fedsecure.plan.methods import FedAFSettings, ServerTraining
from fedsecure.randomness import derive_seed
from fedsecure.schema import Contribution
from fedsecure.simulation import Simulator
from fedsecure.tensors import Tensors
from fedsecure_attacks.embedding import blocks
from fedsecure_attacks.federated.setting import FederatedSetting
from fedsecure_attacks.records import Labelled
from fedsecure_attacks.splits import Mask

__all__ = ["FIRST_OTHER", "TARGET", "Heard", "ListenedFedAF", "deal", "plan_of", "run"]

#: The audited node, and the first of the others, through whose eyes the view of another node is taken.
TARGET, FIRST_OTHER = "audited", "other-1"
#: No channel is scaled by less than this, however alike its pixels are.
LEAST_STD = 0.01
#: Seeds of a plan are below 2^53.
SEEDS = 2**53


def plan_of(
    setting: FederatedSetting, pool: Labelled, others: Labelled, seed: int, number: int, *, longer: int = 1
) -> Plan:
    """The plan of shadow ``number``, with ``longer`` times the steps. Shapes and the number of classes follow from pool
    and others together, the scale of pixels from others alone: it is public."""
    classes = max(2, int(max(pool.y.max(), others.y.max())) + 1)
    shape = pool.x.shape[1:]
    privacy = None
    if setting.sigma:  # noise that is drawn from the seed below: the same distribution, and a shadow can be repeated
        privacy = {
            "kind": "release", "sigma": setting.sigma, "noise": "torch", "count_sigma": setting.count_sigma,
        }  # fmt: skip
    raw = {
        "format": 1,
        "name": "audit",
        "seed": derive_seed(seed, "federated shadow", number) % SEEDS,
        "rounds": setting.rounds,
        "randomness": "plan",
        "task": _task(shape, classes, others),
        "model": _model(shape, setting.width),
        "method": _method(setting, classes, longer).model_dump(),
        "privacy": privacy,
        "cohort": {"min_nodes": setting.nodes, "nodes": [TARGET, *_others(setting)]},
    }
    return Plan.model_validate(raw, strict=False)


def _others(setting: FederatedSetting) -> list[str]:
    return [f"other-{i + 1}" for i in range(setting.nodes - 1)]


def _task(shape: tuple[int, ...], classes: int, others: Labelled) -> dict[str, Any]:
    names = [str(c) for c in range(classes)]
    if len(shape) == 1:
        columns = [
            {"kind": "numeric", "name": f"x{i}", "low": -1e9, "high": 1e9, "mean": 0.0, "std": 1.0}
            for i in range(shape[0])
        ]
        return {"kind": "table", "classes": names, "columns": columns}
    mean, std = others.x.mean(axis=(0, 2, 3), dtype=np.float64), others.x.std(axis=(0, 2, 3), dtype=np.float64)
    return {
        "kind": "image",
        "classes": names,
        "shape": list(shape),
        "mean": [round(float(m), 4) for m in mean],
        "std": [round(max(float(s), LEAST_STD), 4) for s in std],
    }


def _model(shape: tuple[int, ...], width: int) -> dict[str, Any]:
    """The network that the rest of the audit takes for such records (``embedding.family``)."""
    if len(shape) == 1:
        return {"name": "mlp", "hidden": [4 * width]}
    return {"name": "convnet", "depth": blocks(shape), "width": width}


def _method(setting: FederatedSetting, classes: int, longer: int) -> FedAFSettings:
    batches = math.ceil(setting.nodes * classes * setting.ipc / ServerTraining().batch)
    return FedAFSettings(
        name="fedaf", ipc=setting.ipc, steps=setting.steps * longer, init=setting.init, init_n=setting.init_n,
        lr_img=setting.lr, resample="interval", resample_interval=setting.interval, min_count=setting.min_count,
        lambda_loc=setting.lambda_loc, server=ServerTraining(epochs=math.ceil(setting.server_steps / batches)),
    )  # fmt: skip


def deal(setting: FederatedSetting, pool: Labelled, inside: Mask, others: Labelled) -> dict[str, Dataset]:
    """Records by node: the pool's that are ``inside`` with the audited one, the others' class by class in turn with the
    other nodes. Raises ``AuditError`` when nobody is inside, a node has no record, or one of the others is in the pool,
    whose record would then be in whatever its coin says."""
    if not inside.any():
        raise AuditError(f"{pool.name}: a split has no record in any class")
    if others.x.shape[1:] != pool.x.shape[1:]:
        raise AuditError(
            f"{others.name}: records of shape {list(others.x.shape[1:])} where {pool.name} has {list(pool.x.shape[1:])}"
        )
    known = set(pool.fingerprints())
    if shared := sum(key in known for key in others.fingerprints()):
        raise AuditError(
            f"{others.name}: {shared} of its records are candidates of {pool.name}, too",
            hint="the other nodes need people of their own",
        )
    classes = tuple(str(c) for c in range(max(2, int(max(pool.y.max(), others.y.max())) + 1)))
    turn = np.zeros(len(others), np.int64)  # (n,), which of the other nodes a record goes to
    for c in np.unique(others.y).tolist():
        here = others.y == c
        turn[here] = np.arange(int(here.sum())) % (setting.nodes - 1)
    dealt = {TARGET: Dataset(pool.x[inside], pool.y[inside], classes)}
    for i, node in enumerate(_others(setting)):
        dealt[node] = Dataset(others.x[turn == i], others.y[turn == i], classes)
        if not len(dealt[node]):
            raise AuditError(f"{others.name}: too few records for {setting.nodes - 1} other nodes")
    return dealt


class Heard:
    """What went over the line: broadcasts by (round, exchange), contributions by (round, exchange, node)."""

    def __init__(self) -> None:
        self.broadcasts: dict[tuple[int, str], Tensors] = {}
        self.contributions: dict[tuple[int, str, str], Contribution] = {}


class ListenedFedAF(FedAF):
    """FedAF as it is; what its nodes get and send is kept in ``heard``."""

    def __init__(self, plan: Plan, settings: FedAFSettings) -> None:
        super().__init__(plan, settings)
        self.heard = Heard()

    def client_update(
        self, exchange: str, broadcast: Tensors, local: Tensors, data: Dataset, ctx: ClientContext
    ) -> tuple[Tensors, Contribution]:
        """FedAF's own."""
        found = super().client_update(exchange, broadcast, local, data, ctx)
        self.heard.broadcasts[ctx.round, exchange] = broadcast
        self.heard.contributions[ctx.round, exchange, ctx.node] = found[1]
        return found


def run(plan: Plan, data: dict[str, Dataset]) -> tuple[Heard, Tensors]:
    """Simulate ``plan`` to its end: what was heard, and the trained model. PyTorch's global generator, which the noise
    of differential privacy comes from here, is seeded for the run and then as it was."""
    assert isinstance(plan.method, FedAFSettings)
    method = ListenedFedAF(plan, plan.method)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(plan.seed, "noise of a shadow"))
        simulator = Simulator(plan, method, data, evaluate_every=plan.rounds)
        for _ in simulator.rounds():
            pass
    return method.heard, method.model(simulator.server)
