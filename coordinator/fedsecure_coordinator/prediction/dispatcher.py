"""The relay for threads: whoever asks waits for the answer, whoever serves waits for a query; both with a bound."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable

from fedsecure.errors import NodeUnreachable, WireError
from fedsecure.wire.v1 import prediction_pb2 as pb
from fedsecure_coordinator.prediction.messages import told
from fedsecure_coordinator.prediction.relay import Body, Query, Relay, Reply
from fedsecure_coordinator.quota import Quota
from fedsecure_coordinator.store.journal import Served

__all__ = ["Dispatcher"]

_log = logging.getLogger("fedsecure.coordinator")


class Dispatcher:
    """Safe to share between threads. ``clock``: seconds that only go forward."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._relay = Relay(lambda: secrets.token_hex(16))
        self._changed = threading.Condition()
        self._quota = Quota()
        self._closing = False

    def close(self) -> None:
        """Shutting down: whoever waits returns at once."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def wake(self) -> None:
        """Have waiting calls look again: one of their callers hung up."""
        with self._changed:
            self._changed.notify_all()

    def ask(self, analyst: str, node: str, run: str, body: Body, wait_s: float, gone: Callable[[], bool]) -> Reply:
        """The node's answer to a query. ``gone`` says that the caller hung up.

        Raises ``NodeUnreachable`` naming the node when it is not there, or has not answered within ``wait_s`` seconds;
        ``WireError`` when too many queries wait, or the coordinator is shutting down.
        """
        start = self._clock()
        try:
            reply = self._ask(analyst, node, run, body, start + wait_s, gone)
        except NodeUnreachable as error:
            times = self._quota.take((analyst, node, run, str(error)))
            if times:
                self._log_relayed(analyst, node, run, body, "unreachable", f"unreachable: {error}", times)
            raise
        outcome = _outcome(reply)
        self._log_relayed(analyst, node, run, body, outcome, f"{outcome} in {self._clock() - start:.2f} s")
        return reply

    def _ask(self, analyst: str, node: str, run: str, body: Body, deadline: float, gone: Callable[[], bool]) -> Reply:
        with self._changed:
            self._require_open()
            query = self._relay.ask(analyst, node, run, body, self._clock(), deadline)
            self._changed.notify_all()
            try:
                while (reply := self._relay.reply(query, self._clock())) is None:
                    self._require_open()
                    if gone():
                        raise WireError(f"analyst {analyst} hung up")
                    self._changed.wait(max(0.0, self._relay.look_again(query) - self._clock()))
            finally:
                self._relay.drop(query)
        return reply

    def next(self, node: str, wait_s: float, gone: Callable[[], bool]) -> tuple[Query, float] | None:
        """The next query for the node, and the seconds left to answer it; waits at most ``wait_s`` seconds for one.

        A node's newer call ends its older one. Raises ``RemoteProtocolError`` when the node has not said what it
        serves, ``WireError`` when the coordinator is shutting down.
        """
        with self._changed:
            end = self._clock() + wait_s
            turn = self._relay.poll(node, self._clock())
            self._changed.notify_all()
            broken = False
            try:
                while True:
                    self._require_open()
                    if not self._relay.is_turn(node, turn):
                        return None
                    broken = gone()
                    now = self._clock()
                    query = None if broken else self._relay.take(node, now)
                    if query is not None:
                        return query, query.deadline - now
                    if broken or now >= end:
                        return None
                    self._changed.wait(end - now)
            finally:
                self._relay.poll_over(node, turn, self._clock(), broken=broken)
                self._changed.notify_all()

    def serve(self, node: str, runs: Iterable[str], key: pb.SignedStatement) -> None:
        """The node serves exactly these runs, with this key."""
        with self._changed:
            self._relay.serve(node, runs, key, self._clock())
            self._changed.notify_all()

    def answer(self, node: str, query_id: str, reply: Reply) -> None:
        """The node's answer. Raises ``RemoteProtocolError`` for one that is not due."""
        with self._changed:
            self._relay.answer(node, query_id, reply, self._clock())
            self._changed.notify_all()

    def serving(self, run: str) -> list[tuple[str, bool, pb.SignedStatement]]:
        """The nodes that ever served a run: name, whether it would take a query now, key."""
        with self._changed:
            return self._relay.serving(run, self._clock())

    def served(self) -> list[Served]:
        """What the operator sees of all nodes and runs."""
        with self._changed:
            return self._relay.served(self._clock())

    def _require_open(self) -> None:
        if self._closing:
            raise WireError("the coordinator is shutting down", hint="try again later")

    def _log_relayed(
        self, analyst: str, node: str, run: str, body: Body, outcome: str, words: str, times: int = 1
    ) -> None:
        size = len(body) if isinstance(body, bytes) else body.ByteSize()
        form = "sealed" if isinstance(body, bytes) else "plain"
        fields = {"event": "query", "analyst": analyst, "node": node, "run": run, "bytes": size, "form": form}
        _log.info(
            "query of analyst %s to node %s, run %s, %s, %d bytes: %s%s",
            *(analyst, node, run[:12], form, size, words, f" ({times} times)" if times > 1 else ""),
            extra={"fields": {**fields, "outcome": outcome, "times": times}},
        )


def _outcome(reply: Reply) -> str:
    """What became of a query that its node replied to, as far as it can be known here: what is sealed is relayed."""
    if isinstance(reply, bytes):
        return "relayed"
    said = "refusal" if isinstance(reply, pb.Refusal) else told(reply)
    return {"prediction": "answered", "refusal": "refused"}.get(said, "relayed")
