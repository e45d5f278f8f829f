"""A7, trap models: parameters under which chosen people's logits stick out of everybody else's (audit page, A7).

The mean logits of a node's class then tell whether these people are in it, in one round: with n records the mean moves
by 1/n of what one of them has, and by next to nothing for anybody else. A class row of C logits holds C traps, one a
coordinate. Two ways: the parameters are trained, which no bound on parameters shows; or one unit is written by hand,
ReLU(a' (x - mu) - theta), which is zero for everybody but one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F

from fedsecure.errors import AuditError
from fedsecure.models import Network, Parameters, outputs
from fedsecure.models.mlp import MLP
from fedsecure.optimizers import Adam
from fedsecure.randomness import torch_generator
from fedsecure_attacks.embedding import CHUNK, Whitener
from fedsecure_attacks.records import Images, Labelled

__all__ = ["STEPS", "Trap", "forged_unit", "logits_of", "trap_model"]

#: Steps by which a trap is trained: seconds of one core.
STEPS = 150
RATE = 1e-2
#: What a target's logit is drawn towards; only its ratio to the others' spread counts.
HEIGHT = 10.0
#: Added to the spread of the population, and weight of the height against the ratio.
_LEAST_SPREAD, _PULL = 0.05, 0.1
#: What the two balancing units of a forged network hold: they alone make the layer norm, which is constant then.
BALANCE = 100.0


@dataclass(frozen=True, eq=False)
class Trap:
    """``network`` under ``w``. ``coordinates`` (T,): where the logits of each target stick out."""

    network: Network
    w: Parameters = field(repr=False)
    coordinates: tuple[int, ...]

    def logits(self, x: Images) -> Images:
        """(n, C) of records as the network sees them."""
        return logits_of(self.network, self.w, x)

    @property
    def largest(self) -> float:
        """The largest absolute value among its parameters."""
        return max(float(p.abs().max()) for p in self.w.values())


def logits_of(network: Network, w: Parameters, x: Images) -> Images:
    """Logits (n, C)."""
    with torch.no_grad():
        found = [outputs(network, w, torch.tensor(x[at : at + CHUNK]))[1] for at in range(0, len(x), CHUNK)]
    return np.asarray(torch.cat(found).numpy())


def trap_model(
    network: Network, start: Parameters, targets: Images, others: Images, *, steps: int = STEPS, seed: int = 0
) -> Trap:
    """Train from ``start``, in ``steps`` of Adam: target j's logit j stands out of the spread that the ``others`` (n,
    *shape), people of the targets' class who are known to the coordinator, have in it; and so among the targets (T,
    *shape). Raises ``AuditError`` with more targets than the network has logits, or nobody to stand out from."""
    if not 0 < len(targets) <= network.head.out_features:
        raise AuditError(f"{len(targets)} targets (one to {network.head.out_features}, one for each logit)")
    if not len(others):
        raise AuditError("nobody else of the targets' class is known, so nothing can stand out")
    own, rest = torch.tensor(targets), torch.tensor(others)
    generator = torch_generator(seed, "trap")
    w = {name: p.clone().requires_grad_(True) for name, p in start.items()}
    optimizer = Adam(list(w.values()), lr=RATE)
    for _ in range(steps):
        near = rest + 0.1 * torch.randn(rest.shape, generator=generator)
        found = outputs(network, w, torch.cat([own, rest, near]))[1][:, : len(own)]
        optimizer.zero_grad()
        _ratio(found, len(own)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return Trap(network, {name: p.detach() for name, p in w.items()}, tuple(range(len(own))))


def _ratio(found: torch.Tensor, targets: int) -> torch.Tensor:
    """log(spread of the others) - log(height of the target), over coordinates; ``found`` (T + n, T)."""
    height = found[:targets].diagonal()  # (T,)
    rest = found[targets:].square().sum(dim=0)  # (T,)
    among = found[:targets].square().sum(dim=0) - height.square()
    spread = ((rest + among) / (len(found) - 1)).clamp_min(0).add(_LEAST_SPREAD**2).sqrt()
    return (spread.log() - F.softplus(height).log() + _PULL * (height - HEIGHT).square()).mean()


def forged_unit(network: MLP, target: Images, others: Labelled, label: int) -> Trap:
    """Write a unit into the last hidden layer of an MLP with one hidden layer of 8 units and more, by hand: its input
    is the whitened inner product with ``target`` (*shape), less a threshold half-way between it and the largest of the
    ``others``; logit 0 reads it alone."""
    linear = dict(network.named_parameters())
    if len([name for name in linear if name.startswith("layers.")]) != 4 or linear["layers.0.weight"].shape[0] < 8:
        raise AuditError("a unit is forged in an MLP with one hidden layer of 8 units and more")
    rows = others.rows[others.y == label].astype(np.float64)
    mean = rows.mean(axis=0)
    z = target.reshape(1, -1).astype(np.float64) - mean
    a = Whitener.fit(rows - mean).apply(z)[0]
    a = a / np.abs(a).max()
    heights, own = (rows - mean) @ a, float(z[0] @ a)
    theta = (own + float(heights.max())) / 2
    w = {name: torch.zeros(p.shape) for name, p in linear.items()}
    w["layers.0.weight"][0] = torch.tensor(a)
    w["layers.0.bias"][0] = float(-a @ mean - theta)
    w["layers.0.bias"][1], w["layers.0.bias"][2] = BALANCE, -BALANCE
    width = len(w["layers.0.bias"])
    # The norm divides by sqrt(2 BALANCE^2 / width) and takes the mean away, which both hardly depend on the record.
    w["layers.1.weight"][0] = BALANCE * (2 / width) ** 0.5
    w["head.weight"][0, 0] = HEIGHT / max(own - theta, 1e-6)
    return Trap(network, w, (0,))
