"""B4: what the final model tells whoever may ask it. The node's own answer, by its heads, for routed methods."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from fedsecure.method import Method
from fedsecure.methods.fedavg import FedAvg
from fedsecure.methods.routed import RoutedBase
from fedsecure.models import outputs, standardise, to_parameters
from fedsecure.plan import Plan
from fedsecure_attacks.embedding import CHUNK
from fedsecure_attacks.records import Images, Labelled, Labels
from fedsecure_attacks.spm.halves import Half
from fedsecure_attacks.statistics.scores import Floats

__all__ = ["label_probabilities", "margins_of", "rmia", "without_pool"]

#: Probabilities lie this far from 0 and 1: answers are single precision.
INSIDE = 1e-7


def label_probabilities(plan: Plan, method: Method, half: Half, node: str, x: Images, y: Labels) -> Floats:
    """P(y | x) of each record by the final model, (n,), strictly between 0 and 1."""
    if isinstance(method, RoutedBase):
        found = np.asarray(method.predict(node, method.serving(half.server), half.local, x).probabilities)
    else:
        assert isinstance(method, FedAvg)
        w, parts = to_parameters(method.model(half.server)), []
        with torch.no_grad():
            for at in range(0, len(x), CHUNK):
                records = standardise(plan.task, torch.tensor(x[at : at + CHUNK]))
                parts.append(torch.softmax(outputs(method.network, w, records)[1], dim=1).numpy())
        found = np.concatenate(parts)
    own = found[np.arange(len(y)), y].astype(np.float64)
    return np.asarray(own.clip(INSIDE, 1 - INSIDE))


def margins_of(probabilities: Floats) -> Floats:
    """LiRA's logit of P(y | x) (Carlini et al. 2022)."""
    return np.asarray(np.log(probabilities) - np.log1p(-probabilities))


def rmia(own: Sequence[Floats], others: Sequence[Floats], target: int) -> Floats:
    """Scores (n,): the share of the population that record x beats, by P(x) under the target over its mean under all
    models (Zarifzadeh et al. 2024). ``own``: P(y | x) of the pool by model, ``others`` of the population."""
    ratio = own[target] / np.mean(own, axis=0)  # (n,)
    people = np.sort(others[target] / np.mean(others, axis=0))
    return np.asarray(np.searchsorted(people, ratio, side="right") / len(people))


def without_pool(population: Labelled, pool: Labelled) -> Labelled:
    """The people who are no candidates."""
    known = set(pool.fingerprints())
    return population.take(np.array([key not in known for key in population.fingerprints()], np.bool_))
