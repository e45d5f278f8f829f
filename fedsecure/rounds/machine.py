"""RoundMachine: how a run goes from joining to its end. Events in, actions out; no clock, no threads, no files.

``JOINING -> EXCHANGE -> AGGREGATING -> (EXCHANGE | COMPLETED)``, and from everywhere ``ABORTED``. A *round* is the
method's exchanges in order. The driver (a daemon, a simulation) performs the actions it is handed and feeds back what
happened.

* Joining ends when every named node has joined or refused; with no names, ``settle_seconds`` after ``min_nodes`` are
  there (so that those who dial in together start together); in any case at the join deadline. A driver without a clock
  names its nodes, and then never needs a deadline. Refusals that leave too few of the named nodes end the run at once.
* A round's cohort is fixed at its start: whoever joins later comes in at the next round. With ``admits`` (plans that
  ask for masked sums, in which a node out for a second drops out of a sum), whoever joins while the round's first
  exchange is open contributes to it as well; its deadline stays.
* An exchange ends when all of its cohort contributed, or at its deadline with ``min_nodes`` contributions. A straggler
  is out until it joins again. The cohort of a round's next exchange is the contributors of the one before.
* What was contributed counts, even if its node leaves afterwards.
* A round whose masked sum is lost for good is skipped: the next one begins, from the coordinator's state as it is. The
  last round cannot be: the run ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pydantic

from fedsecure.errors import DataError, LocalProtocolError
from fedsecure.rounds.events import (
    Action,
    Aggregate,
    Event,
    Phase,
    SetDeadline,
    StartExchange,
)
from fedsecure.rounds.state import RoundState
from fedsecure.rounds.transitions import MAX_ATTEMPTS, Transitions

if TYPE_CHECKING:
    from fedsecure.plan import Plan

__all__ = ["SETTLE_SECONDS", "RoundMachine"]

#: Wait after ``min_nodes`` of an open cohort have joined (seconds).
SETTLE_SECONDS = 5.0


class RoundMachine:
    """The rounds of one run. ``handle`` takes an event and returns what to do; an event that the table of
    ``fedsecure.rounds.transitions`` does not name for the phase raises ``LocalProtocolError`` or
    ``RemoteProtocolError`` and changes nothing."""

    def __init__(
        self,
        *,
        exchanges: Sequence[str],
        rounds: int,
        min_nodes: int,
        nodes: Sequence[str] = (),
        join_seconds: float,
        exchange_seconds: float,
        settle_seconds: float = SETTLE_SECONDS,
        admits: bool = False,
    ) -> None:
        if not exchanges or rounds < 1 or min_nodes < 1 or (nodes and len(set(nodes)) < min_nodes):
            raise LocalProtocolError("a run needs an exchange, a round, a node, and at least min_nodes of named nodes")
        self.exchanges, self.rounds, self.min_nodes = tuple(exchanges), rounds, min_nodes
        self._join, self._exchange, self._settle = join_seconds, exchange_seconds, settle_seconds
        self._transitions = Transitions(
            self.exchanges, rounds, min_nodes, tuple(sorted(nodes)), exchange_seconds, settle_seconds, admits
        )
        self.state = RoundState()

    @classmethod
    def for_plan(cls, plan: Plan, exchanges: Sequence[str], *, nodes: Sequence[str] = ()) -> RoundMachine:
        """The machine of a plan's run. ``nodes`` names the cohort of a plan that leaves it open (a simulation)."""
        return cls(
            exchanges=exchanges,
            rounds=plan.rounds,
            min_nodes=plan.cohort.min_nodes,
            nodes=plan.cohort.nodes or nodes,
            join_seconds=plan.deadlines.join,
            exchange_seconds=plan.deadlines.exchange,
            admits=plan.secagg != "off",
        )

    @property
    def exchange(self) -> str:
        """Name of the current exchange."""
        return self.exchanges[self.state.exchange]

    def where(self) -> str:
        """The state in words, for messages and logs."""
        return self._transitions.where(self.state)

    def handle(self, event: Event) -> tuple[Action, ...]:
        """Apply one event. Raises ``RemoteProtocolError`` (a node's fault) or ``LocalProtocolError`` (ours)."""
        self.state, actions = self._transitions.step(self.state, event)
        return actions

    def check(self, event: Event) -> None:
        """Raise what ``handle`` would raise, and change nothing."""
        self._transitions.step(self.state, event)

    def pending(self) -> tuple[Action, ...]:
        """What the current phase waits for: the first actions of a new run, and those of a resumed one."""
        state = self.state
        if state.phase is Phase.JOINING:
            settle = () if state.settle is None else (SetDeadline(state.settle, self._settle),)
            return (SetDeadline(state.token, self._join), *settle)
        if state.phase is Phase.EXCHANGE:
            start = StartExchange(state.round, self.exchange, state.attempt, state.cohort)
            return (start, SetDeadline(state.token, self._exchange))
        if state.phase is Phase.AGGREGATING:
            return (Aggregate(state.round, self.exchange, state.attempt, tuple(sorted(state.contributed))),)
        return ()

    def snapshot(self) -> str:
        """The state as JSON."""
        return self.state.model_dump_json()

    def restore(self, snapshot: str) -> None:
        """Take over a state that ``snapshot`` made for the same plan. Raises ``DataError`` when it cannot be one."""
        try:
            state = RoundState.model_validate_json(snapshot)
        except pydantic.ValidationError as error:
            raise DataError(f"saved state of a run is damaged: {error.errors()[0]['msg']}") from None
        if state.round >= self.rounds or state.exchange >= len(self.exchanges) or state.attempt >= MAX_ATTEMPTS:
            raise DataError(
                "saved state of a run does not fit its plan: it names a round or exchange that does not exist"
            )
        self.state = state
