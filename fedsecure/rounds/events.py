"""The vocabulary of a run's rounds: phases, events (what happened), actions (what the driver must do)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = [
    "Abort",
    "Action",
    "AdmitNode",
    "Aggregate",
    "AttemptFailed",
    "Complete",
    "ContributionAccepted",
    "DeadlinePassed",
    "Event",
    "NameStragglers",
    "NodeJoined",
    "NodeLeft",
    "OperatorAborted",
    "Phase",
    "ServerUpdated",
    "SetDeadline",
    "SkipRound",
    "StartExchange",
    "SumLost",
    "UpdateFailed",
]


class Phase(StrEnum):
    """Where a run stands. ``COMPLETED`` and ``ABORTED`` are the ends."""

    JOINING = "JOINING"
    EXCHANGE = "EXCHANGE"
    AGGREGATING = "AGGREGATING"
    COMPLETED = "COMPLETED"
    ABORTED = "ABORTED"


# Events: what happened ------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class NodeJoined:
    """A node is ready for the run. Idempotent; a straggler that shows up again joins again."""

    node: str


@dataclass(frozen=True, slots=True)
class NodeLeft:
    """A node will not take part (any more), and why in words."""

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class ContributionAccepted:
    """A node's contribution was checked and is durable. ``digest``: SHA-256 of its bytes."""

    node: str
    round: int
    exchange: str
    attempt: int
    digest: str


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """The time of a ``SetDeadline`` is over. One for a phase that is past is ignored: timers may be late."""

    token: int


@dataclass(frozen=True, slots=True)
class ServerUpdated:
    """The aggregate was folded into the coordinator's state, which is durable."""


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """The contributions cannot be summed (a stored one is damaged, a masked sum failed): ask the cohort again."""

    reason: str


@dataclass(frozen=True, slots=True)
class SumLost:
    """There is no sum of these contributions, and never will be: too many nodes helped to unmask one that is gone, or
    take part in no further session."""

    reason: str


@dataclass(frozen=True, slots=True)
class UpdateFailed:
    """The coordinator's own computation failed."""

    reason: str


@dataclass(frozen=True, slots=True)
class OperatorAborted:
    """A person ended the run."""

    reason: str


Event = (
    NodeJoined
    | NodeLeft
    | ContributionAccepted
    | DeadlinePassed
    | ServerUpdated
    | AttemptFailed
    | SumLost
    | UpdateFailed
    | OperatorAborted
)


# Actions: what the driver must do -------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class StartExchange:
    """Broadcast to ``cohort`` and take their contributions."""

    round: int
    exchange: str
    attempt: int
    cohort: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AdmitNode:
    """Take the contribution of this node, too, to the exchange that is open: it came back in time."""

    node: str
    round: int
    exchange: str
    attempt: int


@dataclass(frozen=True, slots=True)
class SetDeadline:
    """Feed ``DeadlinePassed(token)`` in ``seconds`` from now."""

    token: int
    seconds: float


@dataclass(frozen=True, slots=True)
class NameStragglers:
    """These nodes of the cohort had not contributed at the deadline."""

    round: int
    exchange: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Sum what ``contributors`` sent and fold it into the coordinator's state; then feed ``ServerUpdated``."""

    round: int
    exchange: str
    attempt: int
    contributors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SkipRound:
    """The rest of this round is left out, with the coordinator's state as it is; what follows goes on after it."""

    round: int
    exchange: str
    reason: str


@dataclass(frozen=True, slots=True)
class Complete:
    """The run has its result."""


@dataclass(frozen=True, slots=True)
class Abort:
    """The run is over without a result. ``reason``: ``quorum`` | ``operator`` | ``update``; ``detail`` in words."""

    reason: str
    missing: tuple[str, ...]
    detail: str


Action = StartExchange | AdmitNode | SetDeadline | NameStragglers | Aggregate | SkipRound | Complete | Abort
