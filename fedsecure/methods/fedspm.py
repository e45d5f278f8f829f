"""FedSPM (FedSPM page, section 2): a mixture model with routing, learned by federated EM.

Each round a node runs an E-step (7), then two M-steps that share no parameter: f1 over its heads and the prediction
encoder, f2 over the routing encoder and its linear layer (2.6). The shared parameters are summed, the heads stay.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from fedsecure.method import ClientContext
from fedsecure.methods.answering import CHUNK
from fedsecure.methods.joint import JointLoss, SeparateFeatures
from fedsecure.methods.outline import encoders_of
from fedsecure.methods.private import joint_steps, linear_mass, private_mixing, private_settings
from fedsecure.methods.routed import Heads, RoutedBase
from fedsecure.methods.sgd import MStepRun
from fedsecure.mixture.experts import (
    head_log_probabilities,
    label_log_probabilities,
    predict_loss,
    responsibilities,
)
from fedsecure.mixture.gate import joint_logits, log_joint_posterior, route_loss
from fedsecure.models import Parameters, blank_encoder, draw_parameters, encode
from fedsecure.plan import Plan
from fedsecure.plan.methods import FedDRMSettings, FedSPMSettings
from fedsecure.plan.routers import router_of
from fedsecure.randomness import torch_generator
from fedsecure.tensors import Array, Tensors

__all__ = ["FedSPM"]


@dataclass(frozen=True, slots=True)
class _EStep:
    """What one pass over a node's records finds. ``w``: responsibilities (n, C). Sums over the records: ``posterior``
    (m, C) of P(node, component | x), and ``log_likelihood`` of log P(node, y | x)."""

    w: torch.Tensor
    posterior: torch.Tensor
    log_likelihood: float


@dataclass(frozen=True, slots=True)
class _Work:
    """A node's round: its records, its row ``index``, and the responsibilities where they are fixed for the round.

    ``own``: with the explicit form, rho_i pi_i of the new pi (C,), which stands in for this node's row (page, 2.5).
    """

    x: torch.Tensor
    y: torch.Tensor
    index: int
    ctx: ClientContext
    w: torch.Tensor | None = None
    own: torch.Tensor | None = None


class FedSPM(RoutedBase):
    """Shared: ``theta.<e>.<name>`` and ``nu.<e>.<name>`` for each encoder e (one in 1x, C in Cx), ``xi``, ``bias``.

    With one component it is FedDRM with separate encoders: w = 1, f1 the cross-entropy of the labels under a local
    head, f2 that of the node's id (page, section 3).
    """

    def __init__(self, plan: Plan, settings: FedSPMSettings | FedDRMSettings) -> None:
        super().__init__(plan, settings)
        self._per_batch = isinstance(settings, FedSPMSettings) and settings.e_step == "batch" and self.components > 1
        self.encoders = encoders_of(settings)
        self._router = router_of(settings, plan.task)
        self._theta, self._nu = blank_encoder(plan.model, plan.task), blank_encoder(self._router, plan.task)

    @property
    def route_prefixes(self) -> tuple[str, ...]:
        """The routing encoders."""
        return ("nu.",)

    @property
    def predict_dim(self) -> int:
        """d."""
        return self._theta.dim

    def draw_shared(self, seed: int) -> Parameters:
        """Encoders and ``xi`` by PyTorch's own initialisers: with a smaller ``xi`` routing crawls (page, section 5)."""
        drawn: Parameters = {}
        for prefix, encoder in (("theta", self._theta), ("nu", self._nu)):
            for e in range(self.encoders):
                parameters = draw_parameters(encoder.network, torch_generator(seed, prefix, e))
                drawn |= {f"{prefix}.{e}.{name}": p for name, p in parameters.items()}
        bound = 1.0 / math.sqrt(self._nu.dim)
        shape = (len(self.nodes), self.components, self._nu.dim)
        drawn["xi"] = torch.empty(shape).uniform_(-bound, bound, generator=torch_generator(seed, "xi"))
        return drawn

    def predict_features(self, shared: Parameters, x: torch.Tensor) -> torch.Tensor:
        """g_theta: (n, E, d)."""
        return torch.stack([encode(self._theta, _of(shared, f"theta.{e}."), x) for e in range(self.encoders)], dim=1)

    def route_features(self, shared: Parameters, x: torch.Tensor) -> torch.Tensor:
        """h_nu: (n, E, d')."""
        return torch.stack([encode(self._nu, _of(shared, f"nu.{e}."), x) for e in range(self.encoders)], dim=1)

    def train(
        self, shared: Parameters, heads: Heads, x: torch.Tensor, y: torch.Tensor, local: Tensors, ctx: ClientContext
    ) -> tuple[Parameters, Heads, dict[str, Array], dict[str, Array]]:
        """E-step, M-step 1, M-step 2 (page, 2.7); with differential privacy, E-step and one joint M-step."""
        work = _Work(x, y, self.index(ctx.node), ctx)
        if ctx.privacy is not None:
            return self._train_privately(shared, heads, work, local)
        summed = self.routed.diagnostics == "summed"
        found = None
        if summed or self.explicit or (self.components > 1 and not self._per_batch):
            found = self._e_step(shared, heads, work)
        w = None if self._per_batch else found.w if found is not None else x.new_ones(len(x), 1)
        own = found.w.mean(dim=0) * shared["mixing"][work.index].sum() if found is not None and self.explicit else None
        work = _Work(x, y, work.index, ctx, w, own)
        shared, heads = self._predict_step(shared, heads, work)
        shared = self._route_step(shared, heads, work)
        kept = {} if found is None or self.components == 1 else {"responsibilities": found.w.float().cpu().numpy()}
        if found is None:
            return shared, heads, kept, {}
        w_sum = found.w.double().sum(dim=0).cpu().numpy()
        more = self.extra_sums(work.index, len(x), w_sum, found.posterior.numpy(), found.log_likelihood)
        return shared, heads, kept, more

    def _train_privately(
        self, shared: Parameters, heads: Heads, work: _Work, local: Tensors
    ) -> tuple[Parameters, Heads, dict[str, Array], dict[str, Array]]:
        """E-step, and DP-SGD on f1 + f2 (privacy page, 2.1); responsibilities and pi stay in the local state. Where the
        noise of mixing weights is shared, a node knows no private pi of its own: it goes by those broadcast."""
        x, ctx = work.x, work.ctx
        privacy, settings = private_settings(ctx)
        w, own, kept, more = x.new_ones(len(x), 1), None, dict[str, Array](), dict[str, Array]()
        if self.components > 1 and (self.explicit or not self._per_batch):
            w = self._responsibilities(shared, heads, work)
            kept["responsibilities"] = w.float().cpu().numpy()
        if self.explicit and settings.shared_noise(len(self.nodes)) is not None:
            more = self.extra_sums(work.index, privacy.records, linear_mass(w, ctx), np.zeros(0), 0.0)
        elif self.explicit:
            before = torch.tensor(local["pi"], device=ctx.device) if "pi" in local else None
            pi = private_mixing(w, before, ctx)
            kept["pi"], own = pi.cpu().numpy(), pi * shared["mixing"][work.index].sum()
            mass = (pi.double() * privacy.records).cpu().numpy()
            more = self.extra_sums(work.index, privacy.records, mass, np.zeros(0), 0.0)
        constant = self.bias({**shared, "bias": torch.zeros_like(shared["bias"])}, own, work.index)
        moving = {name: p for name, p in {**shared, **heads}.items() if name != "mixing"}
        loss = JointLoss(self._blank_features(), moving, work.index, constant)
        columns = (x, work.y) if self._per_batch else (x, work.y, w)
        by = ((self.routed.predict, ("theta.", "alpha", "beta")), (self.routed.route, ("nu.", "xi", "bias")))
        trained = joint_steps(loss, moving, by, columns, self.plan.rounds, ctx)
        return {**shared, **{n: trained[n] for n in moving if n in shared}}, {n: trained[n] for n in heads}, kept, more

    def _blank_features(self) -> SeparateFeatures:
        theta = [blank_encoder(self.plan.model, self.plan.task) for _ in range(self.encoders)]
        return SeparateFeatures(theta, [blank_encoder(self._router, self.plan.task) for _ in range(self.encoders)])

    @torch.no_grad()
    def _responsibilities(self, shared: Parameters, heads: Heads, work: _Work) -> torch.Tensor:
        """(7) for every record (n, C), with parameters as broadcast and heads as they are; nothing is reported. Zeros
        for a record that the parameters make nothing finite of."""
        rows = [work.x.new_empty(0, self.components)]
        for at in range(0, len(work.x), CHUNK):
            MStepRun.check(work.ctx)
            x, y = work.x[at : at + CHUNK], work.y[at : at + CHUNK]
            logits, label_log = self._joint(shared, x, work), self._label_log(shared, heads, x, y)
            rows.append(responsibilities(logits[:, work.index], label_log).nan_to_num(0.0))
        return torch.cat(rows)

    def _joint(self, shared: Parameters, x: torch.Tensor, work: _Work) -> torch.Tensor:
        return joint_logits(self.route_features(shared, x), shared["xi"], self.bias(shared, work.own, work.index))

    def _label_log(self, shared: Parameters, heads: Heads, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        log_p = head_log_probabilities(self.predict_features(shared, x), heads["alpha"], heads["beta"])
        return label_log_probabilities(log_p, y)

    @torch.no_grad()
    def _e_step(self, shared: Parameters, heads: Heads, work: _Work) -> _EStep:
        """(7) for every record, with the parameters as broadcast and the heads as they are."""
        rows, likelihood, n = [], 0.0, len(work.x)
        posterior = torch.zeros(len(self.nodes), self.components, dtype=torch.float64)
        for at in range(0, n, CHUNK):
            MStepRun.check(work.ctx)
            x, y = work.x[at : at + CHUNK], work.y[at : at + CHUNK]
            logits, label_log = self._joint(shared, x, work), self._label_log(shared, heads, x, y)
            rows.append(responsibilities(logits[:, work.index], label_log))
            log_posterior = log_joint_posterior(logits)
            posterior += log_posterior.exp().sum(dim=0).double().cpu()
            likelihood += float(torch.logsumexp(log_posterior[:, work.index] + label_log, dim=1).double().sum())
        w = torch.cat(rows)
        pi = w.mean(dim=0)
        work.ctx.report("log_likelihood", likelihood / n)
        work.ctx.report("effective_components", float(torch.exp(-(pi * pi.clamp(min=1e-12).log()).sum())))
        work.ctx.report("routed_here", float(posterior[work.index].sum()) / n)
        return _EStep(w, posterior, likelihood)

    def _predict_step(self, shared: Parameters, heads: Heads, work: _Work) -> tuple[Parameters, Heads]:
        """M-step 1: f1 over heads and theta."""
        theta = {name: p for name, p in shared.items() if name.startswith("theta.")}
        run = MStepRun(self.routed.predict, {**theta, **heads}, "predict", self.plan.rounds, work.ctx)
        for batch in run.batches(len(work.x)):
            x, p = work.x[batch], run.parameters
            label_log = self._label_log(p, p, x, work.y[batch])
            if work.w is not None:
                w = work.w[batch]
            else:
                with torch.no_grad():
                    w = responsibilities(self._joint(shared, x, work)[:, work.index], label_log)
            run.step(predict_loss(label_log, w))
        trained = run.finish("loss_predict")
        return {**shared, **{n: trained[n] for n in theta}}, {n: trained[n] for n in heads}

    def _route_step(self, shared: Parameters, heads: Heads, work: _Work) -> Parameters:
        """M-step 2: f2 over nu, xi and bias, all m C rows of them."""
        moving = {n: p for n, p in shared.items() if n.startswith("nu.") or n in ("xi", "bias")}
        run = MStepRun(self.routed.route, moving, "route", self.plan.rounds, work.ctx, undecayed=("bias",))
        for batch in run.batches(len(work.x)):
            x = work.x[batch]
            logits = self._joint({**shared, **run.parameters}, x, work)
            if work.w is not None:
                w = work.w[batch]
            else:
                with torch.no_grad():
                    w = responsibilities(logits[:, work.index], self._label_log(shared, heads, x, work.y[batch]))
            run.step(route_loss(logits, w, work.index))
        return {**shared, **run.finish("loss_route")}


def _of(shared: Parameters, prefix: str) -> Parameters:
    return {name[len(prefix) :]: p for name, p in shared.items() if name.startswith(prefix)}
