"""A session that is open at this node: its machine, and its answers for as long as they may have to be sent again."""

from __future__ import annotations

import hashlib

from fedsecure.errors import SecAggError
from fedsecure.secagg.machines.node import NodeState, SecAggNode
from fedsecure.secagg.machines.vectors import Masked
from fedsecure.secagg.protocol.aborts import abort_bytes
from fedsecure_node.egress import ClearedVectors
from fedsecure_node.log.releases import Release
from fedsecure_node.masking.lifetime import Lifetime

__all__ = ["Answer", "OpenSession"]

Answer = bytes | ClearedVectors


class OpenSession:
    """``digest``: of the configuration (hexadecimal), which names the session. ``lifetime``: what ``machine`` takes its
    time from."""

    def __init__(self, release: Release, digest: str, machine: SecAggNode, lifetime: Lifetime) -> None:
        self.release = release
        self.digest = digest
        self.machine = machine
        self._lifetime = lifetime
        self._answers: dict[int, tuple[bytes, Answer]] = {}
        self._taken: set[int] = set()

    @property
    def is_going_on(self) -> bool:
        """Whether more legs are to come."""
        return self.machine.state not in (NodeState.RELEASED, NodeState.ABORTED)

    @property
    def is_under_way(self) -> bool:
        """Whether the next leg comes within seconds: from the second on, nobody computes meanwhile."""
        return self.is_going_on and self.machine.state not in (NodeState.IDLE, NodeState.ADVERTISED)

    @property
    def left_s(self) -> float:
        """Seconds until it has to be over; <= 0 when its time is up."""
        config = self.machine.config
        return self._lifetime.left_s(None if config is None else config.deadline_ms)

    def known(self, leg: int, message: bytes) -> Answer | None:
        """The answer that was given to this very message before: the connection broke, or the coordinator restarted."""
        digest, answer = self._answers.get(leg, (b"", b""))
        return answer if digest == hashlib.sha256(message).digest() else None

    def step(self, leg: int, message: bytes) -> bytes | Masked:
        """The machine's answer to a message that was not answered yet. Raises ``SecAggError``; the session is over
        then."""
        if self.is_going_on and self.left_s <= 0:
            raise SecAggError("DEADLINE: the session's time is up", hint="the next session has new keys")
        return self.machine.answer(leg, message)

    def keep(self, leg: int, message: bytes, answer: Answer) -> None:
        """Keep an answer. The masked vectors go once the coordinator shows, by the next leg, that it has them."""
        if leg > 2:
            self._answers.pop(2, None)
        self._answers[leg] = (hashlib.sha256(message).digest(), answer)

    def is_first_taken(self, leg: int) -> bool:
        """Note that the coordinator took the answer to ``leg``. Whether that is news."""
        news = leg not in self._taken
        self._taken.add(leg)
        return news

    def close(self) -> None:
        """Overwrite what is secret and forget what was answered."""
        self.machine.wipe()
        self._answers.clear()

    def abort(self, error: SecAggError) -> bytes:
        """End it; the message that tells the coordinator, by a fixed code."""
        transcript = self.machine.transcript
        self.close()
        return abort_bytes(error, transcript)
