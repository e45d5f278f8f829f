"""What FedSPM and FedDRM have in common: shared parameters that are summed, heads that stay, and routing.

Coordinator state and broadcast hold the shared parameters by name; ``bias`` (m, C) and ``xi`` (m, C, d') are the linear
layer over all (node, component) pairs, which every node trains whole (FedSPM page, 2.1).
"""

from __future__ import annotations

import math
from abc import abstractmethod

import numpy as np
import torch

from fedsecure.data.dataset import Dataset
from fedsecure.errors import DataError
from fedsecure.method import Aggregate, ClientContext, ServerContext
from fedsecure.methods.answering import Answering
from fedsecure.methods.averaging import (
    RECORDS,
    check_records,
    check_trained,
    means,
    record_count,
    weighted,
)
from fedsecure.methods.base import check_client, check_exchange
from fedsecure.methods.outline import LEAST_LOG, SENT, components_of, outline_of, shared_specs, shares_noise
from fedsecure.methods.private import shared_mixing
from fedsecure.models import Parameters, standardise, to_parameters, to_tensors
from fedsecure.plan import Plan
from fedsecure.plan.methods import RoutedSettings
from fedsecure.plan.privacy import DPSGDSettings
from fedsecure.randomness import torch_generator
from fedsecure.schema import Contribution, Schema, TensorSpec
from fedsecure.tensors import Array, Tensors

__all__ = ["Heads", "RoutedBase"]

#: A node's own heads: ``alpha`` (C, K) and ``beta`` (C, K, d).
Heads = Parameters


