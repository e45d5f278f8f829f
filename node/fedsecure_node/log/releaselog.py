"""Appending to the release log: under a lock, durable with its signed head, and repaired after a crash.

The whole log is verified when a daemon starts and by every verb that reads it. Between its appends a daemon only looks
whether file and head are still those that it verified or wrote last; when another process added to it, it compares the
SHA-256 of what was there and verifies what is new; when anything else changed, it verifies the whole again.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from fedsecure.errors import CertificateError, LocalProtocolError, ReleaseLogError
from fedsecure.files import PRIVATE_FILE, exists, faults, sync_folder, write_durably
from fedsecure.locks import file_lock
from fedsecure_node.log.chain import (
    FORGOTTEN,
    GENESIS,
    HEAD_LABEL,
    RECORD_LABEL,
    Head,
    Record,
    Scan,
    Verifier,
    canonical,
    check_head,
    log_fault,
    parse_line,
    read_log,
    scan,
    verify_log,
)
from fedsecure_node.log.charges import Charged
from fedsecure_node.log.known import Known
from fedsecure_node.log.links import Links
from fedsecure_node.log.queries import QueryTally
from fedsecure_node.log.releases import Release, advance
from fedsecure_node.log.witness import Witness

__all__ = ["ReleaseLog", "Signer"]

#: A line longer than this is not a record of ours (bytes).
MAX_LINE_BYTES = 16 << 20
_LINE_START = b'{"record":{'


class Signer(Protocol):
    """The node's identity, as the log needs it."""

    @property
    def public_bytes(self) -> bytes:
        """The Ed25519 public key (32 bytes)."""
        ...

    def sign(self, label: str, payload: bytes) -> bytes:
        """Sign under a domain label."""
        ...


