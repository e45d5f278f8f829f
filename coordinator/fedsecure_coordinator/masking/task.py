"""What a run's sessions are to sum, and the configuration of each."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from fedsecure.crypto.keystream import Prg
from fedsecure.masked_plan import masked_limits, noised_streams
from fedsecure.rounds.events import Aggregate
from fedsecure.secagg.machines.memory import session_numbers
from fedsecure.secagg.protocol.sessionconfig import NONCE_BYTES, SessionConfig
from fedsecure.secagg.values.noise import NoiseSpec, dp_digest
from fedsecure.secagg.values.streams import Stream
from fedsecure_coordinator.cohorts.masks import Masks
from fedsecure_coordinator.runs.run import Run

__all__ = ["Task"]


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be summed: the contributions to one attempt of an exchange. ``prev_result``: H("result", …) of what
    was announced with it, or empty."""

    run: Run
    action: Aggregate
    masks: Masks
    prev_result: bytes

    @property
    def streams(self) -> tuple[Stream, ...]:
        """The vectors of the sum."""
        return self._noised[0]

    @property
    def noises(self) -> tuple[NoiseSpec, ...]:
        """What the nodes add to some of them."""
        return self._noised[1]

    @property
    def _noised(self) -> tuple[tuple[Stream, ...], tuple[NoiseSpec, ...]]:
        return noised_streams(self.run.plan, self.action.round, self.masks.streams[self.action.exchange])

    @property
    def nbytes(self) -> int:
        """Bytes of one node's masked vectors."""
        return sum(stream.spec.nbytes for stream in self.streams)

    @property
    def is_last(self) -> bool:
        """Whether no round follows."""
        return self.action.round + 1 >= self.run.plan.rounds

    def config(self, number: int, deadline_ms: int) -> SessionConfig:
        """The configuration of the session that is the ``number``-th (from 0) over these contributions."""
        action = self.action
        return SessionConfig(
            experiment=self.run.digest,
            round=action.round,
            purpose=action.exchange,
            attempt=session_numbers(action.attempt)[number],
            cohort_digest=self.masks.manifest.digest,
            state_digest=bytes.fromhex(self.run.row.broadcast),
            prev_result=self.prev_result,
            threshold=self.masks.manifest.threshold.required,
            min_survivors=masked_limits(self.run.plan).least,
            prg=Prg.AES_256_CTR,
            streams=tuple(stream.spec for stream in self.streams),
            dp_digest=dp_digest(self.noises),
            nonce=secrets.token_bytes(NONCE_BYTES),
            deadline_ms=deadline_ms,
        )
