"""The node's store: one private folder with everything that must outlive the process.

``store.db`` (plans, decisions, runs, private seeds, exchanges, noisy counts of records, counts of refused queries,
trusted manifests of cohorts, sessions of masked sums, marks of what went into them, the log's signed head), ``local/``
(local state, never leaves), ``serving/`` (shared parameters of runs that are over, to answer queries with),
``releases/`` (the exact bytes that left or wait to, and whole contributions of which a half leaves under masks),
``audits/`` (reports of membership audits; they never leave), ``policies/`` (each policy that a release or an answer was
checked against) and ``releases.jsonl`` (the signed log).
Everything is durable before it is acknowledged to anyone.
"""

from __future__ import annotations

import hashlib
import time
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from fedsecure.errors import ConfigError, StoreError
from fedsecure.files import exists, faults, private_folder, remove_unfinished, write_durably
from fedsecure_node.log.chain import Head
from fedsecure_node.store.answerbook import AnswerBook
from fedsecure_node.store.countbook import CountBook
from fedsecure_node.store.database import Database
from fedsecure_node.store.markbook import MarkBook
from fedsecure_node.store.pinbook import PinBook
from fedsecure_node.store.planbook import PlanBook
from fedsecure_node.store.refusalbook import RefusalBook
from fedsecure_node.store.runbook import RunBook
from fedsecure_node.store.servingbook import ServingBook
from fedsecure_node.store.sessionbook import SessionBook

__all__ = ["HEAD_QUERY", "Store", "iso_time", "now_ms"]

#: Finds the log's signed head in ``store.db``.
HEAD_QUERY = "SELECT value FROM meta WHERE key = 'log_head'"

#: 9999-12-31T23:59:59Z (milliseconds since 1970).
LAST_MS = 253_402_300_799_000


def now_ms() -> int:
    """Milliseconds since 1970-01-01 UTC by this machine's clock."""
    return time.time_ns() // 1_000_000


def iso_time(unix_ms: int) -> str:
    """A time as ISO 8601 in UTC, to the second; one beyond the calendar is its last second."""
    return datetime.fromtimestamp(min(max(unix_ms, 0), LAST_MS) // 1000, UTC).isoformat().replace("+00:00", "Z")


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file or folder is at ``path`` (device and inode), or ``None`` when there is none."""
    with faults(path, "looked at"):
        try:
            found = path.stat()
        except FileNotFoundError:
            return None
    return found.st_dev, found.st_ino


class Store:
    """An open store. A context manager; verbs and the daemon open it at the same time."""

    def __init__(self, folder: Path, *, create: bool = True) -> None:
        """Open ``folder``, made (mode 0700) when absent and ``create``. Raises ``ConfigError``."""
        if not create and not exists(folder):
            raise ConfigError(f"{folder}: no store yet", hint="start the node once: fedsecure node run")
        self.folder = private_folder(folder)
        self.database = Database(folder / "store.db", create=create)
        self.pins = PinBook(self.database)
        self.plans = PlanBook(self.database)
        self.runs = RunBook(self.database, folder)
        self.counts = CountBook(self.database)
        self.serving = ServingBook(self.database, folder)
        self.refusals = RefusalBook(self.database)
        self.sessions = SessionBook(self.database)
        self.marks = MarkBook(self.database)
        self.answers = AnswerBook(self.database)
        self._policies = private_folder(folder / "policies")
        self._audits = private_folder(folder / "audits")
        self._place, self._file = _identity(folder), _identity(self.database.path)

    @property
    def log_path(self) -> Path:
        """The release log."""
        return self.folder / "releases.jsonl"

    def head(self) -> Head | None:
        """The signed head of the release log, or ``None`` before its first record."""
        row = self.database.row(HEAD_QUERY)
        return Head.from_json(row["value"]) if row else None

    def set_head(self, head: Head) -> None:
        """Keep the log's new head."""
        self.database.write("INSERT OR REPLACE INTO meta VALUES ('log_head', ?)", (head.to_json(),))

    def check_there(self) -> None:
        """Raise ``StoreError`` when the store was moved, removed or replaced under the running process: what is written
        then would be lost."""
        for path, before in ((self.folder, self._place), (self.database.path, self._file)):
            if _identity(path) != before:
                raise StoreError(
                    f"{path}: vanished while the node ran: it was moved, removed or replaced",
                    hint="put the store back as it was and start again; nothing was sent since",
                )
        if self.head() is not None and not exists(self.log_path):
            raise StoreError(
                f"{self.log_path}: vanished while the node ran",
                hint="put the store back as it was and start again; nothing was sent since",
            )

    def keep_policy(self, digest: str, text: bytes) -> None:
        """Keep the policy that a release was checked against, under its SHA-256."""
        path = self.policy_path(digest)
        if not exists(path):
            write_durably(path, text)

    def policy_path(self, digest: str) -> Path:
        """Where the policy that something was checked against lies."""
        return self._policies / f"{digest}.toml"

    def keep_audit(self, report: bytes) -> str:
        """Keep the report of an audit under its SHA-256 (hex), which is returned; on the disk by then."""
        digest = hashlib.sha256(report).hexdigest()
        write_durably(self.audit_path(digest), report)
        return digest

    def audit_path(self, digest: str) -> Path:
        """Where the report of an audit lies."""
        return self._audits / f"{digest}.json"

    def clean(self) -> None:
        """Remove what a crash left half written. Only for the one daemon of this store."""
        with faults(self.folder, "read"):
            inner = [path for path in self.folder.iterdir() if path.is_dir()]
        for folder in (self.folder, *inner):
            remove_unfinished(folder)

    def close(self) -> None:
        """Close the database; safe to call twice."""
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
