"""Shadows of whole runs of FedAF: one node's records are those of the pool that are in, and everything that it sends in
every round is kept, with the models that it was sent for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from fedsecure.condensation.means import ClassRecords, class_records
from fedsecure.data.dataset import Dataset
from fedsecure.evaluation import evaluate
from fedsecure.models import Parameters, blank_network, to_parameters, to_tensors
from fedsecure.plan import Plan
from fedsecure.plan.task import ImageTask
from fedsecure.tensors import Array, Tensors
from fedsecure_attacks.federated.run import FIRST_OTHER, TARGET, Heard, deal, plan_of, run
from fedsecure_attacks.federated.setting import FederatedSetting
from fedsecure_attacks.observation import Coordinator, OtherNode, Round, public_plan
from fedsecure_attacks.records import Labelled
from fedsecure_attacks.residual import MOST_LONGER, matching_residual
from fedsecure_attacks.splits import Mask
from fedsecure_attacks.statistics.scores import Floats

__all__ = ["FederatedShadow", "make_federated"]


@dataclass(frozen=True, eq=False)
class FederatedShadow:
    """``plan`` that was run; ``rounds``, in order, of the audited node; ``final``, the trained model. ``global_logits``
    (T, C, C): the mean logits that every node was sent; ``own_logits`` (T, C, C): those of the first other node.
    ``inside`` (n,): which records of the pool were in. ``residual``: mean over rounds (``matching_residual``, under the
    plan's networks). ``steps``: of condensation, in all rounds. ``accuracy`` of ``final`` on held-out records, where
    there are some."""

    plan: Plan = field(repr=False)
    rounds: tuple[Round, ...] = field(repr=False)
    final: Parameters = field(repr=False)
    global_logits: Floats = field(repr=False)
    own_logits: Floats = field(repr=False)
    inside: Mask = field(repr=False)
    members: Mapping[int, int] = field(repr=False)
    residual: float
    steps: int
    accuracy: float | None = None

    @property
    def released(self) -> Labelled:
        """The set of the last round."""
        released = self.rounds[-1].released
        assert released is not None
        return released

    def counts(self, pool: Labelled) -> Mapping[int, int]:
        """Records of each class that were in."""
        return pool.counts(self.inside)

    def observation(self, population: Labelled) -> Coordinator:
        """T3: what the coordinator sees, who learns people from ``population``."""
        return Coordinator(public_plan(self.plan), self.rounds, population, self.members)

    def other_node(self, others: Labelled) -> OtherNode:
        """T2: what the first of the other nodes sees. ``others``: as the shadow was made with; its share of them is the
        population that it knows."""
        nodes = len(self.plan.cohort.nodes)
        turn = np.concatenate([np.flatnonzero(others.y == c)[:: nodes - 1] for c in np.unique(others.y)])
        own = others.take(np.sort(turn))
        models = tuple(r.w for r in self.rounds)
        return OtherNode(public_plan(self.plan), models, tuple(self.global_logits), tuple(self.own_logits), own, nodes)


def make_federated(
    pool: Labelled,
    inside: Mask,
    others: Labelled,
    setting: FederatedSetting,
    seed: int,
    number: int,
    *,
    test: Labelled | None = None,
) -> FederatedShadow:
    """Run FedAF with the records of ``pool`` that are ``inside`` at the audited node and ``others`` dealt to the other
    nodes. The same arguments give the same shadow, bit for bit, on one machine. Raises ``AuditError`` when nobody is
    inside, or one of the ``others`` is a candidate."""
    data = deal(setting, pool, inside, others)
    longer = 1
    while True:
        plan = plan_of(setting, pool, others, seed, number, longer=longer)
        heard, model = run(plan, data)
        rounds = tuple(_round(plan, heard, t) for t in range(plan.rounds))
        residual = _residual(plan, heard, data[TARGET], seed)
        if not setting.residual or residual <= setting.residual or longer >= MOST_LONGER:
            break
        longer *= 2
    return FederatedShadow(
        plan,
        rounds,
        to_parameters(model),
        np.stack([_wide(heard.broadcasts[t, "condensation"]["logits.mean"]) for t in range(plan.rounds)]),
        np.stack([_wide(_summed(heard, t, FIRST_OTHER)["mean_logits"]) for t in range(plan.rounds)]),
        inside,
        pool.counts(inside),
        residual,
        setting.steps * longer * setting.rounds,
        None if test is None else accuracy_of(plan, to_parameters(model), test),
    )


def accuracy_of(plan: Plan, w: Parameters, test: Labelled) -> float:
    """The share of ``test`` that the model ``w`` labels rightly."""
    data = Dataset(test.x, test.y, plan.task.classes)
    return float(evaluate(plan, to_tensors(w), data)["accuracy"])


def _wide(array: Array) -> Floats:
    return np.asarray(array, np.float64)


def _summed(heard: Heard, t: int, node: str) -> Tensors:
    return heard.contributions[t, "statistics", node].summed


def _round(plan: Plan, heard: Heard, t: int) -> Round:
    statistics = _summed(heard, t, TARGET)
    return Round(
        to_parameters(heard.broadcasts[t, "statistics"].under("model")),
        _set_of(plan, t, heard.contributions[t, "condensation", TARGET].released),
        _wide(statistics["mean_logits"]),
        tuple(np.flatnonzero(statistics["class_weight"]).tolist()),
        _wide(statistics["soft_labels"]),
    )


def _set_of(plan: Plan, t: int, released: Tensors) -> Labelled:
    """Images as records are, x * std + mean; condensed pixels may lie outside of [0, 1], and are left there."""
    x = released["images"]
    if isinstance(plan.task, ImageTask):
        mean, std = (np.asarray(v, np.float32).reshape(1, -1, 1, 1) for v in (plan.task.mean, plan.task.std))
        x = x * std + mean
    return Labelled(f"released in round {t + 1}", np.asarray(x, np.float32), np.asarray(released["labels"], np.int64))


def _residual(plan: Plan, heard: Heard, data: Dataset, seed: int) -> float:
    """Mean over rounds; of classes that were released, and whose records there are."""
    network, found = blank_network(plan.model, plan.task), []
    for t in range(plan.rounds):
        released = heard.contributions[t, "condensation", TARGET].released
        held = np.intersect1d(released["labels"], data.y).tolist()
        if not held:
            continue
        images = torch.stack([torch.tensor(released["images"][released["labels"] == c]) for c in held])
        records: ClassRecords = class_records(plan.task, data, held)
        found.append(matching_residual(network, records, images, seed))
    return float(np.mean(found)) if found else 0.0
