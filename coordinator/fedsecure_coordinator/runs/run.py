"""One run in memory: its plan, method, round machine and durable row, and what each event makes of that row."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pydantic

from fedsecure.errors import DataError, FedSecureError, StoreError
from fedsecure.method import Method, RoutedMethod
from fedsecure.plan import Plan
from fedsecure.rounds.events import Abort, Action, Complete, Phase, SetDeadline, StartExchange
from fedsecure.rounds.machine import RoundMachine
from fedsecure.rounds.state import RoundState
from fedsecure.schema import Schema
from fedsecure.tensors import Tensors
from fedsecure_coordinator.cohorts.masks import Masks
from fedsecure_coordinator.store.blobs import BlobStore, DamagedBlob
from fedsecure_coordinator.store.journal import Published, RunRow

__all__ = ["BroadcastFailed", "BuildMethod", "Run", "one_line", "plan_of", "run_state"]

#: Nodes have at least this long to come back after the coordinator did (seconds).
RESUME_SECONDS = 60.0
#: Makes a plan's method. An argument everywhere, so that the registry does not choose implementations.
BuildMethod = Callable[[Plan], Method]


class BroadcastFailed(FedSecureError):
    """The coordinator could not compute what an exchange, or the end of a run, sends out."""


def one_line(error: BaseException) -> str:
    """An error as one bounded line for the journal: its message, after its class if it is not one of ours."""
    text = " ".join(str(error).split())
    name = type(error).__name__
    return (text if isinstance(error, FedSecureError) else f"{name}: {text}" if text else name)[:500]


def plan_of(row: RunRow) -> Plan:
    """The plan of a run. Raises ``DataError`` when this version cannot read it (any more)."""
    try:
        return Plan.from_wire(row.canonical, row.digest)
    except FedSecureError as error:
        raise DataError(f"run {row.digest[:12]} ({row.name}): its plan cannot be read: {error}") from None


def run_state(row: RunRow) -> RoundState:
    """Where a run stands by its row; the beginning, for one that has not begun or whose row cannot be read."""
    try:
        return RoundState.model_validate_json(row.machine) if row.machine else RoundState()
    except pydantic.ValidationError:
        return RoundState()


@dataclass(slots=True)
class Run:
    """A prepared run. ``joined``: the nodes that said they are ready, stragglers included. ``server``: the
    coordinator's state, loaded when it is needed. ``masks``: absent, nothing is masked."""

    plan: Plan
    method: Method
    machine: RoundMachine
    row: RunRow
    joined: set[str] = field(default_factory=set)
    server: Tensors | None = None
    masks: Masks | None = None

    @classmethod
    def restored(cls, row: RunRow, method: Method, joined: set[str]) -> Run:
        """The run as its row says it was. Raises ``DataError`` when the row does not fit its plan."""
        plan = plan_of(row)
        machine = RoundMachine.for_plan(plan, method.exchanges)
        if row.machine:
            machine.restore(row.machine)
        return cls(plan, method, machine, row, joined)

    @property
    def digest(self) -> str:
        """The plan's digest: the identity of the run."""
        return self.row.digest

    @property
    def deadlines(self) -> dict[int, int]:
        """Token -> milliseconds since 1970."""
        return {int(token): at for token, at in json.loads(self.row.deadlines).items()}

    def masked(self, exchange: str) -> bool:
        """Whether what nodes sum in ``exchange`` stays with them until a session sums it under masks."""
        return self.masks is not None and self.masks.cover(exchange)

    def schema(self, exchange: str) -> Schema:
        """What a contribution holds as it is sent: no summed half, where that is masked."""
        schema = self.method.schema(exchange)
        return Schema((), schema.released) if self.masked(exchange) else schema

    def state(self, blobs: BlobStore) -> Tensors:
        """The coordinator's state, from memory or from its blob."""
        if self.server is None:
            self.server = Tensors.from_bytes(blobs.get(self.row.server))
        return self.server

    def with_grace(self, now: int) -> RunRow:
        """The row of a run that goes on after a restart: a deadline that passed meanwhile, or is about to, gives nodes
        ``RESUME_SECONDS`` (or the plan's own time, if that is less) to come back."""
        joining = self.machine.state.phase is Phase.JOINING
        own = self.plan.deadlines.join if joining else self.plan.deadlines.exchange
        earliest = now + round(1000 * min(RESUME_SECONDS, own))
        deadlines = {token: max(at, earliest) for token, at in self.deadlines.items()}
        return replace(self.row, deadlines=json.dumps(deadlines))

    def after(
        self, actions: tuple[Action, ...], server: tuple[str, Tensors] | None, blobs: BlobStore, now: int
    ) -> RunRow:
        """The row to make durable, now that the machine has taken a step. Writes the broadcast's blob, and no more.

        ``server``: digest and tensors of a new state. Raises ``BroadcastFailed``.
        """
        state = self.machine.state
        row = replace(
            self.row, phase=state.phase.value, machine=self.machine.snapshot(), exchange=self.machine.exchange
        )
        if server is not None:
            row = replace(row, server=server[0])
        deadlines = {t: at for t, at in self.deadlines.items() if t in (state.token, state.settle)}
        for action in actions:
            match action:
                case SetDeadline(token, seconds):
                    deadlines[token] = now + round(seconds * 1000)
                case StartExchange():
                    row = self._broadcast(row, action, server[1] if server else None, blobs)
                    if action.exchange == self.method.exchanges[0] and action.attempt == 0:
                        row = replace(row, round_started_ms=now)
                case Abort(reason, _, detail):
                    row = replace(row, ended_ms=now, reason=f"{reason}: {detail}", broadcast="", broadcast_bytes=0)
                case Complete():
                    row = replace(row, ended_ms=now, broadcast="", broadcast_bytes=0)
                case _:
                    pass
        waiting = state.phase in (Phase.JOINING, Phase.EXCHANGE)
        return replace(row, deadlines=json.dumps(deadlines if waiting else {}))

    def _broadcast(self, row: RunRow, action: StartExchange, server: Tensors | None, blobs: BlobStore) -> RunRow:
        try:
            state = server or self.state(blobs)
        except (DataError, DamagedBlob) as error:
            raise BroadcastFailed(f"broadcast of {action.exchange}: {one_line(error)}") from error
        try:
            data = self.method.broadcast(action.exchange, state).to_bytes()
        except Exception as error:
            raise BroadcastFailed(f"broadcast of {action.exchange}: {one_line(error)}") from error
        return replace(row, broadcast=blobs.put(data), broadcast_bytes=len(data))

    def publication(self, server: Tensors | None, blobs: BlobStore) -> Published | None:
        """What the run, now complete, answers queries with, as blobs; ``None`` when its method answers none.

        ``server``: the final state, if it is at hand. Raises ``BroadcastFailed``.
        """
        if self.machine.state.phase is not Phase.COMPLETED or not isinstance(self.method, RoutedMethod):
            return None
        try:
            state = server or self.state(blobs)
            serving, routing = self.method.serving(state).to_bytes(), self.method.routing(state).to_bytes()
        except StoreError as error:
            if isinstance(error, DamagedBlob):
                raise BroadcastFailed(f"what queries are answered with: {one_line(error)}") from error
            raise
        except Exception as error:
            raise BroadcastFailed(f"what queries are answered with: {one_line(error)}") from error
        return Published(self.digest, blobs.put(serving), len(serving), blobs.put(routing), len(routing))
