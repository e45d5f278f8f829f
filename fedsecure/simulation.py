"""All nodes of a federation in one process: the same methods and the same RoundMachine as the daemons use.

Pure like the rest of the library: data, clock and device are arguments. The coordinator's state that comes out is, bit
for bit, the one that the daemons compute from the same plan with ``randomness = "plan"`` and the same thread count.
With ``secagg`` "required" sums are masked, by the real protocol; with "optional" they are not: there is no manifest.
With ``[privacy]`` the noise is the real one, too: two runs differ, and so do simulation and daemons.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fedsecure.errors import RunAborted
from fedsecure.masked_simulation import MaskedSums
from fedsecure.method import ClientContext, Method, ServerContext, sum_contributions
from fedsecure.randomness import node_seed, server_seed
from fedsecure.rounds.events import (
    Abort,
    Action,
    Aggregate,
    Complete,
    ContributionAccepted,
    DeadlinePassed,
    Event,
    NameStragglers,
    NodeJoined,
    Phase,
    ServerUpdated,
    SetDeadline,
    StartExchange,
)
from fedsecure.rounds.machine import RoundMachine
from fedsecure.schema import Contribution
from fedsecure.tensors import Tensors

if TYPE_CHECKING:
    from fedsecure.data.dataset import Dataset
    from fedsecure.plan import Plan
    from fedsecure.private_simulation import Paid, PrivateNodes

__all__ = ["Evaluate", "RoundReport", "SimulationResult", "Simulator", "simulate"]

#: What the simulation tells while it runs: (kind, round, exchange, node or "").
Listener = Callable[[str, int, str, str], None]


@dataclass
class RoundReport:
    """One round. ``metrics``: of the trained model on the test records. ``losses``: what ``server_update`` reported.
    ``local``: what each node's ``client_update`` reported. Bytes, per node, are those of the serialised tensors, and of
    the masked vectors in place of what is summed under masks. ``epsilon``: what each node of a plan with [privacy] paid
    until then, of a round that is tested; ``None`` where it has no bound."""

    round: int
    metrics: dict[str, float] = field(default_factory=dict)
    losses: dict[str, float] = field(default_factory=dict)
    local: dict[str, dict[str, float]] = field(default_factory=dict)
    bytes_up: dict[str, int] = field(default_factory=dict)
    bytes_down: dict[str, int] = field(default_factory=dict)
    epsilon: dict[str, float | None] = field(default_factory=dict)
    seconds: float = 0.0

    def to_json(self) -> dict[str, object]:
        """The entry of ``rounds`` in ``result.json``, counted from 1; totals beside the figures of each node."""
        return {
            "round": self.round + 1,
            **self.metrics,
            "losses": self.losses,
            "local": self.local,
            "bytes_up": sum(self.bytes_up.values()),
            "bytes_down": sum(self.bytes_down.values()),
            "bytes_up_per_node": self.bytes_up,
            **({"epsilon": self.epsilon} if self.epsilon else {}),
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True)
class SimulationResult:
    """The rounds, the coordinator's and the nodes' state after the last one, and what each node paid of its privacy
    (none for a plan without [privacy])."""

    rounds: tuple[RoundReport, ...]
    server: Tensors
    local: Mapping[str, Tensors]
    privacy: Mapping[str, Paid] = field(default_factory=dict)


#: The test of a round: the coordinator's state and each node's local state to metrics.
Evaluate = Callable[[Tensors, Mapping[str, Tensors]], Mapping[str, float]]


def _unmeasured(server: Tensors, local: Mapping[str, Tensors]) -> Mapping[str, float]:
    """The default evaluation."""
    return {}


def _private(plan: Plan, data: Mapping[str, Dataset]) -> PrivateNodes | None:
    """What differential privacy takes, where the plan asks for it."""
    if plan.privacy is None:
        return None
    from fedsecure.private_simulation import PrivateNodes

    return PrivateNodes(plan, data)


def _ignore(kind: str, round_: int, exchange: str, node: str) -> None:
    """The default listener."""


class Simulator:
    """One run in one process. Feed it to the end with ``for report in simulator.rounds()``.

    ``data``: node id -> its records. ``evaluate``: a test after
    every ``evaluate_every``-th round and the last.
    ``clock``: seconds, monotonic; only for the ``seconds`` of the reports.
    """

    def __init__(
        self,
        plan: Plan,
        method: Method,
        data: Mapping[str, Dataset],
        *,
        evaluate: Evaluate = _unmeasured,
        evaluate_every: int = 1,
        clock: Callable[[], float] = lambda: 0.0,
        device: str = "cpu",
        listen: Listener = _ignore,
    ) -> None:
        self.plan, self.method, self.data = plan, method, dict(sorted(data.items()))
        self._evaluate, self._clock, self._device, self._listen = evaluate, clock, device, listen
        self._every = evaluate_every
        self.machine = RoundMachine.for_plan(plan, method.exchanges, nodes=tuple(self.data))
        self.server = method.init_server(server_seed(plan.seed))
        self.local = {node: Tensors() for node in self.data}
        self._masks = MaskedSums(plan, method) if plan.secagg == "required" else None
        self._private = _private(plan, self.data)
        self._contributions: dict[str, Contribution] = {}
        self._broadcast = b""  # SHA-256 of what the exchange's contributions were computed from
        self._actions: deque[Action] = deque(self.machine.pending())
        self._report, self._started = RoundReport(0), clock()

    def rounds(self) -> Iterator[RoundReport]:
        """Run, and hand out each round's report as it ends. Raises ``RunAborted`` as the machine does."""
        if self.machine.state.phase is Phase.JOINING:
            for node in self.data:
                self._feed(NodeJoined(node))
        while not self.machine.state.ended or self._actions:
            if not self._actions:  # nothing else can happen in one process, so time jumps to the deadline
                self._feed(DeadlinePassed(self.machine.state.token))
                continue
            action = self._actions.popleft()
            match action:
                case StartExchange():
                    self._exchange(action)
                case Aggregate():
                    self._aggregate(action)
                    self._feed(ServerUpdated())
                    if action.exchange == self.method.exchanges[-1]:
                        yield self._finish_round(action.round)
                case Abort():
                    raise RunAborted(f"run of plan {self.plan.name} aborted: {action.reason}: {action.detail}")
                case SetDeadline() | NameStragglers() | Complete():
                    continue

    def _feed(self, event: Event) -> None:
        self._actions.extend(self.machine.handle(event))

    def _exchange(self, action: StartExchange) -> None:
        broadcast = self.method.broadcast(action.exchange, self.server)
        sent = broadcast.to_bytes()
        down, self._broadcast = len(sent), hashlib.sha256(sent).digest()
        self._contributions = {}
        for node in action.cohort:
            self._listen("node", action.round, action.exchange, node)
            contribution = self._node(action, node, broadcast)
            up = self._summed_bytes(action.exchange, contribution) + len(contribution.released.to_bytes())
            self._report.bytes_up[node] = self._report.bytes_up.get(node, 0) + up
            self._report.bytes_down[node] = self._report.bytes_down.get(node, 0) + down
            self._contributions[node] = contribution
            digest = contribution.summed.digest() + contribution.released.digest()
            self._feed(ContributionAccepted(node, action.round, action.exchange, action.attempt, digest))

    def _summed_bytes(self, exchange: str, contribution: Contribution) -> int:
        masked = None if self._masks is None else self._masks.nbytes(exchange)
        return len(contribution.summed.to_bytes()) if masked is None else masked

    def _node(self, action: StartExchange, node: str, broadcast: Tensors) -> Contribution:
        """One node's part, through the same schema checks as on the wire."""
        reported = self._report.local.setdefault(node, {})
        paid = None if self._private is None else self._private.pay(node, action.exchange, action.round)
        data = self.data[node] if self._private is None else self._private.records(node)
        ctx = ClientContext(
            node=node,
            round=action.round,
            seed=node_seed(self.plan.seed, node),
            report=reported.__setitem__,
            device=self._device,
            privacy=paid,
        )
        local, contribution = self.method.client_update(action.exchange, broadcast, self.local[node], data, ctx)
        self.method.schema(action.exchange).check(contribution)
        self.local[node] = local
        return contribution

    def _aggregate(self, action: Aggregate) -> None:
        self._listen("coordinator", action.round, action.exchange, "")
        chosen = {n: self._contributions[n] for n in action.contributors}
        if self._masks is None:
            aggregate = sum_contributions(chosen)
        else:
            aggregate = self._masks.add(action.exchange, action.round, action.attempt, chosen, self._broadcast)
        ctx = ServerContext(
            round=action.round,
            seed=server_seed(self.plan.seed),
            report=self._report.losses.__setitem__,
            device=self._device,
        )
        self.server = self.method.server_update(action.exchange, self.server, aggregate, ctx)

    def _finish_round(self, round_: int) -> RoundReport:
        report = self._report
        if (round_ + 1) % self._every == 0 or round_ + 1 == self.plan.rounds:
            report.metrics = dict(self._evaluate(self.server, self.local))
            report.epsilon = {node: paid.epsilon for node, paid in self.privacy().items()}
        report.seconds = self._clock() - self._started
        self._report, self._started = RoundReport(round_ + 1), self._clock()
        return report

    def privacy(self) -> dict[str, Paid]:
        """What each node paid until now; none for a plan without [privacy]."""
        return {} if self._private is None else {node: self._private.paid(node) for node in self.data}

    def checkpoint(self) -> tuple[Tensors, str]:
        """Everything the rest of the run depends on, taken between two rounds: tensors, and the machine's state."""
        parts = [self.server.prefixed("server"), *(t.prefixed(f"local.{n}") for n, t in self.local.items())]
        if self._private is not None:
            parts.append(self._private.checkpoint().prefixed("privacy"))
        return Tensors({name: array for part in parts for name, array in part.items()}), self.machine.snapshot()

    def resume(self, tensors: Tensors, machine: str) -> None:
        """Go on from a ``checkpoint`` of the same plan. Raises ``DataError`` when the machine's state does not fit."""
        self.machine.restore(machine)
        self.server = tensors.under("server")
        self.local = {node: tensors.under(f"local.{node}") for node in self.data}
        if self._private is not None:
            self._private.resume(tensors.under("privacy"))
        self._actions = deque(self.machine.pending())
        self._report = RoundReport(self.machine.state.round)


def simulate(
    plan: Plan,
    method: Method,
    data: Mapping[str, Dataset],
    *,
    evaluate: Evaluate = _unmeasured,
    clock: Callable[[], float] = lambda: 0.0,
    device: str = "cpu",
) -> SimulationResult:
    """Run a plan to its end over ``data`` (node id -> records). Raises ``RunAborted``, or what an update raises."""
    simulator = Simulator(plan, method, data, evaluate=evaluate, clock=clock, device=device)
    reports = tuple(simulator.rounds())
    return SimulationResult(reports, simulator.server, dict(simulator.local), simulator.privacy())
