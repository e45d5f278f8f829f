"""What nodes may ask of the registry. Every method takes the node's id as its certificate proved it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fedsecure.errors import DataError, RemoteProtocolError, WireError
from fedsecure.rounds.events import ContributionAccepted, NodeJoined, NodeLeft, Phase
from fedsecure.schema import Schema
from fedsecure.text import printable
from fedsecure.wire.v1 import coordinator_pb2 as pb
from fedsecure_coordinator.masking.announced import announcement
from fedsecure_coordinator.runs.registry import Registry
from fedsecure_coordinator.runs.run import Run, plan_of, run_state
from fedsecure_coordinator.store.journal import Published, RunRow, Submission

__all__ = ["Desk", "Slot", "Work"]

#: At most this many plans are listed, the newest ones.
MAX_OFFERS = 200
MAX_REASON = 500
#: Stands for the nodes of a plan that cannot be read: names none.
NOBODY = ("",)


def _no_leg(digest: str, node: str) -> None:
    """No session is open."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a contribution belongs: at most one exists for each."""

    digest: str
    round: int
    exchange: str
    attempt: int
    node: str


@dataclass(frozen=True, slots=True)
class Work:
    """What a node is to do next: contribute (``slot`` and the rest; ``cohort``: under whose masks, and ``result`` of
    the last masked sum), take a step of a session (``leg``), or take note that the run of ``ended`` is over, and keep
    what it answers queries with (``published``)."""

    slot: Slot | None = None
    broadcast: str = ""
    broadcast_bytes: int = 0
    deadline_ms: int = 0
    cohort: str = ""
    result: bytes = b""
    leg: pb.Leg | None = None
    ended: RunRow | None = None
    published: Published | None = None


