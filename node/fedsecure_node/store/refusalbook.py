"""Refused queries that have no record of their own in the log (yet): counts, so that a restart forgets none."""

from __future__ import annotations

from dataclasses import dataclass

from fedsecure_node.store.database import Database

__all__ = ["RefusalBook", "Uncounted"]


@dataclass(frozen=True, slots=True)
class Uncounted:
    """``count`` queries of ``analyst`` were refused without a record since ``since_ms``. An empty name stands for all
    whose certificate or signature was refused."""

    analyst: str
    count: int
    since_ms: int


class RefusalBook:
    """The table of counts. A count is forgotten after the record that tells it was written: a crash between the two
    tells it twice, never not at all."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def add(self, analyst: str, now_ms: int) -> None:
        """One more; on the disk on return."""
        self._db.write(
            "INSERT INTO unlogged VALUES (?, 1, ?) ON CONFLICT (analyst) DO UPDATE SET count = count + 1",
            (analyst, now_ms),
        )

    def count(self, analyst: str) -> int:
        """How many there are of this name."""
        row = self._db.row("SELECT count FROM unlogged WHERE analyst = ?", (analyst,))
        return int(row["count"]) if row else 0

    def all(self) -> list[Uncounted]:
        """All counts, by name."""
        rows = self._db.rows("SELECT analyst, count, since_ms FROM unlogged ORDER BY analyst")
        return [Uncounted(row["analyst"], row["count"], row["since_ms"]) for row in rows]

    def told(self, analyst: str) -> None:
        """A record tells the count."""
        self._db.write("DELETE FROM unlogged WHERE analyst = ?", (analyst,))
