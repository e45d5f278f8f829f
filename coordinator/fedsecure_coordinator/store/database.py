"""The SQLite file under the journal: how it is opened, upgraded, read and written.

Write-ahead log with ``synchronous=FULL``: a committed transaction survives a power cut. Values only ever travel as
parameters. The daemon and the command line may have it open at the same time.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from fedsecure.errors import StoreError
from fedsecure.files import exists, faults, make_empty
from fedsecure.writeahead import write_ahead

__all__ = ["Access", "Database"]

Access = Literal["create", "write", "read"]

#: How long one process waits for the other's transaction (seconds).
BUSY_SECONDS = 30.0


def _address(path: Path, access: Access) -> str:
    """The file as SQLite's URI. To read a write-ahead log SQLite wants to make its index file; where there is no log,
    as after an orderly end, the file is read as one that nobody writes, and nothing is made."""
    mode = "ro" if access == "read" else "rw"
    still = "&immutable=1" if access == "read" and not exists(path.with_name(f"{path.name}-wal")) else ""
    return f"file:{quote(os.fsencode(path.absolute()))}?mode={mode}{still}"


class Database:
    """Tables in a file. Safe to share between threads. Raises ``StoreError`` naming the file.

    ``steps``: the statements that bring a file of format 0 (empty), 1, 2, … to the next one. An older file is upgraded
    when it is opened for writing, and read as it is; a newer one is refused.

    ``access``: ``create`` makes the file if it is missing, ``write`` needs it to be there, and ``read`` neither makes
    nor writes any file.
    """

    def __init__(self, path: Path, steps: tuple[str, ...], access: Access) -> None:
        self._path, self._steps, self._lock, self._depth = path, steps, threading.RLock(), 0
        self.format = 0
        if access == "create":
            make_empty(path)
        with faults(path, "opened"):
            path.stat()
        try:
            self._db = sqlite3.connect(
                _address(path, access), uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise StoreError(f"{path}: cannot be opened: {error}", hint="check the store's permissions") from None
        try:
            with self._guard():
                if access == "read":
                    self._check_format()
                    return
                write_ahead(self._db, BUSY_SECONDS)
                self._upgrade()
        except BaseException:
            self._db.close()
            raise

    def _upgrade(self) -> None:
        with self.transaction():
            self._check_format(empty=True)
            for step in self._steps[self.format :]:
                self.format += 1
                for statement in step.split(";"):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version={self.format}")

    def _check_format(self, *, empty: bool = False) -> None:
        self.format = self._db.execute("PRAGMA user_version").fetchone()[0]
        if self.format == 0 and not empty:
            raise StoreError(
                f"{self._path}: nothing is in it: it is just being made, or that was cut short",
                hint="try again; where it stays so: fedsecure coordinator run",
            )
        if not 0 <= self.format <= len(self._steps):
            raise StoreError(
                f"{self._path}: journal of format {self.format} where {len(self._steps)} is due",
                hint="use the version of fedsecure that wrote it",
            )

    def close(self) -> None:
        """Close the file; committed transactions are on disk already."""
        with self._lock:
            self._db.close()

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(
                f"{self._path}: journal failed: {error}", hint="check the disk: space, permissions, health"
            ) from None

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All statements inside become durable together, or none. Nests: the outermost commits."""
        with self._lock, self._guard():
            if self._depth == 0:
                self._db.execute("BEGIN IMMEDIATE")
            self._depth += 1
            try:
                yield
            except BaseException:
                self._depth -= 1
                if self._depth == 0:
                    self._roll_back()
                raise
            self._depth -= 1
            if self._depth == 0:
                try:
                    self._db.execute("COMMIT")
                except sqlite3.Error:
                    self._roll_back()
                    raise

    def _roll_back(self) -> None:
        """Back to what is on the disk. A full disk may have rolled back already."""
        with contextlib.suppress(sqlite3.Error):
            self._db.execute("ROLLBACK")

    def _write(self, statement: str, values: tuple[Any, ...]) -> int:
        with self.transaction():
            return self._db.execute(statement, values).rowcount

    def _read(self, statement: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        with self._lock, self._guard():
            return self._db.execute(statement, values).fetchall()
