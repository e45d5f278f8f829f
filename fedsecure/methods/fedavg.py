"""FedAvg (McMahan et al. 2017) and, with ``prox_mu`` > 0, FedProx (Li et al. 2020): trained parameters are averaged."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from fedsecure.data.dataset import Dataset
from fedsecure.method import Aggregate, Cancelled, ClientContext, ServerContext
from fedsecure.methods.averaging import check_records, means, record_count, weighted
from fedsecure.methods.base import ModelMethod
from fedsecure.methods.sgd import batches, cosine_rate
from fedsecure.models import Network, Parameters, blank_network, outputs, standardise
from fedsecure.optimizers import SGD
from fedsecure.plan import Plan
from fedsecure.plan.methods import FedAvgSettings
from fedsecure.randomness import torch_generator
from fedsecure.schema import Contribution
from fedsecure.tensors import Tensors

__all__ = ["FedAvg", "learning_rate"]


class _LabelLoss(nn.Module):
    """A network's cross-entropy of each record, (n,)."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.network(x), y, reduction="none")


def learning_rate(settings: FedAvgSettings, round_: int, rounds: int) -> float:
    """The rate of round ``round_`` (from 0) of ``rounds``: constant, or half a cosine from ``lr`` down towards 0."""
    if settings.schedule == "constant":
        return settings.lr
    return cosine_rate(settings.lr, round_, rounds)


class FedAvg(ModelMethod):
    """Summed: ``model.<parameter>`` = n * w (float32) and ``records`` = n (int64, (1,)).

    The new model is their quotient. A node without records contributes zeros. Momentum starts at zero in every round.
    """

    def __init__(self, plan: Plan, settings: FedAvgSettings) -> None:
        super().__init__(plan)
        self.settings = settings

    def client_update(
        self, exchange: str, broadcast: Tensors, local: Tensors, data: Dataset, ctx: ClientContext
    ) -> tuple[Tensors, Contribution]:
        """Train from the broadcast model on ``data``; nothing is kept. Reports ``loss``, the mean of the last pass."""
        self._check_client(exchange, broadcast, data, ctx)
        records = record_count(data, ctx)
        check_records(records)
        w = self._parameters(broadcast, ctx.device)
        if records:
            w = self._train(w, data, ctx) if ctx.privacy is None else self._train_privately(w, data, ctx)
        return local, Contribution(summed=Tensors(weighted(self.model_specs, self._model_tensors(w), records)))

    def server_update(self, exchange: str, server: Tensors, aggregate: Aggregate, ctx: ServerContext) -> Tensors:
        """The mean of the local models, weighted by records. Raises ``DataError`` when no node has any."""
        self._check_exchange(exchange)
        new = means(self.model_specs, aggregate.summed)
        drift = sum(float(np.square(array.astype(np.float64) - server[name]).sum()) for name, array in new.items())
        ctx.report("model_change", math.sqrt(drift))
        return server.with_(new)

    def _train(self, w: Parameters, data: Dataset, ctx: ClientContext) -> Parameters:
        settings = self.settings
        x = standardise(self.plan.task, torch.tensor(data.x, device=ctx.device))  # (n, *shape)
        y = torch.tensor(data.y, device=ctx.device)  # (n,)
        trained = {name: p.clone().requires_grad_(True) for name, p in w.items()}
        optimizer = SGD(
            list(trained.values()),
            lr=learning_rate(settings, ctx.round, self.plan.rounds),
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
        )
        losses: list[float] = []
        steps = self._steps(len(data))
        order = batches(len(data), settings.batch, steps, torch_generator(ctx.seed, "batches", ctx.round))
        for done, index in enumerate(order, start=1):
            if ctx.cancelled():
                raise Cancelled("training was asked to stop")
            index = index.to(ctx.device)  # noqa: PLW2901 - the same batch, on the device
            optimizer.zero_grad()
            loss = F.cross_entropy(outputs(self.network, trained, x[index])[1], y[index])
            losses.append(float(loss.detach()))
            total = loss + settings.prox_mu / 2 * self._distance(trained, w) if settings.prox_mu else loss
            total.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            ctx.progress(done, steps)
        ctx.report("loss", float(np.mean(losses[-self._steps_a_pass(len(data)) :])))
        return {name: p.detach() for name, p in trained.items()}

    def _train_privately(self, w: Parameters, data: Dataset, ctx: ClientContext) -> Parameters:
        """The same by DP-SGD, with the batches and steps of the plan's ``privacy``. The proximal term depends on no
        record: its gradient is added to the noisy one."""
        from fedsecure.privacy.dpsgd import Group, dp_sgd  # imports Opacus, which takes seconds

        settings = self.settings
        module = _LabelLoss(blank_network(self.plan.model, self.plan.task)).to_empty(device=ctx.device)
        own = {name.removeprefix("network."): p for name, p in module.named_parameters()}
        with torch.no_grad():
            for name, p in own.items():
                p.copy_(w[name])

        def hold_back() -> None:
            for name, p in own.items():
                if p.grad is not None:
                    p.grad += settings.prox_mu * (p.detach() - w[name])

        x = standardise(self.plan.task, torch.tensor(data.x, device=ctx.device))  # (n', *shape)
        y = torch.tensor(data.y, device=ctx.device)  # (n',)
        lr = learning_rate(settings, ctx.round, self.plan.rounds)
        group = Group(tuple(f"network.{name}" for name in own), lr, settings.momentum, settings.weight_decay)
        dp_sgd(module, [group], (x, y), ctx, hold_back if settings.prox_mu else None)
        return {name: p.detach() for name, p in own.items()}

    @staticmethod
    def _distance(trained: Parameters, w: Parameters) -> torch.Tensor:
        """||w_local - w_global||^2, a scalar."""
        return torch.stack([(p - w[name]).square().sum() for name, p in trained.items()]).sum()

    def _steps_a_pass(self, records: int) -> int:
        return -(-records // self.settings.batch)

    def _steps(self, records: int) -> int:
        settings = self.settings
        if settings.local_epochs is not None:
            return settings.local_epochs * self._steps_a_pass(records)
        return settings.local_steps or 1
