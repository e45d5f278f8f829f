"""The relay under any order of asks, polls, answers, hang-ups and time: no answer twice, by another, or late."""

from __future__ import annotations

import itertools

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from fedsecure.errors import NodeUnreachable, RemoteProtocolError, WireError
from fedsecure.wire.v1 import prediction_pb2 as pb
from fedsecure_coordinator.prediction.relay import LAST_SECONDS, MAX_EACH, MAX_QUEUED, Relay

NODES, ANALYSTS, RUNS = ("a", "b"), ("anna", "bert"), ("r" * 64, "o" * 64)
nodes, analysts, runs = st.sampled_from(NODES), st.sampled_from(ANALYSTS), st.sampled_from(RUNS)


def must_name(node, error):
    assert f"node {node}" in str(error)


class RelayMachine(RuleBasedStateMachine):
    """Beside the relay, a model that knows only: who was asked what, who took it when, what was answered."""

    queries = Bundle("queries")

    def __init__(self):
        super().__init__()
        numbers = itertools.count()
        self.relay, self.now = Relay(lambda: str(next(numbers))), 0.0
        self.asked, self.taken, self.answers, self.serves = {}, {}, {}, {}
        self.polls = {}  # node -> turn of the poll that waits
        self.ended = set()

    @rule(seconds=st.floats(0.0, 8.0))
    def time_passes(self, seconds):
        self.now += seconds

    @rule(node=nodes, served=st.sets(runs))
    def serve(self, node, served):
        self.relay.serve(node, served, pb.SignedStatement(body=node.encode()), self.now)
        self.serves[node] = served

    @rule(node=nodes)
    def poll(self, node):
        try:
            self.polls[node] = self.relay.poll(node, self.now)
        except RemoteProtocolError:
            assert node not in self.serves

    @rule(node=nodes, broken=st.booleans())
    def poll_ends(self, node, broken):
        turn = self.polls.pop(node, None)
        if turn is not None:
            self.relay.poll_over(node, turn, self.now, broken=broken)
            assert broken != self.relay.reachable(node, self.now)

    @rule(target=queries, analyst=analysts, node=nodes, run=runs, wait=st.floats(0.1, 20.0))
    def ask(self, analyst, node, run, wait):
        reachable = self.relay.reachable(node, self.now)
        try:
            query = self.relay.ask(analyst, node, run, b"%d" % len(self.asked), self.now, self.now + wait)
        except NodeUnreachable as error:
            must_name(node, error)
            assert run not in self.serves.get(node, ()) or not reachable
            return multiple()
        except WireError:
            assert sum(self.asked[q][0] == analyst for q in self.open()) >= MAX_EACH
            return multiple()
        assert run in self.serves[node]
        assert reachable
        self.asked[query] = (analyst, node, run, self.now + wait)
        return query

    @rule(node=nodes)
    def take(self, node):
        query = self.relay.take(node, self.now)
        waiting = [q for q in self.open() if self.asked[q][1] == node and q not in self.taken]
        due = [q for q in waiting if self.now < self.asked[q][3]]
        assert (query.id if query else None) == (due[0] if due else None)
        if query:
            assert (query.analyst, query.node, query.run, query.deadline) == self.asked[query.id]
            self.taken[query.id] = node

    @rule(node=nodes, query=queries, sealed=st.binary(min_size=1, max_size=3))
    def answer(self, node, query, sealed):
        fits = (
            query not in self.ended
            and self.taken.get(query) == node
            and query not in self.answers
            and self.now < self.asked[query][3]
        )
        try:
            self.relay.answer(node, query, sealed, self.now)
            accepted = True
        except RemoteProtocolError:
            accepted = False
        assert accepted == fits
        if accepted:
            self.answers[query] = sealed

    @rule(query=queries)
    def look(self, query):
        if query in self.ended:
            return
        reachable = self.relay.reachable(self.asked[query][1], self.now)
        try:
            reply = self.relay.reply(query, self.now)
        except NodeUnreachable as error:
            must_name(self.asked[query][1], error)
            assert query not in self.answers
            assert self.now >= self.asked[query][3] or (query not in self.taken and not reachable)
            self.ended.add(query)
            return
        assert reply == self.answers.get(query)
        if reply is None:
            assert self.relay.look_again(query) > self.now
        else:
            self.ended.add(query)

    @rule(query=consumes(queries))
    def hang_up(self, query):
        self.relay.drop(query)
        self.ended.add(query)

    def open(self):
        return [q for q in self.asked if q not in self.ended]

    @invariant()
    def bounds_hold(self):
        assert all(sum(self.asked[q][0] == who for q in self.open()) <= MAX_EACH for who in ANALYSTS)
        assert len(self.open()) <= MAX_QUEUED * len(NODES)

    @invariant()
    def who_polls_is_reachable_and_nobody_for_ever(self):
        for node in NODES:
            if node in self.polls:
                assert self.relay.reachable(node, self.now + 1e6)
            else:
                last = max([self.asked[q][3] for q in self.open() if self.taken.get(q) == node], default=0.0)
                assert not self.relay.reachable(node, max(self.now + LAST_SECONDS, last))


TestRelayInAnyOrder = RelayMachine.TestCase
TestRelayInAnyOrder.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, derandomize=True)
