"""What a plan's releases are audited for before they leave, in words."""

from __future__ import annotations

from collections.abc import Iterator

from fedsecure.plan import Plan
from fedsecure.plan.methods import CondensationSettings
from fedsecure.policy import Policy

__all__ = ["audit_lines"]


def audit_lines(plan: Plan, policy: Policy) -> Iterator[str]:
    """Lines for a privacy officer. Whether a [holdout] is in ``node.toml``, the policy does not know."""
    rules = policy.audit
    if rules.holdout:
        yield f"held out: {rules.holdout:.0%} of the records here take part in no run (audit.holdout)"
    if not isinstance(plan.method, CondensationSettings):
        yield "membership audit: none, since no condensed data leaves"
    elif rules.before_release == "off":
        yield "membership audit: none (audit.before_release = off)"
    elif plan.privacy is not None:
        yield "membership audit: none before a release: with [privacy], whether it leaves may not depend on the records"
    else:
        yield (
            "membership audit: every release with condensed data, before it leaves; a record that leaves as it is, an "
            f"area above {rules.max_auc:g} or a true-positive rate above {rules.max_tpr:g} at a false-positive rate of "
            "0.01 withholds it"
        )
        yield _unsure(policy)


def _unsure(policy: Policy) -> str:
    rules = policy.audit
    alone = "without held-out records copies alone are sought, and nothing is cleared"
    if rules.on_inconclusive == "hold":
        return f"membership audit: what it cannot decide waits for a person; {alone}"
    if rules.on_inconclusive == "release":
        return f"membership audit: what it cannot decide leaves; {alone}"
    return f"membership audit: what it cannot decide with held-out records waits for a person; {alone}, so it leaves"
