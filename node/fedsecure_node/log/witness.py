"""The log's last head, kept beside the identity key: outside the store, so that a store that is lost or old is missed.

``identity.head`` (mode 0600) holds the signed head as the store does (``logchain.Head``) and follows it at every
append, after log and store. It never runs ahead of a log that is all there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedsecure.errors import CertificateError, ReleaseLogError
from fedsecure.files import faults, write_durably
from fedsecure.text import counted
from fedsecure_node.log.chain import HEAD_LABEL, Head, Record, Verifier

__all__ = ["Witness"]

_LOST = "put the store back as it was; if it is lost for good: fedsecure node forget-log --reason TEXT"


class Witness:
    """The head file of one identity key."""

    def __init__(self, identity: Path) -> None:
        """``identity``: the private key's file; the head lies beside it."""
        self.path = identity.with_suffix(".head")

    def read(self) -> Head | None:
        """The head, its signature unchecked; ``None`` before the first record. Raises ``ReleaseLogError`` when it is
        malformed, ``StoreError`` when it cannot be read."""
        with faults(self.path, "read"):
            try:
                text = self.path.read_text(encoding="utf-8", errors="replace")
            except FileNotFoundError:
                return None
        try:
            return Head.from_json(text)
        except ReleaseLogError:
            raise ReleaseLogError(f"{self.path}: is not the head of a release log", hint=_LOST) from None

    def write(self, head: Head) -> None:
        """Keep a new head; on the disk on return. Raises ``StoreError``."""
        write_durably(self.path, head.to_json().encode())

    def require(self, records: Sequence[Record]) -> None:
        """Raise ``ReleaseLogError`` when a log of these records has no head beside the key."""
        if records and self.read() is None:
            raise ReleaseLogError(
                f"{self.path}: is missing, though the store has {counted(len(records), 'record')}: nothing outside the "
                "store tells whether it was put back to an older copy",
                hint="put it back from a backup; the node's next start makes it anew, and says so",
            )

    def check(self, records: Sequence[Record], verifier: Verifier, head: Head | None = None) -> None:
        """Hold a verified log against ``head``, by default the one that is kept now.

        Raises ``ReleaseLogError`` naming the record that the log lacks, or that is not the one that was written.
        """
        head = head or self.read()
        if head is None:
            return
        try:
            verifier(HEAD_LABEL, head.signed_bytes(), bytes.fromhex(head.signature))
        except CertificateError:
            raise ReleaseLogError(f"{self.path}: is not signed by this node's identity key", hint=_LOST) from None
        if len(records) < head.seq:
            raise ReleaseLogError(
                f"release log, record {head.seq}: is missing: the store has {counted(len(records), 'record')}, "
                f"{self.path} names {head.seq}: the store was lost, or put back to an older copy",
                hint=_LOST,
            )
        if head.seq and records[head.seq - 1].hash != head.hash:
            raise ReleaseLogError(
                f"release log, record {head.seq}: is not the one that {self.path} names: the store is another one",
                hint=_LOST,
            )
