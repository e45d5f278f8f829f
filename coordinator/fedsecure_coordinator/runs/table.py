"""The runs of a coordinator in memory, and what can be asked about them. What changes them is ``registry``."""

from __future__ import annotations

import threading

from fedsecure.errors import RemoteProtocolError, WireError
from fedsecure_coordinator.runs.run import Run
from fedsecure_coordinator.store.journal import Journal, RunRow

__all__ = ["RunTable"]


class RunTable:
    """Runs that have not ended, by digest, and the final rows of those that have.

    ``changed``: the one lock over all of them, and the condition of whoever waits for a change. ``ready``: whether this
    process knows the runs in the journal.
    """

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.changed = threading.Condition(threading.RLock())
        self.ready = False
        self._runs: dict[str, Run] = {}
        self._ended: dict[str, RunRow] = {}
        self._ended_before: set[str] = set()

    def unprepared(self) -> list[RunRow]:
        """Rows in the journal that are not in memory yet, submitted since or from before a restart, in the order to
        take them up: ended ones, which cost nothing, then those that nodes know, then new ones."""
        with self.changed:
            if not set(self.journal.digests()) - set(self._runs) - set(self._ended):
                return []
            rows = [r for r in self.journal.runs() if r.digest not in self._runs and r.digest not in self._ended]
        return sorted(rows, key=lambda r: (not r.ended, not r.server, r.created_ms, r.digest))

    def being_prepared(self, digest: str) -> bool:
        """Whether the journal holds this run and memory does not yet."""
        return digest not in self._runs and digest not in self._ended and digest in self.journal.digests()

    def running(self) -> list[Run]:
        """Runs that have not ended. Hold ``changed`` while looking at them."""
        return list(self._runs.values())

    def run(self, digest: str) -> Run | None:
        """The run, if it has not ended. Hold ``changed`` while looking at it."""
        return self._runs.get(digest)

    def ended(self) -> dict[str, RunRow]:
        """Final rows of the runs that are over."""
        with self.changed:
            return dict(self._ended)

    def ended_here(self) -> set[str]:
        """Digests of the runs that ended since this process began."""
        with self.changed:
            return set(self._ended) - self._ended_before

    def idle(self) -> bool:
        """Whether no run is left to do, submitted ones included."""
        with self.changed:
            return not self._runs and not self.unprepared()

    def open_run(self, digest: str) -> Run:
        """The run, if it has not ended. Raises ``RemoteProtocolError`` saying that it is over, or not known, or
        ``WireError`` while it is being prepared."""
        run = self._runs.get(digest)
        if run is not None:
            return run
        if digest in self._ended:
            row = self._ended[digest]
            raise RemoteProtocolError(
                f"run {digest[:12]} is over: {row.phase}" + (f" ({row.reason})" if row.reason else "")
            )
        if digest in self.journal.digests():
            raise WireError(f"run {digest[:12]} is being prepared", hint="try again in a moment")
        raise RemoteProtocolError(f"run {digest[:12]!r} is not known here", hint="list the plans on offer")

    def require_ready(self) -> None:
        """Raise ``WireError`` until this process knows which runs the journal holds: none of them may seem unknown."""
        if not self.ready:
            raise WireError("the coordinator is starting", hint="try again in a moment")
