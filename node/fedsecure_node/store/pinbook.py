"""The manifests of cohorts that this node's people trust, and those that they replaced."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fedsecure_node.store.database import Database

__all__ = ["PinBook", "Pinned"]


@dataclass(frozen=True, slots=True)
class Pinned:
    """A row: the digest (hexadecimal) under which ``manifest`` (JSON) was trusted, who did, and when.

    ``replaced_ms``: when a higher version took its place, or a person took the trust back (milliseconds since 1970);
    ``None`` while it counts.
    """

    digest: str
    cohort: str
    version: int
    manifest: bytes
    pinned_ms: int
    pinned_by: str
    replaced_ms: int | None


class PinBook:
    """The table of pins. At most one of a cohort's name counts at a time."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def all(self) -> list[Pinned]:
        """Every pin that counts, in order of the cohorts' names."""
        return [_pinned(row) for row in self._db.rows("SELECT * FROM pins WHERE replaced_ms IS NULL ORDER BY cohort")]

    def given_up(self) -> list[Pinned]:
        """The last pin of every cohort of which none counts any more, in order of their names."""
        ended = "SELECT * FROM pins WHERE replaced_ms IS NOT NULL ORDER BY cohort, version"
        counting = {row.cohort for row in self.all()}
        last = {row["cohort"]: _pinned(row) for row in self._db.rows(ended) if row["cohort"] not in counting}
        return list(last.values())

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Look and write as one step: no other process pins meanwhile."""
        with self._db.transaction():
            yield

    def put(self, digest: str, cohort: str, version: int, manifest: bytes, *, by: str, now_ms: int) -> None:
        """Keep a pin; the one before it of the same cohort no longer counts. Inside ``turn``: on the disk when that
        ends."""
        self._db.write("UPDATE pins SET replaced_ms = ? WHERE cohort = ? AND replaced_ms IS NULL", (now_ms, cohort))
        self._db.write(
            "INSERT OR REPLACE INTO pins (digest, cohort, version, manifest, pinned_ms, pinned_by) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (digest, cohort, version, manifest, now_ms, by),
        )

    def end(self, cohort: str, *, now_ms: int) -> Pinned | None:
        """The pin of this cohort no longer counts, on the disk on return. Returns it; ``None`` when there is none."""
        with self._db.transaction():
            found = next((row for row in self.all() if row.cohort == cohort), None)
            if found is not None:
                self._db.write("UPDATE pins SET replaced_ms = ? WHERE digest = ?", (now_ms, found.digest))
        return found


def _pinned(row: sqlite3.Row) -> Pinned:
    return Pinned(**{key: row[key] for key in row.keys()})  # noqa: SIM118 - a Row iterates over its values