class ReleaseLog:
    """The log, open for appending. Several processes may append, and several threads of one: each takes its turn under
    a lock file."""

    def __init__(
        self,
        path: Path,
        *,
        node: str,
        signer: Signer,
        verifier: Verifier,
        head: Callable[[], Head | None],
        set_head: Callable[[Head], None],
        clock: Callable[[], str],
        witness: Witness,
    ) -> None:
        self._path = path
        self._lock = path.with_suffix(".lock")
        self._node = node
        self._signer = signer
        self._check = verifier
        self._head = head
        self._set_head = set_head
        self._clock = clock
        self._witness = witness
        self._verified: Known | None = None
        self._turn = threading.RLock()  # several threads may hold the lock file for reading at once

    def releases(self) -> Mapping[int, Release]:
        """Every release in its state, in brief, by number. Raises ``ReleaseLogError``."""
        with file_lock(self._lock, exclusive=False), self._turn:
            return self._current().releases

    def queries(self) -> QueryTally:
        """The queries of the last hour, for the one thread that answers them. Raises ``ReleaseLogError``."""
        with file_lock(self._lock, exclusive=False), self._turn:
            return self._current().queries

    def charges(self) -> Mapping[str, Charged]:
        """What the privacy ledger was charged with, by the hash of its entry. Raises ``ReleaseLogError``."""
        with file_lock(self._lock, exclusive=False), self._turn:
            return dict(self._current().charges)

    def links(self) -> Links:
        """Which data sets share one history, as the privacy ledger had it. Raises ``ReleaseLogError``."""
        with file_lock(self._lock, exclusive=False), self._turn:
            return self._current().links.copy()

    def recover(self) -> str:
        """Verify the whole log at start and repair what a crash can leave. Returns what was repaired, or ``""``.

        A record that is complete is never dropped: one beyond the head, or without its newline, is kept. Only a last
        line that is cut short goes, into a file beside the log. Raises ``ReleaseLogError`` for everything else.
        """
        with file_lock(self._lock, exclusive=True):
            found = scan(read_log(self._path), self._check)
            if found.torn:
                return self._repair(found)
            head = self._head()
            check_head(found, head, self._check)
            self._witness.check(found.records, self._check)
            beside = self._witness.read()
            if head is not None and head.seq == found.tip[0] and beside != head:
                self._witness.write(head)
            self._verified = self._as_known(found, head)
            if found.records and (head is None or head.seq < found.tip[0]):
                self._move_head(*found.tip, found.length)
                return f"release log: the head now names record {found.tip[0]}, written just before a crash"
        if found.records and beside is None:
            return f"{self._witness.path}: was missing; made anew, it names record {found.tip[0]} of the store"
        return ""

    def _repair(self, found: Scan) -> str:
        seq, previous = found.tip
        torn = found.torn
        try:
            record = parse_line(torn, seq + 1, previous, self._check)
        except ReleaseLogError:
            record = None
        if record is not None:  # only its newline is missing
            whole = Scan((*found.records, record), found.length + len(torn) + 1, b"")
            check_head(whole, self._head(), self._check)
            self._witness.check(whole.records, self._check)
            self._write(b"\n", at=found.length + len(torn))
            self._move_head(*whole.tip, whole.length)
            return f"release log: record {record.seq} was completed (its newline was missing)"
        check_head(found, self._head(), self._check)  # a record that was acknowledged may not be torn
        self._witness.check(found.records, self._check)
        start = torn[: len(_LINE_START)]
        if start != _LINE_START[: len(start)] or len(torn) > MAX_LINE_BYTES or _is_json(torn):
            raise log_fault(seq + 1, f"{len(torn)} bytes at the end of the log are not the beginning of a record")
        aside = self._path.with_name(f"{self._path.name}.torn-{seq + 1}")
        write_durably(aside, torn)
        with faults(self._path), self._path.open("r+b") as file:
            file.truncate(found.length)
            os.fsync(file.fileno())
        return f"release log: {len(torn)} bytes of a record that a crash cut short were moved to {aside.name}"

    def records(self) -> tuple[Record, ...]:
        """All records, verified. Raises ``ReleaseLogError``."""
        with file_lock(self._lock, exclusive=False), self._turn:
            head = self._head()
            found = verify_log(self._path, head, self._check)
            self._witness.check(found.records, self._check)
            self._verified = self._as_known(found, head)
            return found.records

    def append(self, kind: str, body: Mapping[str, Any], *, only_if: Callable[[Mapping[int, Release]], None]) -> Record:
        """Add one record; it and the new head are on the disk on return.

        ``only_if`` sees the releases under the lock and raises to forbid the append, so that two processes cannot
        decide the same release differently. Raises ``StoreError`` when the log cannot be written.
        """
        with file_lock(self._lock, exclusive=True):
            known = self._current()
            only_if(known.releases)
            record, line = self._compose(known.seq, known.hash, kind, body)
            advance(known.releases, record)  # raises when its release does not allow it
            self._verified = None  # until file and head are both on the disk
            self._write(line, at=known.length)
            head = self._move_head(record.seq, record.hash, known.length + len(line))
            self._verified = known.with_record(record, line, head, self._stamp())
            return record

    def begin_anew(self, *, by: str, reason: str) -> Record:
        """Set what there is of the log aside and begin another, whose first record says so. Only for a log that does
        not verify: raises ``LocalProtocolError`` for one that does."""
        with file_lock(self._lock, exclusive=True):
            fault = self._fault()
            if fault is None:
                raise LocalProtocolError("the release log is whole: there is nothing to forget")
            known = self._last_known()
            lost = {"record": known.seq, "hash": known.hash} if known else None
            body = {"by": by, "reason": reason, "fault": str(fault), "lost": lost, "kept": self._set_aside()}
            record, line = self._compose(0, GENESIS, FORGOTTEN, body)
            self._verified = None
            self._write(line, at=0)
            self._move_head(record.seq, record.hash, len(line))
            return record

    def _fault(self) -> ReleaseLogError | None:
        try:
            found = scan(read_log(self._path), self._check)
            check_head(found, self._head(), self._check)
            self._witness.check(found.records, self._check)
        except ReleaseLogError as fault:
            return fault
        return None

    def _last_known(self) -> Head | None:
        """The head beside the identity key, if it can be read and is this key's."""
        with suppress(ReleaseLogError, CertificateError):
            head = self._witness.read()
            if head is not None:
                self._check(HEAD_LABEL, head.signed_bytes(), bytes.fromhex(head.signature))
            return head
        return None

    def _set_aside(self) -> str:
        """Move the log out of the way; returns its new name, or ``""`` when there is none."""
        if not exists(self._path):
            return ""
        names = (self._path.with_name(f"{self._path.name}.forgotten-{n}") for n in itertools.count(1))
        aside = next(path for path in names if not exists(path))
        with faults(self._path, "moved"):
            self._path.rename(aside)
            sync_folder(aside.parent)
        return aside.name

    def _compose(self, seq: int, previous: str, kind: str, body: Mapping[str, Any]) -> tuple[Record, bytes]:
        """The record after the one of number ``seq`` and hash ``previous``, and its signed line."""
        fields = {"seq": seq + 1, "prev": previous, "time": self._clock(), "node": self._node}
        signed = canonical({**fields, "kind": kind, "body": dict(body)})
        signature = self._signer.sign(RECORD_LABEL, signed).hex()
        line = b'{"record":' + signed + b',"signature":"' + signature.encode() + b'"}\n'
        digest = hashlib.sha256(signed).hexdigest()
        return Record(seq + 1, kind, str(fields["time"]), self._node, digest, dict(body)), line

    def _current(self) -> Known:
        """The log as it is now, verified: what we know of it when it is still as we left it, with what another process
        added in order; else all of it anew."""
        head = self._head()
        known = self._verified
        if known is None or head != known.head or self._stamp() != known.stamp or self._ending(known) != known.ending:
            stamp, data = self._stamp(), read_log(self._path)
            self._verified = None
            followed = known.followed_by(data, head, self._witness.read(), self._check, stamp) if known else None
            known = followed or self._whole(head)
            self._verified = known
        return known

    def _whole(self, head: Head | None) -> Known:
        """All of the log, verified. Raises ``ReleaseLogError``."""
        found = verify_log(self._path, head, self._check)
        self._witness.check(found.records, self._check)
        return self._as_known(found, head)

    def _as_known(self, found: Scan, head: Head | None) -> Known:
        return Known.of(found, head, self._stamp())

    def _stamp(self) -> tuple[int, ...]:
        """What changes when anybody writes to the file or puts another in its place."""
        with faults(self._path, "looked at"):
            try:
                now = self._path.stat()
            except FileNotFoundError:
                return ()
        return (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns)

    def _ending(self, known: Known) -> bytes:
        if not known.ending:
            return b""
        with faults(self._path, "read"), self._path.open("rb") as file:
            file.seek(known.length - len(known.ending))
            return file.read()

    def _write(self, data: bytes, *, at: int) -> None:
        fresh = not exists(self._path)
        with faults(self._path):
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE_FILE)
            try:
                done = 0
                while done < len(data):
                    done += os.pwrite(handle, data[done:], at + done)
                os.fsync(handle)
            except OSError:
                with suppress(OSError):
                    os.ftruncate(handle, at)
                raise
            finally:
                os.close(handle)
            if fresh:
                sync_folder(self._path.parent)

    def _move_head(self, seq: int, digest: str, length: int) -> Head:
        unsigned = Head(seq, digest, length, "")
        head = replace(unsigned, signature=self._signer.sign(HEAD_LABEL, unsigned.signed_bytes()).hex())
        self._set_head(head)
        self._witness.write(head)
        return head


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except ValueError:
        return False
    return True
