"""No order of events wedges the round machine or passes the quorum rule; every run ends in a named state."""

from __future__ import annotations

import contextlib

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fedsecure.errors import LocalProtocolError, RemoteProtocolError
from fedsecure.rounds.events import (
    Abort,
    AdmitNode,
    Aggregate,
    AttemptFailed,
    Complete,
    ContributionAccepted,
    DeadlinePassed,
    NodeJoined,
    NodeLeft,
    OperatorAborted,
    Phase,
    ServerUpdated,
    SetDeadline,
    SkipRound,
    StartExchange,
    SumLost,
    UpdateFailed,
)
from fedsecure.rounds.machine import RoundMachine
from fedsecure.rounds.transitions import MAX_ATTEMPTS

NAMES = ("a", "b", "c", "d")
nodes = st.sampled_from(NAMES)


class AnyOrder(RuleBasedStateMachine):
    @initialize(
        named=st.booleans(),
        min_nodes=st.integers(1, 4),
        rounds=st.integers(1, 3),
        two=st.booleans(),
        admits=st.booleans(),
    )
    def create(self, named, min_nodes, rounds, two, admits):
        self.options = {
            "exchanges": ("one", "two") if two else ("one",),
            "rounds": rounds,
            "min_nodes": min_nodes,
            "nodes": NAMES if named else (),
            "join_seconds": 60.0,
            "exchange_seconds": 30.0,
            "admits": admits,
        }
        self.machine = RoundMachine(**self.options)
        self.tokens: set[int] = set()
        self.cohort: set[str] = set()
        self.ends = 0
        self.apply_actions(self.machine.pending())

    def feed(self, event):
        before = self.machine.snapshot()
        try:
            actions = self.machine.handle(event)
        except (LocalProtocolError, RemoteProtocolError):
            assert self.machine.snapshot() == before
            return
        self.apply_actions(actions)

    def apply_actions(self, actions):
        for action in actions:
            if isinstance(action, SetDeadline):
                self.tokens.add(action.token)
            elif isinstance(action, StartExchange):
                assert len(action.cohort) >= self.machine.min_nodes
                assert action.attempt < MAX_ATTEMPTS
                self.cohort = set(action.cohort)
            elif isinstance(action, AdmitNode):
                assert self.options["admits"]
                assert action.exchange == "one"
                assert self.machine.state.phase is Phase.EXCHANGE
                self.cohort.add(action.node)
            elif isinstance(action, Aggregate):
                assert len(action.contributors) >= self.machine.min_nodes
                assert set(action.contributors) <= self.cohort
            elif isinstance(action, SkipRound):
                assert action.round == self.machine.state.skipped[-1] < self.options["rounds"] - 1
            elif isinstance(action, Complete | Abort):
                self.ends += 1

    @rule(node=nodes)
    def join(self, node):
        self.feed(NodeJoined(node))

    @rule(node=nodes)
    def leave(self, node):
        self.feed(NodeLeft(node, "why"))

    @rule(node=nodes, round_=st.integers(0, 2), exchange=st.sampled_from(("one", "two")), digest=st.sampled_from("xy"))
    def contribute_anything(self, node, round_, exchange, digest):
        self.feed(ContributionAccepted(node, round_, exchange, 0, digest))

    @rule(node=nodes)
    def contribute_what_is_due(self, node):
        state = self.machine.state
        self.feed(ContributionAccepted(node, state.round, self.machine.exchange, state.attempt, "x"))

    @rule(data=st.data())
    def deadline(self, data):
        self.feed(DeadlinePassed(data.draw(st.sampled_from(sorted(self.tokens)))))

    @rule()
    def updated(self):
        self.feed(ServerUpdated())

    @rule()
    def attempt_failed(self):
        self.feed(AttemptFailed("damaged"))

    @rule()
    def sum_lost(self):
        self.feed(SumLost("why"))

    @rule(which=st.sampled_from((UpdateFailed, OperatorAborted)), really=st.integers(0, 9))
    def stop(self, which, really):
        if really == 0:
            self.feed(which("why"))

    @rule()
    def restart(self):
        snapshot = self.machine.snapshot()
        self.machine = RoundMachine(**self.options)
        self.machine.restore(snapshot)
        assert self.machine.snapshot() == snapshot

    @invariant()
    def an_end_is_one_end_and_names_itself(self):
        if not hasattr(self, "machine"):
            return
        state = self.machine.state
        assert self.ends == int(state.ended)
        assert bool(state.reason) == (state.phase is Phase.ABORTED)
        assert sorted(set(state.skipped)) == list(state.skipped)
        assert state.ended or state.round not in state.skipped
        if not state.ended:
            assert self.machine.pending()

    def teardown(self):
        """With nothing but the timers and the coordinator's own work, a run comes to an end."""
        if not hasattr(self, "machine"):
            return
        for _ in range(2 + 2 * self.options["rounds"] * 2):
            if self.machine.state.ended:
                break
            with contextlib.suppress(LocalProtocolError):
                self.apply_actions(self.machine.handle(ServerUpdated()))
            self.apply_actions(self.machine.handle(DeadlinePassed(self.machine.state.token)))
        assert self.machine.state.ended


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=150, stateful_step_count=40, deadline=None, derandomize=True)
