"""Rounds of a plan with canaries in one node's records: methods, charges and masked sums as in a simulation."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from fedsecure.data.dataset import Dataset
from fedsecure.errors import SecAggError
from fedsecure.method import Aggregate, ClientContext, Method, ServerContext, sum_contributions
from fedsecure.methods import build_method
from fedsecure.plan import Plan
from fedsecure.private_simulation import PrivateNodes
from fedsecure.randomness import node_seed, server_seed
from fedsecure.schema import Contribution
from fedsecure.tensors import Tensors
from fedsecure_attacks.canaries.masks import HeardSums
from fedsecure_attacks.canaries.probe import Probe, inserted
from fedsecure_attacks.verdict import Control

__all__ = ["Observed", "Ran", "run_rounds"]


@dataclass(frozen=True, eq=False)
class Observed:
    """One round as the coordinator has it: the ``broadcast``, what the target sent, and the sum, of ``records`` each
    node."""

    broadcast: Tensors
    sent: Tensors
    total: Tensors
    records: Mapping[str, int]


@dataclass
class Ran:
    """``rounds`` that were observed. ``masks``: the control of masked sums, where there are any. ``shared``: noise that
    nodes share, found in sums, in standard deviations of what was accounted."""

    probe: Probe
    rounds: list[Observed] = field(default_factory=list)
    masks: Control | None = None
    shared: tuple[float, ...] = ()


def run_rounds(
    plan: Plan,
    data: Mapping[str, Dataset],
    target: str,
    rounds: int,
    most: int,
    generator: np.random.Generator,
    progress: Callable[[str], None] = lambda what: None,
) -> Ran:
    """``rounds`` of ``plan`` over ``data`` (node -> records), with at most ``most`` canaries in node ``target``. Masked
    sums that cannot be made at all are the finding, not an error."""
    method = build_method(plan)
    run = _Run(plan, method, data, Probe(method, target, most, generator))
    ran = Ran(run.probe)
    with inserted(run.probe):
        for number in range(rounds):
            for exchange in method.exchanges:
                progress(f"round {number + 1}, {exchange}")
                try:
                    observed = run.exchange(exchange, number)
                except SecAggError as error:
                    ran.masks = Control("masks", False, f"masked sums cannot be made: {error}")
                    return ran
                if observed is not None:
                    ran.rounds.append(observed)
    if run.sums is not None:
        ran.masks, ran.shared = run.sums.control(), tuple(run.sums.shared)
    return ran


class _Run:
    """The state of a run between exchanges."""

    def __init__(self, plan: Plan, method: Method, data: Mapping[str, Dataset], probe: Probe) -> None:
        self.plan, self.method, self.data, self.probe = plan, method, dict(sorted(data.items())), probe
        self.sums = HeardSums(plan, method) if plan.secagg == "required" else None
        self._nodes = PrivateNodes(plan, self.data)
        self._server = method.init_server(server_seed(plan.seed))
        self._local = {node: Tensors() for node in self.data}

    def exchange(self, exchange: str, number: int) -> Observed | None:
        """One exchange of round ``number``; ``None`` for one that trains nothing."""
        broadcast = self.method.broadcast(exchange, self._server)
        contributions = {node: self._contribution(node, exchange, number, broadcast) for node in self.data}
        aggregate = self._sum(exchange, number, contributions, broadcast)
        ctx = ServerContext(round=number, seed=server_seed(self.plan.seed))
        self._server = self.method.server_update(exchange, self._server, aggregate, ctx)
        if "records" not in aggregate.summed:
            return None
        records = {node: int(c.summed["records"][0]) for node, c in contributions.items()}
        return Observed(broadcast, contributions[self.probe.target].summed, aggregate.summed, records)

    def _sum(
        self, exchange: str, number: int, contributions: Mapping[str, Contribution], broadcast: Tensors
    ) -> Aggregate:
        if self.sums is None:
            return sum_contributions(contributions)
        return self.sums.add(exchange, number, 0, contributions, hashlib.sha256(broadcast.to_bytes()).digest())

    def _contribution(self, node: str, exchange: str, number: int, broadcast: Tensors) -> Contribution:
        paid = self._nodes.pay(node, exchange, number)
        ctx = ClientContext(
            node=node,
            round=number,
            seed=node_seed(self.plan.seed, node),
            privacy=self.probe.turn(node, number, paid),
        )
        data = self._nodes.records(node)
        self._local[node], found = self.method.client_update(exchange, broadcast, self._local[node], data, ctx)
        self.method.schema(exchange).check(found)
        return found