class Desk:
    """Serves nodes from the registry. ``max_nodes``: nodes in running runs at once. ``legs``: of a run and a node, the
    step of a session under masks that is due from it."""

    def __init__(
        self, registry: Registry, *, max_nodes: int = 64, legs: Callable[[str, str], pb.Leg | None] = _no_leg
    ) -> None:
        self._registry, self._max_nodes, self._legs = registry, max_nodes, legs
        self._polls: dict[str, int] = {}
        self._at_work: set[str] = set()
        self._told: set[tuple[str, str]] = set()
        #: The nodes that an ended run's plan names; none: it was open to all.
        self._named: dict[str, tuple[str, ...]] = {}

    def offers(self, node: str) -> list[tuple[RunRow, bool]]:
        """Runs that ``node`` may see, newest first, with whether it joined. Ended ones are among them, so that a node
        which left one, or never decided, learns that it is over."""
        registry = self._registry
        with registry.changed:
            registry.require_ready()
            rows = [(r.row, node in r.joined) for r in registry.running() if _may_see(r, node)]
            for row in registry.ended().values():
                if self._took_part(row.digest, node):
                    rows.append((row, True))
                elif self._may_have_seen(row, node):
                    rows.append((row, False))
        return sorted(rows, key=lambda r: (-r[0].created_ms, r[0].digest))[:MAX_OFFERS]

    def join(self, node: str, digest: str) -> RunRow:
        """The node is ready for a run. Returns the run's row. Idempotent, also when the run has ended since."""
        registry = self._registry
        with registry.changed:
            registry.require_ready()
            over = registry.ended().get(digest)
            if over is not None and self._took_part(digest, node):
                return over
            run = self._offered(node, digest)
            others = {n for r in registry.running() for n in r.machine.state.present} - {node}
            if len(others) >= self._max_nodes:
                raise WireError(
                    f"this coordinator already serves {self._max_nodes} nodes",
                    hint="its operator can raise limits.max_nodes",
                )
            now = registry.clock()
            member = registry.journal.set_member
            registry.feed(digest, NodeJoined(node), also=lambda: member(digest, node, joined=True, at_ms=now))
            run.joined.add(node)
            return run.row

    def refuse(self, node: str, digest: str, reason: str) -> None:
        """The node will not take part (any more). Idempotent; without effect on a run that is over."""
        registry = self._registry
        text = " ".join(printable(reason).split())[:MAX_REASON]
        with registry.changed:
            registry.require_ready()
            if digest in registry.ended():
                return
            run = self._offered(node, digest)
            now = registry.clock()
            registry.feed(
                digest,
                NodeLeft(node, text or "no reason given"),
                also=lambda: registry.journal.set_member(digest, node, joined=False, at_ms=now, reason=text),
            )
            run.joined.discard(node)

    def next_work(self, node: str, digests: Sequence[str], wait_s: float, gone: Callable[[], bool]) -> Work | None:
        """What ``node`` is to do in one of these runs; waits at most ``wait_s`` seconds. ``None``: nothing yet.

        A node's newer call ends its older one. ``gone`` says that the caller hung up. Raises ``RemoteProtocolError``
        for a run that the node never joined, ``WireError`` when the coordinator is shutting down.
        """
        registry, end = self._registry, time.monotonic() + wait_s
        with registry.changed:
            turn = self._polls[node] = self._polls.get(node, 0) + 1
            self._at_work.discard(node)
            registry.changed.notify_all()
            while not registry.closing:
                if self._polls[node] != turn or gone():
                    return None
                work = self._work(node, digests)
                if work is not None and work.ended is not None and work.published is None:
                    self._told.add((work.ended.digest, node))
                left = end - time.monotonic()
                if work is not None and work.ended is None:
                    self._at_work.add(node)
                if work is not None or left <= 0:
                    return work
                registry.changed.wait(left)
        raise WireError("the coordinator is shutting down", hint="try again later")

    def is_at_work(self, node: str) -> bool:
        """Whether the node was given something to do and neither asked for more since nor contributed: it may compute
        for long without a call."""
        return node in self._at_work

    def wake(self) -> None:
        """Have waiting calls look again: one of their callers hung up."""
        with self._registry.changed:
            self._registry.changed.notify_all()

    def untold(self) -> int:
        """How many nodes have not yet heard that a run they joined is over, or fetched what it answers queries with."""
        registry = self._registry
        with registry.changed:
            members = {d: registry.journal.members(d) for d in registry.ended_here()}
            due = {(d, node) for d, nodes in members.items() for node, (joined, _) in nodes.items() if joined}
            return len(due - self._told)

    def _work(self, node: str, digests: Sequence[str]) -> Work | None:
        registry = self._registry
        registry.require_ready()
        for digest in dict.fromkeys(digests):
            leg = self._legs(digest, node)
            if leg is not None:
                return Work(leg=leg)
        for digest in dict.fromkeys(digests):
            over = registry.ended().get(digest)
            if over is not None and self._took_part(digest, node):
                return Work(ended=over, published=registry.journal.published().get(digest))
            if registry.being_prepared(digest):
                continue  # it is taken up in a moment; the other runs have work meanwhile
            run = self._offered(node, digest)
            if node not in run.joined:
                raise RemoteProtocolError(f"node {node} has not joined run {digest[:12]}", hint="join it first")
            if node not in run.machine.state.present:  # a straggler's sign of life: in again
                registry.feed(digest, NodeJoined(node))
            state = run.machine.state
            if state.phase is Phase.EXCHANGE and node in state.cohort and node not in state.contributed:
                return self._exchange(run, node)
        return None

    def _exchange(self, run: Run, node: str) -> Work:
        state, exchange = run.machine.state, run.machine.exchange
        slot = Slot(run.digest, state.round, exchange, state.attempt, node)
        cohort = run.masks.cohort if run.masks is not None and run.masked(exchange) else ""
        last = self._registry.journal.last_sum(run.digest, state.round, exchange) if run.masks else None
        result = announcement(last, run.row.broadcast)
        return Work(slot, run.row.broadcast, run.row.broadcast_bytes, run.deadlines[state.token], cohort, result)

    def broadcast(self, node: str, digest: str, offset: int, chunk: int) -> Iterator[bytes]:
        """A broadcast from ``offset`` on, in pieces. Only what an open exchange offers to this node can be had, and
        what nodes answer queries with, of a run that it took part in."""
        registry = self._registry
        with registry.changed:
            found = self._offered_bytes(node, digest) if digest else None
            if found is None:
                raise RemoteProtocolError(
                    f"broadcast {digest[:12]!r} is not on offer to node {node}", hint="ask for the next work"
                )
            run_digest, round_, size, last = found
            if offset > size:
                raise RemoteProtocolError(f"broadcast {digest[:12]} has {size} bytes, not {offset}")
            pieces = registry.blobs.chunks(digest, offset, chunk)
        sent = 0
        try:
            for piece in pieces:
                sent += len(piece)
                yield piece
            if last:
                with registry.changed:
                    self._told.add((run_digest, node))
        finally:
            registry.journal.add_traffic(run_digest, round_, node, down=sent)

    def _offered_bytes(self, node: str, digest: str) -> tuple[str, int, int, bool] | None:
        """Of the bytes that ``node`` may have under this digest: run, round, size, whether they are the run's last."""
        registry = self._registry
        for run in registry.running():
            if run.row.broadcast == digest and _sent_to(run, node):
                return run.digest, run.machine.state.round, run.row.broadcast_bytes, False
        for over in registry.journal.published().values():
            row = registry.ended().get(over.digest)
            if over.serving == digest and row is not None and self._took_part(over.digest, node):
                return over.digest, run_state(row).round, over.serving_bytes, True
        return None

    # Contributions ----------------------------------------------------------------------------------------------------
    def accepted(self, slot: Slot) -> Submission | None:
        """The contribution that was accepted for ``slot``, at any time."""
        found = self._registry.journal.submissions(slot.digest, slot.round, slot.exchange, slot.attempt)
        return found.get(slot.node)

    def schema(self, slot: Slot, payload_digest: str) -> Schema:
        """The schema that a contribution must fit. Raises ``RemoteProtocolError``, saying what is open, if not due."""
        with self._registry.changed:
            run = self._offered(slot.node, slot.digest)
            run.machine.check(ContributionAccepted(slot.node, slot.round, slot.exchange, slot.attempt, payload_digest))
            return run.schema(slot.exchange)

    def accept(self, slot: Slot, payload: bytes, key: bytes) -> None:
        """Store a contribution that was checked, and count it. Durable when this returns."""
        registry = self._registry
        with registry.changed:
            run = self._offered(slot.node, slot.digest)
            blob = registry.blobs.put(payload)
            event = ContributionAccepted(slot.node, slot.round, slot.exchange, slot.attempt, blob)
            run.machine.check(event)
            where = (slot.digest, slot.round, slot.exchange, slot.attempt, slot.node)
            entry = Submission(*where, blob, key, len(payload), registry.clock())

            def also() -> None:
                registry.journal.add_submission(entry)
                registry.journal.add_traffic(slot.digest, slot.round, slot.node, up=len(payload))

            registry.feed(slot.digest, event, also=also)
            self._at_work.discard(slot.node)

    def _took_part(self, digest: str, node: str) -> bool:
        return self._registry.journal.members(digest).get(node, (False, ""))[0]

    def _may_have_seen(self, row: RunRow, node: str) -> bool:
        """As ``_may_see``, of a run that is over."""
        if row.digest not in self._named:
            try:
                self._named[row.digest] = plan_of(row).cohort.nodes
            except DataError:  # of another version: no node of this one knows it
                self._named[row.digest] = NOBODY
        named = self._named[row.digest]
        return not named or node in named

    def _offered(self, node: str, digest: str) -> Run:
        """The open run, as this node may know it: one that names others is as good as unknown to it."""
        self._registry.require_ready()
        run = self._registry.open_run(digest)
        if not _may_see(run, node):
            raise RemoteProtocolError(f"run {digest[:12]!r} is not known here", hint="list the plans on offer")
        return run


def _may_see(run: Run, node: str) -> bool:
    return not run.plan.cohort.nodes or node in run.plan.cohort.nodes


def _sent_to(run: Run, node: str) -> bool:
    return run.machine.state.phase is Phase.EXCHANGE and node in run.machine.state.cohort
