"""What may stand between a trap and the coordinator, and what is released with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from fedsecure.condensation.means import ClassRecords
from fedsecure.models import Network, Parameters
from fedsecure.outliers import spreads
from fedsecure.plan.privacy import ReleaseSettings
from fedsecure.privacy.embedding import embedding
from fedsecure_attacks.active.trap_model import logits_of
from fedsecure_attacks.records import Images
from fedsecure_attacks.statistics.scores import Floats

__all__ = ["DEFENCES", "Defences", "Released", "release_under"]


@dataclass(frozen=True, slots=True)
class Defences:
    """``records`` of the class at the node. ``min_records``: of fewer nothing is released. ``logit_clip`` of the plan.
    ``max_spread`` of the node's policy: records that stick out further are left out. ``max_parameter``: a model with a
    larger one is refused. ``sigma``: noise multiplier of Mechanism A; 0 for none."""

    records: int = 50
    min_records: int = 1
    logit_clip: float | None = None
    max_spread: float | None = None
    max_parameter: float | None = None
    sigma: float = 0.0


#: What is compared when nobody says otherwise.
DEFENCES = {
    "none": Defences(),
    "logit clip": Defences(logit_clip=20.0),
    "minimum of records": Defences(records=5, min_records=10),
    "bound on parameters": Defences(max_parameter=50.0),
    "records that stick out are left out": Defences(max_spread=8.0),
    "noise, sigma 1": Defences(sigma=1.0),
    "minimum, clip and noise, sigma 8": Defences(min_records=10, logit_clip=20.0, sigma=8.0),
}


@dataclass(frozen=True, eq=False)
class Released:
    """``rows`` (n, C): what each record adds to the sum of its class; ``noise``: standard deviation of what is added to
    the sum; ``outputs`` (n, C), by which records are left out, with ``max_spread``."""

    rows: Floats
    noise: float
    outputs: Images
    max_spread: float | None

    def mean(self, members: np.ndarray, rng: np.random.Generator) -> Floats:
        """The class mean (C,) over the records at ``members``, as it leaves."""
        kept = members
        if self.max_spread is not None:
            spread = spreads(self.outputs[members], np.zeros(len(members), np.int64))
            kept = members[spread <= self.max_spread]
        total = self.rows[kept].sum(axis=0)
        if self.noise:
            total = total + rng.normal(scale=self.noise, size=total.shape)
        return np.asarray(total / max(1, len(kept)))


def release_under(defences: Defences, network: Network, w: Parameters, x: Images, seed: int) -> Released | None:
    """What a node of the class's people ``x`` would release under a model; ``None`` where it releases nothing."""
    if defences.records < defences.min_records:
        return None
    if defences.max_parameter is not None and max(float(p.abs().max()) for p in w.values()) > defences.max_parameter:
        return None
    found = logits_of(network, w, x)
    if defences.sigma:
        return Released(_clipped(network, w, x, seed), defences.sigma, found, defences.max_spread)
    clip = defences.logit_clip
    rows = found if clip is None else found.clip(-clip, clip)
    return Released(rows.astype(np.float64), 0.0, found, defences.max_spread)


def _clipped(network: Network, w: Parameters, x: Images, seed: int) -> Floats:
    """Each record's vector as Mechanism A counts it, the logits' part (n, C): by the product's own embedding."""
    settings = ReleaseSettings(kind="release", sigma=1.0)
    under = embedding(network, w, settings, x.shape[1:], (0,), seed)
    each = ClassRecords(tuple(range(len(x))), tuple(torch.tensor(x[i : i + 1]) for i in range(len(x))))
    return np.asarray(under.split(under.sums(each))[1].numpy(), dtype=np.float64)
