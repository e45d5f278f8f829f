"""The release log against the privacy ledger: a ledger that was put back to an older copy lacks what the log knows.

Each entry is written to the ledger, then to the log, then what it pays for is computed. So a ledger may be ahead of the
log (another node's entries; one of a crash in between, which ``catch_up`` writes), and never behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fedsecure.errors import PrivacyBudgetExceeded, ReleaseLogError
from fedsecure.files import shown
from fedsecure.privacy.entries import Entry
from fedsecure.privacy.ledger import Ledger
from fedsecure.text import counted
from fedsecure_node.log.chain import CHARGED, Record
from fedsecure_node.log.charges import Charged, charged
from fedsecure_node.log.releaselog import ReleaseLog

__all__ = ["catch_up", "check_holds", "check_not_rolled_back", "log_entry", "readable_charges", "restore_ledger"]


def log_entry(log: ReleaseLog, entry: Entry) -> Record:
    """Write an entry of the ledger to the log; it is on the disk on return, and only then is anything computed."""
    return log.append(CHARGED, entry.to_json(), only_if=lambda _: None)


def check_not_rolled_back(ledger: Ledger, log: ReleaseLog) -> None:
    """Raise ``PrivacyBudgetExceeded`` when the ledger lacks an entry that the log knows: what was spent is more than
    it tells, so it can pay for nothing."""
    check_holds(ledger, log.charges())


def check_holds(ledger: Ledger, known: Mapping[str, Charged]) -> None:
    """As ``check_not_rolled_back``, with what a log that was verified knows."""
    lacking = ledger.missing(known)
    if lacking:
        first = min(known[hash_].record for hash_ in lacking)
        raise PrivacyBudgetExceeded(
            f"{shown(ledger.path)}: lacks {counted(len(lacking), 'entry', 'entries')} that the release log knows, the "
            f"first in its record {first}: this ledger is an older copy, or another one",
            hint="put the newest ledger back, or re-enter what the log knows: fedsecure node budget restore",
        )


def catch_up(ledger: Ledger, log: ReleaseLog, node: str) -> int:
    """Write to the log what the ledger holds of ``node`` and the log lacks: after a crash between the two, or of a
    time before a log that was forgotten. Returns how many."""
    known = log.charges()
    lacking = [entry for entry in ledger.entries() if entry.what.node == node and entry.hash not in known]
    for entry in lacking:
        log_entry(log, entry)
    return len(lacking)


def restore_ledger(ledger: Ledger, log: ReleaseLog) -> list[Entry]:
    """Put back into the ledger what the log knows and it lacks; returns these, as they stand in it now."""
    return ledger.restore(each.entry for each in log.charges().values())


def readable_charges(records: Iterable[Record]) -> list[Entry]:
    """The entries that the readable records of a damaged log tell of, up to the first that is malformed."""
    found: list[Entry] = []
    for record in records:
        try:
            if record.kind == CHARGED:
                found.append(charged(record).entry)
        except ReleaseLogError:
            break
    return found
