"""The coordinator's side of one session, sans IO: who is to answer what, what they answered, and the sum.

===  =====================  ================================  =======================================================
leg  message to             answer                            who is left when it closes
===  =====================  ================================  =======================================================
0    those invited          Signed{Advertise}                 U1: those who answered
1    U1                     EncryptedShares                   U2: those who answered
2    U2                     MaskedChunk…, Signed{MaskedDone}  U3: those whose vectors are complete; summed as they come
3    U3                     Signed{Consistency}               those who answered; U3 stays
4    those who confirmed    UnmaskShares                      those who answered; then the sum is unmasked
===  =====================  ================================  =======================================================

``advance`` closes a leg; with fewer than t left (until leg 2: fewer than ``min_survivors``) the session is over with
TOO_FEW_NODES. A node that answers what it may not is out, with the reason, and the others go on. Out after its vector
was complete, it still counts in the sum. There is no way back, and no vector of one node: an upload is one buffer until
it is complete, then part of the total.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fedsecure.errors import LocalProtocolError, RemoteProtocolError, SecAggError
from fedsecure.secagg.cohort.manifest import CohortManifest
from fedsecure.secagg.machines.answers import Answers
from fedsecure.secagg.machines.sums import Sums, check_session
from fedsecure.secagg.machines.unmasking import MaskedSum, unmask
from fedsecure.secagg.machines.vectors import Upload
from fedsecure.secagg.protocol.messages import (
    SessionConfig,
    consistency_set,
    inbox,
    key_list,
    parse_masked_chunk,
    survivors,
)
from fedsecure.secagg.values.noise import NoiseSpec
from fedsecure.secagg.values.streams import Stream
from fedsecure.tensors import Array

__all__ = ["LEGS", "SecAggCoordinator", "Sums"]

#: What a node does in each leg, for reasons in words.
LEGS = ("advertise keys", "share secrets", "send its masked vectors", "confirm the survivors", "give unmasking shares")


class SecAggCoordinator:
    """One session; not thread-safe. Faults of a node raise ``SecAggError`` "CODE: …" or ``RemoteProtocolError`` and
    put that node out. Faults of the caller raise ``LocalProtocolError``. Only ``advance`` ends the session."""

    def __init__(
        self,
        config: SessionConfig,
        manifest: CohortManifest,
        streams: Sequence[Stream],
        invited: Sequence[str],
        *,
        noises: Sequence[NoiseSpec] = (),
        threads: int = 1,
    ) -> None:
        """``invited``: nodes of ``manifest``, at least t. ``streams``: those of ``config``, in its order. ``noises``:
        what its nodes add to some. Raises ``ConfigError`` when these do not fit one another, ``SecAggError``
        TOO_FEW_NODES for fewer than t."""
        check_session(config, manifest, streams, invited, noises)
        self._config, self._manifest, self._threads = config, manifest, threads
        self._noises = {noise.name: noise for noise in noises}
        self._invited = tuple(sorted(invited))
        self._eligible = self._invited
        self._answers = Answers(config, manifest)
        self._dropped: dict[str, str] = {}
        self._leg = 0
        self._uploads: dict[str, Upload] = {}
        self._totals: list[Array] = []
        self._message: Callable[[str], bytes] = lambda _: self._answers.config_bytes
        self._outcome: Sums | None = None
        self._failure: SecAggError | None = None

    @property
    def config(self) -> SessionConfig:
        """What the session is about."""
        return self._config

    @property
    def config_digest(self) -> bytes:
        """H("config", …), which names the session on the wire."""
        return self._answers.config_digest

    @property
    def leg(self) -> int:
        """The leg that is open, 0 to 4; the last one when the session is over."""
        return self._leg

    @property
    def done(self) -> bool:
        """Whether the session is over, with a sum or without."""
        return self._outcome is not None or self._failure is not None

    @property
    def failure(self) -> SecAggError | None:
        """Why it is over without a sum."""
        return self._failure

    @property
    def dropped(self) -> dict[str, str]:
        """Node -> why it is out, so far."""
        return dict(self._dropped)

    @property
    def survivors(self) -> tuple[str, ...]:
        """U3 in order, from leg 3 on; empty before."""
        return tuple(sorted(self._answers.vectors)) if self._leg > 2 else ()

    @property
    def waiting(self) -> tuple[str, ...]:
        """Those whose answer to this leg is still due, in order."""
        if self.done:
            return ()
        answered = self._answers.of(self._leg)
        return tuple(node for node in self._eligible if node not in answered and node not in self._dropped)

    @property
    def outcome(self) -> Sums:
        """The sum, once done. Raises the ``SecAggError`` of a session that failed, ``LocalProtocolError`` before."""
        if self._failure is not None:
            raise self._failure
        if self._outcome is None:
            raise LocalProtocolError(f"the session is in leg {self._leg}: there is no sum yet")
        return self._outcome

    def message(self, node: str) -> bytes | None:
        """What ``node`` is to answer now; ``None`` when there is nothing: it answered, is out, or was never in."""
        return self._message(node) if node in self.waiting else None

    def receive(self, node: str, leg: int, data: bytes) -> None:
        """The answer of ``node`` to ``leg``; of leg 2, what ends it. The same bytes again change nothing.

        Raises ``SecAggError`` naming the fault, or ``RemoteProtocolError`` for an answer that is not due: ``node`` is
        then out.
        """
        if self._answers.repeats(node, leg, data):
            return
        self._require_due(node, leg)
        with_vectors = self._uploads.pop(node, None) if leg == 2 else None
        try:
            if leg == 2:
                self._add(self._answers.take_done(node, data, with_vectors))
            else:
                self._answers.take(node, leg, data)
        except SecAggError as error:
            self.drop(node, str(error))
            raise

    def begin_vectors(self, node: str) -> bool:
        """Make room for the vectors of ``node``, once more when its connection broke; memory is used as they arrive.

        ``False`` when they are complete already: what follows may be skipped. Raises as ``receive``.
        """
        if node in self._answers.of(2):
            return False
        self._require_due(node, 2)
        self._uploads[node] = Upload(node, self._answers.transcript1, self._config.streams)
        return True

    def receive_chunk(self, node: str, data: bytes) -> None:
        """One ``MaskedChunk``; a node's chunks come in order. Raises as ``receive``, ``LocalProtocolError`` before
        ``begin_vectors``. Chunks of a complete upload are passed over."""
        if node in self._answers.of(2):
            return
        self._require_due(node, 2)
        upload = self._uploads.get(node)
        if upload is None:
            raise LocalProtocolError(f"a chunk of {node} before begin_vectors")
        try:
            upload.take(parse_masked_chunk(data))
        except SecAggError as error:
            self.drop(node, str(error))
            raise

    def receive_done(self, node: str, data: bytes) -> None:
        """``Signed{MaskedDone}``: the vectors of ``node`` are complete, and go into the sum. Raises as ``receive``."""
        self.receive(node, 2, data)

    def abandon_vectors(self, node: str) -> None:
        """Free the buffer of an upload that broke off; ``begin_vectors`` may follow."""
        self._uploads.pop(node, None)

    def drop(self, node: str, reason: str) -> None:
        """``node`` answers no more, for ``reason``: the first one given is kept. Its complete vector stays summed."""
        if node in self._invited and not self.done:
            self._dropped.setdefault(node, reason)
            self._uploads.pop(node, None)

    def advance(self) -> None:
        """Close the leg with those who answered, and open the next; after leg 4, unmask.

        Raises ``SecAggError`` when the session is over without a sum: TOO_FEW_NODES; after leg 4 also BAD_SHARE or
        BAD_SUM. Raises ``LocalProtocolError`` when it was over before.
        """
        if self.done:
            raise LocalProtocolError("the session is over")
        try:
            (self._keys, self._shares, self._vectors, self._confirmations, self._unmask)[self._leg]()
        except SecAggError as error:
            self._failure = error
            self._release_memory()
            raise
        self._leg = min(self._leg + 1, 4)

    def _keys(self) -> None:
        """U1: everybody's keys to everybody."""
        self._close(least=self._config.min_survivors)
        message = key_list(self._answers.set_keys(self._eligible))
        self._message = lambda _: message

    def _shares(self) -> None:
        """U2: to each the shares that the others sealed for it."""
        self._close(least=self._config.min_survivors)
        shared = self._answers.set_shared(self._eligible)
        self._message = lambda node: inbox(self._answers.sealed_for(node), shared)

    def _vectors(self) -> None:
        """U3: the list that all must confirm. A node that is out already stays in it when its vector is complete."""
        complete = [node for node in self._eligible if node in self._answers.of(2)]
        self._close(least=self._config.min_survivors, left=complete)
        self._uploads.clear()
        message = survivors(self._answers.set_survivors())
        self._message = lambda _: message

    def _confirmations(self) -> None:
        """Those who confirmed get the proof that at least t did."""
        self._close()
        message = consistency_set(self._answers.confirmations(self._eligible))
        self._message = lambda _: message

    def _unmask(self) -> None:
        """The sum, from the shares of at least t nodes."""
        self._close(left=[node for node in self._eligible if node in self._answers.of(4)])
        answers, config = self._answers, self._config
        masked = MaskedSum(
            manifest=self._manifest,
            prg=config.prg,
            specs=config.streams,
            transcript1=answers.transcript1,
            advertised=answers.advertised,
            survivors=self.survivors,
            dropped=tuple(node for node in answers.shared if node not in answers.vectors),
            answers=answers.shares,
            totals=self._totals,
            noises=self._noises,
        )
        findings = unmask(masked, threads=self._threads)
        vectors = {spec.name: total for spec, total in zip(config.streams, self._totals, strict=True)}
        self._outcome = Sums(vectors, self.survivors, answers.transcript3, self.dropped, findings)
        self._release_memory()

    def _close(self, *, least: int = 0, left: list[str] | None = None) -> None:
        """Put out who did not answer; the others, or ``left``, are those of the next leg, if they are enough."""
        for node in self.waiting:
            self.drop(node, f"did not {LEGS[self._leg]} in time")
        remaining = [node for node in self._eligible if node not in self._dropped]
        there = remaining if left is None else left
        least = max(least, self._config.threshold)
        if len(there) < least:
            why = "; ".join(f"{node}: {reason}" for node, reason in sorted(self._dropped.items()))
            raise SecAggError(
                f"TOO_FEW_NODES: {_do(len(there), LEGS[self._leg])} where {least} are needed "
                f"({why or 'too few were invited'})",
                hint="nothing was revealed; a new session has new keys",
            )
        self._eligible = tuple(remaining if left is None else (n for n in left if n not in self._dropped))

    def _require_due(self, node: str, leg: int) -> None:
        """Raise unless ``node`` may answer ``leg`` now; a node that answers what it may not is out."""
        if node not in self._invited:
            raise RemoteProtocolError(f"node {node[:63]!r} is not invited to this session")
        if self.done:
            raise RemoteProtocolError("this session is over", hint="ask for work again")
        if node in self._dropped:
            raise RemoteProtocolError(f"node {node} is out of this session: {self._dropped[node]}")
        if leg != self._leg or node not in self.waiting:
            reason = f"answered leg {leg} where leg {self._leg} is open, or twice with different bytes"
            self.drop(node, reason)
            raise RemoteProtocolError(f"node {node} {reason}", hint="it is out of this session")

    def _add(self, vectors: list[Array]) -> None:
        """Into the running totals; the first vectors are the totals."""
        if not self._totals:
            self._totals = vectors
            return
        for total, vector in zip(self._totals, vectors, strict=True):
            np.add(total, vector, out=total)

    def _release_memory(self) -> None:
        self._uploads.clear()
        self._totals = []
        self._answers.forget_shares()

    def __repr__(self) -> str:
        return f"SecAggCoordinator({self._config.purpose} of round {self._config.round + 1}, leg {self._leg})"


def _do(number: int, what: str) -> str:
    """``2 nodes share secrets``, ``1 node shares secrets``."""
    verb, _, rest = what.partition(" ")
    return f"1 node {verb}s {rest}" if number == 1 else f"{number} nodes {verb} {rest.replace('its ', 'their ')}"
