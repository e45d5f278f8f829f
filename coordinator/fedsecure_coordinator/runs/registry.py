"""The registry of runs: takes events, makes their consequences durable, and only then shows them to anyone.

One lock over all runs; whoever waits for a change (a long poll, the worker) waits on its condition. Computation
happens outside the lock, in the worker.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from fedsecure.rounds.events import (
    Abort,
    Action,
    Aggregate,
    Complete,
    ContributionAccepted,
    DeadlinePassed,
    Event,
    OperatorAborted,
    Phase,
    SkipRound,
    StartExchange,
    UpdateFailed,
)
from fedsecure.tensors import Tensors
from fedsecure_coordinator.runs.notices import Notice, describe
from fedsecure_coordinator.runs.run import BroadcastFailed, BuildMethod, Run, run_state
from fedsecure_coordinator.runs.table import RunTable
from fedsecure_coordinator.store.blobs import BlobStore
from fedsecure_coordinator.store.journal import Journal, Published, RunRow

__all__ = ["Registry"]


def _nothing() -> None:
    """Nothing else to write."""


class Registry(RunTable):
    """All runs of a coordinator.

    ``clock``: milliseconds since 1970. ``listen`` is called with every notice, after it is durable. Runs that the
    journal knows, new or from before a restart, are taken up by a ``Preparer``.
    """

    def __init__(
        self,
        journal: Journal,
        blobs: BlobStore,
        build_method: BuildMethod,
        *,
        clock: Callable[[], int],
        listen: Callable[[Notice], None] = lambda notice: None,
    ) -> None:
        super().__init__(journal)
        self.blobs, self.clock = blobs, clock
        self.build_method, self._listen = build_method, listen
        self.closing = False
        self._due: list[str] = []
        self._fresh: set[str] = set()
        self._when_over: list[Callable[[str], None]] = []

    def on_exchange_over(self, call: Callable[[str], None]) -> None:
        """Have ``call(digest)`` called too, under the lock, when contributions to a run's exchange are no longer due,
        or neither are those to the sum of one."""
        self._when_over.append(call)

    def _exchange_over(self, digest: str) -> None:
        for call in self._when_over:
            call(digest)

    def close(self) -> None:
        """Shutting down: whoever waits returns at once."""
        with self.changed:
            self.closing = True
            self.changed.notify_all()

    # Taking up runs ---------------------------------------------------------------------------------------------------
    def take_up_ended(self, row: RunRow) -> None:
        """Know a run that was over before this process began."""
        with self.changed:
            self._ended[row.digest] = row
            self._ended_before.add(row.digest)
            self._exchange_over(row.digest)

    def keep(self, state: Tensors) -> tuple[str, Tensors]:
        """Store a first state, safe from ``prune`` until ``open`` gives it a run. Slow, and outside the lock."""
        data = state.to_bytes()
        digest = hashlib.sha256(data).hexdigest()
        with self.changed:
            self._fresh.add(digest)
        return self.blobs.put(data), state

    def open(self, run: Run, first: tuple[str, Tensors] | None) -> None:
        """Show a prepared run to nodes: a new one with its ``first`` state as ``keep`` returned it, or one that goes on
        after a restart. One that was ended meanwhile stays ended."""
        with self.changed:
            if first is not None:
                self._fresh.discard(first[0])
            if run.digest not in self._ended:
                self._open(run, first)

    def _open(self, run: Run, first: tuple[str, Tensors] | None) -> None:
        if first is None:
            run.row = run.with_grace(self.clock())
            self._save_and_tell(run.row, [("resumed", {"where": run.machine.where()})])
        else:
            run.row, run.server = replace(run.row, server=first[0]), first[1]
            run.row = run.after(run.machine.pending(), None, self.blobs, self.clock())
            cohort = run.masks.cohort if run.masks else ""
            opened = ("opened", {"rounds": run.plan.rounds} | ({"cohort": cohort} if cohort else {}))
            self._save_and_tell(run.row, [opened], lambda: self.journal.set_cohort(run.digest, cohort))
        self._runs[run.digest] = run
        self._perform(run, run.machine.pending())
        self.changed.notify_all()

    def end_unprepared(self, row: RunRow, reason: str, detail: str, also: Callable[[], None] = _nothing) -> None:
        """End a run that has no machine in memory to end it. One that was ended meanwhile stays as it is."""
        with self.changed:
            if row.digest in self._ended:
                return
            state = run_state(row).model_copy(update={"phase": Phase.ABORTED, "reason": reason, "detail": detail})
            ended = replace(
                row,
                phase=Phase.ABORTED.value,
                machine=state.model_dump_json(),
                ended_ms=self.clock(),
                reason=f"{reason}: {detail}",
                deadlines="{}",
                broadcast="",
                broadcast_bytes=0,
            )
            notice = ("aborted", {"reason": ended.reason, "missing": []})
            self._save_and_tell(ended, [notice], also, release=True)
            self._ended[row.digest] = ended
            self._exchange_over(row.digest)
            self.changed.notify_all()

    # Events -----------------------------------------------------------------------------------------------------------
    def feed(
        self,
        digest: str,
        event: Event,
        *,
        server: tuple[str, Tensors] | None = None,
        also: Callable[[], None] = _nothing,
        first: Sequence[tuple[str, dict[str, Any]]] = (),
    ) -> None:
        """Apply an event to a run: machine, journal, then everyone who waits.

        ``also`` writes to the journal in the same transaction. ``server``: blob and tensors of a new coordinator's
        state. ``first``: kind and detail of notes that come before what follows from the event. Raises what the machine
        raises, and ``StoreError`` when the store cannot be written; then nothing has changed.
        """
        with self.changed:
            run = self.open_run(digest)
            before = run.machine.snapshot()
            actions = run.machine.handle(event)
            if not actions and run.machine.snapshot() == before:
                return
            try:
                row = run.after(actions, server, self.blobs, self.clock())
                published = run.publication(server[1] if server else None, self.blobs)
                masked = isinstance(event, ContributionAccepted) and run.masked(event.exchange)
                notices = [n for n in (describe(each, masked=masked) for each in (event, *actions)) if n]
                over = row.ended or server is not None or any(isinstance(a, SkipRound) for a in actions)
                self._save_and_tell(row, [*first, *notices], also, published, release=over)
            except BroadcastFailed as error:
                run.machine.restore(before)
                self.feed(digest, UpdateFailed(str(error)), also=also)
                return
            except BaseException:
                run.machine.restore(before)
                raise
            run.row = row
            run.server = server[1] if server else run.server
            self._perform(run, actions)
            if any(isinstance(a, Aggregate | StartExchange | Complete | Abort) for a in actions):
                self._exchange_over(digest)
            self.changed.notify_all()

    def _save_and_tell(
        self,
        row: RunRow,
        notices: Sequence[tuple[str, dict[str, Any]]],
        also: Callable[[], None] = _nothing,
        published: Published | None = None,
        *,
        release: bool = False,
    ) -> None:
        with self.journal.transaction():
            also()
            if published is not None:
                self.journal.publish(published)
            if release:
                self.journal.release_submissions(row.digest)
            for kind, detail in notices:
                self.journal.add_event(row.digest, self.clock(), kind, detail)
            self.journal.save_run(row)
        for kind, detail in notices:
            self._tell(row, kind, detail)

    def _tell(self, row: RunRow, kind: str, detail: dict[str, Any]) -> None:
        self._listen(Notice(row.digest, row.name, kind, detail))

    def _perform(self, run: Run, actions: Sequence[Action]) -> None:
        if any(isinstance(a, Aggregate) for a in actions) and run.digest not in self._due:
            self._due.append(run.digest)
        if any(isinstance(a, Complete | Abort) for a in actions):
            self._ended[run.digest] = run.row
            del self._runs[run.digest]

    def note(self, digest: str, kind: str, detail: dict[str, Any]) -> None:
        """Add something to a run's history that changes nothing about its state."""
        with self.changed:
            row = self._runs[digest].row if digest in self._runs else self._ended.get(digest)
            if row is not None:
                self.journal.add_event(digest, self.clock(), kind, detail)
                self._tell(row, kind, detail)

    def pass_deadlines(self) -> None:
        """Feed ``DeadlinePassed`` for every deadline that the clock has passed."""
        with self.changed:
            now = self.clock()
            due = [(d, t) for d, run in self._runs.items() for t, at in run.deadlines.items() if at <= now]
            for digest, token in due:
                if digest in self._runs:
                    self.feed(digest, DeadlinePassed(token))

    def take_abort_requests(self) -> None:
        """End the runs that an operator asked to end from the command line; also those that are not prepared yet."""
        for digest, reason in self.journal.abort_requests().items():

            def taken(digest: str = digest) -> None:
                self.journal.drop_abort_request(digest)

            with self.changed:
                row = next((r for r in self.unprepared() if r.digest == digest and not r.ended), None)
                if digest in self._runs:
                    self.feed(digest, OperatorAborted(reason), also=taken)
                elif row is not None:
                    self.end_unprepared(row, "operator", reason, taken)
                else:
                    taken()

    def take_up_again(self, digest: str) -> None:
        """Have the worker look at a run that is being aggregated once more: what it waited for is there."""
        with self.changed:
            run = self.run(digest)
            if run is not None and run.machine.state.phase is Phase.AGGREGATING and digest not in self._due:
                self._due.append(digest)
                self.changed.notify_all()

    def next_due(self, timeout: float) -> str | None:
        """Wait at most ``timeout`` seconds for a run whose contributions are to be aggregated."""
        with self.changed:
            self.changed.wait_for(lambda: self._due or self.closing, timeout)
            return self._due.pop(0) if self._due and not self.closing else None

    def prune(self) -> None:
        """Remove blobs that no run needs any more."""
        with self.changed:
            needed = self.journal.needed_blobs() | self._fresh
            for digest in self.blobs.digests():
                if digest not in needed:
                    self.blobs.remove(digest)
