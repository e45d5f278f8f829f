"""One session under masks as this daemon drives it: legs with deadlines, answers from many calls, one outcome.

The machine (``SecAggCoordinator``) knows the protocol and no clock; here are the waits, each of them bounded. What
nodes are to answer is kept ready for polls, which never wait for the machine: it may be busy with a vector.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from fedsecure.errors import FedSecureError, RemoteProtocolError, WireError
from fedsecure.secagg.cohort.manifest import CohortManifest
from fedsecure.secagg.machines.coordinator import SecAggCoordinator, Sums
from fedsecure.secagg.protocol.aborts import AbortCode, parse_abort
from fedsecure.secagg.protocol.sessionconfig import SessionConfig
from fedsecure.secagg.protocol.transcript import config_digest
from fedsecure.secagg.values.noise import NoiseSpec
from fedsecure.secagg.values.streams import Stream
from fedsecure.wire.v1 import coordinator_pb2 as pb
from fedsecure_coordinator.masking.buffers import Buffers
from fedsecure_coordinator.masking.times import Times

__all__ = ["VECTORS", "ClosedLeg", "Session", "SessionOver"]

#: The leg whose answer is the masked vectors.
VECTORS = 2
#: Legs whose answers count also of a node that is out since.
COUNTS_ANYWAY = (VECTORS, 4)
#: How often a wait looks whether a node left the run (seconds).
LOOK_SECONDS = 0.5


class SessionOver(FedSecureError):
    """The session was ended from outside: its run is over, or the daemon stops."""


@dataclass(frozen=True, slots=True)
class ClosedLeg:
    """A leg is over: who answered, and who is out of the session since, and why."""

    leg: int
    answered: tuple[str, ...]
    dropped: dict[str, str]


class Session:
    """A session over the contributions of ``invited`` to attempt ``attempt`` of an exchange. ``drive`` runs it, in a
    thread; every other method may be called from any thread.

    ``noises``: what its nodes add. ``clock``: milliseconds since 1970. ``left``: whether a node left the run;
    ``silent``: whether it called no more for a while, though it has nothing to compute. ``wake``: has polls look again.
    Raises ``SecAggError`` TOO_FEW_NODES when no sum can come of it.
    """

    def __init__(
        self,
        config: SessionConfig,
        manifest: CohortManifest,
        streams: Sequence[Stream],
        invited: Sequence[str],
        attempt: int,
        *,
        noises: Sequence[NoiseSpec] = (),
        times: Times,
        buffers: Buffers,
        threads: int,
        clock: Callable[[], int],
        left: Callable[[str], bool],
        silent: Callable[[str], bool],
        wake: Callable[[], None],
    ) -> None:
        self.config, self.invited, self._attempt = config, tuple(sorted(invited)), attempt
        self.digest = config_digest(config.to_bytes()).hex()
        machine = SecAggCoordinator(config, manifest, streams, self.invited, noises=noises, threads=threads)
        self._held: SecAggCoordinator | None = machine
        self._times, self._buffers = times, buffers
        self._clock, self._left, self._silent, self._wake = clock, left, silent, wake
        self._turn = threading.Lock()  # whoever calls the machine
        self._news = threading.Condition()  # changes of what follows
        self._over = False
        self._waiting: frozenset[str] = frozenset()
        self._legs: dict[str, pb.Leg] = {}
        self._taken: dict[tuple[str, int], bytes] = {}
        self._uploads: dict[str, int] = {}
        self._told: set[str] = set()
        #: Nodes that will unmask no sum of this exchange any more: they did before.
        self.spent: set[str] = set()
        #: Nodes that begin no further session of it: they began as many as they do.
        self.worn: set[str] = set()

    # The thread of the session ----------------------------------------------------------------------------------------
    def drive(self, closed: Callable[[ClosedLeg], None]) -> Sums:
        """Run all legs; ``closed`` hears of each. Raises ``SecAggError`` when it ends without a sum, ``SessionOver``
        when it was ended."""
        try:
            machine = self._machine
            while not machine.done:
                leg, seconds = self._open()
                self._wait(leg, seconds)
                closed(self._close(leg))
            return machine.outcome
        finally:
            self.end()
            with self._turn:
                self._held = None  # its memory; what was taken is still known

    @property
    def _machine(self) -> SecAggCoordinator:
        """Hold ``_turn``. Raises ``RemoteProtocolError`` when the session is over."""
        if self._held is None:
            raise RemoteProtocolError("this session is over", hint="ask for the next work")
        return self._held

    def _open(self) -> tuple[int, float]:
        """Offer the leg to everybody who is to answer it."""
        with self._turn:
            leg, waiting = self._machine.leg, self._machine.waiting
            messages = {node: self._machine.message(node) for node in waiting}
        due = {node: message for node, message in messages.items() if message is not None}
        nbytes = self.config.nbytes * self._buffers.turns(len(due), self.config.nbytes) if leg == VECTORS else 0
        seconds = self._times.of(leg, nbytes + max(map(len, due.values()), default=0))
        deadline = self._clock() + round(1000 * seconds)
        legs = {node: self._leg(leg, message, deadline) for node, message in due.items()}
        with self._news:
            self._legs, self._waiting = legs, frozenset(waiting)
        self._wake()
        return leg, seconds

    def _leg(self, leg: int, message: bytes, deadline: int) -> pb.Leg:
        config = self.config
        return pb.Leg(
            plan_digest=config.experiment,
            round=config.round,
            attempt=self._attempt,
            exchange=config.purpose,
            config_digest=self.digest,
            leg=leg,
            message=message,
            deadline_unix_ms=deadline,
        )

    def _wait(self, leg: int, seconds: float) -> None:
        """Until all have answered or left, or the time is up."""
        end = self._clock() + 1000 * seconds
        while True:
            with self._news:
                if self._over:
                    raise SessionOver("the session was ended")
                remaining = (end - self._clock()) / 1000
                if not self._waiting or remaining <= 0:
                    return
                self._news.wait(min(remaining, LOOK_SECONDS))
                waiting = self._waiting
            for node in waiting:
                if self._left(node):
                    self._drop(node, "it left the run")
            if leg == 0 and self._goes_without(waiting):
                return

    def _goes_without(self, waiting: frozenset[str]) -> bool:
        """Whether leg 0, which may be long, is over early: enough answered, and of the others none is there."""
        with self._turn:
            answered = {node for node, leg in self._taken if leg == 0} - set(self._machine.dropped)
        return len(answered) >= self.config.min_survivors and all(self._silent(node) for node in waiting)

    def _close(self, leg: int) -> ClosedLeg:
        with self._news:
            self._legs = {}
        with self._turn:
            self._machine.advance()
            answered = tuple(sorted(node for node, at in self._taken if at == leg))
            dropped = {n: why for n, why in sorted(self._machine.dropped.items()) if n not in self._told}
            self._told |= set(dropped)
        return ClosedLeg(leg, answered, dropped)

    def end(self) -> None:
        """End it at once: nothing more is offered or taken, and ``drive`` returns."""
        with self._news:
            self._over, self._legs, self._waiting = True, {}, frozenset()
            self._news.notify_all()

    # Calls of nodes ---------------------------------------------------------------------------------------------------
    def leg(self, node: str) -> pb.Leg | None:
        """What this node is to answer now. Never waits."""
        return self._legs.get(node)

    def answer(self, node: str, leg: int, data: bytes) -> None:
        """Take a node's answer. The same bytes again are fine at any time. Raises ``SecAggError`` naming the fault,
        with which the node is out of the session, or ``RemoteProtocolError`` when none is due."""
        digest = hashlib.sha256(data).digest()
        if self._taken.get((node, leg)) == digest:
            return
        with self._step(node):
            self._machine.receive(node, leg, data)
            self._taken[node, leg] = digest

    def abort(self, node: str, data: bytes) -> None:
        """A node says that it left. Again is fine. Raises ``SecAggError`` for a malformed message."""
        told = parse_abort(data)
        if told.code is AbortCode.ALREADY_RELEASED:
            self.spent.add(node)
        elif told.code is AbortCode.REPLAYED:
            self.worn.add(node)
        self._drop(node, told.reason(node, self.invited))

    def upload(self, node: str, messages: Iterable[pb.MaskedMessage], gone: Callable[[], bool]) -> int:
        """Take a node's masked vectors; returns their bytes, or 0 when they were taken before.

        They begin at their first byte; a newer upload ends an older one. ``gone``: the caller hung up. Raises as
        ``answer`` does, and ``WireError`` when it broke off or another took over: it may be tried again.
        """
        if (node, VECTORS) in self._taken:
            return 0
        self._require_open(node)
        with self._news:
            turn = self._uploads[node] = self._uploads.get(node, 0) + 1
        given_up = lambda: gone() or self._over or self._uploads[node] != turn  # noqa: E731 - one expression
        with self._buffers.hold(self.config.nbytes, given_up):
            try:
                with self._step(node, turn):
                    self._machine.begin_vectors(node)
                for message in messages:
                    with self._step(node, turn):
                        if self._taken_part(node, message):
                            return self.config.nbytes
            finally:
                with self._turn:
                    if self._uploads[node] == turn and self._held is not None:
                        self._held.abandon_vectors(node)
        raise WireError("upload: it broke off", hint="begin it again")

    def _taken_part(self, node: str, message: pb.MaskedMessage) -> bool:
        """Take one message of an upload; whether it was the last."""
        part = message.WhichOneof("part")
        if part == "chunk":
            self._machine.receive_chunk(node, message.chunk)
            return False
        if part != "done":
            raise RemoteProtocolError("upload of masked vectors: a second header")
        self._machine.receive_done(node, message.done)
        self._taken[node, VECTORS] = hashlib.sha256(message.done).digest()
        return True

    def _require_open(self, node: str) -> None:
        if self._over or node not in self._waiting:
            raise RemoteProtocolError(
                f"node {node}: no answer is due in this session: it is over, or goes on without the node",
                hint="ask for the next work",
            )

    @contextmanager
    def _step(self, node: str, upload: int | None = None) -> Iterator[None]:
        """The machine's, for one message of ``node``; of its ``upload``, if that is still the newest one."""
        with self._turn:
            if upload is not None and self._uploads[node] != upload:
                raise WireError("upload: a newer upload of these vectors took over")
            self._require_open(node)
            try:
                yield
            finally:
                self._look()

    def _drop(self, node: str, reason: str) -> None:
        with self._turn:
            if self._over:
                return
            self._machine.drop(node, reason)
            self._look()

    def _look(self) -> None:
        """Hold ``_turn``. Have the session's thread see who is still waited for; nobody, once too few are left."""
        machine, config = self._held, self.config
        if machine is None:
            return
        waiting = frozenset(machine.waiting)
        answered = {node for node, leg in self._taken if leg == machine.leg}
        if machine.leg not in COUNTS_ANYWAY:
            answered -= set(machine.dropped)
        if len(answered | waiting) < (config.min_survivors if machine.leg <= VECTORS else config.threshold):
            for other in waiting:
                machine.drop(other, "was not waited for, since too few others are left")
            waiting = frozenset()
        with self._news:
            if not self._over:
                self._waiting = waiting
                self._legs = {n: leg for n, leg in self._legs.items() if n in self._waiting}
            self._news.notify_all()
