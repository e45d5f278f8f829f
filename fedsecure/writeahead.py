"""SQLite's write-ahead log, put under a file that several processes may open in the same moment.

SQLite changes a file's journal in a transaction that reads first and then wants to write. When another process is
writing by then, SQLite says so at once: the busy timeout, which every other statement waits for, does not count there
(the other may be waiting for this one to stop reading). So who finds a file that another one is just making has to ask
again.
"""

from __future__ import annotations

import sqlite3
import time

__all__ = ["write_ahead"]

#: Between two tries (seconds).
PAUSE_S = 0.01


def write_ahead(connection: sqlite3.Connection, within: float) -> None:
    """Use a write-ahead log with ``synchronous=FULL``: a committed transaction survives a power cut, and readers do not
    wait for the writer. Waits up to ``within`` seconds for other processes. Raises ``sqlite3.Error``."""
    connection.execute("PRAGMA synchronous=FULL")
    end = time.monotonic() + within
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(PAUSE_S)
        else:
            return
