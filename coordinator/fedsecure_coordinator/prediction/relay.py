"""The relay of queries: who asks whom, and what waits. It has no thread, no socket and no clock.

| a query is | when | it becomes |
|---|---|---|
| – | an analyst asks a node that serves the run and can be reached | queued |
| queued | its node takes it | taken |
| taken | its node answers | answered |
| queued | its node cannot be reached any more | gone |
| queued, taken | its deadline passes | gone |
| any | whoever asked has the answer, or hung up | gone |

Anything else is an error and changes nothing. All times are seconds of one clock that only goes forward.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from fedsecure.errors import NodeUnreachable, RemoteProtocolError, WireError
from fedsecure.wire.v1 import prediction_pb2 as pb
from fedsecure_coordinator.store.journal import Served

__all__ = ["LAST_SECONDS", "MAX_EACH", "MAX_QUEUED", "Body", "Query", "Relay", "Reply", "State"]

#: What is asked: sealed, or in the plain form.
Body = bytes | pb.SignedStatement
#: What is answered: sealed, or signed to a query in the plain form; to either in the clear only that there is none.
Reply = bytes | pb.SignedStatement | pb.Refusal

#: A node counts as reachable for this long after its last sign of life (seconds).
LAST_SECONDS: Final = 5.0
#: Queries of one analyst that wait at once.
MAX_EACH: Final = 4
#: Queries to one node that wait at once.
MAX_QUEUED: Final = 32


class State(Enum):
    """Where a query stands."""

    QUEUED = "queued"
    TAKEN = "taken"
    ANSWERED = "answered"


@dataclass(slots=True)
class Query:
    """One query. ``deadline``: whoever asked waits no longer."""

    id: str
    analyst: str
    node: str
    run: str
    body: Body = field(repr=False)
    deadline: float
    state: State = State.QUEUED
    reply: Reply | None = field(default=None, repr=False)

    def is_open(self, now: float) -> bool:
        """Whether an answer would still be of use, and there is none yet."""
        return self.state is not State.ANSWERED and now < self.deadline


@dataclass(slots=True)
class _Node:
    """``turn``: that of its newest poll; ``polls``: whether that one waits. ``seen``: its last sign of life, minus
    infinity when its connection broke after it."""

    key: pb.SignedStatement
    runs: frozenset[str]
    ever: frozenset[str]
    seen: float
    turn: int = 0
    polls: bool = False


class Relay:
    """``new_id`` makes ids that nobody can guess."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._nodes: dict[str, _Node] = {}
        self._queries: dict[str, Query] = {}
        self._answered: dict[tuple[str, str], int] = {}
        self._missed: dict[tuple[str, str], int] = {}

    # Nodes ------------------------------------------------------------------------------------------------------------
    def serve(self, node: str, runs: Iterable[str], key: pb.SignedStatement, now: float) -> None:
        """The node serves exactly these runs, and queries to it are sealed to this key."""
        known = self._nodes.get(node)
        served = frozenset(runs)
        if known is None:
            self._nodes[node] = _Node(key, served, served, now)
        else:
            known.key, known.runs, known.ever, known.seen = key, served, known.ever | served, now

    def poll(self, node: str, now: float) -> int:
        """The node waits for queries. Returns its turn: a newer poll ends an older one.

        Raises ``RemoteProtocolError`` for a node that has not said what it serves since the coordinator began.
        """
        known = self._nodes.get(node)
        if known is None:
            raise RemoteProtocolError(f"node {node} has not said which runs it serves", hint="call Serve first")
        known.turn, known.polls, known.seen = known.turn + 1, True, now
        return known.turn

    def is_turn(self, node: str, turn: int) -> bool:
        """Whether no newer poll of the node came."""
        return self._nodes[node].turn == turn

    def poll_over(self, node: str, turn: int, now: float, *, broken: bool) -> None:
        """A poll ended. ``broken``: because the node hung up; it then counts as gone at once."""
        known = self._nodes[node]
        if known.turn == turn:
            known.polls, known.seen = False, -math.inf if broken else now

    def take(self, node: str, now: float) -> Query | None:
        """The oldest query that waits for the node; from now on only it may answer, once."""
        for query in self._queries.values():
            if query.node == node and query.state is State.QUEUED and now < query.deadline:
                query.state = State.TAKEN
                return query
        return None

    def answer(self, node: str, query_id: str, reply: Reply, now: float) -> None:
        """The node's answer. Raises ``RemoteProtocolError`` for one that is not due, or of another form than asked."""
        query = self._queries.get(query_id)
        if query is None or query.node != node or query.state is not State.TAKEN or not query.is_open(now):
            raise RemoteProtocolError(
                f"query {query_id[:32]!r}: no answer of node {node} is due", hint="it came too late, or twice"
            )
        if isinstance(query.body, bytes) and isinstance(reply, pb.SignedStatement):
            raise RemoteProtocolError(f"query {query_id}: it was sealed, and so must its answer be")
        if not isinstance(query.body, bytes) and isinstance(reply, bytes):
            raise RemoteProtocolError(f"query {query_id}: it was asked in the plain form, and so must its answer be")
        query.state, query.reply = State.ANSWERED, reply
        if node in self._nodes:
            self._nodes[node].seen = now

    def reachable(self, node: str, now: float) -> bool:
        """Whether the node asks for queries, did so a moment ago, or works on one."""
        return now < self._lapses(node)

    def _lapses(self, node: str) -> float:
        """Until when the node counts as reachable, if nothing more is heard of it."""
        known = self._nodes.get(node)
        if known is None or known.seen == -math.inf:
            return -math.inf
        if known.polls:
            return math.inf
        working = (q.deadline for q in self._queries.values() if q.node == node and q.state is State.TAKEN)
        return max([known.seen + LAST_SECONDS, *working])

    # Analysts ---------------------------------------------------------------------------------------------------------
    def ask(self, analyst: str, node: str, run: str, body: Body, now: float, deadline: float) -> str:
        """Queue a query; returns its id. Raises ``NodeUnreachable`` naming the node, or ``WireError`` when too many
        wait already."""
        known = self._nodes.get(node)
        if known is None or run not in known.runs:
            self._miss(run, node)
            raise NodeUnreachable(f"node {node} does not serve run {run[:12]} at this moment")
        if not self.reachable(node, now):
            self._miss(run, node)
            raise NodeUnreachable(f"node {node} cannot be reached: it asks for no queries")
        mine = [q for q in self._queries.values() if q.analyst == analyst]
        if len(mine) >= MAX_EACH:
            raise WireError(f"analyst {analyst}: {len(mine)} queries wait already", hint="wait for their answers")
        waiting = sum(q.node == node for q in self._queries.values())
        if waiting >= MAX_QUEUED:
            raise WireError(f"node {node}: {waiting} queries wait already", hint="try again later")
        query = Query(self._new_id(), analyst, node, run, body, deadline)
        self._queries[query.id] = query
        return query.id

    def reply(self, query_id: str, now: float) -> Reply | None:
        """The answer, once; ``None`` while there is none. Raises ``NodeUnreachable`` when there will be none."""
        query = self._queries[query_id]
        if query.reply is not None:
            self.drop(query_id)
            where = (query.run, query.node)
            self._answered[where] = self._answered.get(where, 0) + 1
            return query.reply
        if query.state is State.QUEUED and not self.reachable(query.node, now):
            why = f"node {query.node} cannot be reached any more: it took no query"
        elif now >= query.deadline:
            why = f"node {query.node} did not answer in time"
        else:
            return None
        self.drop(query_id)
        self._miss(query.run, query.node)
        raise NodeUnreachable(why)

    def look_again(self, query_id: str) -> float:
        """When ``reply`` may say something else although nothing happened."""
        query = self._queries[query_id]
        return min(query.deadline, self._lapses(query.node)) if query.state is State.QUEUED else query.deadline

    def drop(self, query_id: str) -> None:
        """Nobody waits for the answer (any more)."""
        self._queries.pop(query_id, None)

    def _miss(self, run: str, node: str) -> None:
        self._missed[run, node] = self._missed.get((run, node), 0) + 1

    # Looking ----------------------------------------------------------------------------------------------------------
    def serving(self, run: str, now: float) -> list[tuple[str, bool, pb.SignedStatement]]:
        """The nodes that ever served a run: name, whether it would take a query now, key."""
        return [
            (name, run in node.runs and self.reachable(name, now), node.key)
            for name, node in sorted(self._nodes.items())
            if run in node.ever
        ]

    def served(self, now: float) -> list[Served]:
        """The same of all runs, with the counts, for the operator."""
        pairs = {(run, name) for name, node in self._nodes.items() for run in node.ever}
        return [
            Served(
                run,
                name,
                name in self._nodes and run in self._nodes[name].runs and self.reachable(name, now),
                self._answered.get((run, name), 0),
                self._missed.get((run, name), 0),
            )
            for run, name in sorted(pairs | self._missed.keys())
        ]
