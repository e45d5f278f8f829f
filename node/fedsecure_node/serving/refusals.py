"""Refusals in the log: a few a minute have a record of their own, the others are counted, and the counts recorded.

Nobody can fill the disk: each analyst whose query was verified has a few records a minute, and all senders together
whose certificate or signature was refused have as many as one analyst. Counts are on the disk at once; they are
recorded with the next refusal, when their minute is over, and at the stop and the start of the daemon.
"""

from __future__ import annotations

from typing import Final

from fedsecure.errors import ConfigError, FedSecureError
from fedsecure.plan import Plan
from fedsecure.text import counted
from fedsecure_node.log.chain import PREDICTION_REFUSED
from fedsecure_node.log.queries import MINUTE_MS, UNVERIFIED, Asked, counted_body, refusal_body
from fedsecure_node.log.releaselog import ReleaseLog
from fedsecure_node.progress import Reporter
from fedsecure_node.store.store import Store, now_ms

__all__ = ["REFUSALS_A_MINUTE", "Refusals"]

#: So many refusals of one analyst are logged in a minute; the others are counted.
REFUSALS_A_MINUTE: Final = 3


class Refusals:
    """Writes refusals down. For one thread."""

    def __init__(self, store: Store, log: ReleaseLog, reporter: Reporter) -> None:
        self._store = store
        self._log = log
        self._reporter = reporter

    def note(self, asked: Asked, run: str, error: FedSecureError) -> None:
        """A query about ``run`` is refused with ``error``; recorded or counted on return. Raises ``StoreError`` or
        ``ReleaseLogError`` when neither can be done."""
        source, book, now = asked.source, self._store.refusals, now_ms()
        if self._log.queries().refusals(source, now) >= REFUSALS_A_MINUTE:
            book.add(source, now)
            return
        unlogged = book.count(source)
        body = refusal_body(asked, self._plan(run), run, error=error, unlogged=unlogged)
        record = self._log.append(PREDICTION_REFUSED, body, only_if=lambda _: None)
        if unlogged:
            book.told(source)
        who = f"analyst {body['analyst']}" if asked.verified else f"somebody in the name of analyst {body['analyst']}"
        self._reporter.say("refused-query", f"query {record.seq}: {who} is refused: {error}", record=record.seq)

    def settle(self, *, everything: bool = False) -> None:
        """Record the counts whose minute is over, or all. Raises as ``note``."""
        now = now_ms()
        for entry in self._store.refusals.all():
            if not everything and 0 <= now - entry.since_ms < MINUTE_MS:
                continue
            self._store.check_there()
            body = counted_body(entry.analyst, entry.count)
            record = self._log.append(PREDICTION_REFUSED, body, only_if=lambda _: None)
            self._store.refusals.told(entry.analyst)
            who = "unverified senders" if entry.analyst == UNVERIFIED else f"analyst {entry.analyst}"
            more = counted(entry.count, "more query", "more queries")
            self._reporter.say("refused-query", f"query {record.seq}: {more} of {who} refused", record=record.seq)

    def _plan(self, run: str) -> Plan | None:
        try:
            return self._store.plans.get(run).plan()
        except ConfigError:
            return None
