"""Whether the whole of a private plan fits into what the institution lets its data set spend: asked before it starts.

A plan that cannot be finished is not begun. What it really costs is charged exchange by exchange; attempts after a
crash or a failed round cost anew, so that a plan that just fits may still end early.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedsecure.errors import FedSecureError, PolicyError, PrivacyBudgetExceeded
from fedsecure.files import exists
from fedsecure.plan import Plan
from fedsecure.policy import Policy
from fedsecure.privacy.accounting import epsilon
from fedsecure.privacy.ledger import Ledger
from fedsecure.privacy.spend import Spend, merged
from fedsecure_node.auditing.holdout import HeldOut
from fedsecure_node.plans.localdata import IdentifiedData
from fedsecure_node.spending.purse import Limits, limits_of

__all__ = ["Cost", "CostOf", "expected_counts", "whole_cost"]


@dataclass(frozen=True, slots=True)
class Cost:
    """What a whole plan would do to a data set: epsilon ``before`` and ``after`` it, at ``limits``. ``rounds``: how
    many of the plan's could be paid for."""

    plan: str
    asked: int
    records: int
    before: float
    after: float
    limits: Limits
    rounds: int

    @property
    def fits(self) -> bool:
        """Whether the cap pays for all of it."""
        return self.after <= self.limits.cap

    def words(self) -> str:
        """As a rule of the policy that is kept or broken: ``privacy.epsilon: …``."""
        after = f"{self.after:.4g}" if math.isfinite(self.after) else "more than can be told"
        whole = f"all {self.asked} rounds" if self.asked > 1 else "its round"
        asked = (
            f"privacy.epsilon: {whole} would take epsilon from {self.before:.4g} to {after}"
            f" at delta {self.limits.delta:.3g} (allowed: <= {self.limits.cap:g})"
        )
        return asked if self.fits else f"{asked}; {_afforded(self.rounds)}"

    def check(self) -> None:
        """Raise ``PrivacyBudgetExceeded`` unless it fits."""
        if not self.fits:
            raise PrivacyBudgetExceeded(
                f"plan {self.plan}: {self.words()}",
                hint="ask for fewer rounds or more noise; what it would cost: fedsecure node dp-plan",
            )


def _afforded(rounds: int) -> str:
    if not rounds:
        return "not one round can be paid for"
    return f"{rounds} round{'s' * (rounds > 1)} could be paid for"


def expected_counts(plan: Plan, records: int) -> tuple[int, ...]:
    """Records of each class before a run has counted: as if all had equally many."""
    classes = len(plan.task.classes)
    return tuple(records // classes + (index < records % classes) for index in range(classes))


def whole_cost(
    plan: Plan, policy: Policy, records: int, history: tuple[Spend, ...], counts: tuple[int, ...] | None = None
) -> Cost:
    """What ``plan`` costs a data set of ``records`` that spent ``history``. ``counts``: what the run counted, once it
    did; then the history holds the counting. Raises ``PolicyError`` as ``limits_of`` does."""
    from fedsecure.privacy.costs import affordable_rounds, plan_spends

    limits = limits_of(policy, records)
    used = expected_counts(plan, records) if counts is None else counts
    after = epsilon(merged((*history, *plan_spends(plan, records, used))), limits.delta)
    before = epsilon(history, limits.delta) if history else 0.0
    fits = after <= limits.cap
    rounds = plan.rounds if fits else affordable_rounds(plan, records, used, history, limits.cap, limits.delta)
    return Cost(plan.name, plan.rounds, records, before, after, limits, rounds)


class CostOf:
    """What plans cost this node's data set, with what the ledger says that it spent; charges and holds nothing."""

    def __init__(
        self,
        ledger: Path,
        data: IdentifiedData,
        held_out: HeldOut | None = None,
        *,
        check: Callable[[], None] | None = None,
    ) -> None:
        """``check``: asked before each look at the ledger; raises ``PrivacyBudgetExceeded`` when that tells too little
        (the daemon asks by itself)."""
        self._path, self._data, self._held_out = ledger, data, held_out or HeldOut(data)
        self._check = check
        self._known: dict[tuple[object, ...], Cost] = {}
        self._records: dict[tuple[str, float], int] = {}
        self._data_sets: dict[str, str] = {}
        self._histories: dict[tuple[object, ...], tuple[Spend, ...]] = {}

    def __call__(self, plan: Plan, policy: Policy) -> Cost | None:
        """``None`` for a plan without [privacy]. Raises ``DataError`` when the records do not fit it, and what
        ``whole_cost`` does."""
        if plan.privacy is None:
            return None
        digest = plan.digest()
        asked = (digest, policy.audit.holdout)
        if asked not in self._records:  # once: a daemon asks again and again, and another task would be loaded anew
            self._records[asked] = len(self._held_out.split(plan, policy).rest)
        records, history = self._records[asked], self.history(plan)
        known = (digest, policy.privacy, records, history)
        if known not in self._known:
            self._known = {known: whole_cost(plan, policy, records, history)} | dict(list(self._known.items())[:16])
        return self._known[known]

    def history(self, plan: Plan) -> tuple[Spend, ...]:
        """All that counts for the records of ``plan`` so far. Raises ``PrivacyBudgetExceeded`` when the ledger cannot
        be relied on."""
        if self._check is not None:
            self._check()
        if not exists(self._path):
            return ()
        digest = plan.digest()
        with Ledger(self._path) as ledger:
            if digest not in self._data_sets:
                self._data_sets[digest] = ledger.data_set(self._data.digests(plan))
            state = (self._data_sets[digest], ledger.counter, len(ledger.data_sets()))
            if state not in self._histories:
                self._histories = {state: ledger.history(self._data_sets[digest])}
            return self._histories[state]

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
