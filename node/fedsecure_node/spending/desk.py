"""What the daemon does about privacy: whether a run may be joined, which records take part in it, and who pays.

A run keeps to the data set that it counted: its counts, its local state and its label are of those records.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from fedsecure.data.dataset import Dataset
from fedsecure.errors import DataError, PolicyError, PrivacyBudgetExceeded
from fedsecure.plan import Plan
from fedsecure.policy import Policy
from fedsecure.privacy.counting import counted_once, taking_part_counts
from fedsecure.privacy.entries import Entry
from fedsecure.privacy.labels import NONE, Guarantee
from fedsecure_node.auditing.holdout import HeldOut
from fedsecure_node.keys import ExchangeKey
from fedsecure_node.plans.localdata import IdentifiedData, taking_part
from fedsecure_node.progress import Reporter
from fedsecure_node.spending.affordable import CostOf, whole_cost
from fedsecure_node.spending.begun import begun_runs
from fedsecure_node.spending.part import Part, plain_part
from fedsecure_node.spending.purse import COUNTING, Purse, limits_of
from fedsecure_node.store.countbook import Counted
from fedsecure_node.store.store import Store, now_ms

if TYPE_CHECKING:  # it imports torch
    from fedsecure.privacy.context import PrivacyContext

__all__ = ["SpendingDesk"]


class SpendingDesk:
    """Between runs, records and ledger."""

    def __init__(
        self, store: Store, purse: Purse, reporter: Reporter, *, data: IdentifiedData, held_out: HeldOut | None = None
    ) -> None:
        self._store = store
        self._purse = purse
        self._reporter = reporter
        self._data = data
        self._held_out = held_out or HeldOut(data)
        begun = partial(begun_runs, store)
        self._cost = CostOf(purse.path, data, self._held_out, begun=begun, node=purse.node)

    def broken(self, plan: Plan, policy: Policy) -> tuple[str, ...]:
        """The rules on spending that a plan would break if it began now, in words; none for a run that has begun: what
        it spent is in the history, and each of its exchanges is charged by itself."""
        begun = plan.privacy is not None and self._store.runs.find(plan.digest()) is not None
        return () if begun else self._cost.broken(plan, policy)

    def admit(self, plan: Plan, policy: Policy) -> None:
        """Raise the reason for which a run of ``plan`` cannot be joined: the records, too few of them, the budget, or
        another daemon that works on them. Otherwise this process holds the data set from now on."""
        data = self._held_out.split(plan, policy).rest
        if plan.privacy is None:
            plain_part(data, plan, policy)
            return
        policy.check_records(len(data))
        cost = None if self._store.runs.find(plan.digest()) is not None else self._cost(plan, policy)
        if cost is not None:
            cost.check()
        self._purse.check()
        self._purse.hold(self._data.digests(plan))

    def part(self, plan: Plan, digest: str, policy: Policy) -> Part:
        """The records that take part in a run. A private one counts them once: charged, noted, drawn, and kept before
        it is used. Raises what ``admit`` does, and ``DataError`` when they are not those that the run counted."""
        data = self._held_out.split(plan, policy).rest
        if plan.privacy is None:
            return plain_part(data, plan, policy)
        data_set = self._purse.hold(self._data.digests(plan))
        counted = self._store.counts.find(digest)
        if counted is None:
            counted = self._count(plan, digest, policy, data_set)
        if counted.data_set != data_set:
            raise DataError(
                f"plan {plan.name}: the records are no longer those that this run counted (data set"
                f" {counted.data_set[:12]}, now {data_set[:12]})",
                hint="put them back as they were, or leave the run: a new one counts anew",
            )
        floor = policy.class_floor(plan)
        counts = np.array(taking_part_counts(counted.counts, floor), np.int64)
        if not counts.any():
            raise PolicyError(
                "plans.min_records_per_class: by noisy counts no class has enough records",
                hint="take part with more records, or set another plans.min_records_per_class in policy.toml",
            )
        policy.check_records(int(counts.sum()))
        return Part(taking_part(data, floor, counts), counts, len(data), data_set)

    def held_out(self, plan: Plan, policy: Policy) -> Dataset:
        """The records that take part in no run."""
        return self._held_out.split(plan, policy).out

    def _count(self, plan: Plan, digest: str, policy: Policy, data_set: str) -> Counted:
        from fedsecure.privacy.costs import count_spend
        from fedsecure.privacy.noise import noise_source

        assert plan.privacy is not None
        data = self._held_out.split(plan, policy).rest
        before = self._purse.ledger().history(data_set)
        limits = limits_of(policy, len(data))
        key = ExchangeKey(digest, 0, 0, 0, COUNTING)
        self._told(plan, key, self._purse.pay(data_set, (count_spend(plan.privacy),), limits, plan, key))
        noisy = counted_once(data.counts(), plan.privacy, noise_source(plan.privacy.noise))
        kept = self._store.counts.keep(digest, Counted(data_set, noisy), now_ms())
        counts = taking_part_counts(kept.counts, policy.class_floor(plan))
        if any(counts):  # what the plan costs may depend on them
            whole_cost(plan, policy, len(data), before, counts).check()
        return kept

    def pay(self, plan: Plan, key: ExchangeKey, part: Part, policy: Policy) -> PrivacyContext | None:
        """Charge one exchange, whatever becomes of it; on return it may be computed, once. ``None`` for a plan without
        [privacy]. Raises ``PrivacyBudgetExceeded`` when the cap does not allow it."""
        if plan.privacy is None:
            return None
        from fedsecure.privacy.context import PrivacyContext
        from fedsecure.privacy.costs import spends
        from fedsecure.privacy.noise import noise_source

        counts = tuple(int(count) for count in part.counts)
        limits = limits_of(policy, part.records)
        if costs := spends(plan, key.exchange, key.round, part.records, counts):
            self._told(plan, key, self._purse.pay(part.data_set, costs, limits, plan, key))
        return PrivacyContext(plan.privacy, counts, part.records, noise_source(plan.privacy.noise))

    def _told(self, plan: Plan, key: ExchangeKey, entry: Entry) -> None:
        self._reporter.say(
            "charged",
            f"{plan.name}, {key}: charged: epsilon {entry.epsilon_before:.4g} -> {entry.epsilon_after:.4g} of"
            f" {entry.cap:g}, at delta {entry.delta:.3g}",
            plan=key.plan,
            data_set=entry.data_set,
            epsilon=entry.epsilon_after,
            cap=entry.cap,
            delta=entry.delta,
        )

    def label(self, plan: Plan, part: Part, policy: Policy) -> Guarantee:
        """What may be said of a release that was made from ``part``. Raises ``PrivacyBudgetExceeded`` when all that
        was spent is past the cap as it is now: one that was lowered after the charge stops what has not left yet."""
        if plan.privacy is None:
            return NONE
        limits = limits_of(policy, part.records)
        spent = self._purse.spent(part.data_set, limits.delta)
        if not spent <= limits.cap:
            raise PrivacyBudgetExceeded(
                f"plan {plan.name}: privacy.epsilon: its data set has spent epsilon {spent:.4g} at delta"
                f" {limits.delta:.3g}, past the cap of {limits.cap:g} that the policy sets now, so nothing more leaves",
                hint="see what was spent: fedsecure node budget; a spend never comes back",
            )
        return self._purse.label(part.data_set, plan, limits.delta)

    def note_unprotected(self, plan: Plan, key: ExchangeKey) -> None:
        """A release of a plan without [privacy] is about to be logged: the ledger, if there is one, has to know."""
        if plan.privacy is None:
            self._purse.note_unprotected(lambda: self._data.digests(plan), plan, key)
