"""Data sets as the privacy ledger knows them, and which of them share one history.

A record's loss is what *all* data sets that hold it have spent. So data sets that share a record share one history,
both ways: what the one spent, and will spend, counts for the other. They are kept as *lineages*, a union-find: a data
set that overlaps two lineages makes one of them. That may charge a record with what was spent without it; it never
forgets what was spent with it.

Records are recognised by their digests (``fedsecure.data.fingerprint``) alone. The ledger keeps of each digest its
HMAC-SHA-256 under a key of its own (RFC 2104), cut to 16 bytes: two ledgers cannot be compared, and a list of digests
says nothing without the key; who has the ledger has that key too.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedsecure.errors import DataError, LocalProtocolError
from fedsecure.privacy.ledgerfile import LedgerFile

__all__ = ["DataSetRow", "DataSets", "data_set_id"]

#: Length of a record's digest, and of the mark that is kept of it (bytes).
DIGEST_BYTES, MARK_BYTES = 32, 16


def data_set_id(records: Sequence[bytes]) -> str:
    """SHA-256 (hex) over the sorted digests of ``records``: the same records are the same data set, wherever they lie
    and in whatever order."""
    found = hashlib.sha256(b"fedsecure/data-set/v1\0")
    for digest in sorted(records):
        found.update(digest)
    return found.hexdigest()


@dataclass(frozen=True, slots=True)
class DataSetRow:
    """A data set that the ledger knows. ``lineage``: equal for those that share one history; ``known``: whether its
    records are; ``records``: how many (0 if not known); ``first_ms``: since when, by the machine's clock."""

    id: str
    lineage: int
    known: bool
    records: int
    first_ms: int


class DataSets:
    """The tables ``data_sets`` and ``records`` of a ledger."""

    def __init__(self, file: LedgerFile) -> None:
        self._file = file

    def rows(self) -> tuple[DataSetRow, ...]:
        """All of them, the oldest first."""
        found = self._file.rows("SELECT id, lineage, known, records, first_ms FROM data_sets ORDER BY rowid")
        return tuple(DataSetRow(id_, lineage, bool(known), records, ms) for id_, lineage, known, records, ms in found)

    def sharing(self, data_set: str) -> tuple[DataSetRow, ...]:
        """Those whose spends count for ``data_set``, itself included: its lineage, and all whose records are not known.
        Raises ``LocalProtocolError`` when it is not there."""
        rows = self.rows()
        own = next((row for row in rows if row.id == data_set), None)
        if own is None:
            raise LocalProtocolError(f"privacy ledger: data set {data_set[:12]} was never registered")
        return tuple(row for row in rows if not own.known or not row.known or row.lineage == own.lineage)

    def register(self, records: Sequence[bytes], key: bytes, now_ms: int) -> str:
        """The id of the data set with these digests. It is taken in whether it is new or not: links to others that hold
        one of its records are made again where the file lost them. Raises ``DataError``."""
        if not records or any(len(digest) != DIGEST_BYTES for digest in records):
            raise DataError("privacy ledger: a data set has records, each with a digest of 32 bytes")
        data_set = data_set_id(records)
        marks = sorted({hmac.digest(key, digest, "sha256")[:MARK_BYTES] for digest in records})
        with self._file.transaction():
            self._take_in(data_set, marks, len(records), now_ms)
        return data_set

    def kept_marks(self, key: bytes) -> dict[str, str]:
        """Of each data set whose records are known: SHA-256 (hex) over the key and the marks under its name, which are
        those of its records that no older data set has. They never change, or the file was changed by hand."""
        found = {row.id: hashlib.sha256(b"fedsecure/data-set-marks/v1\0" + key) for row in self.rows() if row.known}
        for mark, data_set in self._file.each("SELECT mark, data_set FROM records ORDER BY mark"):
            if data_set in found:
                found[data_set].update(mark)
        return {data_set: digest.hexdigest() for data_set, digest in found.items()}

    def join(self, data_sets: Iterable[str], now_ms: int) -> None:
        """Make one lineage of those of ``data_sets``, naming those that are not there; inside a transaction."""
        ids = set(data_sets)
        for each in sorted(ids):
            self.name(each, now_ms)
        self._merge({row.lineage for row in self.rows() if row.id in ids})

    def doubt(self, data_set: str) -> None:
        """No longer take the records of ``data_set`` for known: it counts for all until they are read again; inside a
        transaction."""
        self._file.write("UPDATE data_sets SET known = 0 WHERE id = ?", (data_set,))

    def name(self, data_set: str, now_ms: int) -> None:
        """Note a data set of which no more than its id is known, if it is new; inside a transaction."""
        self._file.write(
            "INSERT OR IGNORE INTO data_sets SELECT ?, coalesce(max(lineage), 0) + 1, 0, 0, ? FROM data_sets",
            (data_set, now_ms),
        )

    def _take_in(self, data_set: str, marks: Sequence[bytes], records: int, now_ms: int) -> None:
        """Keep the marks, and make one lineage of all that hold one of them; inside a transaction."""
        self.name(data_set, now_ms)
        self._file.write("CREATE TEMP TABLE IF NOT EXISTS arriving (mark BLOB PRIMARY KEY) WITHOUT ROWID")
        self._file.write("DELETE FROM temp.arriving")
        self._file.write_many("INSERT INTO temp.arriving VALUES (?)", ((mark,) for mark in marks))
        touched = self._file.rows(
            "SELECT DISTINCT d.lineage FROM temp.arriving AS a JOIN records AS r ON r.mark = a.mark"
            " JOIN data_sets AS d ON d.id = r.data_set UNION SELECT lineage FROM data_sets WHERE id = ?",
            (data_set,),
        )
        self._merge({row[0] for row in touched})
        self._file.write(
            "UPDATE data_sets SET known = 1, records = ? WHERE id = ? AND (known = 0 OR records <> ?)",
            (records, data_set, records),
        )
        self._file.write("INSERT OR IGNORE INTO records SELECT mark, ? FROM temp.arriving", (data_set,))
        self._file.write("DELETE FROM temp.arriving")

    def _merge(self, lineages: set[int]) -> None:
        first = min(lineages)
        for other in sorted(lineages - {first}):
            self._file.write("UPDATE data_sets SET lineage = ? WHERE lineage = ?", (first, other))
