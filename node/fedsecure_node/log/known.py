"""What a daemon knows of its log between two looks at it, and how it takes in what another process added."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from fedsecure.errors import CertificateError, ReleaseLogError
from fedsecure_node.log.chain import CHARGED, HEAD_LABEL, LINKED, Head, Record, Scan, Verifier, scan
from fedsecure_node.log.charges import Charged, charged
from fedsecure_node.log.links import Links, linked
from fedsecure_node.log.queries import QueryTally
from fedsecure_node.log.releases import Release, advance

__all__ = ["Known"]


@dataclass(frozen=True, slots=True)
class Known:
    """The log when it was last verified or written: where and how it ends, every release in brief, what the privacy
    ledger was charged with and how it links data sets, and the queries of the last hour. ``sha256``: of the file's
    first ``length`` bytes; ``stamp``: what changes when anybody writes."""

    seq: int
    hash: str
    length: int
    ending: bytes
    head: Head | None
    stamp: tuple[int, ...]
    sha256: hashlib._Hash = field(repr=False)
    releases: dict[int, Release] = field(default_factory=dict)
    queries: QueryTally = field(default_factory=QueryTally)
    charges: dict[str, Charged] = field(default_factory=dict)
    links: Links = field(default_factory=Links)

    @classmethod
    def of(cls, found: Scan, head: Head | None, stamp: tuple[int, ...]) -> Known:
        """What a whole log that was verified tells."""
        seq, digest = found.tip
        made = cls(seq, digest, found.length, found.ending, head, stamp, found.sha256.copy())
        made._take_in(found.records)
        return made

    def with_record(self, record: Record, line: bytes, head: Head, stamp: tuple[int, ...]) -> Known:
        """The same with one more record, which this process wrote as ``line``."""
        self._take_in((record,))
        self.sha256.update(line)
        return replace(self, seq=record.seq, hash=record.hash, length=head.length, ending=line, head=head, stamp=stamp)

    def followed_by(
        self, data: bytes, head: Head | None, witness: Head | None, check: Verifier, stamp: tuple[int, ...]
    ) -> Known | None:
        """The same with what another process added since, of which alone the signatures are verified: the bytes before
        are those that were verified. ``None`` unless everything is at rest and in order; then all is to be verified."""
        if head is None or head != witness or head.length != len(data) or head.seq <= self.seq:
            return None
        sha256 = hashlib.sha256(data[: self.length])
        if sha256.digest() != self.sha256.digest():
            return None
        try:
            check(HEAD_LABEL, head.signed_bytes(), bytes.fromhex(head.signature))
            added = scan(data[self.length :], check, (self.seq, self.hash))
        except (CertificateError, ReleaseLogError):
            return None
        if added.torn or added.tip != (head.seq, head.hash):
            return None
        sha256.update(data[self.length :])
        self._take_in(added.records)
        return replace(
            self, seq=head.seq, hash=head.hash, length=head.length, ending=added.ending, head=head, stamp=stamp,
            sha256=sha256,
        )  # fmt: skip

    def _take_in(self, records: Iterable[Record]) -> None:
        for record in records:
            release = advance(self.releases, record)
            if release is not None:
                self.releases[release.number] = release.brief()
            self.queries.add(record)
            if record.kind == CHARGED:
                found = charged(record)
                self.charges[found.entry.hash] = found
            if record.kind == LINKED:
                self.links.add(linked(record))
