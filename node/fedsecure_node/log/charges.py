"""What the release log says of the privacy ledger: each entry, after it is on the disk there."""

from __future__ import annotations

from dataclasses import dataclass

from fedsecure.errors import StoreError
from fedsecure.privacy.entries import Entry
from fedsecure_node.log.chain import Record, log_fault

__all__ = ["Charged", "charged"]


@dataclass(frozen=True, slots=True)
class Charged:
    """An entry of a ledger, and the number of the log's record that holds it."""

    record: int
    entry: Entry


def charged(record: Record) -> Charged:
    """What a ``charged`` record holds. Raises ``ReleaseLogError``."""
    try:
        return Charged(record.seq, Entry.from_json(record.body, f"record {record.seq}"))
    except StoreError:
        raise log_fault(record.seq, "holds no entry of a privacy ledger") from None
