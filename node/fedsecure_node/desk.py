"""Offered plans, one after the other: the policy's verdict, the institution's decision, the records, then Join or
Refuse."""

from __future__ import annotations

from typing import Literal

from fedsecure.errors import ConfigError, FedSecureError, PolicyError, RemoteProtocolError
from fedsecure.plan import Plan
from fedsecure.policy import Policy
from fedsecure.threads import lacks_thread
from fedsecure.wire.v1 import coordinator_pb2 as pb
from fedsecure_node.link.connect import Link
from fedsecure_node.masking.foreseen import without_cohort
from fedsecure_node.masking.terms import TrustedCohorts
from fedsecure_node.plans.approvals import Verdict, consider, standing
from fedsecure_node.plans.institution import PolicyWatch
from fedsecure_node.plans.reasons import public_reason
from fedsecure_node.progress import Reporter
from fedsecure_node.spending.desk import SpendingDesk
from fedsecure_node.store.planbook import SeenPlan
from fedsecure_node.store.runbook import Run
from fedsecure_node.store.store import Store, now_ms
from fedsecure_node.work import as_error

__all__ = ["PlanDesk"]

_OPEN = (pb.RUN_STATE_JOINING, pb.RUN_STATE_RUNNING)
Standing = Literal["go", "wait", "no", "over"]


def _state(state: pb.RunState) -> str:
    """``joining``, ``running``, ``completed``, ``aborted``, or ``unknown`` for a state of a later version."""
    return pb.RunState.Name(state).removeprefix("RUN_STATE_").lower() if state in pb.RunState.values() else "unknown"


