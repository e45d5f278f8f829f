"""The journal: one SQLite file that says where every run stands. What it does not hold was never acknowledged."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsecure_coordinator.store.database import Access
from fedsecure_coordinator.store.sums import MASKING_TABLES, MaskingTables

__all__ = ["JOURNAL_NAME", "Access", "Journal", "Published", "RunRow", "Served", "Submission"]

JOURNAL_NAME = "journal.sqlite"

_TABLES = """
CREATE TABLE runs (
  digest TEXT PRIMARY KEY, name TEXT NOT NULL, canonical BLOB NOT NULL, created_ms INTEGER NOT NULL,
  phase TEXT NOT NULL,
  machine TEXT NOT NULL, exchange TEXT NOT NULL, server TEXT NOT NULL, broadcast TEXT NOT NULL,
  broadcast_bytes INTEGER NOT NULL, deadlines TEXT NOT NULL, round_started_ms INTEGER NOT NULL,
  ended_ms INTEGER NOT NULL, reason TEXT NOT NULL) STRICT;
CREATE TABLE members (
  digest TEXT NOT NULL, node TEXT NOT NULL, joined INTEGER NOT NULL, at_ms INTEGER NOT NULL, reason TEXT NOT NULL,
  PRIMARY KEY (digest, node)) STRICT;
CREATE TABLE events (
  id INTEGER PRIMARY KEY, digest TEXT NOT NULL, at_ms INTEGER NOT NULL, kind TEXT NOT NULL,
  detail TEXT NOT NULL) STRICT;
CREATE INDEX events_of_run ON events (digest, id);
CREATE TABLE submissions (
  digest TEXT NOT NULL, round INTEGER NOT NULL, exchange TEXT NOT NULL, attempt INTEGER NOT NULL, node TEXT NOT NULL,
  payload TEXT NOT NULL, key BLOB NOT NULL, bytes INTEGER NOT NULL, at_ms INTEGER NOT NULL, kept INTEGER NOT NULL,
  PRIMARY KEY (digest, round, exchange, attempt, node)) STRICT;
CREATE TABLE metrics (
  digest TEXT NOT NULL, round INTEGER NOT NULL, name TEXT NOT NULL, value REAL,
  PRIMARY KEY (digest, round, name)) STRICT;
CREATE TABLE traffic (
  digest TEXT NOT NULL, round INTEGER NOT NULL, node TEXT NOT NULL, up INTEGER NOT NULL, down INTEGER NOT NULL,
  PRIMARY KEY (digest, round, node)) STRICT;
CREATE TABLE abort_requests (digest TEXT PRIMARY KEY, reason TEXT NOT NULL) STRICT;
"""
_PREDICTION_TABLES = """
CREATE TABLE published (
  digest TEXT PRIMARY KEY, serving TEXT NOT NULL, serving_bytes INTEGER NOT NULL, routing TEXT NOT NULL,
  routing_bytes INTEGER NOT NULL) STRICT;
CREATE TABLE served (
  digest TEXT NOT NULL, node TEXT NOT NULL, reachable INTEGER NOT NULL, answered INTEGER NOT NULL,
  unreachable INTEGER NOT NULL, PRIMARY KEY (digest, node)) STRICT;
