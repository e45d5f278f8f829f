"""Under which models this node answered without noise, and with which records: digests alone, for good.

Nothing removes a row: neither the end of a run nor a release log that is given up.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from fedsecure_node.store.database import Database

__all__ = ["AnswerBook", "Answered"]

#: Of the mark that is kept of a record (bytes).
MARK_BYTES = 16


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer under some model in ``run``, a plan's digest, made from the records with these ``marks``."""

    run: str
    marks: frozenset[bytes] = field(repr=False)


class AnswerBook:
    """The tables ``answered`` and ``record_sets``. What is written is on the disk on return."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def key(self) -> bytes:
        """The key of this store's marks (32 bytes), made at the first call: two stores cannot be compared."""
        self._db.write("INSERT OR IGNORE INTO meta VALUES ('record_marks_key', ?)", (secrets.token_hex(32),))
        row = self._db.row("SELECT value FROM meta WHERE key = 'record_marks_key'")
        assert row is not None
        return bytes.fromhex(row["value"])

    def keep(self, run: str, model: str, record_set: str, marks: frozenset[bytes]) -> None:
        """Keep that ``run`` answered under ``model`` (SHA-256, hexadecimal) with the set of records ``record_set``,
        each known by a mark of ``MARK_BYTES``. Idempotent."""
        with self._db.transaction():
            self._db.write("INSERT OR IGNORE INTO record_sets VALUES (?, ?)", (record_set, b"".join(sorted(marks))))
            self._db.write("INSERT OR IGNORE INTO answered VALUES (?, ?, ?)", (model, record_set, run))

    def under(self, model: str, besides: str) -> list[Answered]:
        """What was answered under ``model`` with other sets of records than ``besides``."""
        rows = self._db.rows(
            "SELECT a.run, s.marks FROM answered a JOIN record_sets s ON s.id = a.record_set"
            " WHERE a.model = ? AND a.record_set <> ? ORDER BY a.run",
            (model, besides),
        )
        return [Answered(str(row["run"]), _marks(row["marks"])) for row in rows]


def _marks(joined: bytes) -> frozenset[bytes]:
    return frozenset(joined[at : at + MARK_BYTES] for at in range(0, len(joined), MARK_BYTES))
