"""The release log against the links of the privacy ledger: which data sets share one history.

The ledger finds these by its marks of records, so both are told in the log: a data set that is parted from another, or
whose marks are not those that the log speaks of, shows that the file was changed by hand. Data sets are only ever
joined, and what is kept of their records never changes, so the log is behind the ledger or agrees with it.
"""

from __future__ import annotations

from fedsecure.errors import PrivacyBudgetExceeded
from fedsecure.files import shown
from fedsecure.privacy.ledger import Ledger
from fedsecure_node.log.chain import LINKED
from fedsecure_node.log.links import Links
from fedsecure_node.log.releaselog import ReleaseLog

__all__ = ["check_links", "put_back_links", "tell_links"]

_HINT = "put the newest ledger back, or re-enter what the log knows: fedsecure node budget restore"


def check_links(ledger: Ledger, links: Links, *, marks: bool) -> None:
    """Raise ``PrivacyBudgetExceeded`` when the ledger lacks a data set that the log knows, parts two that share one
    history, or, with ``marks`` (which reads all of them), no longer keeps the same of a data set's records."""
    lineages = {row.id: row.lineage for row in ledger.data_sets()}
    for first, *others in links.groups():
        for each in (first, *others):
            if each not in lineages:
                raise _changed(ledger, links, each, "is not in it")
            if lineages[each] != lineages[first]:
                raise _changed(ledger, links, each, f"no longer shares the history of {first[:12]}")
    for each in _changed_marks(ledger, links) if marks else ():
        raise _changed(ledger, links, each, "has other records than it had")


def tell_links(ledger: Ledger, log: ReleaseLog) -> None:
    """Write to the log what the ledger says of data sets and the log does not; after ``check_links``."""
    _tell(ledger, log, anew=not log.charges())


def put_back_links(ledger: Ledger, log: ReleaseLog) -> None:
    """Join in the ledger what the log says is one history; data sets whose records are not as they were count for all
    until they are read again. The log goes on from what stands in the ledger then."""
    links = log.links()
    ledger.rejoin(links.groups(), _changed_marks(ledger, links))
    _tell(ledger, log, anew=True)


def _changed_marks(ledger: Ledger, links: Links) -> list[str]:
    """Data sets that are known to both, and of whose records the ledger keeps something else than the log says."""
    now = ledger.kept_marks()
    return [id_ for id_, was in links.marks.items() if was is not None and now.get(id_, was) != was]


def _tell(ledger: Ledger, log: ReleaseLog, *, anew: bool) -> None:
    """``anew``: also where the log says something else."""
    links, now = log.links(), ledger.kept_marks()
    lineages: dict[int, list[str]] = {}
    for row in ledger.data_sets():
        lineages.setdefault(row.lineage, []).append(row.id)
    for members in lineages.values():
        told: dict[str, str | None] = {
            id_: now.get(id_)
            for id_ in members
            if id_ not in links.marks or (links.marks[id_] != now.get(id_) and (anew or id_ in now))
        }
        heads = {links.root(id_): id_ for id_ in members if id_ in links.marks}
        if told or len(heads) > 1:  # one of each history that the log knew as another
            told = {id_: links.marks[id_] for id_ in heads.values()} | told
            log.append(LINKED, {"data_sets": told}, only_if=lambda _: None)


def _changed(ledger: Ledger, links: Links, data_set: str, what: str) -> PrivacyBudgetExceeded:
    return PrivacyBudgetExceeded(
        f"{shown(ledger.path)}: data set {data_set[:12]} {what}, though the release log tells of it in its record "
        f"{links.records[data_set]}: this ledger was changed by hand, or is another one",
        hint=_HINT,
    )
