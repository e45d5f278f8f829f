"""The node's SQLite file: its tables, durable transactions, and one clear line for every way it can fail."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fedsecure.errors import ConfigError, StoreError
from fedsecure.files import exists, make_empty
from fedsecure.writeahead import write_ahead

__all__ = ["Database"]

#: Version of the tables below; a store of another version is refused, not guessed at.
FORMAT = 1
#: How long a verb waits for another process's write before it says that the store is busy (seconds).
BUSY_S = 10.0
#: What a full disk asks for. Every write is whole or not there.
FULL = "free space on the disk, then start again; nothing was lost"
#: With less than this a file system counts as full (bytes).
ROOM = 64 * 1024

_TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS plans (
  digest TEXT PRIMARY KEY, canonical BLOB NOT NULL, name TEXT NOT NULL, first_seen_ms INTEGER NOT NULL,
  violations TEXT NOT NULL DEFAULT '[]', policy_fault TEXT NOT NULL DEFAULT '', checked_ms INTEGER NOT NULL DEFAULT 0,
  offered TEXT NOT NULL DEFAULT '', refusal_told TEXT NOT NULL DEFAULT '',
  decision TEXT NOT NULL DEFAULT 'pending' CHECK (decision IN ('pending', 'approved', 'refused')),
  decided_by TEXT NOT NULL DEFAULT '', decided_ms INTEGER, reason TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE TABLE IF NOT EXISTS runs (
  digest TEXT PRIMARY KEY REFERENCES plans (digest), joined_ms INTEGER NOT NULL, seed INTEGER NOT NULL,
  local TEXT NOT NULL DEFAULT '', state TEXT NOT NULL DEFAULT 'active', reason TEXT NOT NULL DEFAULT '',
  exit_code INTEGER NOT NULL DEFAULT 0, ended_ms INTEGER
) STRICT;
CREATE TABLE IF NOT EXISTS exchanges (
  digest TEXT NOT NULL REFERENCES runs (digest),
  round INTEGER NOT NULL, step INTEGER NOT NULL, attempt INTEGER NOT NULL,
  exchange TEXT NOT NULL, broadcast TEXT NOT NULL, payload TEXT NOT NULL, summed_bytes INTEGER NOT NULL,
  released_bytes INTEGER NOT NULL, local_before TEXT NOT NULL, local_after TEXT NOT NULL, computed_ms INTEGER NOT NULL,
  PRIMARY KEY (digest, round, step, attempt)
) STRICT;
CREATE TABLE IF NOT EXISTS serving (
  digest TEXT PRIMARY KEY REFERENCES runs (digest), file TEXT NOT NULL, bytes INTEGER NOT NULL, kept_ms INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS unlogged (
  analyst TEXT PRIMARY KEY, count INTEGER NOT NULL, since_ms INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS pins (
  digest TEXT PRIMARY KEY, cohort TEXT NOT NULL, version INTEGER NOT NULL, manifest BLOB NOT NULL,
  pinned_ms INTEGER NOT NULL, pinned_by TEXT NOT NULL, replaced_ms INTEGER
) STRICT;
CREATE TABLE IF NOT EXISTS asked (
  digest TEXT NOT NULL REFERENCES runs (digest),
  round INTEGER NOT NULL, step INTEGER NOT NULL, attempt INTEGER NOT NULL, cohort TEXT NOT NULL, previous BLOB NOT NULL,
  PRIMARY KEY (digest, round, step, attempt)
) STRICT;
CREATE TABLE IF NOT EXISTS counted (
  digest TEXT PRIMARY KEY REFERENCES runs (digest), data_set TEXT NOT NULL, counts TEXT NOT NULL,
  drawn_ms INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS sessions (
  experiment TEXT NOT NULL, purpose TEXT NOT NULL, round INTEGER NOT NULL, released BLOB, begun INTEGER NOT NULL,
  PRIMARY KEY (experiment, purpose, round)
) STRICT;
CREATE TABLE IF NOT EXISTS unmasked (
  experiment TEXT NOT NULL, purpose TEXT NOT NULL, model BLOB NOT NULL, survivors TEXT NOT NULL,
  PRIMARY KEY (experiment, purpose, model)
) STRICT;
CREATE TABLE IF NOT EXISTS record_sets (id TEXT PRIMARY KEY, marks BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS answered (
  model TEXT NOT NULL, record_set TEXT NOT NULL REFERENCES record_sets (id), run TEXT NOT NULL,
  PRIMARY KEY (model, record_set, run)
) STRICT;
CREATE TABLE IF NOT EXISTS marks (mark TEXT NOT NULL, run TEXT NOT NULL, PRIMARY KEY (mark, run)) STRICT;
"""


