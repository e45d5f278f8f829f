"""The release log: JSON lines, each chained to the one before by SHA-256 and signed with the node's Ed25519 key.

A line is the canonical JSON of ``{"record": …, "signature": hex}`` and a newline. A record names its sequence number
(from 1), the SHA-256 of the record before it (of nothing: 64 zeros), the time, the node, its kind and the kind's own
fields. A signed head (sequence number, hash, length of the file in bytes) is kept apart, in the store's database, so
that records cut off the end are missed as well. What nobody can show from one machine alone: a store put back as a
whole, log and database, to an older copy of itself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedsecure.errors import CertificateError, ReleaseLogError
from fedsecure.files import faults

__all__ = [
    "ANNOUNCED",
    "CHARGED",
    "CLOSED",
    "CONFIRMED",
    "FORGOTTEN",
    "GENESIS",
    "HEAD_LABEL",
    "KINDS",
    "LINKED",
    "MASKED",
    "PREDICTION",
    "PREDICTION_REFUSED",
    "RECORD_LABEL",
    "TRUSTED",
    "UNMASKED",
    "UNTRUSTED",
    "Head",
    "Record",
    "Scan",
    "Verifier",
    "canonical",
    "check_head",
    "log_fault",
    "parse_line",
    "read_log",
    "readable",
    "scan",
    "verify_log",
]

GENESIS = "0" * 64
#: The first record of a log that takes the place of one that is lost: who gave that up, and why.
FORGOTTEN = "forgotten"
#: An answer to an analyst's query, before it leaves; and a query that was refused.
PREDICTION = "prediction"
PREDICTION_REFUSED = "prediction-refused"
#: Of a release whose summed half goes under masks: before masked vectors leave; before this node's confirmation does,
#: after which others can open the sum without it; before this node's shares do, which let the sum be read; when the
#: coordinator announces a sum that this node is inside; and when the exchange is over without any of the last two.
MASKED = "masked"
CONFIRMED = "confirmed"
UNMASKED = "unmasked"
ANNOUNCED = "announced"
CLOSED = "closed"
#: Of a cohort's manifest: before it is pinned; and once a person took that back.
TRUSTED = "trusted"
UNTRUSTED = "untrusted"
#: An entry of the privacy ledger, after it is on the disk there and before what it pays for is computed.
CHARGED = "charged"
#: Which data sets share one history in the privacy ledger, and what it keeps of their records.
LINKED = "linked"
#: Kinds of records. ``release``: bytes that may leave, before they do. ``forgotten`` speaks of the log itself,
#: ``charged`` and ``linked`` of the ledger, the two of queries each of one query, the last two of a cohort, the others
#: of one release by its number.
KINDS = (
    "release",
    "held",
    "withheld",
    "released",
    "refused",
    "sending",
    "acknowledged",
    "unsent",
    "lapsed",
    MASKED,
    CONFIRMED,
    UNMASKED,
    ANNOUNCED,
    CLOSED,
    CHARGED,
    LINKED,
    FORGOTTEN,
    PREDICTION,
    PREDICTION_REFUSED,
    TRUSTED,
    UNTRUSTED,
)
RECORD_LABEL = "release-log/v1"
HEAD_LABEL = "release-log-head/v1"
#: (label, payload, signature) -> returns, or raises ``CertificateError``.
Verifier = Callable[[str, bytes, bytes], None]


def canonical(value: Any) -> bytes:
    """The one JSON form that hashes and signatures are taken over: sorted keys, no spaces, UTF-8, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


@dataclass(frozen=True, slots=True)
class Head:
    """Where the log ends: last sequence number, its record's hash, the file's length in bytes, and a signature
    over these."""

    seq: int
    hash: str
    length: int
    signature: str

    def signed_bytes(self) -> bytes:
        """What the signature covers."""
        return canonical({"seq": self.seq, "hash": self.hash, "length": self.length})

    def to_json(self) -> str:
        """For the store."""
        return canonical(
            {"seq": self.seq, "hash": self.hash, "length": self.length, "signature": self.signature}
        ).decode()

    @classmethod
    def from_json(cls, text: str) -> Head:
        """From the store, which has it as ``to_json`` writes it. Raises ``ReleaseLogError`` when it is not a head."""
        try:
            raw = json.loads(text)
            head = cls(raw["seq"], raw["hash"], raw["length"], raw["signature"])
            plain = bytes.fromhex(head.signature).hex() == head.signature and head.to_json() == text
            if plain and type(head.seq) is int and type(head.length) is int and isinstance(head.hash, str):
                return head
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
        raise ReleaseLogError("release log: its head in the store is malformed", hint="restore the store from a backup")


