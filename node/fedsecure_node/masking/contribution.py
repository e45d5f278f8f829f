"""What a leg is about: a contribution of this node whose release the coordinator has, but for its summed half."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fedsecure.errors import SecAggError
from fedsecure.method import Method
from fedsecure.plan import Plan
from fedsecure.policy import Policy
from fedsecure.wire.v1 import coordinator_pb2 as pb
from fedsecure_node.egress import Gate
from fedsecure_node.keys import ExchangeKey
from fedsecure_node.log.releases import Release
from fedsecure_node.masking.settling import no_contribution
from fedsecure_node.plans.institution import CurrentPolicy
from fedsecure_node.store.store import Store

__all__ = ["Contribution", "Contributions"]


@dataclass(frozen=True, slots=True)
class Contribution:
    """It, with the policy as it is now."""

    key: ExchangeKey
    plan: Plan
    method: Method
    release: Release
    policy: Policy


class Contributions:
    """``allowed``: raises unless policy and approval allow the plan at this moment. ``method``: of a plan."""

    def __init__(
        self,
        store: Store,
        gate: Gate,
        *,
        allowed: Callable[[Plan, str], CurrentPolicy],
        method: Callable[[Plan], Method],
    ) -> None:
        self._store = store
        self._gate = gate
        self._allowed = allowed
        self._method = method

    def of(self, leg: pb.Leg) -> Contribution:
        """What the leg is about. Raises ``SecAggError`` unless its release was acknowledged and its sum not read yet,
        and what ``allowed`` raises."""
        if leg.plan_digest not in self._store.runs.active():
            raise SecAggError(f"BAD_CONFIG: plan {leg.plan_digest[:12]!r}: a session of a run that is not joined")
        plan = self._store.plans.get(leg.plan_digest).plan()
        method = self._method(plan)
        if leg.exchange not in method.exchanges:
            raise SecAggError(f"BAD_CONFIG: plan {plan.name}: a session of exchange {leg.exchange[:40]!r}")
        step = method.exchanges.index(leg.exchange)
        key = ExchangeKey(leg.plan_digest, leg.round, step, leg.attempt, leg.exchange)
        policy = self._allowed(plan, leg.plan_digest).policy
        release = self._gate.find(key)
        if release is None or not (release.is_summed_half_open or release.state == "unmasked"):
            raise no_contribution(plan.name, key, release)
        return Contribution(key, plan, method, release, policy)
