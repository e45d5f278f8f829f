"""The release log against the privacy ledger: a ledger that was put back to an older copy lacks what the log knows.

Each entry is written to the ledger, then to the log, then what it pays for is computed. So a ledger may be ahead of the
log (another node's entries; one of a crash in between, which ``catch_up`` writes), and never behind it. Which data sets
share one history is told likewise (``linking``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from fedsecure.errors import PrivacyBudgetExceeded, ReleaseLogError
from fedsecure.files import exists, shown
from fedsecure.privacy.entries import Entry
from fedsecure.privacy.ledger import Ledger
from fedsecure.text import counted
from fedsecure_node.log.chain import CHARGED, LINKED, Record
from fedsecure_node.log.charges import Charged, charged
from fedsecure_node.log.linking import check_links, put_back_links
from fedsecure_node.log.links import Links, linked
from fedsecure_node.log.releaselog import ReleaseLog

__all__ = [
    "catch_up",
    "check_holds",
    "check_ledger_at",
    "check_not_rolled_back",
    "log_entry",
    "readable_charges",
    "readable_links",
    "restore_ledger",
]

_T = TypeVar("_T")


def log_entry(log: ReleaseLog, entry: Entry) -> Record:
    """Write an entry of the ledger to the log; it is on the disk on return, and only then is anything computed."""
    return log.append(CHARGED, entry.to_json(), only_if=lambda _: None)


def check_not_rolled_back(ledger: Ledger, log: ReleaseLog, *, marks: bool = False) -> None:
    """Raise ``PrivacyBudgetExceeded`` when the ledger lacks an entry that the log knows, or parts data sets that share
    records: what was spent is more than it tells, so it can pay for nothing. ``marks``: see ``check_links``."""
    check_holds(ledger, log.charges(), log.links(), marks=marks)


def check_holds(ledger: Ledger, known: Mapping[str, Charged], links: Links, *, marks: bool = True) -> None:
    """As ``check_not_rolled_back``, with what a log that was verified knows."""
    lacking = ledger.missing(known)
    if lacking:
        first = min(known[hash_].record for hash_ in lacking)
        raise PrivacyBudgetExceeded(
            f"{shown(ledger.path)}: lacks {counted(len(lacking), 'entry', 'entries')} that the release log knows, the "
            f"first in its record {first}: this ledger is an older copy, or another one",
            hint="put the newest ledger back, or re-enter what the log knows: fedsecure node budget restore",
        )
    if known:  # before that there is no history to be parted from
        check_links(ledger, links, marks=marks)


def check_ledger_at(path: Path, known: Mapping[str, Charged], links: Links) -> int | None:
    """As ``check_holds``, of the ledger at ``path``, changing nothing; returns how many entries it has, ``None`` where
    there is none yet. Raises ``PrivacyBudgetExceeded`` when it is gone, and ``StoreError`` when an entry is not as it
    was written, or it cannot be read."""
    if not exists(path):
        if known:
            raise PrivacyBudgetExceeded(
                f"{shown(path)}: is gone, though the release log knows {counted(len(known), 'entry', 'entries')}",
                hint="put it back, or re-enter what the log knows: fedsecure node budget restore",
            )
        return None
    with Ledger(path, "read") as ledger:
        check_holds(ledger, known, links)
        return len(ledger.entries())


def catch_up(ledger: Ledger, log: ReleaseLog, node: str) -> int:
    """Write to the log what the ledger holds of ``node`` and the log lacks: after a crash between the two, or of a
    time before a log that was forgotten. Returns how many."""
    known = log.charges()
    lacking = [entry for entry in ledger.entries() if entry.what.node == node and entry.hash not in known]
    for entry in lacking:
        log_entry(log, entry)
    return len(lacking)


def restore_ledger(ledger: Ledger, log: ReleaseLog) -> list[Entry]:
    """Put back into the ledger what the log knows and it lacks; returns the entries, as they stand in it now."""
    entries = ledger.restore(each.entry for each in log.charges().values())
    put_back_links(ledger, log)
    return entries


def readable_charges(records: Iterable[Record]) -> list[Entry]:
    """The entries that the readable records of a damaged log tell of, up to the first that is malformed."""
    return [each.entry for each in _readable(records, CHARGED, charged)]


def readable_links(records: Iterable[Record]) -> Links:
    """The same of the links between data sets."""
    found = Links()
    for each in _readable(records, LINKED, linked):
        found.add(each)
    return found


def _readable(records: Iterable[Record], kind: str, read: Callable[[Record], _T]) -> Iterator[_T]:
    with suppress(ReleaseLogError):
        for record in records:
            if record.kind == kind:
                yield read(record)
