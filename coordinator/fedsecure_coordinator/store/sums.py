"""What the journal holds about masks: whether a run is masked, and the sums that sessions ended with.

No vector of a single node is ever in it, masked or not, and no secret: only sums over at least the threshold.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from fedsecure_coordinator.store.database import Database

__all__ = ["MASKING_TABLES", "MaskedSum", "MaskingTables"]

MASKING_TABLES = """
CREATE TABLE masks (digest TEXT PRIMARY KEY, cohort TEXT NOT NULL) STRICT;
CREATE TABLE sums (
  id INTEGER PRIMARY KEY, digest TEXT NOT NULL, round INTEGER NOT NULL, exchange TEXT NOT NULL,
  attempt INTEGER NOT NULL, summed TEXT NOT NULL, survivors TEXT NOT NULL, transcript TEXT NOT NULL,
  sum_digests TEXT NOT NULL, kept INTEGER NOT NULL, UNIQUE (digest, round, exchange, attempt)) STRICT;
"""
#: The first format of the journal with these tables.
_FORMAT = 3


@dataclass(frozen=True, slots=True)
class MaskedSum:
    """How an exchange's session ended. ``summed``: blob of the summed tensors. ``survivors``: U3, in order of ids.
    ``transcript``: T3; ``sum_digests``: SHA-256 of every stream's sum on the ring, in the session's order; all hex."""

    digest: str
    round: int
    exchange: str
    attempt: int
    summed: str
    survivors: tuple[str, ...]
    transcript: str
    sum_digests: tuple[str, ...]


#: Statements are put together from these names alone; every value is a parameter.
_COLUMNS = ", ".join(MaskedSum.__slots__)


class MaskingTables(Database):
    """The tables of masks in the journal."""

    def set_cohort(self, digest: str, cohort: str) -> None:
        """Note once and for all under which cohort (its manifest's digest, hex) a run is masked; ``""``: it is not."""
        self._write("INSERT OR IGNORE INTO masks VALUES (?, ?)", (digest, cohort))

    def cohort(self, digest: str) -> str:
        """What was noted; ``""`` also for a run from before there were masks."""
        if self.format < _FORMAT:
            return ""
        rows = self._read("SELECT cohort FROM masks WHERE digest = ?", (digest,))
        return str(rows[0][0]) if rows else ""

    def add_sum(self, found: MaskedSum) -> None:
        """Keep a sum. One exists at most for (run, round, exchange, attempt); the first stays."""
        values = (
            *(found.digest, found.round, found.exchange, found.attempt, found.summed, json.dumps(found.survivors)),
            *(found.transcript, json.dumps(found.sum_digests)),
        )
        names = f"{_COLUMNS}, kept"
        statement = f"INSERT OR IGNORE INTO sums ({names}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1)"  # noqa: S608 - names
        self._write(statement, values)

    def masked_sum(self, digest: str, round_: int, exchange: str, attempt: int) -> MaskedSum | None:
        """The sum of one attempt of an exchange."""
        where = "digest = ? AND round = ? AND exchange = ? AND attempt = ?"
        return self._first(where, (digest, round_, exchange, attempt))

    def last_sum(self, digest: str, round_: int, exchange: str) -> MaskedSum | None:
        """The run's last sum before this exchange."""
        return self._first("digest = ? AND (round != ? OR exchange != ?)", (digest, round_, exchange))

    def release_sums(self, digest: str) -> None:
        """The blobs of a run's sums so far are no longer needed; that they were made stays known."""
        self._write("UPDATE sums SET kept = 0 WHERE digest = ? AND kept = 1", (digest,))

    def kept_sums(self) -> set[str]:
        """Digests of the blobs of sums that some run still needs."""
        return {str(r[0]) for r in self._read("SELECT summed FROM sums WHERE kept = 1")}

    def _first(self, where: str, values: tuple[str | int, ...]) -> MaskedSum | None:
        """``where``: a condition written in this class."""
        statement = f"SELECT {_COLUMNS} FROM sums WHERE {where} ORDER BY id DESC LIMIT 1"  # noqa: S608 - names, `where`
        rows = self._read(statement, values)
        for digest, round_, exchange, attempt, summed, survivors, transcript, digests in rows:
            who, sums = tuple(json.loads(survivors)), tuple(json.loads(digests))
            return MaskedSum(digest, round_, exchange, attempt, summed, who, transcript, sums)
        return None
