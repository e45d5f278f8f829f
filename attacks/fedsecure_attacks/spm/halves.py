"""Runs of a plan in which one node has a random half of its records: who is in is an independent coin for each.

The methods, rounds and sums are those of a simulation. Of each run some rounds are kept as the coordinator has them:
what was broadcast, what the node sent, and what the sum was.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedsecure.data.dataset import Dataset
from fedsecure.errors import AuditError, DataError
from fedsecure.method import Aggregate, ClientContext, Method, ServerContext
from fedsecure.methods import build_method
from fedsecure.plan import Plan
from fedsecure.schema import Contribution, Schema
from fedsecure.simulation import Simulator
from fedsecure.tensors import Array, Tensors
from fedsecure_attacks.mechanism.cache import ShadowCache

__all__ = ["CODE_VERSION", "Half", "HalfCache", "Seen", "make_half", "observed_rounds"]

#: Raised whenever the same plan gives other halves: a cache of before is then not read.
CODE_VERSION = 1
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Seen:
    """One round. ``records``: the node's, and of all nodes."""

    number: int
    broadcast: Tensors = field(repr=False)
    sent: Tensors = field(repr=False)
    total: Tensors = field(repr=False)
    records: tuple[int, int]


@dataclass(frozen=True, eq=False)
class Half:
    """``inside`` (n,): which records of the pool the node had. ``rounds`` that were kept; the coordinator's state
    ``server`` and the node's ``local`` state after the last one."""

    inside: Mask = field(repr=False)
    rounds: tuple[Seen, ...]
    server: Tensors = field(repr=False)
    local: Tensors = field(repr=False)


def observed_rounds(rounds: int, most: int) -> tuple[int, ...]:
    """At most ``most`` of the rounds 0 … ``rounds`` - 1, evenly spaced, the first and the last among them."""
    return tuple(sorted({int(r) for r in np.linspace(0, rounds - 1, min(most, rounds)).round()}))


def make_half(plan: Plan, data: Mapping[str, Dataset], node: str, inside: Mask, keep: Sequence[int]) -> Half:
    """Run ``plan`` with the records of ``node`` that are ``inside``. Raises ``AuditError`` when none is, ``RunAborted``
    as a simulation does."""
    if not inside.any():
        raise AuditError(f"node {node}: no record of it is in this half")
    method = _Watched(build_method(plan), node, frozenset(keep))
    half = {**data, node: data[node].subset(np.flatnonzero(inside))}
    simulator = Simulator(plan, method, half)
    for _ in simulator.rounds():
        pass
    return Half(inside, tuple(method.seen), simulator.server, simulator.local[node])


class _Watched:
    """A method that is watched: everything is done by ``real``."""

    def __init__(self, real: Method, node: str, keep: frozenset[int]) -> None:
        self._real, self._node, self._keep = real, node, keep
        self._broadcast, self._sent = Tensors(), Tensors()
        self.seen: list[Seen] = []

    @property
    def exchanges(self) -> tuple[str, ...]:
        return self._real.exchanges

    def schema(self, exchange: str) -> Schema:
        return self._real.schema(exchange)

    def broadcast_schema(self, exchange: str) -> Schema:
        return self._real.broadcast_schema(exchange)

    def init_server(self, seed: int) -> Tensors:
        return self._real.init_server(seed)

    def broadcast(self, exchange: str, server: Tensors) -> Tensors:
        self._broadcast = self._real.broadcast(exchange, server)
        return self._broadcast

    def client_update(
        self, exchange: str, broadcast: Tensors, local: Tensors, data: Dataset, ctx: ClientContext
    ) -> tuple[Tensors, Contribution]:
        state, found = self._real.client_update(exchange, broadcast, local, data, ctx)
        if ctx.node == self._node:
            self._sent = found.summed
        return state, found

    def server_update(self, exchange: str, server: Tensors, aggregate: Aggregate, ctx: ServerContext) -> Tensors:
        if ctx.round in self._keep and "records" in aggregate.summed:
            records = int(self._sent["records"][0]), int(aggregate.summed["records"][0])
            self.seen.append(Seen(ctx.round, self._broadcast, self._sent, aggregate.summed, records))
        return self._real.server_update(exchange, server, aggregate, ctx)

    def model(self, server: Tensors) -> Tensors:
        return self._real.model(server)


class HalfCache(ShadowCache):
    """Halves on disk, by everything that they are made from; ``None`` keeps none."""

    def __init__(self, folder: Path | None, plan: Plan, data: Mapping[str, Dataset], node: str) -> None:
        super().__init__(folder)
        self._plan, self._data, self._node = plan, data, node
        self._made_from = [plan.digest(), node, *(f"{n} {d.digest()}" for n, d in sorted(data.items()))]

    def half(self, inside: Mask, keep: Sequence[int], number: int) -> Half:
        """Half ``number``, read or made."""
        text = json.dumps([CODE_VERSION, *self._made_from, list(keep), number])
        found = hashlib.sha256(text.encode())
        found.update(np.packbits(inside).tobytes())
        return self._take(
            found.hexdigest(),
            ("half",),
            lambda held: _unpack(held, inside),
            lambda: make_half(self._plan, self._data, self._node, inside, keep),
            _pack,
        )


def _pack(half: Half) -> Mapping[str, Array]:
    parts = [half.server.prefixed("server"), half.local.prefixed("local")]
    rounds = np.array([(s.number, *s.records) for s in half.rounds], np.int64).reshape(-1, 3)
    parts.append(Tensors({"rounds": rounds}))
    for seen in half.rounds:
        parts += [
            seen.broadcast.prefixed(f"r{seen.number}.broadcast"),
            seen.sent.prefixed(f"r{seen.number}.sent"),
            seen.total.prefixed(f"r{seen.number}.total"),
        ]
    whole = Tensors({name: array for part in parts for name, array in part.items()})
    return {"half": np.frombuffer(whole.to_bytes(), np.uint8)}


def _unpack(held: Mapping[str, Array], inside: Mask) -> Half:
    whole = Tensors.from_bytes(held["half"].tobytes())
    if "rounds" not in whole:
        raise DataError("a half without its rounds")
    rounds = []
    for number, own, every in whole["rounds"].tolist():
        broadcast, sent, total = (whole.under(f"r{number}.{name}") for name in ("broadcast", "sent", "total"))
        rounds.append(Seen(number, broadcast, sent, total, (own, every)))
    return Half(inside, tuple(rounds), whole.under("server"), whole.under("local"))
