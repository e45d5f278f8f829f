"""Who serves which run, and how often it was asked, where the operator's command line sees it: in the journal."""

from __future__ import annotations

import contextlib
import time
from typing import Final

from fedsecure.errors import StoreError
from fedsecure_coordinator.prediction.dispatcher import Dispatcher
from fedsecure_coordinator.store.journal import Journal, Served

__all__ = ["Board"]

#: Not written more often than this (seconds).
WRITE_SECONDS: Final = 1.0


class Board:
    """Counts of the running daemon alone: wiped when it begins and when it ends. Not for several threads at once."""

    def __init__(self, journal: Journal, dispatcher: Dispatcher) -> None:
        self._journal, self._dispatcher = journal, dispatcher
        self._written: list[Served] = journal.served()
        self._due = 0.0
        self.clear()

    def write(self) -> None:
        """Write what changed, if anything did. What is only shown stops no daemon: a fault is another's to report."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + WRITE_SECONDS
            self._put(self._dispatcher.served())

    def clear(self) -> None:
        """Nobody serves."""
        self._put([])

    def _put(self, rows: list[Served]) -> None:
        if rows != self._written:
            with contextlib.suppress(StoreError):
                self._journal.set_served(rows)
                self._written = rows
