"""FedDRM as its own paper has it: one backbone, two branches, one joint loss (FedSPM page, section 3)."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn
from torch.func import functional_call

from fedsecure.method import ClientContext
from fedsecure.methods.answering import CHUNK
from fedsecure.methods.joint import BranchedFeatures, JointLoss
from fedsecure.methods.private import joint_steps, private_settings
from fedsecure.methods.routed import Heads, RoutedBase
from fedsecure.methods.sgd import MStepRun
from fedsecure.mixture.experts import head_log_probabilities, label_log_probabilities, predict_loss
from fedsecure.mixture.gate import joint_logits, log_joint_posterior, route_loss
from fedsecure.models import Parameters, blank_encoder, draw_parameters, encode
from fedsecure.models.network import normed_embedding
from fedsecure.plan import Plan
from fedsecure.plan.methods import FedDRMSettings
from fedsecure.randomness import torch_generator
from fedsecure.tensors import Array, Tensors

__all__ = ["FedDRMShared"]


class FedDRMShared(RoutedBase):
    """Shared: ``backbone.<name>``, the branches ``label.<name>`` and ``node.<name>`` (linear, layer norm, ReLU), ``xi``
    and ``bias`` of the node classifier. The image classifier stays. Loss: ``label_weight`` * CE of the labels +
    (1 - ``label_weight``) * CE of the node's id, in one optimiser with the settings of ``predict``.
    """

    def __init__(self, plan: Plan, settings: FedDRMSettings) -> None:
        super().__init__(plan, settings)
        self._settings = settings
        self._backbone = blank_encoder(plan.model, plan.task)
        with torch.device("meta"):
            branch = normed_embedding(self._backbone.dim, settings.branch)
        assert branch is not None
        self._branch: nn.Module = branch

    @property
    def route_prefixes(self) -> tuple[str, ...]:
        """Backbone and node branch."""
        return ("backbone.", "node.")

    @property
    def predict_dim(self) -> int:
        """Units of the label branch."""
        return self._settings.branch

    def draw_shared(self, seed: int) -> Parameters:
        """Everything by PyTorch's own initialisers."""
        drawn = draw_parameters(self._backbone.network, torch_generator(seed, "backbone"))
        found = {f"backbone.{name}": p for name, p in drawn.items()}
        for which in ("label", "node"):
            drawn = draw_parameters(self._branch, torch_generator(seed, which))
            found |= {f"{which}.{name}": p for name, p in drawn.items()}
        bound, shape = 1.0 / math.sqrt(self._settings.branch), (len(self.nodes), 1, self._settings.branch)
        found["xi"] = torch.empty(shape).uniform_(-bound, bound, generator=torch_generator(seed, "xi"))
        return found

    def _through(self, shared: Parameters, which: str, features: torch.Tensor) -> torch.Tensor:
        own = {name[len(which) + 1 :]: p for name, p in shared.items() if name.startswith(which + ".")}
        branched: torch.Tensor = functional_call(self._branch, own, (features,), strict=True)
        return branched[:, None]  # (n, 1, branch)

    def _features(self, shared: Parameters, x: torch.Tensor) -> torch.Tensor:
        own = {name.removeprefix("backbone."): p for name, p in shared.items() if name.startswith("backbone.")}
        return encode(self._backbone, own, x)

    def predict_features(self, shared: Parameters, x: torch.Tensor) -> torch.Tensor:
        """The label branch: (n, 1, branch)."""
        return self._through(shared, "label", self._features(shared, x))

    def route_features(self, shared: Parameters, x: torch.Tensor) -> torch.Tensor:
        """The node branch: (n, 1, branch)."""
        return self._through(shared, "node", self._features(shared, x))

    def _losses(
        self, p: Parameters, bias: torch.Tensor, x: torch.Tensor, y: torch.Tensor, index: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """f1, f2 and the joint logits (n, m, 1) of a batch."""
        features, w = self._features(p, x), x.new_ones(len(x), 1)
        log_p = head_log_probabilities(self._through(p, "label", features), p["alpha"], p["beta"])
        logits = joint_logits(self._through(p, "node", features), p["xi"], bias)
        return predict_loss(label_log_probabilities(log_p, y), w), route_loss(logits, w, index), logits

    def train(
        self, shared: Parameters, heads: Heads, x: torch.Tensor, y: torch.Tensor, local: Tensors, ctx: ClientContext
    ) -> tuple[Parameters, Heads, dict[str, Array], dict[str, Array]]:
        """One optimiser over everything; with one component there is no E-step (w = 1)."""
        index, weight = self.index(ctx.node), self._settings.label_weight
        if ctx.privacy is not None:
            return self._train_privately(shared, heads, x, y, ctx)
        more = self._sums(shared, heads, x, y, index, ctx)
        constant = shared.get("mixing")
        moving = {name: p for name, p in shared.items() if name != "mixing"}
        run = MStepRun(self.routed.predict, {**moving, **heads}, "joint", self.plan.rounds, ctx, undecayed=("bias",))
        for batch in run.batches(len(x)):
            p = run.parameters
            bias = self.bias(p if constant is None else {**p, "mixing": constant})
            f1, f2, _ = self._losses(p, bias, x[batch], y[batch], index)
            run.step(weight * f1 + (1 - weight) * f2)
        trained = run.finish("loss")
        return {**shared, **{n: trained[n] for n in moving}}, {n: trained[n] for n in heads}, {}, more

    def _train_privately(
        self, shared: Parameters, heads: Heads, x: torch.Tensor, y: torch.Tensor, ctx: ClientContext
    ) -> tuple[Parameters, Heads, dict[str, Array], dict[str, Array]]:
        """The same by DP-SGD; the steps, and the batches, are those of the plan's ``privacy``."""
        privacy, _ = private_settings(ctx)
        index, weight = self.index(ctx.node), self._settings.label_weight
        constant = self.bias({**shared, "bias": torch.zeros_like(shared["bias"])})
        moving = {name: p for name, p in {**shared, **heads}.items() if name != "mixing"}
        with torch.device("meta"):
            branches = [normed_embedding(self._backbone.dim, self._settings.branch) for _ in ("label", "node")]
        assert branches[0] is not None
        assert branches[1] is not None
        features = BranchedFeatures(blank_encoder(self.plan.model, self.plan.task), branches[0], branches[1])
        loss = JointLoss(features, moving, index, constant, (weight, 1.0 - weight))
        columns = (x, y, x.new_ones(len(x), 1))
        trained = joint_steps(loss, moving, [(self.routed.predict, ("",))], columns, self.plan.rounds, ctx)
        mass = self.extra_sums(index, privacy.records, np.array([privacy.records]), np.zeros(0), 0.0)
        return {**shared, **{n: trained[n] for n in moving if n in shared}}, {n: trained[n] for n in heads}, {}, mass

    @torch.no_grad()
    def _sums(
        self, shared: Parameters, heads: Heads, x: torch.Tensor, y: torch.Tensor, index: int, ctx: ClientContext
    ) -> dict[str, Array]:
        """``mass`` and the diagnostics' sums, where the settings ask for them."""
        posterior, likelihood = np.zeros((len(self.nodes), 1)), 0.0
        for at in range(0, len(x) if self.routed.diagnostics == "summed" else 0, CHUNK):
            MStepRun.check(ctx)
            part, labels = x[at : at + CHUNK], y[at : at + CHUNK]
            f1, f2, logits = self._losses({**shared, **heads}, self.bias(shared), part, labels, index)
            likelihood -= float(f1 + f2) * len(part)
            posterior += log_joint_posterior(logits).exp().sum(dim=0).cpu().numpy()
        return self.extra_sums(index, len(x), np.array([len(x)]), posterior, likelihood)