"""
#: What brings a file of format 0, 1, … to the next format.
_STEPS = (_TABLES, _PREDICTION_TABLES, MASKING_TABLES)
#: The first format with the tables of routed prediction.
_PREDICTION_FORMAT = 2


@dataclass(frozen=True, slots=True)
class RunRow:
    """Everything durable about a run.

    ``phase`` is ``NEW`` until the daemon has prepared it. ``machine``: snapshot of the round machine. ``server`` and
    ``broadcast``: digests of blobs. ``deadlines``: JSON, token -> milliseconds since 1970. ``reason``: why it ended, in
    words. Milliseconds are 0 for what has not happened.
    """

    digest: str
    name: str
    canonical: bytes
    created_ms: int
    phase: str = "NEW"
    machine: str = ""
    exchange: str = ""
    server: str = ""
    broadcast: str = ""
    broadcast_bytes: int = 0
    deadlines: str = "{}"
    round_started_ms: int = 0
    ended_ms: int = 0
    reason: str = ""

    @property
    def ended(self) -> bool:
        """Whether the run has its final state."""
        return self.phase in ("COMPLETED", "ABORTED")


@dataclass(frozen=True, slots=True)
class Submission:
    """An accepted contribution. ``payload``: digest of its bytes; ``key``: the ``UploadKey`` that declared it."""

    digest: str
    round: int
    exchange: str
    attempt: int
    node: str
    payload: str
    key: bytes
    bytes: int
    at_ms: int
    kept: int = 1


@dataclass(frozen=True, slots=True)
class Published:
    """What a completed run answers queries with: blobs of what its nodes keep (``serving``) and of what routes queries
    to them (``routing``)."""

    digest: str
    serving: str
    serving_bytes: int
    routing: str
    routing_bytes: int


@dataclass(frozen=True, slots=True)
class Served:
    """A node that serves a run, as the running daemon last saw it: whether it asks for queries, how many it replied
    to and how many found nobody, both since the daemon began."""

    digest: str
    node: str
    reachable: bool
    answered: int
    unreachable: int


#: Statements are put together from these names and question marks alone; every value is a parameter.
_RUN_COLUMNS = ", ".join(RunRow.__slots__)
_SUBMISSION_COLUMNS = ", ".join(Submission.__slots__)


class Journal(MaskingTables):
    """The journal in a file. Safe to share between threads. Raises ``StoreError`` naming the file.

    ``access``: ``create`` makes the file if it is missing, ``write`` needs it to be there, and ``read`` neither makes
    nor writes any file.
    """

    def __init__(self, path: Path, access: Access = "create") -> None:
        super().__init__(path, _STEPS, access)

    # Runs -------------------------------------------------------------------------------------------------------------
    def add_run(self, row: RunRow) -> bool:
        """Add a run; ``False`` when its digest is known already (nothing is changed)."""
        marks = ", ".join("?" * len(RunRow.__slots__))
        values = tuple(getattr(row, c) for c in RunRow.__slots__)
        statement = f"INSERT OR IGNORE INTO runs ({_RUN_COLUMNS}) VALUES ({marks})"  # noqa: S608 - names and marks
        return self._write(statement, values) == 1

    def save_run(self, row: RunRow) -> None:
        """Replace a run's row."""
        columns = RunRow.__slots__[1:]
        assigned = ", ".join(f"{c} = ?" for c in columns)
        values = (*(getattr(row, c) for c in columns), row.digest)
        self._write(f"UPDATE runs SET {assigned} WHERE digest = ?", values)  # noqa: S608 - names and marks

    def runs(self) -> list[RunRow]:
        """All runs, oldest first."""
        statement = f"SELECT {_RUN_COLUMNS} FROM runs ORDER BY created_ms, digest"  # noqa: S608 - names
        return [RunRow(*r) for r in self._read(statement)]

    def digests(self) -> list[str]:
        """Digests of all runs."""
        return [r[0] for r in self._read("SELECT digest FROM runs")]

    def request_abort(self, digest: str, reason: str) -> None:
        """Leave a request for the daemon, which takes it up within a second, or when it next starts."""
        self._write("INSERT OR REPLACE INTO abort_requests VALUES (?, ?)", (digest, reason))

    def abort_requests(self) -> dict[str, str]:
        """Digest -> reason, of requests not yet taken up."""
        return dict(self._read("SELECT digest, reason FROM abort_requests"))

    def drop_abort_request(self, digest: str) -> None:
        """The request was taken up."""
        self._write("DELETE FROM abort_requests WHERE digest = ?", (digest,))

    # Nodes ------------------------------------------------------------------------------------------------------------
    def set_member(self, digest: str, node: str, *, joined: bool, at_ms: int, reason: str = "") -> None:
        """Note that a node joined a run, or refused it and why."""
        self._write("INSERT OR REPLACE INTO members VALUES (?, ?, ?, ?, ?)", (digest, node, int(joined), at_ms, reason))

    def members(self, digest: str) -> dict[str, tuple[bool, str]]:
        """Node -> (joined, reason of a refusal)."""
        rows = self._read("SELECT node, joined, reason FROM members WHERE digest = ? ORDER BY node", (digest,))
        return {node: (bool(joined), reason) for node, joined, reason in rows}

    # Events -----------------------------------------------------------------------------------------------------------
    def add_event(self, digest: str, at_ms: int, kind: str, detail: Mapping[str, Any]) -> None:
        """Append to a run's history."""
        text = json.dumps(dict(detail), sort_keys=True, ensure_ascii=False, allow_nan=False)
        self._write("INSERT INTO events (digest, at_ms, kind, detail) VALUES (?, ?, ?, ?)", (digest, at_ms, kind, text))

    def events(self, digest: str) -> list[tuple[int, str, dict[str, Any]]]:
        """A run's history, oldest first: (milliseconds, kind, detail)."""
        rows = self._read("SELECT at_ms, kind, detail FROM events WHERE digest = ? ORDER BY id", (digest,))
        return [(at, kind, json.loads(detail)) for at, kind, detail in rows]

    # Contributions ----------------------------------------------------------------------------------------------------
    def add_submission(self, submission: Submission) -> None:
        """Note an accepted contribution. One exists at most for (run, round, exchange, attempt, node)."""
        marks = ", ".join("?" * len(Submission.__slots__))
        values = tuple(getattr(submission, c) for c in Submission.__slots__)
        statement = f"INSERT INTO submissions ({_SUBMISSION_COLUMNS}) VALUES ({marks})"  # noqa: S608 - names and marks
        self._write(statement, values)

    def submissions(self, digest: str, round_: int, exchange: str, attempt: int) -> dict[str, Submission]:
        """Node -> its accepted contribution to one attempt of an exchange."""
        statement = (
            f"SELECT {_SUBMISSION_COLUMNS} FROM submissions "  # noqa: S608 - names
            "WHERE digest = ? AND round = ? AND exchange = ? AND attempt = ?"
        )
        rows = [Submission(*r) for r in self._read(statement, (digest, round_, exchange, attempt))]
        return {s.node: s for s in rows}

    def release_submissions(self, digest: str) -> None:
        """The blobs of a run's contributions and sums so far are no longer needed; that they were stays known."""
        self._write("UPDATE submissions SET kept = 0 WHERE digest = ? AND kept = 1", (digest,))
        self.release_sums(digest)

    def needed_blobs(self) -> set[str]:
        """Digests of all blobs that some run still needs."""
        rows = self._read(
            "SELECT server FROM runs UNION SELECT broadcast FROM runs "
            "UNION SELECT payload FROM submissions WHERE kept = 1 "
            "UNION SELECT serving FROM published UNION SELECT routing FROM published"
        )
        return {r[0] for r in rows if r[0]} | self.kept_sums()

    # Routed prediction ------------------------------------------------------------------------------------------------
    def publish(self, published: Published) -> None:
        """A completed run answers queries from now on."""
        values = tuple(getattr(published, c) for c in Published.__slots__)
        self._write("INSERT OR REPLACE INTO published VALUES (?, ?, ?, ?, ?)", values)

    def published(self) -> dict[str, Published]:
        """Digest -> what the run answers queries with, of all that do."""
        if self.format < _PREDICTION_FORMAT:
            return {}
        return {r[0]: Published(*r) for r in self._read("SELECT * FROM published ORDER BY digest")}

    def set_served(self, rows: Iterable[Served]) -> None:
        """Replace what ``served`` returns."""
        with self.transaction():
            self._write("DELETE FROM served", ())
            for row in rows:
                values = (row.digest, row.node, int(row.reachable), row.answered, row.unreachable)
                self._write("INSERT INTO served VALUES (?, ?, ?, ?, ?)", values)

    def served(self) -> list[Served]:
        """The nodes that serve, by run and name."""
        if self.format < _PREDICTION_FORMAT:
            return []
        rows = self._read("SELECT * FROM served ORDER BY digest, node")
        return [Served(d, node, bool(there), answered, missed) for d, node, there, answered, missed in rows]

    # Figures ----------------------------------------------------------------------------------------------------------
    def set_metric(self, digest: str, round_: int, name: str, value: float | None) -> None:
        """One figure of a round; ``None`` when it is not a finite number."""
        self._write("INSERT OR REPLACE INTO metrics VALUES (?, ?, ?, ?)", (digest, round_, name, value))

    def metrics(self, digest: str) -> dict[int, dict[str, float | None]]:
        """Round -> name -> value."""
        found: dict[int, dict[str, float | None]] = {}
        rows = self._read("SELECT round, name, value FROM metrics WHERE digest = ? ORDER BY round, name", (digest,))
        for round_, name, value in rows:
            found.setdefault(round_, {})[name] = value
        return found

    def add_traffic(self, digest: str, round_: int, node: str, *, up: int = 0, down: int = 0) -> None:
        """Add payload bytes that a node sent (``up``) or was sent (``down``) in a round."""
        self._write(
            "INSERT INTO traffic VALUES (?, ?, ?, ?, ?) ON CONFLICT (digest, round, node) "
            "DO UPDATE SET up = up + excluded.up, down = down + excluded.down",
            (digest, round_, node, up, down),
        )

    def traffic(self, digest: str) -> dict[int, dict[str, tuple[int, int]]]:
        """Round -> node -> (bytes up, bytes down)."""
        found: dict[int, dict[str, tuple[int, int]]] = {}
        for round_, node, up, down in self._read(
            "SELECT round, node, up, down FROM traffic WHERE digest = ? ORDER BY round, node", (digest,)
        ):
            found.setdefault(round_, {})[node] = (up, down)
        return found
