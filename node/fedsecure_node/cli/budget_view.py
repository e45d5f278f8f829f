"""What ``fedsecure node budget`` tells: each history of the privacy ledger, composed anew, against the policy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fedsecure.errors import FedSecureError, PrivacyBudgetExceeded
from fedsecure.files import exists
from fedsecure.policy import Policy
from fedsecure.privacy.accounting import default_delta, epsilon
from fedsecure.privacy.datasets import DataSetRow
from fedsecure.privacy.entries import Entry
from fedsecure.privacy.ledger import Ledger
from fedsecure.privacy.spend import Spend
from fedsecure.text import counted
from fedsecure_node.assemble import open_log
from fedsecure_node.log.budget import check_holds, restore_ledger
from fedsecure_node.log.releaselog import ReleaseLog
from fedsecure_node.plans.institution import read_policy
from fedsecure_node.settings import NodeSettings
from fedsecure_node.store.store import Store, iso_time

__all__ = ["Account", "Budget", "read_budget", "restore_budget"]


@dataclass(frozen=True, slots=True)
class Account:
    """One history, and the data sets whose records share it (the oldest first). ``epsilon``: of all of it, at
    ``delta``; ``cap``: the policy's, ``None`` where it names none."""

    data_sets: tuple[DataSetRow, ...]
    history: tuple[Spend, ...]
    entries: tuple[Entry, ...]
    epsilon: float
    delta: float | None
    cap: float | None

    @property
    def charges(self) -> tuple[Entry, ...]:
        """What was paid for, in order."""
        return tuple(entry for entry in self.entries if entry.kind == "charge")

    @property
    def unprotected(self) -> int:
        """Releases without any guarantee."""
        return len(self.entries) - len(self.charges)

    def lines(self) -> list[str]:
        """For people."""
        newest = self.data_sets[-1]
        size = counted(newest.records, "record") if newest.known else "records not known"
        of = f" of {self.cap:g}" if self.cap is not None else ", and the policy names no cap"
        at = f" at delta {self.delta:.3g}" if self.delta is not None else ""
        found = [f"data set {newest.id[:12]}: {size}, epsilon {self.epsilon:.4g}{of}{at}"]
        if not newest.known:
            found.append("  counts for every data set until the node has read its records again")
        others = [f"{row.id[:12]} ({row.records})" for row in self.data_sets[:-1]]
        if others:
            found.append(f"  one history with {', '.join(others)}, which share records with it")
        found.extend(f"  {line}" for line in _by_plan(self.charges))
        if insecure := sum(1 for entry in self.charges if entry.what.noise == "torch"):
            found.append(f"  warning: {counted(insecure, 'charge')} with noise that can be repeated: no guarantee")
        if self.unprotected:
            releases = counted(self.unprotected, "release")
            found.append(f"  warning: {releases} of its records without any guarantee: epsilon says nothing of these")
        return found

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        finite = self.epsilon if math.isfinite(self.epsilon) else None
        return {
            "data_sets": [
                {"id": row.id, "records": row.records if row.known else None, "since": iso_time(row.first_ms)}
                for row in self.data_sets
            ],
            "epsilon": finite,
            "delta": self.delta,
            "cap": self.cap,
            "left": None if self.cap is None or finite is None else max(self.cap - finite, 0.0),
            "history": [asdict(spend) for spend in self.history],
            "unprotected": self.unprotected,
            "entries": [{**entry.to_json(), "time": iso_time(entry.time_ms)} for entry in self.entries],
        }


@dataclass(frozen=True, slots=True)
class Budget:
    """The ledger as it is. ``lacking``: how many entries the release log knows and the ledger does not; ``changed``: in
    which way it is not the ledger of the log, ``fault``: why the policy cannot be read; both ``""`` where all is
    well."""

    ledger: str
    identity: str
    counter: int
    accounts: tuple[Account, ...]
    lacking: int
    changed: str
    fault: str

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "ledger": self.ledger,
            "identity": self.identity or None,
            "counter": self.counter,
            "lacking": self.lacking,
            "changed": self.changed or None,
            "budgets": [account.to_json() for account in self.accounts],
        }


def read_budget(settings: NodeSettings) -> Budget:
    """The ledger and what the log says of it; changes nothing. Raises ``StoreError`` or ``ReleaseLogError``."""
    policy, fault = _policy(settings)
    path = settings.ledger
    with Store(settings.store, create=False) as store:
        log = open_log(store, settings)
        known, links = log.charges(), log.links()
    if not exists(path):
        return Budget(str(path), "", 0, (), len(known), "", fault)
    with Ledger(path, "read") as ledger:
        lacking, changed = len(ledger.missing(known)), ""
        try:
            check_holds(ledger, known, links)
        except PrivacyBudgetExceeded as error:
            changed = str(error)
        accounts = _accounts(ledger, policy)
        return Budget(str(path), ledger.identity, ledger.counter, accounts, lacking, changed, fault)


def restore_budget(settings: NodeSettings) -> list[Entry]:
    """Put back into the ledger, made anew if it is lost, what the log knows and it lacks."""
    with Store(settings.store, create=False) as store:
        log: ReleaseLog = open_log(store, settings)
        if not log.charges() and not exists(settings.ledger):
            return []
        with Ledger(settings.ledger) as ledger:
            return restore_ledger(ledger, log)


def _policy(settings: NodeSettings) -> tuple[Policy | None, str]:
    try:
        return read_policy(settings.policy).policy, ""
    except FedSecureError as error:
        return None, str(error)


def _accounts(ledger: Ledger, policy: Policy | None) -> tuple[Account, ...]:
    lineages: dict[int, list[DataSetRow]] = {}
    for row in ledger.data_sets():
        lineages.setdefault(row.lineage, []).append(row)
    return tuple(_account(ledger, rows, policy) for rows in lineages.values())


def _account(ledger: Ledger, rows: Sequence[DataSetRow], policy: Policy | None) -> Account:
    newest = rows[-1]
    entries, history = ledger.entries(newest.id), ledger.history(newest.id)
    delta = policy.privacy.delta if policy else None
    if delta is None and newest.known:
        delta = default_delta(newest.records)
    if delta is None:
        delta = next((entry.delta for entry in reversed(entries) if entry.delta is not None), None)
    spent = epsilon(history, delta) if history and delta is not None else 0.0
    return Account(tuple(rows), history, entries, spent, delta, policy.privacy.epsilon if policy else None)


def _by_plan(charges: Sequence[Entry]) -> list[str]:
    """A line for each plan, in the order of their first charge."""
    plans: dict[str, list[Entry]] = {}
    for entry in charges:
        plans.setdefault(entry.what.plan, []).append(entry)
    found = []
    for plan, its in plans.items():
        what, last = its[0].what, its[-1]
        after = f"epsilon {last.epsilon_after:.4g} after the last" if last.epsilon_after is not None else ""
        found.append(
            f"{what.name} ({plan[:12]}, node {what.node}, {what.mechanism}, {what.noise} noise): "
            f"{counted(len(its), 'charge')}, the last {iso_time(last.time_ms)}, {after}"
        )
    return found