@dataclass(frozen=True, slots=True)
class Record:
    """One verified line."""

    seq: int
    kind: str
    time: str
    node: str
    hash: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Scan:
    """A verified log: its records, the length of the complete lines, an incomplete last line (``b""`` if none), the
    last complete one, and the SHA-256 of all complete ones."""

    records: tuple[Record, ...]
    length: int
    torn: bytes
    ending: bytes = b""
    sha256: hashlib._Hash = field(default_factory=hashlib.sha256, repr=False)

    @property
    def tip(self) -> tuple[int, str]:
        """Sequence number and hash of the last record."""
        return (self.records[-1].seq, self.records[-1].hash) if self.records else (0, GENESIS)


def log_fault(seq: int, what: str) -> ReleaseLogError:
    """The error that names a record of the log and what is wrong with it."""
    return ReleaseLogError(
        f"release log, record {seq}: {what}",
        hint="compare with a backup of the store; tell the privacy officer: the log was changed after it was written",
    )


def parse_line(line: bytes, seq: int, previous: str, check: Verifier) -> Record:
    """One complete line (without its newline) as record ``seq`` after the record with hash ``previous``."""
    try:
        raw = json.loads(line)
        record, signature = raw["record"], bytes.fromhex(raw["signature"])
        same = canonical(raw) == line and set(raw) == {"record", "signature"} and signature.hex() == raw["signature"]
        kind, time, node, body = record["kind"], record["time"], record["node"], record["body"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise log_fault(seq, "is not a record (changed, or several run together)") from None
    if not same or set(record) != {"seq", "prev", "time", "node", "kind", "body"}:
        raise log_fault(seq, "is not in canonical form: it was changed")
    if record["seq"] != seq or type(record["seq"]) is not int:
        raise log_fault(seq, f"its place is taken by record {record['seq']}: records were removed, added or moved")
    if record["prev"] != previous:
        raise log_fault(seq, "does not follow the record before it: the chain is broken")
    signed = canonical(record)
    try:
        check(RECORD_LABEL, signed, signature)
    except CertificateError:
        raise log_fault(seq, "its signature is not by this node's identity key, or its text was changed") from None
    if kind not in KINDS or not isinstance(body, dict):
        raise log_fault(seq, f"is of an unknown kind {str(kind)[:20]!r}")
    return Record(seq, kind, str(time), str(node), hashlib.sha256(signed).hexdigest(), body)


def scan(data: bytes, check: Verifier, after: tuple[int, str] = (0, GENESIS)) -> Scan:
    """Verify every complete line; ``after``: number and hash of the record before the first one. Raises
    ``ReleaseLogError`` naming the first record that is wrong."""
    records: list[Record] = []
    (seq, previous), at, start = after, 0, 0
    while (end := data.find(b"\n", at)) >= 0:
        record = parse_line(data[at:end], seq + 1, previous, check)
        records.append(record)
        seq, previous, start, at = record.seq, record.hash, at, end + 1
    return Scan(tuple(records), at, data[at:], data[start:at], hashlib.sha256(data[:at]))


def readable(data: bytes, check: Verifier) -> list[Record]:
    """The records of a log that may be damaged: those before the first that does not verify."""
    found: list[Record] = []
    seq, previous = 0, GENESIS
    for line in data.split(b"\n"):
        try:
            record = parse_line(line, seq + 1, previous, check)
        except ReleaseLogError:
            break
        found.append(record)
        seq, previous = record.seq, record.hash
    return found


def check_head(found: Scan, head: Head | None, check: Verifier) -> None:
    """Compare a scanned log with the signed head: nothing cut off, at most the one record of a crash beyond it."""
    if head is None:
        if len(found.records) > 1:
            raise log_fault(found.tip[0], "the store has no head for a log of several records: the store was replaced")
        return
    try:
        check(HEAD_LABEL, head.signed_bytes(), bytes.fromhex(head.signature))
    except CertificateError:
        raise ReleaseLogError(
            "release log: the head in the store is not signed by this node's identity key",
            hint="the store was changed; restore it from a backup",
        ) from None
    have = found.tip[0]
    if have < head.seq:
        raise log_fault(head.seq, f"is missing: the log ends with record {have}, {head.seq} were written")
    if head.seq and found.records[head.seq - 1].hash != head.hash:
        raise log_fault(head.seq, "is not the one that the signed head names")
    if have > head.seq + 1:
        raise log_fault(head.seq + 2, "lies beyond the signed head: the store's database is older than the log")


def verify_log(path: Path, head: Head | None, check: Verifier) -> Scan:
    """Verify a log file against its head, offline and without changing anything. Raises ``ReleaseLogError``."""
    found = scan(read_log(path), check)
    check_head(found, head, check)
    if found.torn:
        raise ReleaseLogError(
            f"release log: {len(found.torn)} bytes after record {found.tip[0]} are no complete record",
            hint="a crash leaves this and the node's next start repairs it; otherwise somebody added to the file",
        )
    return found


def read_log(path: Path) -> bytes:
    """The log's bytes; none when nothing was logged yet."""
    with faults(path, "read"):
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return b""
