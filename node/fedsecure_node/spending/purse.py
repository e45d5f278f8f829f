"""The ledger in the node's hands: held for its daemon, charged before anything is computed, and noted in the log.

The order is the promise: ledger (on the disk), log, then noise and computation. A crash between two of them leaves a
spend for something that was never made; the same exchange pays again when it is computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from fedsecure.errors import PolicyError
from fedsecure.files import exists
from fedsecure.plan import Plan
from fedsecure.plan.privacy import AnyPrivacySettings
from fedsecure.policy import Policy
from fedsecure.privacy.accounting import default_delta, epsilon
from fedsecure.privacy.datasets import DataSetRow
from fedsecure.privacy.entries import ChargedFor, Entry
from fedsecure.privacy.labels import Guarantee, label_of
from fedsecure.privacy.ledger import Ledger
from fedsecure.privacy.shares import SharedHistory, mechanism_of
from fedsecure.privacy.spend import Spend, merged
from fedsecure_node.keys import ExchangeKey
from fedsecure_node.log.budget import catch_up, check_not_rolled_back, log_entry
from fedsecure_node.log.linking import tell_links
from fedsecure_node.log.releaselog import ReleaseLog
from fedsecure_node.log.releases import NEVER_SENT

__all__ = ["COUNTING", "Limits", "Purse", "limits_of"]

#: What the counting of a run is called where exchanges are: it belongs to none.
COUNTING = "counting"


@dataclass(frozen=True, slots=True)
class Limits:
    """The institution's: what a data set may spend in its life, and the delta that it is told at."""

    cap: float
    delta: float


def limits_of(policy: Policy, records: int) -> Limits:
    """Of a data set of ``records``. Raises ``PolicyError`` when the policy lets nothing be spent, or its delta is not
    below 1 / n: then one record might be shown as it is."""
    rules = policy.privacy
    if rules.epsilon is None:
        raise PolicyError(
            "privacy.epsilon: the policy names no budget, so nothing may be spent",
            hint="set privacy.epsilon in policy.toml: for all that is ever computed from this data set with noise",
        )
    delta = default_delta(records) if rules.delta is None else rules.delta
    if delta * records >= 1:
        raise PolicyError(
            f"privacy.delta: {delta:g} is not below 1 / n of this data set",
            hint="leave it out: it is 1 / (10 n) then",
        )
    return Limits(rules.epsilon, delta)


class Purse:
    """Opens the ledger when the first private plan, or the first release beside one, asks for it."""

    def __init__(self, path: Path, log: ReleaseLog, *, node_id: str) -> None:
        self.path = path
        self._log = log
        self.node = node_id
        self._open = ExitStack()
        self._ledger: Ledger | None = None
        self._held: set[str] = set()
        self._last: tuple[Sequence[bytes], str] | None = None
        self._told: tuple[DataSetRow, ...] = ()

    @property
    def is_there(self) -> bool:
        """Whether this node has a ledger: one that is open, or a file."""
        return self._ledger is not None or exists(self.path)

    def ledger(self) -> Ledger:
        """The ledger, opened or made. Raises ``StoreError``."""
        if self._ledger is None:
            self._ledger = self._open.enter_context(Ledger(self.path))
        return self._ledger

    def check(self) -> None:
        """Write to the log what a crash kept from it; raise ``PrivacyBudgetExceeded`` when the ledger is older than the
        log, was changed by hand, or is gone."""
        if self.is_there or self._log.charges():
            catch_up(self.ledger(), self._log, self.node)
            self._check_links()

    def _check_links(self) -> None:
        """Hold the whole ledger against the log, which then knows all of its data sets."""
        check_not_rolled_back(self.ledger(), self._log, marks=True)
        tell_links(self.ledger(), self._log)
        self._told = self.ledger().data_sets()

    def hold(self, digests: Sequence[bytes]) -> str:
        """The data set of these records, held for this process until ``close``. Raises ``LocalProtocolError`` when
        another one has it."""
        if self._last is None or self._last[0] is not digests:
            data_set = self.ledger().data_set(digests)
            if data_set not in self._held:
                self._open.enter_context(self.ledger().lease(data_set))
                self._held.add(data_set)
                self._check_links()
                self._note_earlier(data_set)
            self._last = (digests, data_set)
        return self._last[1]

    def _note_earlier(self, data_set: str) -> None:
        """Before this node's first entry: note the runs that released something when there was no ledger to tell. Of
        which records, nobody knows; these are taken to be among them."""
        if any(entry.what.node == self.node for entry in self.ledger().entries()):
            return
        left = [release for release in self._log.releases().values() if release.state not in NEVER_SENT]
        last = {release.key.plan: release for release in left}
        for release in last.values():
            what = self._what(str(release.body["plan"]["name"]), None, release.key)
            self._note(data_set, what)

    def pay(self, data_set: str, costs: Sequence[Spend], limits: Limits, plan: Plan, key: ExchangeKey) -> Entry:
        """Charge, then log. On return both are on the disk, and what they pay for may be computed. Raises
        ``PrivacyBudgetExceeded`` when the cap does not allow it; then nothing was spent."""
        if self.ledger().data_sets() == self._told:
            check_not_rolled_back(self.ledger(), self._log)
        else:  # another node registered one, which may join two histories
            self._check_links()
        assert plan.privacy is not None
        mechanism = mechanism_of(plan.privacy, len(set(plan.cohort.nodes)), costs)
        what = self._what(plan.name, plan.privacy, key, mechanism)
        entry = self.ledger().charge(data_set, costs, cap=limits.cap, delta=limits.delta, what=what, epsilon=epsilon)
        log_entry(self._log, entry)
        return entry

    def spent(self, data_set: str, delta: float) -> float:
        """Epsilon of all that counts for ``data_set`` now."""
        return epsilon(self.ledger().history(data_set), delta)

    def label(self, data_set: str, plan: Plan, delta: float) -> Guarantee:
        """What may be said now of a release that ``data_set`` paid for, with all that it paid before."""
        assert plan.privacy is not None
        entries = self.ledger().entries(data_set)
        history = merged(spend for entry in entries for spend in entry.spends)
        proves_nothing = sum(entry.kind == "unprotected" or entry.what.noise == "torch" for entry in entries)
        shared = SharedHistory()
        for entry in entries:
            shared.add(entry.spends, entry.what.mechanism)
        return label_of(plan.privacy, epsilon(history, delta), delta, proves_nothing, shared.trust(delta, epsilon))

    def note_unprotected(self, digests: Callable[[], Sequence[bytes]], plan: Plan, key: ExchangeKey) -> None:
        """Note in the ledger, if there is one, that a release without a guarantee is made of these records."""
        if self.is_there:
            self._note(self.ledger().data_set(digests()), self._what(plan.name, None, key))

    def _note(self, data_set: str, what: ChargedFor) -> None:
        """In the ledger and, as all of its entries, in the log: an older copy without it is found out."""
        log_entry(self._log, self.ledger().note_unprotected(data_set, what))

    def _what(
        self, name: str, privacy: AnyPrivacySettings | None, key: ExchangeKey, mechanism: str = "none"
    ) -> ChargedFor:
        return ChargedFor(
            plan=key.plan,
            name=name,
            round=key.round,
            exchange=key.exchange,
            attempt=key.attempt,
            node=self.node,
            noise="none" if privacy is None else privacy.noise,
            mechanism=mechanism,
        )

    def close(self) -> None:
        """Let go of data sets and ledger."""
        self._open.close()
        self._ledger = None
        self._held.clear()
        self._last = None
