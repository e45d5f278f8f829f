"""The membership audit of a contribution that is about to be logged: on exactly the bytes that would leave.

Its report stays in the store. Of what it finds, nobody outside learns more than that a release was withheld; so it is
not made where even that would be too much: with [privacy], whether a release leaves may not depend on the records but
through what was paid for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fedsecure.audit_rules import AuditRules
from fedsecure.data.dataset import Dataset
from fedsecure.errors import StoreError
from fedsecure.method import Method
from fedsecure.plan import Plan
from fedsecure.randomness import derive_seed
from fedsecure.schema import Contribution
from fedsecure.threads import lacks_thread
from fedsecure_node.auditing.images import condensed
from fedsecure_node.keys import ExchangeKey
from fedsecure_node.log.audited import Audited, Then
from fedsecure_node.progress import Reporter
from fedsecure_node.store.store import Store

if TYPE_CHECKING:
    from fedsecure_attacks.gate import Labelled, ReleaseAudit, ReleaseProfile

__all__ = ["Auditor", "audit_seed", "compare", "profile_of"]


class Auditor:
    """Audits what the policy wants audited."""

    def __init__(self, store: Store, reporter: Reporter) -> None:
        self._store = store
        self._reporter = reporter

    def audit(
        self,
        plan: Plan,
        method: Method,
        key: ExchangeKey,
        contribution: Contribution,
        members: Dataset,
        held_out: Callable[[], Dataset],
        rules: AuditRules,
    ) -> Audited:
        """``members``: the records that took part; ``held_out``: gives those that never do. Raises ``StoreError`` when
        the report cannot be kept. An audit that fails in any other way is INVALID, and held."""
        released = condensed(plan, method.schema(key.exchange), contribution)
        if why := _not_audited(plan, released, rules):
            return Audited(reason=why)
        assert released is not None
        self._reporter.say("auditing", f"{plan.name}, {key}: membership audit", plan=key.plan, round=key.round + 1)
        try:
            made = compare(released, members, held_out(), profile_of("quick", rules, audit_seed(key)))
            audited = self._told(made, rules)
        except StoreError:
            raise
        except Exception as error:
            if lacks_thread(error):
                raise  # it passes: no reason to hold anything
            audited = Audited("INVALID", f"the audit failed: {type(error).__name__}: {error}"[:300], "hold")
        text = f"{plan.name}, {key}: membership audit: {audited.result}: {audited.reason}"
        self._reporter.say("audited", text, plan=key.plan, verdict=audited.result, report=audited.report)
        return audited

    def _told(self, made: ReleaseAudit, rules: AuditRules) -> Audited:
        from fedsecure_attacks.gate import MEMBERS

        digest = self._store.keep_audit(made.report_bytes())
        word, members = made.verdict.word.value, made.audit.inputs[MEMBERS]
        then = _then(word, rules, held_out=made.compared)
        return Audited(word, made.verdict.reason, then, digest, made.kind, members)


def _not_audited(plan: Plan, released: Dataset | None, rules: AuditRules) -> str:
    """Why a contribution is not audited, or ``""``."""
    if released is None:
        return "no condensed data"
    if not len(released):
        return "no condensed data: this node holds none of the classes"
    if rules.before_release == "off":
        return "the policy says audit.before_release = off"
    if plan.privacy is not None:
        return "whether a release of a plan with [privacy] leaves may not depend on the records"
    return ""


def _then(word: str, rules: AuditRules, *, held_out: bool) -> Then:
    if word == "NO-LEAK-DETECTED":
        return "leave"
    if word in ("LEAK", "CONTRADICTS-ACCOUNTING"):
        return "withhold"
    if word == "INCONCLUSIVE":
        return "leave" if rules.unsure(held_out=held_out) == "release" else "hold"
    return "hold"


def audit_seed(key: ExchangeKey) -> int:
    """Of what an audit draws: fixed by which contribution it is, before anything is computed from it."""
    return derive_seed(0, "membership audit", key.plan, key.round, key.step, key.attempt)


def profile_of(kind: str, rules: AuditRules, seed: int) -> ReleaseProfile:
    """How much is computed, and what the policy accepts."""
    from fedsecure_attacks.gate import ReleaseProfile, Thresholds

    thresholds = Thresholds(tpr=rules.max_tpr, auc=rules.max_auc)
    return ReleaseProfile.of("full" if kind == "full" else "quick", thresholds, seed=seed, min_power=rules.min_power)


def compare(
    released: Dataset,
    members: Dataset,
    held_out: Dataset,
    profile: ReleaseProfile,
    progress: Callable[[str], None] = lambda what: None,
) -> ReleaseAudit:
    """The audit of ``released`` against the people of this node."""
    from fedsecure_attacks.gate import audit_release

    parts = (_labelled("released", released), _labelled("members", members), _labelled("non-members", held_out))
    return audit_release(*parts, profile, progress)


def _labelled(name: str, data: Dataset) -> Labelled:
    from fedsecure_attacks.gate import Labelled

    return Labelled(name, data.x, data.y)