class PlanDesk:
    """Keeps the runs of this node in line with what was offered and what the institution wants."""

    def __init__(
        self,
        store: Store,
        reporter: Reporter,
        *,
        node_id: str,
        watch: PolicyWatch,
        cohorts: TrustedCohorts,
        spending: SpendingDesk,
    ) -> None:
        self._store = store
        self._reporter = reporter
        self._node = node_id
        self._watch = watch
        self._cohorts = cohorts
        self._spending = spending
        self._told: dict[str, str] = {}
        #: Fault of the policy for which the node holds still, by plan.
        self._still: dict[str, str] = {}
        #: Plans that the records do not fit: the decision and the policy that this was found under.
        self._unfit: dict[str, tuple[int | None, Policy | None]] = {}
        #: Why plans were refused or left while this daemon runs, by digest.
        self.failures: dict[str, FedSecureError] = {}
        #: Plans that wait for a person, or for a policy that can be read.
        self.waiting: set[str] = set()

    def tend(self, link: Link) -> None:
        """Go through the offered plans once."""
        self.waiting.clear()
        for offered in link.client.list_plans():
            if offered.state in _OPEN:
                self._tend_one(offered, link)
            else:
                self._store.plans.set_offered(offered.digest, _state(offered.state))

    def leave(self, digest: str, error: FedSecureError, stage: str, link: Link) -> None:
        """Take no further part in a run: it ends here, the coordinator is told the rule or stage, never data."""
        self.failures[digest] = error
        self._store.runs.end(digest, "left", str(error), error.exit_code, now_ms())
        self._reporter.say("left", f"plan {digest[:12]}: {error}", plan=digest, error=type(error).__name__)
        self._refuse(digest, public_reason(error, stage), link)

    def _tend_one(self, offered: pb.OfferedPlan, link: Link) -> None:
        seen = self._record(offered, link)
        if seen is None:
            return
        seen, judged = consider(self._store, seen, self._watch, self._spending.broken)
        run = self._store.runs.find(seen.digest)
        stand = standing(seen, judged)
        if stand != "still" and self._still.pop(seen.digest, ""):
            self._reporter.say("policy", f"plan {seen.name}: the policy can be read again", plan=seen.digest)
        if stand == "no":
            self._say_no(seen, judged, run, link)
        elif stand == "still":
            self.waiting.add(seen.digest)
            self._hold_still(seen, judged)
        elif stand == "wait":
            self.waiting.add(seen.digest)
            self._once(
                seen.digest, "waits", f"plan {seen.name} waits for approval: fedsecure node approve {seen.digest}"
            )
        elif run is not None and run.state == "active" and offered.joined:
            return
        elif not self._is_over(seen, judged, run):
            self._join(seen, judged, run, link)

    def _record(self, offered: pb.OfferedPlan, link: Link) -> SeenPlan | None:
        try:
            plan = Plan.from_wire(offered.canonical, offered.digest)
        except (ConfigError, RemoteProtocolError) as error:
            self.failures[offered.digest] = error
            if self._once(offered.digest, "unreadable", f"plan {offered.digest[:12]} is refused: {error}"):
                link.client.refuse(offered.digest, "this node cannot read the plan: versions of fedsecure may differ")
            return None
        state = _state(offered.state)
        known = offered.digest in {p.digest for p in self._store.plans.all()}
        seen = self._store.plans.record(plan, offered.digest, state, now_ms())
        if not known:
            self._reporter.say("offered", f"plan {seen.name} ({seen.digest[:12]}) is offered", plan=seen.digest)
        return seen

    def _is_over(self, seen: SeenPlan, judged: Verdict, run: Run | None) -> bool:
        """Whether the run ended for this node; one that was left is open again once a person approves it anew, and
        one that the records did not fit once the policy changes, too."""
        if self._unfit.get(seen.digest) == (seen.decided_ms, judged.policy):
            return True
        if run is None or run.state == "active":
            return False
        return run.state != "left" or (run.ended_ms or 0) >= (seen.decided_ms or 0)

    def _join(self, seen: SeenPlan, judged: Verdict, run: Run | None, link: Link) -> None:
        try:
            assert judged.policy is not None  # without one, nothing stands to be joined
            self._spending.admit(seen.plan(), judged.policy)
        except Exception as error:
            if lacks_thread(error):
                raise  # it passes, and says nothing of the records
            self._unfit[seen.digest] = (seen.decided_ms, judged.policy)
            self.failures[seen.digest] = known = as_error(error)
            self._reporter.say("unfit", f"plan {seen.name}: {known}", plan=seen.digest)
            self._refuse(seen.digest, public_reason(known, "checking the data"), link)
            return
        self.failures.pop(seen.digest, None)
        self._unfit.pop(seen.digest, None)
        self._store.runs.join(seen.digest, now_ms())
        if run is not None and run.state == "left":
            self._store.runs.reopen(seen.digest)
        link.client.join(seen.digest)
        self._store.plans.set_refusal_told(seen.digest, "")
        lacking = without_cohort(seen.plan(), self._cohorts)
        text = f"plan {seen.name} ({seen.digest[:12]}): joined" + (f"; WARNING: {lacking}" if lacking else "")
        self._reporter.say("joined", text, plan=seen.digest)

    def _hold_still(self, seen: SeenPlan, judged: Verdict) -> None:
        """Say, once for each fault, that the policy is at fault and the node therefore does nothing."""
        if self._still.get(seen.digest) != judged.fault:
            self._still[seen.digest] = judged.fault
            self._reporter.say(
                "still",
                f"plan {seen.name}: {judged.fault}; the node holds still: nothing is computed and nothing leaves until "
                "the policy can be read",
                plan=seen.digest,
            )

    def _say_no(self, seen: SeenPlan, judged: Verdict, run: Run | None, link: Link) -> None:
        if seen.decision == "refused":
            told = reason = "the institution refused the plan" + (f": {seen.reason}" if seen.reason else "")
        else:
            reason, told = judged.words(), judged.public()
        error = PolicyError(f"plan {seen.name}: {reason}", hint="see: fedsecure node plans")
        self.failures[seen.digest] = error
        if run is not None and run.state == "active":
            self._store.runs.end(seen.digest, "left", reason, error.exit_code, now_ms())
        self._once(seen.digest, reason, f"plan {seen.name} ({seen.digest[:12]}): {reason}")
        self._refuse(seen.digest, told, link)

    def _refuse(self, digest: str, reason: str, link: Link) -> None:
        """Tell the coordinator, once for each reason; the reason is kept only when it arrived."""
        try:
            told = self._store.plans.get(digest).refusal_told
        except ConfigError:
            told = ""
        if told != reason:
            link.client.refuse(digest, reason)
            self._store.plans.set_refusal_told(digest, reason)

    def _once(self, digest: str, key: str, text: str) -> bool:
        if self._told.get(digest) == key:
            return False
        self._told[digest] = key
        self._reporter.say("plan", text, plan=digest)
        return True
