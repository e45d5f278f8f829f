"""What this node gave to masked sums in all its runs, by marks: digests that tell that it would give the same again.

Nothing removes a mark: neither the end of a run nor a release log that is given up.
"""

from __future__ import annotations

from collections.abc import Iterable

from fedsecure_node.store.database import Database

__all__ = ["MarkBook"]


class MarkBook:
    """Marks (hexadecimal digests), each with the runs that it was made in. What is written is on the disk on return."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def keep(self, run: str, marks: Iterable[str]) -> None:
        """Keep ``marks`` as made in ``run``, a plan's digest. Idempotent."""
        with self._db.transaction():
            for mark in marks:
                self._db.write("INSERT OR IGNORE INTO marks VALUES (?, ?)", (mark, run))

    def other(self, run: str, mark: str) -> str | None:
        """Another run than ``run`` in which ``mark`` was made, or ``None``."""
        row = self._db.row("SELECT run FROM marks WHERE mark = ? AND run <> ? ORDER BY run LIMIT 1", (mark, run))
        return str(row["run"]) if row else None

    def runs(self) -> frozenset[str]:
        """Every run in which a mark was made."""
        return frozenset(str(row["run"]) for row in self._db.rows("SELECT DISTINCT run FROM marks"))
