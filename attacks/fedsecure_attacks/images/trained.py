"""A5, the loss of a model that was trained on the released set: what the literature on condensed data attacks with
(Dong et al. 2022), kept for comparison. It sees far less than mean-tracing does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F

from fedsecure.models import Parameters, outputs
from fedsecure.models.initialisation import draw_parameters
from fedsecure.models.network import Network
from fedsecure.optimizers import Adam
from fedsecure.randomness import torch_generator
from fedsecure_attacks.embedding import CHUNK, family, standardiser
from fedsecure_attacks.observation import Outsider
from fedsecure_attacks.records import Candidates, Images, Labelled, Labels
from fedsecure_attacks.statistics.scores import Floats

__all__ = ["loss_attack", "margins", "train_on"]

STEPS, BATCH, LR = 300, 256, 1e-3


def train_on(released: Labelled, classes: int, seed: int, steps: int = STEPS) -> tuple[Network, Parameters]:
    """A small network of the family, trained on ``released``; ``STEPS`` are to the end."""
    network = family(released.x.shape[1:], classes)
    drawn = draw_parameters(network, torch_generator(seed, "trained on released"))
    trained = {name: p.clone().requires_grad_(True) for name, p in drawn.items()}
    optimizer = Adam(list(trained.values()), lr=LR)
    x, y = torch.tensor(released.x), torch.tensor(released.y)
    generator = torch_generator(seed, "batches of released")
    for _ in range(steps):
        index = torch.randperm(len(y), generator=generator)[:BATCH]
        optimizer.zero_grad()
        F.cross_entropy(outputs(network, trained, x[index])[1], y[index]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return network, {name: p.detach() for name, p in trained.items()}


@torch.no_grad()
def margins(network: Network, w: Parameters, x: Images, y: Labels) -> Floats:
    """LiRA's logit (n,): log p_y - log sum of the others (Carlini et al. 2022)."""
    found = []
    for at in range(0, len(x), CHUNK):
        logits = outputs(network, w, torch.tensor(x[at : at + CHUNK]))[1].double()
        own = torch.tensor(y[at : at + CHUNK])[:, None]
        others = logits.scatter(1, own, -torch.inf)
        found.append(logits.gather(1, own)[:, 0] - torch.logsumexp(others, dim=1))
    return np.asarray(torch.cat(found).numpy())


def loss_attack(seen: Outsider, candidates: Candidates, seed: int) -> Floats:
    """The margin of each candidate (n,), a table's columns standardised by the population; one class alone gives
    zeros."""
    classes = int(max(seen.released.y.max(), candidates.y.max())) + 1
    if classes < 2:
        return np.zeros(len(candidates))
    seen_as = standardiser(seen.population.x)
    network, w = train_on(replace(seen.released, x=seen_as(seen.released.x)), classes, seed)
    return margins(network, w, seen_as(candidates.x), candidates.y)
