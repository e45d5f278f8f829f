"""The SQLite file under the privacy ledger: how it is opened, and what makes a commit durable.

A rollback journal with ``synchronous=EXTRA``: when a transaction's commit returns, the file and its folder are on the
disk, and the file alone is the whole ledger (a write-ahead log would leave the newest entries in a second file, which a
copy forgets). A crash before that leaves a journal, which the next one who opens the file takes back.

SQLite takes POSIX locks, which a process loses when it closes *any* handle on the file: so nothing here or elsewhere
opens an existing ledger but SQLite itself.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from fedsecure.errors import ConfigError, LocalProtocolError, StoreError
from fedsecure.files import OTHERS, faults, make_empty, quoted, shown

__all__ = ["FORMAT", "Access", "LedgerFile"]

#: ``create``: made when it is missing; ``read``: neither made nor written.
Access = Literal["create", "write", "read"]
#: Version of the tables below.
FORMAT = 1
#: Says in the file's header that it is a privacy ledger ("fspl").
APPLICATION = 0x6673706C
#: How long one waits for another's charge, during which an epsilon is composed (seconds).
BUSY_S = 120.0

_TABLES = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT",
    # ``known``: whether the marks of its records are in ``records``
    "CREATE TABLE data_sets (id TEXT PRIMARY KEY, lineage INTEGER NOT NULL, known INTEGER NOT NULL,"
    " records INTEGER NOT NULL, first_ms INTEGER NOT NULL) STRICT",
    "CREATE TABLE records (mark BLOB PRIMARY KEY, data_set TEXT NOT NULL REFERENCES data_sets (id))"
    " STRICT, WITHOUT ROWID",
    "CREATE TABLE entries (counter INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE,"
    " data_set TEXT NOT NULL REFERENCES data_sets (id), body TEXT NOT NULL) STRICT",
    "CREATE INDEX entries_of ON entries (data_set)",
    "CREATE TRIGGER entries_stay BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'entries are never removed'); END",
    "CREATE TRIGGER entries_keep BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'entries are never changed'); END",
)
#: What is drawn for a new ledger: who it is, and the key of its records' marks (bytes).
_DRAWN = {"identity": 16, "key": 32}
_READ_ONLY = "check the permissions of the ledger and its folder, and that the file system is mounted for writing"
_DAMAGED = "put the newest backup of the ledger back, then: fedsecure node budget restore"
_HINTS = {
    sqlite3.SQLITE_FULL: "free space on the disk, then try again; nothing was spent and nothing computed",
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: _READ_ONLY,
    sqlite3.SQLITE_PERM: _READ_ONLY,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_BUSY: "another command holds it; try again",
}


class LedgerFile:
    """One connection. Threads of a process share it, each transaction one thread's alone; a forked child may not use
    it. ``path``: of the file itself, links followed. Raises ``StoreError`` naming the file."""

    def __init__(self, path: Path, access: Access) -> None:
        """Raises ``ConfigError`` when there is no ledger and none is to be made; ``StoreError`` for one that others can
        read, that has a second name, is damaged, of another version, or something else."""
        with faults(path, "looked at"):
            self.path = path.resolve()
        self.fresh = access == "create" and make_empty(self.path)
        self._turn = threading.RLock()
        self._process = os.getpid()
        self._place = self._looked_at()
        try:
            self._connection = sqlite3.connect(
                f"{self.path.as_uri()}?mode={'ro' if access == 'read' else 'rw'}",
                uri=True,
                isolation_level=None,
                timeout=BUSY_S,
                check_same_thread=False,
            )
        except sqlite3.Error as error:
            raise self._fault(error) from None
        try:
            self._prepare(access)
        except BaseException as error:
            self._connection.close()
            if isinstance(error, sqlite3.Error):
                raise self._fault(error) from None
            raise

    def _looked_at(self) -> tuple[int, int]:
        """Device and inode of the file that is at ``path`` now, after what must hold of it."""
        with faults(self.path, "looked at"):
            try:
                found = self.path.stat()
            except FileNotFoundError:
                raise ConfigError(
                    f"{shown(self.path)}: no privacy ledger there", hint="the first private run makes one"
                ) from None
        if not stat.S_ISREG(found.st_mode):
            raise StoreError(f"{shown(self.path)}: is not a file", hint="name a file of its own for the privacy ledger")
        if found.st_nlink != 1:
            raise StoreError(
                f"{shown(self.path)}: has {found.st_nlink} names (hard links): a crash under one of them would not be "
                "taken back under another",
                hint="remove all names of the ledger but one",
            )
        if found.st_mode & OTHERS:
            mode = stat.S_IMODE(found.st_mode)
            raise StoreError(
                f"{shown(self.path)}: mode {mode:04o} lets others look into it", hint=f"chmod 600 {quoted(self.path)}"
            )
        return found.st_dev, found.st_ino

    def check_in_place(self) -> None:
        """Raise ``StoreError`` when the file was moved, removed or replaced since it was opened: what is written to it
        then would be lost."""
        try:
            now: tuple[int, int] | None = self._looked_at()
        except ConfigError:
            now = None
        if now != self._place:
            raise StoreError(
                f"{shown(self.path)}: was moved, removed or replaced while it was in use",
                hint="put it back as it was and start again; what is not in it is not computed",
            )

    def _prepare(self, access: Access) -> None:
        if access != "read":
            for setting in ("synchronous=EXTRA", "fullfsync=ON", "foreign_keys=ON", "temp_store=MEMORY"):
                self._connection.execute(f"PRAGMA {setting}")
            if self._number("journal_mode=DELETE") != "delete":
                raise StoreError(f"{shown(self.path)}: its journal cannot be set up", hint=_READ_ONLY)
        empty = not self._number("application_id") and not self._number("schema_version")
        if empty and access != "read":
            with self.transaction():
                if not self._number("application_id"):  # or another process was faster
                    for statement in _TABLES:
                        self._connection.execute(statement)
                    for name, length in _DRAWN.items():
                        self._connection.execute("INSERT INTO meta VALUES (?, ?)", (name, secrets.token_bytes(length)))
                    self._connection.execute(f"PRAGMA application_id={APPLICATION}")
                    self._connection.execute(f"PRAGMA user_version={FORMAT}")
        elif empty:
            raise ConfigError(f"{shown(self.path)}: nothing was charged yet", hint="the first private run charges it")
        if self._number("application_id") != APPLICATION:
            raise StoreError(f"{shown(self.path)}: is not a privacy ledger", hint="name the ledger's own file")
        if (found := self._number("user_version")) != FORMAT:
            raise StoreError(
                f"{shown(self.path)}: is a ledger of format {found}, this version knows format {FORMAT}",
                hint="run the version of fedsecure that wrote it",
            )

    def _number(self, pragma: str) -> Any:
        return self._connection.execute(f"PRAGMA {pragma}").fetchone()[0]

    def _fault(self, error: sqlite3.Error) -> StoreError:
        code = getattr(error, "sqlite_errorcode", 0)
        if code == sqlite3.SQLITE_READONLY_ROLLBACK:
            return StoreError(
                f"{shown(self.path)}: a crash cut a charge short, and its journal is still beside it",
                hint="start the node, which takes it back; leave the journal where it is",
            )
        hint = _HINTS.get(code & 0xFF, "check the health of the disk, and its free space")
        return StoreError(f"{shown(self.path)}: the privacy ledger cannot be used: {error}", hint=hint)

    @contextmanager
    def _guard(self) -> Iterator[None]:
        if os.getpid() != self._process:
            raise LocalProtocolError("privacy ledger: was opened by another process", hint="open it after forking")
        with self._turn:
            try:
                yield
            except sqlite3.Error as error:
                raise self._fault(error) from None

    def rows(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        with self._guard():
            return self._connection.execute(sql, values).fetchall()

    def each(self, sql: str) -> Iterator[tuple[Any, ...]]:
        """The rows of a query one by one: for more than should lie in memory."""
        with self._guard():
            yield from self._connection.execute(sql)

    def write(self, sql: str, values: tuple[Any, ...] = ()) -> None:
        """One statement; inside a transaction."""
        with self._guard():
            self._connection.execute(sql, values)

    def write_many(self, sql: str, rows: Iterator[tuple[Any, ...]]) -> None:
        """One statement for each of ``rows``; inside a transaction."""
        with self._guard():
            self._connection.executemany(sql, rows)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Alone from the first read on: others wait. All is on the disk when the block ends, or nothing was written.

        Raises ``StoreError``; when it is the commit that fails, the disk decides what is there, never less than was
        acknowledged.
        """
        with self._guard():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self.check_in_place()
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise
            self.check_in_place()

    def close(self) -> None:
        """Close the connection; safe to call twice."""
        with self._turn:
            self._connection.close()
