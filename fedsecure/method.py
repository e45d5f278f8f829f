"""The one interface every method plugs into, and the words it speaks.

A *round* is the method's ``exchanges`` in order. In each exchange the coordinator broadcasts tensors, every
node of the cohort computes a *contribution*, and the coordinator folds their aggregate into its state. The two
halves of a contribution differ in what is revealed: of ``summed`` only the cohort's sum (it can be masked),
of ``released`` every tensor as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from fedsecure.errors import DataError, FedSecureError
from fedsecure.schema import Contribution, Schema
from fedsecure.tensors import Array, Tensors

if TYPE_CHECKING:
    from fedsecure.data.dataset import Dataset
    from fedsecure.privacy.context import PrivacyContext

__all__ = [
    "Aggregate",
    "ClientContext",
    "Disclosed",
    "Method",
    "Prediction",
    "RoutedMethod",
    "ServerContext",
    "sum_contributions",
]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """What the coordinator knows after one exchange: the sum over contributors, and each one's released half."""

    summed: Tensors
    released: Mapping[str, Tensors]
    contributors: tuple[str, ...]


def sum_contributions(contributions: Mapping[str, Contribution]) -> Aggregate:
    """The plain sum, without masks: in float64 for floats, in node-id order, so that it is reproducible bit for bit."""
    nodes = tuple(sorted(contributions))
    if not nodes:
        raise DataError("no contribution to sum")
    total: dict[str, Array] = {}
    for name in contributions[nodes[0]].summed:
        arrays = [contributions[n].summed[name] for n in nodes]
        wide = np.float64 if arrays[0].dtype.kind == "f" else np.int64
        acc = np.zeros(arrays[0].shape, dtype=wide)
        for array in arrays:
            acc += array
        total[name] = acc
    return Aggregate(Tensors(total), {n: contributions[n].released for n in nodes}, nodes)


def _discard(name: str, value: float) -> None:
    """The default metric sink: keeps nothing."""


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class ClientContext:
    """What a node hands to ``client_update`` besides the data.

    ``round`` counts from 0. ``seed`` drives every reproducible draw on this node for this run. ``report`` takes
    local diagnostics that stay on the node. ``progress`` takes (done, of). ``cancelled`` is asked between steps;
    when it says yes the update stops with ``Cancelled``. ``device`` is a torch device name. ``privacy`` is how
    differential privacy enters (absent: none).
    """

    node: str
    round: int
    seed: int
    report: Callable[[str, float], None] = _discard
    progress: Callable[[int, int], None] = lambda done, of: None
    cancelled: Callable[[], bool] = _never
    device: str = "cpu"
    privacy: PrivacyContext | None = None


class Cancelled(FedSecureError):
    """The computation was asked to stop (shutdown); nothing of it is kept."""


@dataclass(frozen=True, slots=True)
class ServerContext:
    """What the coordinator hands to ``server_update``: the round, its seed, and a sink for metrics."""

    round: int
    seed: int
    report: Callable[[str, float], None] = _discard
    progress: Callable[[int, int], None] = lambda done, of: None
    cancelled: Callable[[], bool] = _never
    device: str = "cpu"


class Disclosed(Protocol):
    """What tells which tensors may leave a node: a method, or its outline (``fedsecure.methods.outline``)."""

    @property
    def exchanges(self) -> tuple[str, ...]:
        """Names of the exchanges of one round, in order."""
        ...

    def schema(self, exchange: str) -> Schema:
        """Names, shapes, dtypes and ranges of both halves of a contribution."""
        ...


@runtime_checkable
class Method(Disclosed, Protocol):
    """A federated method. Implementations are pure: same arguments, same result, bit for bit, on one machine."""

    def broadcast_schema(self, exchange: str) -> Schema:
        """The same for the broadcast (in ``released``): the node checks what it receives as the coordinator does."""
        ...

    def init_server(self, seed: int) -> Tensors:
        """The coordinator's state before round 0."""
        ...

    def broadcast(self, exchange: str, server: Tensors) -> Tensors:
        """What every node of the cohort gets."""
        ...

    def client_update(
        self, exchange: str, broadcast: Tensors, local: Tensors, data: Dataset, ctx: ClientContext
    ) -> tuple[Tensors, Contribution]:
        """The node's new local state (never leaves) and its contribution."""
        ...

    def server_update(self, exchange: str, server: Tensors, aggregate: Aggregate, ctx: ServerContext) -> Tensors:
        """The coordinator's next state."""
        ...

    def model(self, server: Tensors) -> Tensors:
        """The parameters of the trained model inside the coordinator's state, named as the model names them."""
        ...


@dataclass(frozen=True, slots=True)
class Prediction:
    """A node's answer. ``probabilities``: float32 (n, K), rows sum to one. ``components``: float32 (n, C), the
    posterior of the node's mixture components."""

    probabilities: Array
    components: Array


@runtime_checkable
class RoutedMethod(Method, Protocol):
    """A method whose trained model routes each query to the best-matched node, which answers with what never left it.

    Who is who is fixed by the plan: ``nodes`` are its cohort, in the order of the routing scores' columns.
    """

    @property
    def nodes(self) -> tuple[str, ...]:
        """Node ids, sorted; the plan names them all."""
        ...

    def routing_schema(self) -> Schema:
        """Of the routing parameters (in ``released``)."""
        ...

    def routing(self, server: Tensors) -> Tensors:
        """What it takes to route: the routing encoder and its linear layer. An analyst may have it."""
        ...

    def serving_schema(self) -> Schema:
        """Of what a node keeps when the run is over (in ``released``)."""
        ...

    def serving(self, server: Tensors) -> Tensors:
        """What a node needs besides its own local state to answer: all shared parameters."""
        ...

    def route(self, routing: Tensors, x: Array, *, device: str = "cpu") -> Array:
        """Scores of records ``x`` (float32 (n, *shape), values as the plan's task ranges them): float64 (n, m), the log
        of P(node | x) up to a constant of the row. The largest is the node to ask. Raises ``DataError`` for records
        of another shape, not finite, or so large that their scores are not."""
        ...

    def predict(self, node: str, serving: Tensors, local: Tensors, x: Array, *, device: str = "cpu") -> Prediction:
        """The node's own answer to ``x``, by its heads in ``local``. Raises ``DataError`` as ``route`` does, and when
        ``local`` holds no heads (the node never trained)."""
        ...
