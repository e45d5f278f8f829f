"""Decisions about plans: the policy's verdict, a person's approval, and what the rule ``approval = "rule"`` does
alone."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fedsecure.errors import LocalProtocolError, PolicyError, PrivacyBudgetExceeded
from fedsecure.masked_plan import masked_exchanges
from fedsecure.methods.outline import outline_of
from fedsecure.plan import Plan
from fedsecure.policy import Policy
from fedsecure_node.plans.institution import PolicyUnusable, PolicyWatch, read_policy
from fedsecure_node.plans.reasons import forbidden
from fedsecure_node.store.planbook import SeenPlan
from fedsecure_node.store.runbook import Run
from fedsecure_node.store.store import Store, now_ms

__all__ = ["RULE", "Broken", "Verdict", "approve", "consider", "refuse", "standing", "verdict", "who"]

#: (plan, policy) -> the rules on spending that the plan would break, in words: ``rule: …``.
Broken = Callable[[Plan, Policy], tuple[str, ...]]
#: Who decided when no person did.
RULE = "the policy's rule"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the policy says of a plan now. ``fault``: why there is no usable policy; then nothing is allowed.
    ``passing``: the fault may pass, so the node holds still rather than leaves."""

    policy: Policy | None
    violations: tuple[str, ...]
    fault: str
    passing: bool = False

    @property
    def passes(self) -> bool:
        """Whether every rule is kept."""
        return self.policy is not None and not self.violations

    def words(self) -> str:
        """One line for people at the institution: each rule, what the plan asks, and what is allowed."""
        if self.fault:
            return f"no usable policy, so nothing is allowed: {self.fault}"
        return "the institution's policy refuses: " + "; ".join(self.violations) if self.violations else "passes"

    def public(self) -> str:
        """One line for the coordinator: names rules, never values or records."""
        if self.fault:
            return "no usable policy at this institution, so nothing is allowed"
        return forbidden([line.split(":", 1)[0] for line in self.violations])


def _costs_nothing(plan: Plan, policy: Policy) -> tuple[str, ...]:
    """Where nobody asks what a plan costs."""
    return ()


def verdict(plan: Plan, watch: PolicyWatch, broken: Broken = _costs_nothing) -> Verdict:
    """Read the policy now and hold the plan against it. An absent or wrong policy is a verdict too: nothing is
    allowed. ``broken``: what the rules on spending say, of a plan that keeps all others."""
    try:
        policy = watch.read().policy
    except PolicyUnusable as error:
        return Verdict(None, (), str(error), passing=True)
    except PolicyError as error:
        return Verdict(None, (), str(error))
    return Verdict(policy, tuple(policy.violations(plan)) or broken(plan, policy), "")


def who() -> str:
    """The person at the keyboard, as far as the system knows: the login behind ``sudo`` is named as well."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid {os.getuid()}"
    behind = os.environ.get("SUDO_USER", "")
    return f"{behind} (as {user})" if behind and behind != user else user


def approve(
    store: Store,
    policy_path: Path,
    prefix: str,
    *,
    by: str,
    rejoin: bool = False,
    broken: Broken = _costs_nothing,
) -> SeenPlan:
    """Approve a plan by its digest. The policy is asked again; raises ``PolicyError`` naming the rules it breaks,
    ``PrivacyBudgetExceeded`` when the budget does not pay for the whole of it, and ``ConfigError`` when it asks for
    masked sums that cannot be exact.

    Raises ``LocalProtocolError`` when its run is over, or was left by this node and not ``rejoin``: approving would
    change nothing, or more than was meant.
    """
    seen = store.plans.resolve(prefix)
    run = store.runs.find(seen.digest)
    _check_open(seen, run, "approve")
    if run is not None and run.state == "left" and not rejoin:
        raise LocalProtocolError(
            f"plan {seen.name} ({seen.digest[:12]}): this node left its run: {run.reason}",
            hint="mend the cause, then approve with --rejoin to take part again from its next round on",
        )
    plan = seen.plan()
    policy = read_policy(policy_path).policy
    policy.check_plan(plan)
    if run is None and (rules := broken(plan, policy)):
        raise PrivacyBudgetExceeded(
            f"plan {seen.name} ({seen.digest[:12]}): {'; '.join(rules)}",
            hint="the coordinator must ask for fewer rounds or more noise; see: fedsecure node dp-plan",
        )
    if plan.secagg != "off":
        masked_exchanges(plan, outline_of(plan))
    store.plans.set_verdict(seen.digest, [], "", now_ms())
    store.plans.decide(seen.digest, "approved", by=by, reason="", now_ms=now_ms())
    return store.plans.get(seen.digest)


def _check_open(seen: SeenPlan, run: Run | None, verb: str) -> None:
    """Raise ``LocalProtocolError`` when the run of a plan is over, for this node or at the coordinator."""
    here = run is not None and run.state in ("completed", "aborted")
    ended = run.state if run is not None and here else seen.offered
    if ended in ("completed", "aborted"):
        why = f": {run.reason}" if run is not None and here and run.reason else ""
        raise LocalProtocolError(
            f"plan {seen.name} ({seen.digest[:12]}): its run is over ({ended}{why})",
            hint=f"there is nothing left to {verb}, and the decision stays as it was; a new run has its own digest",
        )


def refuse(store: Store, prefix: str, *, reason: str, by: str) -> SeenPlan:
    """Refuse a plan, also one that was approved or runs: the daemon tells the coordinator and takes no further part.

    Raises ``LocalProtocolError`` when its run is over.
    """
    seen = store.plans.resolve(prefix)
    _check_open(seen, store.runs.find(seen.digest), "refuse")
    store.plans.decide(seen.digest, "refused", by=by, reason=" ".join(reason.split())[:400], now_ms=now_ms())
    return store.plans.get(seen.digest)


def consider(
    store: Store, seen: SeenPlan, watch: PolicyWatch, broken: Broken = _costs_nothing
) -> tuple[SeenPlan, Verdict]:
    """Take the policy's verdict on an offered plan now, and let ``approval = "rule"`` approve what passes and
    nobody decided on meanwhile. Raises nothing that ``broken`` does not."""
    judged = verdict(seen.plan(), watch, broken)
    if (seen.violations, seen.policy_fault) != (judged.violations, judged.fault) or not seen.checked_ms:
        store.plans.set_verdict(seen.digest, list(judged.violations), judged.fault, now_ms())
    automatic = judged.passes and judged.policy is not None and judged.policy.plans.approval == "rule"
    if seen.decision == "pending" and automatic:
        store.plans.approve_pending(seen.digest, by=RULE, reason='plans.approval = "rule"', now_ms=now_ms())
    return store.plans.get(seen.digest), judged


def standing(seen: SeenPlan, judged: Verdict) -> Literal["go", "wait", "still", "no"]:
    """Whether a plan may run now (``go``), waits for a person (``wait``) or for a policy that can be read (``still``),
    or may not (``no``)."""
    if seen.decision == "refused":
        return "no"
    if judged.passing:
        return "still"
    if not judged.passes:
        return "no"
    if seen.decision == "approved":
        by_rule_that_is_gone = (
            seen.decided_by == RULE and judged.policy is not None and judged.policy.plans.approval != "rule"
        )
        return "wait" if by_rule_that_is_gone else "go"
    return "wait"
