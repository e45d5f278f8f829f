"""One exchange: admit what is asked for, have it computed, pass the gate, send. Every step survives a restart after
it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum

from fedsecure.data.dataset import Dataset
from fedsecure.errors import AuditError, FedSecureError, PolicyError, RemoteProtocolError
from fedsecure.method import Method
from fedsecure.plan import Plan
from fedsecure.schema import Contribution
from fedsecure.wire.codec import Payload
from fedsecure.wire.v1 import coordinator_pb2 as pb
from fedsecure_node.auditing.auditor import Auditor
from fedsecure_node.computing import Computation, Task
from fedsecure_node.egress import Gate
from fedsecure_node.keys import ExchangeKey
from fedsecure_node.link.connect import Link
from fedsecure_node.log.audited import Audited, audit_line
from fedsecure_node.log.masks import leaving
from fedsecure_node.log.releases import STATE_WORDS, Release
from fedsecure_node.masking.settling import settle_sums
from fedsecure_node.masking.terms import MaskTerms
from fedsecure_node.plans.approvals import Verdict, standing
from fedsecure_node.plans.institution import CurrentPolicy, PolicyUnusable, PolicyWatch
from fedsecure_node.progress import Reporter
from fedsecure_node.spending.desk import SpendingDesk
from fedsecure_node.spending.part import Part
from fedsecure_node.store.runbook import Finished
from fedsecure_node.store.store import Store, iso_time

__all__ = ["BuildMethod", "ExchangeDesk", "Outcome", "as_error"]

BuildMethod = Callable[[Plan], Method]


class Outcome(Enum):
    """How far an exchange came."""

    SENT = "sent"
    HELD = "held"
    LATE = "late"
    STILL = "still"


class ExchangeDesk:
    """Answers exchanges of joined runs."""

    def __init__(
        self,
        store: Store,
        gate: Gate,
        reporter: Reporter,
        computation: Computation,
        *,
        node_id: str,
        watch: PolicyWatch,
        terms: MaskTerms,
        build_method: BuildMethod,
        spending: SpendingDesk,
        auditor: Auditor,
    ) -> None:
        self._store = store
        self._gate = gate
        self._reporter = reporter
        self._node = node_id
        self._watch = watch
        self._terms = terms
        self._build = build_method
        self._spending = spending
        self._auditor = auditor
        self._computation = computation
        self._methods: dict[str, Method] = {}
        self._told_held: set[int] = set()
        self._told_still = ""

    def method(self, plan: Plan) -> Method:
        """The method of a plan, built once."""
        digest = plan.digest()
        if digest not in self._methods:
            self._methods[digest] = self._build(plan)
        return self._methods[digest]

    def answer(self, work: pb.Exchange, link: Link) -> Outcome:
        """Compute (or take up again) and send one contribution. Raises the reason for which the node cannot. While the
        policy cannot be read it does neither (``Outcome.STILL``); it is asked again until the exchange is over."""
        try:
            return self._answer(self._admit(work), link)
        except PolicyUnusable as fault:
            if self._told_still != str(fault):
                self._told_still = str(fault)
                self._reporter.say("still", f"{fault}; the node holds still: nothing is computed and nothing leaves")
            return Outcome.STILL

    def _answer(self, task: Task, link: Link) -> Outcome:
        for old in self._gate.open_releases(task.key.plan):
            if old.key != task.key:
                self._gate.close(old, "its exchange is over")
        release = self._gate.find(task.key)
        if release is not None and release.state == "withheld":
            raise _withheld(release)
        if release is not None and release.state in ("refused", "unsent", "lapsed"):
            raise PolicyError(f"release {release.number} is {STATE_WORDS[release.state]}", hint="start a new run")
        if release is not None and release.state == "held":
            return self._held(release, task, link)
        part = self._spending.part(task.plan, task.key.plan, task.policy.policy)
        finished = self._store.runs.finished(task.key)
        if finished is None:
            finished = self._computation.compute(task, part, link)
            if finished is None:
                return Outcome.LATE
        elif finished.broadcast != task.work.broadcast_digest:
            raise _asks_again(task.key, "another broadcast")
        elif self._store.sessions.asked(task.key).cohort != task.terms.asked.cohort:
            raise _asks_again(task.key, "other masks")
        return self._release(task, finished, link)

    def _admit(self, work: pb.Exchange) -> Task:
        """Check what was asked for against the plan, and the plan against approval and policy, as both are now."""
        if work.plan_digest not in self._store.runs.active():
            raise RemoteProtocolError(
                f"plan {work.plan_digest[:12]}: the coordinator asks for work in a run not joined"
            )
        seen = self._store.plans.get(work.plan_digest)
        plan = seen.plan()
        method = self.method(plan)
        if work.round >= plan.rounds or work.exchange not in method.exchanges:
            raise RemoteProtocolError(
                f"plan {plan.name}: the coordinator asks for round {work.round + 1}, exchange {work.exchange[:40]!r};"
                f" the plan has {plan.rounds} rounds of {', '.join(method.exchanges)}"
            )
        step = method.exchanges.index(work.exchange)
        key = ExchangeKey(work.plan_digest, work.round, step, work.attempt, work.exchange)
        settle_sums(self._gate, self._reporter, work, method, key, self._node)
        policy = self.allowed(plan, work.plan_digest)
        return Task(key, plan, method, policy, work, self._terms.check(plan, method, key, work, policy.policy))

    def allowed(self, plan: Plan, digest: str) -> CurrentPolicy:
        """The policy, when it and the institution's decision allow the plan at this moment. Raises ``PolicyError``, or
        ``PolicyUnusable`` when the policy cannot be read."""
        current = self._watch.read()
        current.policy.check_plan(plan)
        if standing(self._store.plans.get(digest), Verdict(current.policy, (), "")) != "go":
            raise PolicyError(f"plan {plan.name}: is not approved (any more) at this institution")
        return current

    def _release(self, task: Task, finished: Finished, link: Link) -> Outcome:
        """Check the stored bytes once more, against the policy and the approval as they are now: computing takes its
        time. Then log them, and send them unless they are held."""
        policy = self.allowed(task.plan, task.key.plan)
        terms = self._terms.check(task.plan, task.method, task.key, task.work, policy.policy)
        task = replace(task, policy=policy, terms=terms)
        part = self._spending.part(task.plan, task.key.plan, policy.policy)
        payload = self._store.runs.payload(finished)
        about = (task.plan, task.method, task.key, payload, part.counts, policy.policy)
        contribution = self._gate.check(*about, records=part.records, masks=terms.masks)
        audited = None
        if self._gate.find(task.key) is None:
            audited = self._audit(task, part, contribution)
            if task.plan.privacy is None and audited.then != "withhold":
                self._spending.note_unprotected(task.plan, task.key)
        release = self._gate.log(
            task.plan,
            task.method,
            finished,
            payload,
            contribution,
            task.policy,
            link.destination,
            until=iso_time(task.work.deadline_unix_ms - link.clock_ms),
            masks=task.terms.masks,
            guarantee=self._spending.label(task.plan, part, policy.policy),
            audited=audited,
        )
        if release.state == "withheld":
            raise _withheld(release)
        if release.state == "held":
            return self._held(release, task, link)
        return self._send(task, release, leaving(payload, task.terms.masks), link)

    def _audit(self, task: Task, part: Part, contribution: Contribution) -> Audited:
        """What the membership audit says of a contribution that is not in the log yet; after a crash it is made anew,
        and says the same of the same bytes."""
        policy = task.policy.policy

        def held_out() -> Dataset:
            return self._spending.held_out(task.plan, policy)

        about = (task.plan, task.method, task.key, contribution, part.data)
        return self._auditor.audit(*about, held_out, policy.audit)

    def _send(self, task: Task, release: Release, payload: Payload, link: Link) -> Outcome:
        name = f"{task.plan.name}, {task.key}: release {release.number}"
        self._reporter.say("sending", f"{name}: sending {len(payload.data)} bytes", release=release.number)
        try:
            self._gate.send(release, payload, link.client)
        except RemoteProtocolError as error:  # closed in the meantime, most often: the run goes on without this one
            now = self._gate.find(task.key)
            if now is not None:
                self._gate.close(now, "not accepted by the coordinator")
            self._reporter.say("lapsed", f"{name}: not accepted: {error}", release=release.number)
            return Outcome.LATE
        self._reporter.say(
            "sent",
            f"{name}: the coordinator has it",
            release=release.number,
            bytes=len(payload.data),
            plan=task.key.plan,
        )
        return Outcome.SENT

    def _held(self, release: Release, task: Task, link: Link) -> Outcome:
        if release.number not in self._told_held:
            self._told_held.add(release.number)
            self._reporter.say(
                "held",
                f"release {release.number} is held until a person decides: fedsecure node preview {release.number}"
                f" --out DIR, then node release {release.number} or node refuse {release.number} --reason WHY;"
                f" its exchange is over at {iso_time(task.work.deadline_unix_ms - link.clock_ms)}",
                release=release.number,
            )
        return Outcome.HELD


def _withheld(release: Release) -> AuditError:
    return AuditError(
        f"release {release.number} is {STATE_WORDS['withheld']}: {audit_line(release.body)}",
        hint=f"look closer: fedsecure audit release {release.number}; the coordinator knows no more than that",
    )


def _asks_again(key: ExchangeKey, what: str) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"{key}: the coordinator asks again, with {what} than the one answered",
        hint="the coordinator lost its state or misbehaves; ask its operator",
    )


def as_error(error: Exception) -> FedSecureError:
    """An error of ours, or a line about one that is not (out of memory, a fault in a method)."""
    if isinstance(error, FedSecureError):
        return error
    return FedSecureError(f"{type(error).__name__}: {error}", hint="the run is left; please report it")
