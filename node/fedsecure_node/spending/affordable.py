"""Whether the whole of a private plan fits into what the institution lets its data set spend: asked before it starts.

A plan that cannot be finished is not begun. What it really costs is charged exchange by exchange; attempts after a
crash or a failed round cost anew, so that a plan that just fits may still end early.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedsecure.errors import FedSecureError, PolicyError, PrivacyBudgetExceeded
from fedsecure.files import exists
from fedsecure.plan import Plan
from fedsecure.policy import Policy
from fedsecure.privacy.accounting import epsilon
from fedsecure.privacy.counting import taking_part_counts
from fedsecure.privacy.entries import Entry
from fedsecure.privacy.ledger import Ledger
from fedsecure.privacy.spend import Spend, merged
from fedsecure.text import counted
from fedsecure_node.auditing.holdout import HeldOut
from fedsecure_node.plans.localdata import IdentifiedData
from fedsecure_node.spending.begun import BegunRuns, still_to_spend
from fedsecure_node.spending.purse import Limits, limits_of

__all__ = ["Cost", "CostOf", "expected_counts", "whole_cost"]


@dataclass(frozen=True, slots=True)
class Cost:
    """What a whole plan would do to a data set: epsilon ``before`` and ``after`` it, at ``limits``. ``rounds``: how
    many of the plan's could be paid for. ``begun``: how many other runs go on, whose rest is in ``after``; epsilon is
    ``then`` when they are over."""

    plan: str
    asked: int
    records: int
    before: float
    after: float
    limits: Limits
    rounds: int
    begun: int = 0
    then: float = 0.0

    @property
    def fits(self) -> bool:
        """Whether the cap pays for all of it."""
        return self.after <= self.limits.cap

    def words(self) -> str:
        """As a rule of the policy that is kept or broken: ``privacy.epsilon: …``."""
        after, others = _told(self.after), ""
        if self.begun:
            others = f" ({_told(self.then)} with the rest of {counted(self.begun, 'run')} begun here)"
        whole = f"all {self.asked} rounds" if self.asked > 1 else "its round"
        asked = (
            f"privacy.epsilon: {whole} would take epsilon from {self.before:.4g}{others} to {after}"
            f" at delta {self.limits.delta:.3g} (allowed: <= {self.limits.cap:g})"
        )
        return asked if self.fits else f"{asked}; {_afforded(self.rounds)}"

    def check(self) -> None:
        """Raise ``PrivacyBudgetExceeded`` unless it fits."""
        if not self.fits:
            waits = "; or wait until the runs begun here are over" if self.begun else ""
            raise PrivacyBudgetExceeded(
                f"plan {self.plan}: {self.words()}",
                hint="ask for fewer rounds or more noise; what it would cost: fedsecure node dp-plan" + waits,
            )


def _told(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "more than can be told"


def _afforded(rounds: int) -> str:
    if not rounds:
        return "not one round can be paid for"
    return f"{rounds} round{'s' * (rounds > 1)} could be paid for"


def expected_counts(plan: Plan, records: int) -> tuple[int, ...]:
    """Records of each class before a run has counted: as if all had equally many."""
    classes = len(plan.task.classes)
    return tuple(records // classes + (index < records % classes) for index in range(classes))


def whole_cost(
    plan: Plan,
    policy: Policy,
    records: int,
    history: tuple[Spend, ...],
    counts: tuple[int, ...] | None = None,
    others: Sequence[tuple[Spend, ...]] = (),
) -> Cost:
    """What ``plan`` costs a data set of ``records`` that spent ``history``. ``counts``: what the run counted, once it
    did. ``others``: what each other run that goes on still spends. Raises ``PolicyError`` as ``limits_of`` does."""
    from fedsecure.privacy.costs import affordable_rounds, plan_spends

    limits = limits_of(policy, records)
    used = expected_counts(plan, records) if counts is None else counts
    expected = merged((*history, *(spend for other in others for spend in other)))
    after = epsilon(merged((*expected, *plan_spends(plan, records, used))), limits.delta)
    before, then = (epsilon(each, limits.delta) if each else 0.0 for each in (history, expected))
    fits = after <= limits.cap
    rounds = plan.rounds if fits else affordable_rounds(plan, records, used, expected, limits.cap, limits.delta)
    return Cost(plan.name, plan.rounds, records, before, after, limits, rounds, len(others), then)


@dataclass(frozen=True, slots=True)
class _Known:
    """What the ledger holds of a plan's records: all that counts for them, and the data sets that share it; ``None``
    where there is no ledger."""

    history: tuple[Spend, ...]
    entries: tuple[Entry, ...]
    sharing: frozenset[str] | None

    def counts_for(self, data_set: str) -> bool:
        return self.sharing is None or data_set in self.sharing


class CostOf:
    """What plans cost this node's data set, with what the ledger says that it spent; charges and holds nothing."""

    def __init__(
        self,
        ledger: Path,
        data: IdentifiedData,
        held_out: HeldOut | None = None,
        *,
        check: Callable[[], None] | None = None,
        begun: BegunRuns = tuple,
        node: str = "",
    ) -> None:
        """``check``: asked before each look at the ledger; raises ``PrivacyBudgetExceeded`` when that tells too little
        (the daemon asks by itself). ``begun``: the runs that go on at ``node``, which a plan has to leave enough."""
        self._path, self._data, self._held_out = ledger, data, held_out or HeldOut(data)
        self._check = check
        self._begun, self._node = begun, node
        self._known: dict[tuple[object, ...], Cost] = {}
        self._records: dict[tuple[str, float], int] = {}
        self._data_sets: dict[str, str] = {}
        self._entries: dict[tuple[object, ...], _Known] = {}

    def __call__(self, plan: Plan, policy: Policy) -> Cost | None:
        """``None`` for a plan without [privacy]. Raises ``DataError`` when the records do not fit it, and what
        ``whole_cost`` does."""
        if plan.privacy is None:
            return None
        digest = plan.digest()
        asked = (digest, policy.audit.holdout)
        if asked not in self._records:  # once: a daemon asks again and again, and another task would be loaded anew
            self._records[asked] = len(self._held_out.split(plan, policy).rest)
        records = self._records[asked]
        paid = self._paid(plan)
        others = self._others(plan, policy, records, paid)
        known = (digest, policy.privacy, records, paid.history, others)
        if known not in self._known:
            found = whole_cost(plan, policy, records, paid.history, others=others)
            self._known = {known: found} | dict(list(self._known.items())[:16])
        return self._known[known]

    def history(self, plan: Plan) -> tuple[Spend, ...]:
        """All that counts for the records of ``plan`` so far. Raises ``PrivacyBudgetExceeded`` when the ledger cannot
        be relied on."""
        return self._paid(plan).history

    def others(self, plan: Plan, policy: Policy, records: int) -> tuple[tuple[Spend, ...], ...]:
        """What each other run that goes on at this node, on records that count for those of ``plan``, has yet to spend;
        without those that have no more to pay. Raises as ``history`` does."""
        return self._others(plan, policy, records, self._paid(plan))

    def _others(self, plan: Plan, policy: Policy, records: int, paid: _Known) -> tuple[tuple[Spend, ...], ...]:
        found = []
        for run in self._begun():
            if run.digest == plan.digest() or (run.counted and not paid.counts_for(run.counted.data_set)):
                continue
            if run.counted is None:
                counts = expected_counts(run.plan, records)
            else:
                counts = taking_part_counts(run.counted.counts, policy.class_floor(run.plan))
            its = self._records.get((run.digest, policy.audit.holdout), records)
            charged = [e for e in paid.entries if (e.what.plan, e.what.node) == (run.digest, self._node)]
            found.append(still_to_spend(run.plan, its, counts, charged))
        return tuple(each for each in found if each)

    def _paid(self, plan: Plan) -> _Known:
        if self._check is not None:
            self._check()
        if not exists(self._path):
            return _Known((), (), None)
        digest = plan.digest()
        with Ledger(self._path) as ledger:
            if digest not in self._data_sets:
                self._data_sets[digest] = ledger.data_set(self._data.digests(plan))
            state = (self._data_sets[digest], ledger.counter, len(ledger.data_sets()))
            if state not in self._entries:
                entries = ledger.entries(state[0])
                history = merged(spend for entry in entries for spend in entry.spends)
                sharing = frozenset(row.id for row in ledger.sharing(state[0]))
                self._entries = {state: _Known(history, entries, sharing)}
            return self._entries[state]

    def broken(self, plan: Plan, policy: Policy) -> tuple[str, ...]:
        """The rule that the plan would break, in words; empty when it fits, or when nobody can say yet, since the
        records cannot be read: joining says why."""
        try:
            cost = self(plan, policy)
        except (PolicyError, PrivacyBudgetExceeded) as error:
            return (str(error),)
        except FedSecureError:
            return ()
        return () if cost is None or cost.fits else (cost.words(),)
