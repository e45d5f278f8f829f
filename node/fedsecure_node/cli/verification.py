"""Verifying a release log and the bytes it speaks of: offline, read-only, with nothing but the folder and the public
key."""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fedsecure.crypto.signatures import identity_fingerprint, verify
from fedsecure.errors import ConfigError, ReleaseLogError, StoreError
from fedsecure.files import exists, is_folder
from fedsecure.text import counted
from fedsecure_node.log.budget import check_ledger_at
from fedsecure_node.log.chain import CHARGED, FORGOTTEN, LINKED, PREDICTION, Head, Record, Scan, Verifier, verify_log
from fedsecure_node.log.charges import charged
from fedsecure_node.log.cohorts import CohortDecision, cohort_decisions
from fedsecure_node.log.links import Links, linked
from fedsecure_node.log.masks import kept_digest
from fedsecure_node.log.queries import entries
from fedsecure_node.log.releases import Release, fold
from fedsecure_node.log.witness import Witness
from fedsecure_node.settings import NodeSettings
from fedsecure_node.store.snapshot import snapshot
from fedsecure_node.store.store import HEAD_QUERY

__all__ = ["Verified", "verify_ledger", "verify_node", "verify_store"]

#: How often log and head are read again while a daemon writes, and the pause before (seconds).
TRIES, PAUSE_S = 20, 0.05
#: So long may a disk take to keep a record once it can be read (seconds).
FIRST_HEAD_S = 5.0


@dataclass(frozen=True, slots=True)
class Verified:
    """A log that is whole: its records, its releases, and the key that signed all of it."""

    records: tuple[Record, ...]
    releases: dict[int, Release]
    identity: str

    @property
    def counts(self) -> str:
        """``3 records of 1 release``."""
        return f"{counted(len(self.records), 'record')} of {counted(len(self.releases), 'release')}"

    @property
    def answers(self) -> int:
        """How many answers to queries left."""
        return sum(1 for query in entries(self.records) if query.answered)

    @property
    def cohorts(self) -> tuple[CohortDecision, ...]:
        """When a cohort was trusted, or that was taken back."""
        return tuple(cohort_decisions(self.records))

    @property
    def forgotten(self) -> dict[str, Any] | None:
        """What the first record says of a log before this one that was given up, if it does."""
        first = self.records[0] if self.records else None
        return dict(first.body) if first is not None and first.kind == FORGOTTEN else None


def verify_store(folder: Path, public_bytes: bytes) -> Verified:
    """Check chain, signatures, order and end of the log, and that each release's bytes (with a half that leaves under
    masks), and the policy that it or an answer to a query was checked against, are those that it names.

    Only reads, without any lock: a copy that may only be read will do, and a daemon may write meanwhile. Raises
    ``ReleaseLogError`` naming the record, ``ConfigError`` when there is no store, ``StoreError`` when it cannot be
    read.
    """
    if not is_folder(folder):
        raise ConfigError(f"{folder}: no store", hint="check --dir")
    if not exists(folder / "store.db"):
        raise ReleaseLogError(
            f"{folder}: has no store.db, which tells where the release log ends: it was emptied, or is no node's store",
            hint="check --dir; put the store back from a backup",
        )
    path = folder / "releases.jsonl"
    found = _at_rest(path, lambda: _head(folder), partial(verify, public_bytes))
    releases = fold(found.records)
    for release in releases.values():
        for digest, what in ((release.payload, "its bytes"), (kept_digest(release.body), "all of its tensors")):
            _check_file(f"release {release.number}", folder / "releases" / f"{digest}.bin", digest, what)
        if digest := release.body["audit"].get("report"):
            path = folder / "audits" / f"{digest}.json"
            _check_file(f"release {release.number}", path, digest, "the report of its audit")
    for policy, named in _policies(found.records).items():
        _check_file(named, folder / "policies" / f"{policy}.toml", policy, "the policy it was checked against")
    return Verified(found.records, releases, identity_fingerprint(public_bytes))


def verify_node(settings: NodeSettings, public_bytes: bytes) -> Verified:
    """As ``verify_store``, for the store of a node and against the head that lies beside its key.

    Raises ``ReleaseLogError`` as well when the head is missing, or names records that the store lacks, be it because
    all of it is gone.
    """
    witness, check = Witness(settings.identity), partial(verify, public_bytes)
    known = witness.read()  # before the log, which may grow meanwhile
    if not exists(settings.store):
        witness.check((), check, known)
    found = verify_store(settings.store, public_bytes)
    if known is None and found.records:
        end = time.monotonic() + FIRST_HEAD_S  # a daemon's very first record: its head comes last
        while witness.read() is None and time.monotonic() < end:
            time.sleep(PAUSE_S)
        witness.require(found.records)
    witness.check(found.records, check, known)
    return found


def verify_ledger(settings: NodeSettings, records: Sequence[Record]) -> int | None:
    """Hold the privacy ledger against ``records`` of a log that was verified, as ``check_ledger_at`` does."""
    known = {each.entry.hash: each for each in map(charged, (r for r in records if r.kind == CHARGED))}
    links = Links()
    for record in records:
        if record.kind == LINKED:
            links.add(linked(record))
    return check_ledger_at(settings.ledger, known, links)


def _policies(records: tuple[Record, ...]) -> dict[str, str]:
    """SHA-256 of each policy that the log names -> the first release or answer that was checked against it."""
    named: dict[str, str] = {}
    for record in records:
        if record.kind in ("release", PREDICTION):
            what = "release" if record.kind == "release" else "query"
            named.setdefault(str(record.body["policy"]), f"{what} {record.seq}")
    return named


def _at_rest(path: Path, head: Callable[[], Head | None], check: Verifier) -> Scan:
    """Verify the log against a head that did not move meanwhile; a fault counts once nothing moves any more."""
    still = False
    for left in reversed(range(TRIES)):
        before = head()
        try:
            found = verify_log(path, before, check)
        except ReleaseLogError:
            if still or not left:
                raise
            still = _still(path, before, head)  # what was read may have been half of a line: it is read once more
            continue
        if head() == before or not left:
            return found
    raise AssertionError("the last try returns or raises")


def _still(path: Path, before: Head | None, head: Callable[[], Head | None]) -> bool:
    """Whether neither the log nor its head moves for a moment: a daemon's append has two steps."""
    size = path.stat().st_size if exists(path) else -1
    time.sleep(PAUSE_S)
    return head() == before and (path.stat().st_size if exists(path) else -1) == size


def _head(folder: Path) -> Head | None:
    path = folder / "store.db"
    if not exists(path):
        return None
    connection = snapshot(path)
    try:
        if not connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
            raise ReleaseLogError(
                f"{path}: nothing is in it, not even where the release log ends: it was emptied, or is just being made",
                hint="a new node: try again; any other: put the store back from a backup",
            )
        row = connection.execute(HEAD_QUERY).fetchone()
    except sqlite3.Error as error:
        raise StoreError(f"{path}: is not a node's store: {error}", hint="check --dir") from None
    finally:
        connection.close()
    return Head.from_json(row["value"]) if row else None


def _check_file(named: str, path: Path, digest: str, what: str) -> None:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ReleaseLogError(
            f"{named}: {what} cannot be read: {path}: {error.strerror}",
            hint="restore the file from a backup; the record itself is sound",
        ) from None
    if hashlib.sha256(data).hexdigest() != digest:
        raise ReleaseLogError(
            f"{named}: {path} is not what the log says: {what}",
            hint="the file was damaged or changed after it was logged; restore it from a backup",
        )
