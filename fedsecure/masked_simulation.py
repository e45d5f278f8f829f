"""The masked sums of a simulation: the machines of secure aggregation that the daemons use, all in this process.

Keys come from the operating system and are made anew for every run; the sums do not depend on them, so a masked
simulation is as reproducible as a plain one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from fedsecure.crypto.keystream import Prg
from fedsecure.errors import SecAggError
from fedsecure.masked_plan import masked_exchanges, masked_limits, noised_streams
from fedsecure.method import Aggregate, Method, sum_contributions
from fedsecure.plan import Plan
from fedsecure.schema import Contribution
from fedsecure.secagg.machines.coordinator import SecAggCoordinator
from fedsecure.secagg.machines.memory import MemoryOnly, session_numbers
from fedsecure.secagg.machines.node import SecAggNode, SessionDue
from fedsecure.secagg.machines.session import ephemeral_cohort, run_session
from fedsecure.secagg.protocol.messages import SessionConfig
from fedsecure.secagg.protocol.sessionconfig import NONCE_BYTES
from fedsecure.secagg.values.noise import NoiseSpec, dp_digest
from fedsecure.secagg.values.noised import NoisedVectors
from fedsecure.secagg.values.streams import Stream, flatten, unflatten
from fedsecure.tensors import Array, Tensors

__all__ = ["MaskedSums"]

#: The federation of keys that exist in one process only.
FEDERATION = "simulation"
#: No time passes inside a session: it begins at 0 and would end at 1 (ms).
NOW_MS, DEADLINE_MS = 0, 1


class MaskedSums:
    """Sums contributions of the nodes that ``plan`` names, under masks. Raises ``ConfigError`` as
    ``masked_exchanges`` does."""

    def __init__(self, plan: Plan, method: Method) -> None:
        self._plan, self._exchanges = plan, masked_exchanges(plan, method)
        self._least = masked_limits(plan).least
        self._manifest, self._identities = ephemeral_cohort(FEDERATION, plan.cohort.nodes)
        self._memories = {node: MemoryOnly() for node in plan.cohort.nodes}

    def streams(self, exchange: str) -> tuple[Stream, ...]:
        """Its streams; none where it sums nothing."""
        return self._exchanges.get(exchange, ())

    def nbytes(self, exchange: str) -> int | None:
        """Bytes of one node's masked vectors, or ``None`` where the exchange sums nothing."""
        return sum(stream.spec.nbytes for stream in self.streams(exchange)) or None

    def add(
        self, exchange: str, round_: int, attempt: int, contributions: Mapping[str, Contribution], state: bytes
    ) -> Aggregate:
        """What ``sum_contributions`` gives, within the rounding of fixed point. ``state``: SHA-256 of the broadcast.

        Raises ``SecAggError`` as the machines do, among others when a round is summed twice.
        """
        streams, noises = noised_streams(self._plan, round_, self.streams(exchange))
        if not streams:
            return sum_contributions(contributions)
        config = self._config(exchange, round_, attempt, streams, state, dp_digest(noises))
        nodes = {node: self._node(node, config, streams, noises, c) for node, c in contributions.items()}
        coordinator = SecAggCoordinator(config, self._manifest, streams, sorted(nodes), noises=noises)
        sums = run_session(coordinator, nodes)
        for node, reason in sums.dropped.items():  # nobody vanishes in one process
            raise SecAggError(f"node {node} dropped out of the masked sum of {exchange}: {reason}")
        arrays, headroom = Tensors(), {noise.name: noise.headroom(len(sums.survivors)) for noise in noises}
        for stream in streams:
            total, _ = unflatten(
                stream,
                sums.vectors[stream.spec.name],
                contributors=len(sums.survivors),
                nodes=len(self._manifest.nodes),
                headroom=headroom.get(stream.spec.name, 0),
            )
            arrays = arrays.with_(total)
        released = {node: contributions[node].released for node in sums.survivors}
        return Aggregate(arrays, released, sums.survivors)

    def _config(
        self, exchange: str, round_: int, attempt: int, streams: tuple[Stream, ...], state: bytes, noise: bytes
    ) -> SessionConfig:
        return SessionConfig(
            experiment=self._plan.digest(),
            round=round_,
            purpose=exchange,
            attempt=session_numbers(attempt)[0],
            cohort_digest=self._manifest.digest,
            state_digest=state,
            prev_result=b"",
            threshold=self._manifest.threshold.required,
            min_survivors=self._least,
            prg=Prg.AES_256_CTR,
            streams=tuple(stream.spec for stream in streams),
            dp_digest=noise,
            nonce=os.urandom(NONCE_BYTES),
            deadline_ms=DEADLINE_MS,
        )

    def _node(
        self,
        node: str,
        config: SessionConfig,
        streams: tuple[Stream, ...],
        noises: tuple[NoiseSpec, ...],
        contribution: Contribution,
    ) -> SecAggNode:
        due = SessionDue(
            node=node,
            manifest=self._manifest,
            experiment=config.experiment,
            round=config.round,
            purpose=config.purpose,
            streams=streams,
            state_digest=config.state_digest,
            prev_result=config.prev_result,
            min_survivors=self._least,
            dp_digest=config.dp_digest,
            attempts=range(config.attempt, config.attempt + 1),
        )
        cohort = len(self._manifest.nodes)
        vectors: Mapping[str, Array] = {s.spec.name: flatten(s, contribution.summed, nodes=cohort)[0] for s in streams}
        if noises:
            vectors = NoisedVectors.draw(
                vectors,
                streams,
                noises,
                experiment=config.experiment,
                purpose=config.purpose,
                round_=config.round,
            )
        return SecAggNode(due, self._identities[node], vectors, self._memories[node], now_ms=lambda: NOW_MS)
