"""What one record pulls the parameters by: its gradient under the broadcast parameters, for whoever has them.

For routed methods the loss is -log P(node, y | x): at the start of a round its gradient is that of both M-steps
together (Fisher's identity). The node's heads are not known; in round 0 they are what every node starts from, later
they are fitted to the population. Long gradients are sketched (Charikar, Chen and Farach-Colton 2002), the update in
the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch.func import grad, vmap

from fedsecure.errors import ConfigError
from fedsecure.method import Method
from fedsecure.methods.fedavg import FedAvg, learning_rate
from fedsecure.methods.routed import RoutedBase
from fedsecure.methods.sgd import step_rate
from fedsecure.mixture.experts import head_log_probabilities, label_log_probabilities
from fedsecure.mixture.gate import joint_logits, log_joint_posterior
from fedsecure.models import Parameters, outputs, standardise, to_parameters
from fedsecure.optimizers import Adam
from fedsecure.plan import Plan
from fedsecure.plan.methods import FedDRMSettings, MStep
from fedsecure.plan.privacy import DPSGDSettings
from fedsecure.randomness import torch_generator
from fedsecure.tensors import Tensors
from fedsecure_attacks.moves import Moved
from fedsecure_attacks.records import Images, Labelled, Labels
from fedsecure_attacks.spm.halves import Seen
from fedsecure_attacks.statistics.scores import Floats

__all__ = ["Gradients", "check_method", "routing_features"]

#: Values of a sketch, and records whose gradients are held at a time.
WIDTH, CHUNK = 2048, 64
#: Steps by which the attacker fits heads to the population, and their rate.
FIT_STEPS, FIT_RATE = 150, 0.05
#: (parameters, one record, its label) -> its loss.
Loss = Callable[[Parameters, torch.Tensor, torch.Tensor], torch.Tensor]


def check_method(plan: Plan, method: Method) -> None:
    """Raise ``ConfigError`` for a method whose nodes send no parameters."""
    if not isinstance(method, FedAvg | RoutedBase):
        raise ConfigError(
            f"plan {plan.name}: method {plan.method.name!r} sends no trained parameters (allowed: 'fedavg', 'feddrm', "
            "'fedspm')",
            hint="audit what its condensed sets show of members: fedsecure audit mechanism",
        )


@dataclass(frozen=True, eq=False)
class Gradients:
    """Of one round. ``of`` gives gradients (n, D) of records; ``update`` the node's mean gradient, or what the sum has
    of it, as the round moved the parameters (D,)."""

    plan: Plan
    method: Method
    seen: Seen
    parameters: Parameters
    loss: Loss
    sketch: tuple[torch.Tensor, torch.Tensor] | None

    @classmethod
    def under(cls, plan: Plan, method: Method, seen: Seen, node: str, population: Labelled, seed: int) -> Gradients:
        """``population``: what heads are fitted to from round 1 on."""
        parameters = {n: p for n, p in to_parameters(seen.broadcast).items() if n != "mixing"}
        if isinstance(method, RoutedBase):
            loss = _routed_loss(method, seen, node, population)
        else:
            assert isinstance(method, FedAvg)
            loss = _label_loss(method)
        total = sum(p.numel() for p in parameters.values())
        return cls(plan, method, seen, parameters, loss, _sketch(total, seed))

    def of(self, x: Images, y: Labels) -> Floats:
        """(n, D), float64."""
        each = vmap(grad(self.loss), in_dims=(None, 0, 0))
        records = standardise(self.plan.task, torch.tensor(x))
        rows = []
        for at in range(0, len(records), CHUNK):
            labels = torch.tensor(y[at : at + CHUNK])
            found = each(self.parameters, records[at : at + CHUNK], labels)
            flat = torch.cat([found[name].flatten(1) for name in self.parameters], dim=1)
            rows.append(self._short(flat.double()))
        return np.asarray(torch.cat(rows).numpy())

    def losses(self, x: Images, y: Labels, parameters: Parameters | None = None) -> Floats:
        """Of records under the broadcast ``parameters``, or others, (n,)."""
        each = vmap(self.loss, in_dims=(None, 0, 0))
        records, labels = standardise(self.plan.task, torch.tensor(x)), torch.tensor(y)
        with torch.no_grad():
            return np.asarray(each(parameters or self.parameters, records, labels).double().numpy())

    def drops(self, x: Images, y: Labels, *, summed: bool) -> Floats:
        """How much the round lowered each record's loss, (n,): its gradient, followed along the whole way."""
        own, every = self.seen.records
        sent, records = (self.seen.total, every) if summed else (self.seen.sent, own)
        moved = {
            name: torch.tensor(np.asarray(sent[_sent(self.method, name)], np.float64) / records).float()
            for name in self.parameters
        }
        return np.asarray(self.losses(x, y) - self.losses(x, y, moved))

    def update(self, *, summed: bool) -> Floats:
        """(D,): minus the change of the parameters, over how far a gradient of one would have moved them. ``summed``:
        by the sum of all nodes, as if all of it were this node's."""
        own, every = self.seen.records
        sent, records = (self.seen.total, every) if summed else (self.seen.sent, own)
        parts = []
        for name, p in self.parameters.items():
            moved, steps = self._moved(name)
            after = np.asarray(sent[_sent(self.method, name)], np.float64) / records
            before = p.double().numpy() * (1 - moved.length(steps) * moved.weight_decay)
            parts.append(((before - after) * (records / own / moved.length(steps))).reshape(-1))
        return np.asarray(self._short(torch.from_numpy(np.concatenate(parts))[None])[0].numpy())

    def _short(self, flat: torch.Tensor) -> torch.Tensor:
        """Rows (n, values) as they are, or sketched (n, WIDTH)."""
        if self.sketch is None:
            return flat
        place, sign = self.sketch
        return flat.new_zeros(len(flat), WIDTH).index_add_(1, place, flat * sign)

    def _moved(self, name: str) -> tuple[Moved, int]:
        plan, method, number = self.plan, self.method, self.seen.number
        private = plan.privacy.steps if isinstance(plan.privacy, DPSGDSettings) else None
        if isinstance(method, FedAvg):
            settings = method.settings
            lr = learning_rate(settings, number, plan.rounds)
            passes = (settings.local_epochs or 0) * -(-self.seen.records[0] // settings.batch)
            steps = private or passes or settings.local_steps or 1
            return Moved(lr, settings.momentum, settings.weight_decay), steps
        assert isinstance(method, RoutedBase)
        step = _step_of(method, name)
        decay = 0.0 if name == "bias" else step.weight_decay
        return Moved(step_rate(step, number, plan.rounds), step.momentum, decay), private or step.steps


def _step_of(method: RoutedBase, name: str) -> MStep:
    one_optimiser = isinstance(method.routed, FedDRMSettings) and method.routed.backbone == "shared"
    if one_optimiser or name.startswith("theta."):
        return method.routed.predict
    return method.routed.route


def _sent(method: Method, name: str) -> str:
    return f"shared.{name}" if isinstance(method, RoutedBase) else name


def _sketch(total: int, seed: int) -> tuple[torch.Tensor, torch.Tensor] | None:
    if total <= WIDTH:
        return None
    generator = torch_generator(seed, "sketch", total)
    place = torch.randint(WIDTH, (total,), generator=generator)
    return place, torch.randint(2, (total,), generator=generator).double() * 2 - 1


def _label_loss(method: FedAvg) -> Loss:
    def loss(p: Parameters, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        model = {name.removeprefix("model."): each for name, each in p.items()}
        return F.cross_entropy(outputs(method.network, model, x[None])[1], y[None])

    return loss


def _routed_loss(method: RoutedBase, seen: Seen, node: str, population: Labelled) -> Loss:
    index, shared = method.index(node), to_parameters(seen.broadcast)
    constant = {"mixing": shared["mixing"]} if "mixing" in shared else {}
    heads = method.fresh_heads("cpu")
    if seen.number:
        heads = _fitted(method, shared, heads, index, population)
    shares = (1.0, 1.0)
    if isinstance(method.routed, FedDRMSettings) and method.routed.backbone == "shared":
        shares = (method.routed.label_weight, 1 - method.routed.label_weight)

    def loss(p: Parameters, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        label, own = _logs(method, {**p, **constant}, heads, index, x[None], y[None])
        return -torch.logsumexp(shares[0] * label + shares[1] * own, dim=1)[0]

    return loss


def _logs(
    method: RoutedBase, p: Parameters, heads: Parameters, index: int, x: torch.Tensor, y: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """log P_ic(y | x) and log P(node, component | x) of each record, (n, C) both."""
    logits = joint_logits(method.route_features(p, x), p["xi"], method.bias(p))
    log_p = head_log_probabilities(method.predict_features(p, x), heads["alpha"], heads["beta"])
    return label_log_probabilities(log_p, y), log_joint_posterior(logits)[:, index]


def _fitted(method: RoutedBase, shared: Parameters, heads: Parameters, index: int, people: Labelled) -> Parameters:
    """Heads that make the population likely under the shared parameters."""
    x, y = standardise(method.plan.task, torch.tensor(people.x)), torch.tensor(people.y)
    with torch.no_grad():
        g = method.predict_features(shared, x)
        logits = joint_logits(method.route_features(shared, x), shared["xi"], method.bias(shared))
        own = log_joint_posterior(logits)[:, index]
    moving = {name: p.detach().clone().requires_grad_(True) for name, p in heads.items()}
    optimizer = Adam(list(moving.values()), lr=FIT_RATE)
    for _ in range(FIT_STEPS):
        optimizer.zero_grad()
        label = label_log_probabilities(head_log_probabilities(g, moving["alpha"], moving["beta"]), y)
        (-torch.logsumexp(label + own, dim=1).mean()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return {name: p.detach() for name, p in moving.items()}


def routing_features(method: RoutedBase, routing: Tensors, x: Images) -> tuple[Floats, Floats]:
    """h_nu of records, (n, E d'), and P(node | x), (n, m), by the routing parameters alone."""
    shared = to_parameters(routing)
    records = standardise(method.plan.task, torch.tensor(x))
    with torch.no_grad():
        h = method.route_features(shared, records)
        posterior = log_joint_posterior(joint_logits(h, shared["xi"], method.bias(shared))).exp().sum(dim=2)
    return np.asarray(h.flatten(1).double().numpy()), np.asarray(posterior.double().numpy())
