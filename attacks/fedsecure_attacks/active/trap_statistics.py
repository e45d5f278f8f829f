"""A7, trapped statistics: the coordinator also chooses the averages v_c that nodes condense towards (FedAF's SWD term).

A forged v_c reaches the condensed images, and the images come back. Is a person easier to read out of them than when
the averages are honest, with an honest model and with a trap? The person's records enter by the matched means alone, so
there is little reason to think so; it is measured rather than argued, by condensing with the person and without.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fedsecure.condensation.loop import match, record_matcher
from fedsecure.condensation.matching import fedaf_loss
from fedsecure.condensation.means import ClassRecords
from fedsecure.condensation.resampling import interpolated
from fedsecure.method import ClientContext
from fedsecure.models import Network, Parameters, outputs
from fedsecure.plan.methods import FedAFSettings
from fedsecure.randomness import torch_generator
from fedsecure_attacks.active.trap_model import HEIGHT, Trap, logits_of
from fedsecure_attacks.embedding import Whitener
from fedsecure_attacks.records import Images
from fedsecure_attacks.statistics.intervals import auc_interval
from fedsecure_attacks.statistics.roc import auc
from fedsecure_attacks.statistics.scores import Floats, Scores

__all__ = ["ReadOut", "read_out"]

#: Condensing, as short as the audit profile is.
SETTINGS = FedAFSettings(name="fedaf", ipc=5, steps=60, resample_interval=20, min_count=1)


@dataclass(frozen=True, eq=False)
class ReadOut:
    """Scores of condensings with the person and without, under one broadcast."""

    scores: Scores

    def to_json(self) -> dict[str, Any]:
        """For the report."""
        interval = auc_interval(self.scores)
        return {
            "auc": auc(self.scores),
            "auc_interval": {"low": interval.low, "high": interval.high},
            "condensings": self.scores.n1 + self.scores.n0,
        }


def read_out(
    trap: Trap, honest: Parameters, people: Images, known: Images, *, records: int, count: int, seed: int
) -> dict[str, ReadOut]:
    """``count`` condensings with the target, row 0 of ``people`` (n, *shape), among ``records`` of its class, and as
    many without, under each of four broadcasts; the same other people, starts and networks under all. ``known``: the
    class's people whom the coordinator has, by whom it whitens. The score is mean-tracing's under the broadcast model.
    """
    network, found = trap.network, {}
    forged = torch.zeros(1, network.head.out_features)
    forged[0, trap.coordinates[0]] = HEIGHT
    for name, w in (("honest model", honest), ("trap model", trap.w)):
        averages = torch.tensor(logits_of(network, w, known).mean(axis=0, keepdims=True))
        score = _tracing(network, w, people[0], known)
        for which, v in (("honest averages", averages), ("forged averages", forged)):
            scores: tuple[list[float], list[float]] = ([], [])
            for trial in range(count):
                rng = np.random.default_rng([seed, trial])
                drawn = rng.choice(np.arange(1, len(people)), records, replace=False)
                for side, members in enumerate((np.concatenate([[0], drawn[1:]]), drawn)):
                    images = _condensed(network, w, people[members], v, seed * 100_003 + trial)
                    scores[side].append(score(images))
            found[f"{name}, {which}"] = ReadOut(Scores(np.array(scores[0]), np.array(scores[1])))
    return found


def _tracing(network: Network, w: Parameters, person: Images, known: Images) -> Callable[[Images], float]:
    """z' A M of the person, up to what is the same for every set: features and logits of the broadcast model."""

    def embed(x: Images) -> Floats:
        with torch.no_grad():
            return np.asarray(torch.cat(outputs(network, w, torch.tensor(x)), dim=1).double().numpy())

    rows = embed(known)
    mean = rows.mean(axis=0)
    direction = Whitener.fit(rows - mean).apply(embed(person[None]) - mean)[0]
    return lambda images: float(embed(images).mean(axis=0) @ direction)


def _condensed(network: Network, w: Parameters, x: Images, v: torch.Tensor, seed: int) -> Images:
    """What a node releases of one class, by FedAF's own loop: images (ipc, *shape)."""
    records = ClassRecords((0,), (torch.tensor(x),))
    ctx = ClientContext(node="node", round=0, seed=seed)
    start = torch.randn(1, SETTINGS.ipc, *x.shape[1:], generator=torch_generator(seed, "start"))

    def draw(index: int) -> Parameters:
        return interpolated(network, w, SETTINGS.gamma, torch_generator(seed, "network", index))

    loss = fedaf_loss(SETTINGS, v, torch.ones(1, dtype=torch.bool), seed)
    made = match(SETTINGS, record_matcher(SETTINGS, network, records, draw, ctx), start, loss, ctx)
    return np.asarray(made.images[0].numpy(), dtype=np.float32)
