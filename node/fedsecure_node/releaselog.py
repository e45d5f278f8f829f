"""Appending to the release log: under a lock, durable with its signed head, and repaired after a crash."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from fedsecure.errors import ReleaseLogError
from fedsecure.files import PRIVATE_FILE, sync_folder, write_durably
from fedsecure.locks import file_lock
from fedsecure_node.logchain import (
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
    """The log, open for appending. Several processes may append: each takes its turn under a lock file."""

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
    ) -> None:
        self._path = path
        self._lock = path.with_suffix(".lock")
        self._node = node
        self._signer = signer
        self._check = verifier
        self._head = head
        self._set_head = set_head
        self._clock = clock

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
            if found.records and (head is None or head.seq < found.tip[0]):
                self._move_head(*found.tip, found.length)
                return f"release log: the head now names record {found.tip[0]}, written just before a crash"
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
            self._write(b"\n", at=found.length + len(torn))
            self._move_head(*whole.tip, whole.length)
            return f"release log: record {record.seq} was completed (its newline was missing)"
        check_head(found, self._head(), self._check)  # a record that was acknowledged may not be torn
        start = torn[: len(_LINE_START)]
        if start != _LINE_START[: len(start)] or len(torn) > MAX_LINE_BYTES or _is_json(torn):
            raise log_fault(seq + 1, f"{len(torn)} bytes at the end of the log are not the beginning of a record")
        aside = self._path.with_name(f"{self._path.name}.torn-{seq + 1}")
        write_durably(aside, torn)
        with self._path.open("r+b") as file:
            file.truncate(found.length)
            os.fsync(file.fileno())
        return f"release log: {len(torn)} bytes of a record that a crash cut short were moved to {aside.name}"

    def records(self) -> tuple[Record, ...]:
        """All records, verified. Raises ``ReleaseLogError``."""
        with file_lock(self._lock, exclusive=False):
            return verify_log(self._path, self._head(), self._check).records

    def append(self, kind: str, body: Mapping[str, Any], *, only_if: Callable[[tuple[Record, ...]], None]) -> Record:
        """Add one record; it and the new head are on the disk on return.

        ``only_if`` sees the verified records under the lock and raises to forbid the append, so that two
        processes cannot decide the same release differently.
        """
        with file_lock(self._lock, exclusive=True):
            head = self._head()
            found = verify_log(self._path, head, self._check)
            only_if(found.records)
            seq, previous = found.tip
            record = {
                "seq": seq + 1,
                "prev": previous,
                "time": self._clock(),
                "node": self._node,
                "kind": kind,
                "body": dict(body),
            }
            signed = canonical(record)
            line = canonical({"record": record, "signature": self._signer.sign(RECORD_LABEL, signed).hex()}) + b"\n"
            self._write(line, at=found.length)
            digest = hashlib.sha256(signed).hexdigest()
            self._move_head(seq + 1, digest, found.length + len(line))
            return Record(seq + 1, kind, str(record["time"]), self._node, digest, dict(body))

    def _write(self, data: bytes, *, at: int) -> None:
        fresh = not self._path.exists()
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            done = 0
            while done < len(data):
                done += os.pwrite(handle, data[done:], at + done)
            os.fsync(handle)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(handle, at)
            raise ReleaseLogError(
                f"{self._path}: cannot be written: {error.strerror}", hint="nothing was sent; check the disk"
            ) from None
        finally:
            os.close(handle)
        if fresh:
            sync_folder(self._path.parent)

    def _move_head(self, seq: int, digest: str, length: int) -> None:
        unsigned = Head(seq, digest, length, "")
        self._set_head(Head(seq, digest, length, self._signer.sign(HEAD_LABEL, unsigned.signed_bytes()).hex()))


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except ValueError:
        return False
    return True