_READ_ONLY = "check the permissions of the store and that its file system is mounted for writing"
#: What to do about a fault of SQLite, by its primary code. Only what says damage says backup.
_HINTS = {
    sqlite3.SQLITE_FULL: FULL,
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: _READ_ONLY,
    sqlite3.SQLITE_PERM: _READ_ONLY,
    sqlite3.SQLITE_CORRUPT: "the file is damaged: restore the store from a backup",
    sqlite3.SQLITE_NOTADB: "the file is damaged: restore the store from a backup",
}


def _hint(error: sqlite3.Error, path: Path) -> str:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_IOERR and _is_full(path):
        return FULL
    return _HINTS.get(code, "check the health of the disk")


def _is_full(path: Path) -> bool:
    """Whether the file system has no room: SQLite does not always tell that from a fault of the disk."""
    with suppress(OSError):
        room = os.statvfs(path.parent)
        return room.f_bavail * room.f_frsize < ROOM
    return False


class Database:
    """One connection: WAL, ``synchronous=FULL``, explicit transactions. Parameters only, never text put together.

    Threads of one process share it: each statement, and each transaction as a whole, is one thread's alone."""

    def __init__(self, path: Path, *, create: bool = True) -> None:
        """Open or create ``path`` (mode 0600). Raises ``ConfigError`` when it is absent, ``StoreError``
        when it is damaged, of another version, or may not be used."""
        self.path = path
        self._turn = threading.RLock()
        if create:
            make_empty(path)
        elif not exists(path):
            raise ConfigError(f"{path}: no such store", hint="start the node once, or check --dir")
        try:
            self._connection = sqlite3.connect(
                f"{path.resolve().as_uri()}?mode=rw",
                uri=True,
                isolation_level=None,
                timeout=BUSY_S,
                check_same_thread=False,
            )
            self._connection.row_factory = sqlite3.Row
            self._prepare()
        except sqlite3.Error as error:
            with suppress(AttributeError):
                self._connection.close()
            raise self._fault(error) from None

    def _prepare(self) -> None:
        write_ahead(self._connection, BUSY_S)
        self._connection.execute("PRAGMA foreign_keys=ON")
        self._connection.execute("BEGIN IMMEDIATE")
        for statement in _TABLES.split(";"):
            self._connection.execute(statement)
        self._connection.execute("INSERT OR IGNORE INTO meta VALUES ('format', ?)", (str(FORMAT),))
        self._connection.execute("COMMIT")
        row = self._connection.execute("SELECT value FROM meta WHERE key = 'format'").fetchone()
        if row["value"] != str(FORMAT):
            self._connection.close()
            raise StoreError(
                f"{self.path}: is a store of format {row['value']}, this version knows format {FORMAT}",
                hint="run the version of fedsecure that wrote it, or start with an empty store folder",
            )

    def _fault(self, error: sqlite3.Error) -> StoreError:
        if "locked" in str(error) or "busy" in str(error):
            return StoreError(f"{self.path}: busy for {BUSY_S:g} s", hint="another command holds it; try again")
        return StoreError(f"{self.path}: cannot be used: {error}", hint=_hint(error, self.path))

    def rows(self, sql: str, values: tuple[Any, ...] = ()) -> list[sqlite3.Row]:
        """All rows of a query."""
        try:
            with self._turn:
                return self._connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise self._fault(error) from None

    def row(self, sql: str, values: tuple[Any, ...] = ()) -> sqlite3.Row | None:
        """The first row of a query, or ``None``."""
        found = self.rows(sql, values)
        return found[0] if found else None

    def write(self, sql: str, values: tuple[Any, ...] = ()) -> int:
        """One statement; on the disk when this returns. Returns the number of rows changed."""
        try:
            with self._turn:
                return self._connection.execute(sql, values).rowcount
        except sqlite3.Error as error:
            raise self._fault(error) from None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Several statements as one: all on the disk when the block ends, or none."""
        with self._turn:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
            except sqlite3.Error as error:
                raise self._fault(error) from None
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException as error:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise self._fault(error) from None
                raise

    def version(self) -> int:
        """A number that changes when another connection wrote: how a daemon notices a verb."""
        row = self.row("PRAGMA data_version")
        return int(row[0]) if row else 0

    def close(self) -> None:
        """Close the connection, once no other thread is in the middle of a statement; safe to call twice."""
        with self._turn:
            self._connection.close()
