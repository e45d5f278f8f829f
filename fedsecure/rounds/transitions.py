"""How a run's state changes: one table, and a method an entry (the rules: ``fedsecure.rounds.machine``)."""

from __future__ import annotations

from dataclasses import dataclass

from fedsecure.errors import LocalProtocolError, RemoteProtocolError
from fedsecure.rounds.events import (
    Abort,
    Action,
    AdmitNode,
    Aggregate,
    AttemptFailed,
    Complete,
    ContributionAccepted,
    DeadlinePassed,
    Event,
    NameStragglers,
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
from fedsecure.rounds.state import RoundState

__all__ = ["MAX_ATTEMPTS", "TRANSITIONS", "Step", "Transitions"]

#: (phase, event) -> the method that applies it. What is not here is not possible.
TRANSITIONS: dict[tuple[Phase, type[Event]], str] = {
    (Phase.JOINING, NodeJoined): "_joins",
    (Phase.JOINING, NodeLeft): "_leaves_early",
    (Phase.JOINING, DeadlinePassed): "_joining_over",
    (Phase.JOINING, UpdateFailed): "_update_failed",
    (Phase.JOINING, OperatorAborted): "_operator",
    (Phase.EXCHANGE, NodeJoined): "_comes_back",
    (Phase.EXCHANGE, NodeLeft): "_leaves_exchange",
    (Phase.EXCHANGE, ContributionAccepted): "_contributes",
    (Phase.EXCHANGE, DeadlinePassed): "_exchange_over",
    (Phase.EXCHANGE, UpdateFailed): "_update_failed",
    (Phase.EXCHANGE, OperatorAborted): "_operator",
    (Phase.AGGREGATING, NodeJoined): "_joins",
    (Phase.AGGREGATING, NodeLeft): "_leaves_later",
    (Phase.AGGREGATING, ContributionAccepted): "_contributes",  # a repeated one; a new one is refused
    (Phase.AGGREGATING, DeadlinePassed): "_ignored",
    (Phase.AGGREGATING, ServerUpdated): "_updated",
    (Phase.AGGREGATING, AttemptFailed): "_attempt_failed",
    (Phase.AGGREGATING, SumLost): "_sum_lost",
    (Phase.AGGREGATING, UpdateFailed): "_update_failed",
    (Phase.AGGREGATING, OperatorAborted): "_operator",
    (Phase.COMPLETED, NodeLeft): "_ignored",
    (Phase.COMPLETED, DeadlinePassed): "_ignored",
    (Phase.ABORTED, NodeLeft): "_ignored",
    (Phase.ABORTED, DeadlinePassed): "_ignored",
}

#: An exchange whose contributions cannot be summed is asked for again, at most this often in all.
MAX_ATTEMPTS = 3
#: Events that a node is to blame for when they come at the wrong time, in words.
_ASKED_BY_NODES: dict[type[Event], str] = {
    NodeJoined: "joining",
    NodeLeft: "leaving",
    ContributionAccepted: "a contribution",
}
#: The state after an event, and what the driver must do.
Step = tuple[RoundState, tuple[Action, ...]]


@dataclass(frozen=True, slots=True)
class Transitions:
    """What stays the same during a run, and how its state changes. Times in seconds; ``nodes`` is sorted, and empty for
    an open cohort. ``admits``: whoever joins while a round's first exchange is open is in that round."""

    exchanges: tuple[str, ...]
    rounds: int
    min_nodes: int
    nodes: tuple[str, ...]
    exchange_seconds: float
    settle_seconds: float
    admits: bool = False

    def step(self, state: RoundState, event: Event) -> Step:
        """The next state. Raises ``RemoteProtocolError`` (a node's fault) or ``LocalProtocolError`` (ours) for an event
        that the table does not name for the phase, or that its entry refuses."""
        name = TRANSITIONS.get((state.phase, type(event)))
        if name is None:
            words = _ASKED_BY_NODES.get(type(event))
            error = LocalProtocolError if words is None else RemoteProtocolError
            what = words or type(event).__name__
            raise error(f"{what} is not possible now: {self.where(state)}", hint="ask what is open first")
        step: Step = getattr(self, name)(state, event)
        return step

    def where(self, state: RoundState) -> str:
        """The state in words, for messages and logs. Rounds and attempts count from 1."""
        exchange = self.exchanges[state.exchange]
        if state.phase is Phase.EXCHANGE:
            return f"round {state.round + 1}, exchange {exchange}, attempt {state.attempt + 1} is open"
        if state.phase is Phase.AGGREGATING:
            return f"round {state.round + 1}, exchange {exchange} is being aggregated"
        if state.phase is Phase.ABORTED:
            return f"the run is ABORTED ({state.reason}: {state.detail})"
        return "nodes are still joining" if state.phase is Phase.JOINING else "the run is COMPLETED"

    # Entries of the table: each computes the next state, or raises -------------------------------------------------
    def _joins(self, state: RoundState, event: NodeJoined) -> Step:
        if self.nodes and event.node not in self.nodes:
            raise RemoteProtocolError(
                f"node {event.node} is not in the plan's cohort", hint=f"the plan names {', '.join(self.nodes)}"
            )
        present = tuple(sorted({*state.present, event.node}))
        left = {n: why for n, why in state.left.items() if n != event.node}
        return self._maybe_begin(state.model_copy(update={"present": present, "left": left}))

    def _comes_back(self, state: RoundState, event: NodeJoined) -> Step:
        """Into the round's cohort as well, where the run admits that and nothing of the round was aggregated yet."""
        state, _ = self._joins(state, event)
        if not self.admits or state.exchange > 0 or event.node in state.cohort:
            return state, ()
        cohort = tuple(sorted({*state.cohort, event.node}))
        action = AdmitNode(event.node, state.round, self.exchanges[state.exchange], state.attempt)
        return state.model_copy(update={"cohort": cohort}), (action,)

    def _leaves_early(self, state: RoundState, event: NodeLeft) -> Step:
        state = self._without(state, event)
        if self.nodes and len(set(self.nodes) - set(state.left)) < self.min_nodes:
            return self._short(state, tuple(state.left))
        if len(state.present) < self.min_nodes:
            return state.model_copy(update={"settle": None}), ()
        return self._maybe_begin(state)

    def _maybe_begin(self, state: RoundState) -> Step:
        """Leave JOINING if nobody is waited for; arm the settling deadline of an open cohort."""
        if state.phase is not Phase.JOINING or len(state.present) < self.min_nodes:
            return state, ()
        if self.nodes:
            waited = set(self.nodes) - set(state.present) - set(state.left)
            return (state, ()) if waited else self._begin(state, 0)
        if state.settle is not None:
            return state, ()
        token = state.last_token + 1
        settled = state.model_copy(update={"settle": token, "last_token": token})
        return settled, (SetDeadline(token, self.settle_seconds),)

    def _joining_over(self, state: RoundState, event: DeadlinePassed) -> Step:
        if not self._in_force(state, event):
            return state, ()
        if len(state.present) < self.min_nodes:
            return self._short(state, tuple(n for n in self.nodes if n not in state.present))
        return self._begin(state, 0)

    def _contributes(self, state: RoundState, event: ContributionAccepted) -> Step:
        if (event.round, event.exchange, event.attempt) != (state.round, self.exchanges[state.exchange], state.attempt):
            raise RemoteProtocolError(
                f"node {event.node}: contribution to round {event.round + 1}, exchange {event.exchange}, "
                f"attempt {event.attempt + 1} is not due: {self.where(state)}",
                hint="ask for the next work",
            )
        known = state.contributed.get(event.node)
        if known == event.digest:
            return state, ()
        if known is not None:
            raise RemoteProtocolError(
                f"node {event.node}: another contribution to round {event.round + 1}, {event.exchange} is accepted",
                hint="a contribution cannot be replaced",
            )
        if state.phase is not Phase.EXCHANGE or event.node not in state.cohort:
            raise RemoteProtocolError(
                f"node {event.node} is not in the cohort that contributes now: {self.where(state)}",
                hint="it comes in at the next round",
            )
        contributed = {**state.contributed, event.node: event.digest}
        return self._maybe_close(state.model_copy(update={"contributed": contributed}))

    def _leaves_exchange(self, state: RoundState, event: NodeLeft) -> Step:
        cohort = tuple(n for n in state.cohort if n != event.node or n in state.contributed)
        shrunk = self._without(state, event).model_copy(update={"cohort": cohort})
        if len(cohort) < self.min_nodes:
            return self._short(shrunk, tuple(n for n in shrunk.left if n not in cohort))
        return self._maybe_close(shrunk)

    def _leaves_later(self, state: RoundState, event: NodeLeft) -> Step:
        return self._without(state, event), ()

    def _maybe_close(self, state: RoundState) -> Step:
        return (state, ()) if len(state.contributed) < len(state.cohort) else self._close(state)

    def _close(self, state: RoundState) -> Step:
        contributors = tuple(sorted(state.contributed))
        action = Aggregate(state.round, self.exchanges[state.exchange], state.attempt, contributors)
        return state.model_copy(update={"phase": Phase.AGGREGATING}), (action,)

    def _exchange_over(self, state: RoundState, event: DeadlinePassed) -> Step:
        if not self._in_force(state, event):
            return state, ()
        late = tuple(n for n in state.cohort if n not in state.contributed)
        named = NameStragglers(state.round, self.exchanges[state.exchange], late)
        if len(state.contributed) < self.min_nodes:
            aborted, actions = self._short(state, late)
            return aborted, (named, *actions)
        present = tuple(n for n in state.present if n not in late)
        closed, actions = self._close(
            state.model_copy(update={"present": present, "cohort": tuple(sorted(state.contributed))})
        )
        return closed, (named, *actions)

    def _updated(self, state: RoundState, event: ServerUpdated) -> Step:
        if state.exchange + 1 < len(self.exchanges):
            following = state.model_copy(update={"exchange": state.exchange + 1})
            cohort = tuple(n for n in sorted(state.contributed) if n in state.present)
            return self._open(following, cohort, 0)
        if state.round + 1 < self.rounds:
            return self._begin(state, state.round + 1)
        return state.model_copy(update={"phase": Phase.COMPLETED}), (Complete(),)

    def _attempt_failed(self, state: RoundState, event: AttemptFailed) -> Step:
        if state.attempt + 1 >= MAX_ATTEMPTS:
            return self._abort(state, "update", (), f"{MAX_ATTEMPTS} attempts failed, the last: {event.reason}")
        return self._open(state, tuple(n for n in state.cohort if n in state.present), state.attempt + 1)

    def _sum_lost(self, state: RoundState, event: SumLost) -> Step:
        """To the next round's first exchange, among all who are present; the last round ends the run."""
        if state.round + 1 >= self.rounds:
            return self._abort(state, "update", (), event.reason)
        skip = SkipRound(state.round, self.exchanges[state.exchange], event.reason)
        following, actions = self._begin(
            state.model_copy(update={"skipped": (*state.skipped, state.round)}), state.round + 1
        )
        return following, (skip, *actions)

    def _update_failed(self, state: RoundState, event: UpdateFailed) -> Step:
        return self._abort(state, "update", (), event.reason)

    def _operator(self, state: RoundState, event: OperatorAborted) -> Step:
        return self._abort(state, "operator", (), event.reason)

    def _ignored(self, state: RoundState, event: Event) -> Step:
        return state, ()

    # Parts ------------------------------------------------------------------------------------------------------------
    def _begin(self, state: RoundState, round_: int) -> Step:
        return self._open(state.model_copy(update={"round": round_, "exchange": 0, "settle": None}), state.present, 0)

    def _open(self, state: RoundState, cohort: tuple[str, ...], attempt: int) -> Step:
        if len(cohort) < self.min_nodes:
            out = dict.fromkeys((*state.contributed, *state.left))
            return self._short(state, tuple(n for n in out if n not in cohort))
        token = state.last_token + 1
        opened = state.model_copy(
            update={
                "phase": Phase.EXCHANGE,
                "attempt": attempt,
                "cohort": cohort,
                "contributed": {},
                "token": token,
                "last_token": token,
            }
        )
        start = StartExchange(opened.round, self.exchanges[opened.exchange], attempt, cohort)
        return opened, (start, SetDeadline(token, self.exchange_seconds))

    def _in_force(self, state: RoundState, event: DeadlinePassed) -> bool:
        if not 0 <= event.token <= state.last_token:
            raise LocalProtocolError(f"deadline {event.token} was never set")
        return event.token in (state.token, state.settle)

    @staticmethod
    def _without(state: RoundState, event: NodeLeft) -> RoundState:
        present = tuple(n for n in state.present if n != event.node)
        return state.model_copy(update={"present": present, "left": {**state.left, event.node: event.reason}})

    def _short(self, state: RoundState, missing: tuple[str, ...]) -> Step:
        """The quorum rule: fewer than ``min_nodes`` remain."""
        who = "; ".join(f"{n} ({state.left[n]})" if n in state.left else n for n in missing)
        detail = f"fewer than {self.min_nodes} nodes" + (f"; missing: {who}" if who else "")
        return self._abort(state, "quorum", missing, detail)

    @staticmethod
    def _abort(state: RoundState, reason: str, missing: tuple[str, ...], detail: str) -> Step:
        end = {"phase": Phase.ABORTED, "reason": reason, "missing": tuple(sorted(missing)), "detail": detail}
        return state.model_copy(update={**end, "settle": None}), (Abort(reason, tuple(sorted(missing)), detail),)