class RoutedBase(Answering):
    """A ``RoutedMethod``. Subclasses say which parameters are shared, how features are made, and how a node trains.

    Summed in ``update``: ``shared.<name>`` = n * parameter (float32) and ``records`` = n; with the explicit form
    ``mass`` (m, C), whose row i is n_i pi_ic and whose other rows are zero; with ``diagnostics = "summed"`` the sums
    that a stationarity check needs. Summed in ``counts``: ``node_records`` (m,), whose entry i is n_i.
    """

    def __init__(self, plan: Plan, settings: RoutedSettings) -> None:
        super().__init__(plan, settings, components_of(settings))
        self.outline = outline_of(plan)
        #: Name, shape and range of every shared parameter, ``bias`` and ``xi`` among them.
        self.shared_specs = shared_specs(plan, settings)
        #: Whether the noise on ``mass`` is shared by the cohort.
        self.shares_noise = shares_noise(plan)

    # What a subclass says ---------------------------------------------------------------------------------------------
    @property
    @abstractmethod
    def route_prefixes(self) -> tuple[str, ...]:
        """Prefixes of the shared parameters that routing needs besides ``bias`` and ``xi``."""

    @property
    @abstractmethod
    def predict_dim(self) -> int:
        """d, the number of prediction features."""

    @abstractmethod
    def draw_shared(self, seed: int) -> Parameters:
        """The shared parameters before round 0, ``bias`` aside."""

    @abstractmethod
    def train(
        self, shared: Parameters, heads: Heads, x: torch.Tensor, y: torch.Tensor, local: Tensors, ctx: ClientContext
    ) -> tuple[Parameters, Heads, dict[str, Array], dict[str, Array]]:
        """One round on this node's standardised records: shared parameters, heads, what else to keep in the local
        state (``local`` is what was kept), and what else to add to ``summed``."""

    @property
    def _mixing_every(self) -> int:
        """Every how many rounds mixing weights are summed."""
        return self.plan.privacy.mixing_every if isinstance(self.plan.privacy, DPSGDSettings) else 1

    # Schemas ----------------------------------------------------------------------------------------------------------
    @property
    def exchanges(self) -> tuple[str, ...]:
        """``update``, and before it ``counts`` where the nodes' numbers of records are shared."""
        return self.outline.exchanges

    def schema(self, exchange: str) -> Schema:
        """What is summed; nothing is released as it is."""
        self._check_exchange(exchange)
        return self.outline.schema(exchange)

    def broadcast_schema(self, exchange: str) -> Schema:
        """The shared parameters; the counts exchange broadcasts none."""
        self._check_exchange(exchange)
        return Schema() if exchange == "counts" else Schema(released=(*self.shared_specs, *self._mixing_specs()))

    def serving_schema(self) -> Schema:
        """All shared parameters, as the last round left them."""
        return Schema(released=(*self.shared_specs, *self._mixing_specs()))

    def routing_schema(self) -> Schema:
        """Routing encoder, ``xi`` and ``bias``, and what a prior needs."""
        specs = [s for s in self.shared_specs if s.name in ("bias", "xi") or s.name.startswith(self.route_prefixes)]
        return Schema(released=(*specs, *self._mixing_specs(), *self._rho_specs()))

    def _mixing_specs(self) -> tuple[TensorSpec, ...]:
        shape = (len(self.nodes), self.components)
        spec = TensorSpec("mixing", "float32", shape, 0, 1, "share of the records by node and component, rho_i pi_ic")
        return (spec,) if self.explicit else ()

    def _rho_specs(self) -> tuple[TensorSpec, ...]:
        spec = TensorSpec("rho", "float32", (len(self.nodes),), 0, 1, "share of the records by node")
        return (spec,) if self.routed.share_counts else ()

    # The coordinator's part -------------------------------------------------------------------------------------------
    def init_server(self, seed: int) -> Tensors:
        """Fresh shared parameters; b_ic = log(1 / (m C)), or gamma = 0, until counts or training say otherwise."""
        m, c = len(self.nodes), self.components
        start = 0.0 if self.explicit else -math.log(m * c)
        shared = to_tensors(self.draw_shared(seed))
        state: dict[str, Array] = {**shared, "bias": np.full((m, c), start, np.float32)}
        if self.explicit:
            state["mixing"] = np.full((m, c), 1 / (m * c), np.float32)
        if self.routed.share_counts:
            state |= {"rho": np.full(m, 1 / m, np.float32), "node_records": np.zeros(m, np.int64)}
        return Tensors(state)

    def broadcast(self, exchange: str, server: Tensors) -> Tensors:
        """The shared parameters."""
        return self._pick(server, self.broadcast_schema(exchange))

    def serving(self, server: Tensors) -> Tensors:
        """What a node keeps to answer with."""
        return self._pick(server, self.serving_schema())

    def routing(self, server: Tensors) -> Tensors:
        """What it takes to route."""
        return self._pick(server, self.routing_schema())

    def model(self, server: Tensors) -> Tensors:
        """All that the coordinator has of the model: the shared parameters. The heads are the nodes'."""
        return self.serving(server).with_(self.routing(server))

    def server_update(self, exchange: str, server: Tensors, aggregate: Aggregate, ctx: ServerContext) -> Tensors:
        """Shares of the records, or the means of the shared parameters weighted by them."""
        self._check_exchange(exchange)
        if exchange == "counts":
            return self._count(server, aggregate.summed["node_records"], ctx.round)
        new = means(self.shared_specs, aggregate.summed, SENT)
        if self.explicit and not self.shares_noise:
            new["mixing"] = _filled(aggregate.summed["mass"], server["mixing"]).astype(np.float32)
        elif self.explicit and ctx.round % self._mixing_every == 0:
            heard = [self.index(node) for node in aggregate.contributors]
            sizes = server["node_records"] if self.routed.share_counts else None
            mixing = shared_mixing(aggregate.summed["mass"], heard, sizes, server["mixing"])
            new["mixing"] = mixing.astype(np.float32)
        if self.routed.diagnostics == "summed":
            total = int(aggregate.summed[RECORDS.name][0])
            gap = aggregate.summed["posterior"] - aggregate.summed["responsibility"]
            ctx.report("log_likelihood", float(aggregate.summed["log_likelihood"][0]) / total)
            ctx.report("stationarity", float(np.abs(gap).max()) / total)
        return server.with_(new)

    def _count(self, server: Tensors, counted: Array, round_: int) -> Tensors:
        """Keep n_i of every node heard of; in round 0 let training start from log(rho_i / C)."""
        counts = np.where(counted > 0, counted, server["node_records"])
        rho = _filled(counts.astype(np.float64), np.full(len(counts), 1 / len(counts)))
        new: dict[str, Array] = {"node_records": counts.astype(np.int64), "rho": rho.astype(np.float32)}
        if round_ == 0:
            start = np.repeat(rho[:, None] / self.components, self.components, axis=1)  # (m, C)
            name, value = ("mixing", start) if self.explicit else ("bias", np.log(start))
            new[name] = value.astype(np.float32)
        return server.with_(new)

    # The node's part --------------------------------------------------------------------------------------------------
    def client_update(
        self, exchange: str, broadcast: Tensors, local: Tensors, data: Dataset, ctx: ClientContext
    ) -> tuple[Tensors, Contribution]:
        """Count, or train heads (kept) and shared parameters (summed) from the broadcast ones."""
        self._check_client(exchange, broadcast, data, ctx)
        index = self.index(ctx.node)
        if exchange == "counts":
            counted = np.zeros(len(self.nodes), np.int64)
            counted[index] = record_count(data, ctx)
            return local, Contribution(summed=Tensors({"node_records": counted}))
        heads = (
            to_parameters(local.under("head"), ctx.device) if "head.alpha" in local else self.fresh_heads(ctx.device)
        )
        shared = to_parameters(broadcast, ctx.device)
        x = standardise(self.plan.task, torch.tensor(data.x, device=ctx.device))  # (n, *shape)
        y = torch.tensor(data.y, device=ctx.device)  # (n,)
        shared, heads, beside, more = self.train(shared, heads, x, y, local, ctx)
        trained = to_tensors(shared)
        check_trained(self.shared_specs, trained)
        state = to_tensors(heads).prefixed("head").with_(beside)
        summed = Tensors({**weighted(self.shared_specs, trained, record_count(data, ctx), SENT), **more})
        return state, Contribution(summed=summed)

    def extra_sums(
        self, index: int, records: int, w_sum: Array, posterior: Array, log_likelihood: float
    ) -> dict[str, Array]:
        """What is summed besides parameters: ``mass`` of the explicit form, and the diagnostics where they are shared.

        ``w_sum``: this node's responsibilities summed over its records (C,). ``posterior``: the sum of P(node,
        component | x), (m, C). ``log_likelihood``: the sum of log P(node, y | x).
        """
        more: dict[str, Array] = {}
        row = np.zeros((len(self.nodes), self.components), np.float64 if self.shares_noise else np.float32)
        row[index] = w_sum
        if self.explicit:
            more["mass"] = row
        if self.routed.diagnostics == "summed":
            more["posterior"] = posterior.astype(np.float32)
            more["responsibility"] = row
            more["log_likelihood"] = np.array([max(log_likelihood, -LEAST_LOG * records)], np.float32)
        return more

    def fresh_heads(self, device: str) -> Heads:
        """alpha = 0 and beta by the linear layer's initialiser, another draw a component, the same at every node (P8).

        Components that began alike would stay alike for ever (page, 2.7).
        """
        bound = 1.0 / math.sqrt(self.predict_dim)
        shape = (self.components, self.num_classes, self.predict_dim)
        beta = torch.empty(shape).uniform_(-bound, bound, generator=torch_generator(self.plan.seed, "heads"))
        return {"alpha": torch.zeros(shape[:2], device=device), "beta": beta.to(device)}

    @staticmethod
    def _pick(state: Tensors, schema: Schema) -> Tensors:
        return Tensors({spec.name: state[spec.name] for spec in schema.released})

    def _check_exchange(self, exchange: str) -> None:
        check_exchange(self.plan, exchange, self.exchanges)

    def _check_client(self, exchange: str, broadcast: Tensors, data: Dataset, ctx: ClientContext) -> None:
        self._check_exchange(exchange)
        check_client(self.plan, self.broadcast_schema(exchange), broadcast, data, ctx)
        records = record_count(data, ctx)
        if not records:
            raise DataError("data: no record, so this node cannot have heads of its own")
        check_records(records)


def _filled(masses: Array, before: Array) -> Array:
    """Shares that sum to one. Rows (nodes) without any mass, not heard of this time, keep the share they had."""
    mass = masses.astype(np.float64)
    row = mass.reshape(len(mass), -1).sum(axis=1)  # (m,)
    silent = row <= 0
    if silent.all():
        return before.astype(np.float64)
    kept = before.astype(np.float64)[silent]
    mass[silent] = 0
    shares = mass / mass.sum() * (1.0 - kept.sum())
    shares[silent] = kept
    return np.asarray(shares)
