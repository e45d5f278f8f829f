"""Nodes of a masked run without a daemon: the real machine of each, and what it remembers from exchange to exchange."""

from __future__ import annotations

import time

import numpy as np

from fedsecure.errors import SecAggError
from fedsecure.schema import Contribution
from fedsecure.secagg.machines.memory import MemoryOnly, session_numbers
from fedsecure.secagg.machines.node import SecAggNode, SessionDue
from fedsecure.secagg.machines.session import ephemeral_cohort
from fedsecure.secagg.protocol.aborts import abort_bytes
from fedsecure.secagg.protocol.results import result_digest
from fedsecure.secagg.values.masked import masked_streams
from fedsecure.secagg.values.streams import flatten
from fedsecure.tensors import Tensors

__all__ = ["MaskedNode", "cohort_of"]


def _now_ms():
    return time.time_ns() // 1_000_000


def cohort_of(federation, names, *, clock=_now_ms):
    """A manifest signed by all, and a ``MaskedNode`` for each."""
    manifest, identities = ephemeral_cohort(federation, names)
    return manifest, {name: MaskedNode(name, manifest, identities[name], clock) for name in names}


class MaskedNode:
    """One node. ``contribute`` keeps the summed half back; ``answer`` answers a leg with it."""

    def __init__(self, name, manifest, identity, clock):
        self.name, self.manifest, self.identity, self.clock = name, manifest, identity, clock
        self.memory = MemoryOnly()
        self.machine = None
        self.session = ""
        self.kept = {}

    def contribute(self, contribution, *, round_, exchange, broadcast, result):
        """What leaves at once. ``broadcast``: its digest (hex); ``result``: what the exchange announced."""
        self.kept[round_, exchange] = (contribution.summed, bytes.fromhex(broadcast), result_digest(result))
        return Contribution(Tensors({}), contribution.released)

    def answer(self, leg, schema, method="fedavg"):
        """("message", bytes), ("masked", Masked) or ("abort", bytes). ``schema``: of the exchange, both halves."""
        if leg.config_digest != self.session:
            self.machine, self.session = self._begin(leg, schema, method), leg.config_digest
        try:
            made = self.machine.answer(leg.leg, leg.message)
        except SecAggError as error:
            return "abort", abort_bytes(error, self.machine.transcript)
        return ("message" if isinstance(made, bytes) else "masked"), made

    def restart(self):
        """Lose the session, as a process that ends does; what is durable stays."""
        self.machine, self.session = None, ""

    def _begin(self, leg, schema, method):
        summed, state, previous = self.kept[leg.round, leg.exchange]
        nodes = len(self.manifest.nodes)
        streams = masked_streams(schema, method=method, exchange=leg.exchange, nodes=nodes)
        due = SessionDue(
            node=self.name,
            manifest=self.manifest,
            experiment=leg.plan_digest,
            round=leg.round,
            purpose=leg.exchange,
            streams=streams,
            state_digest=state,
            prev_result=previous,
            min_survivors=3,
            attempts=session_numbers(leg.attempt),
        )
        vectors = {s.spec.name: flatten(s, {n: np.asarray(summed[n]) for n in summed}, nodes=nodes)[0] for s in streams}
        return SecAggNode(due, self.identity, vectors, self.memory, now_ms=self.clock)
