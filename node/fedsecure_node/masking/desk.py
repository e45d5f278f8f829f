"""Answers the legs of sessions: for contributions whose release was acknowledged, while the institution allows it.

In the log before bytes leave: that masked vectors do (leg 2), and that this node's shares do (leg 4). A session lives
in this process alone; after a restart there is none, and the coordinator is told so.
"""

from __future__ import annotations

from collections.abc import Callable

from fedsecure.crypto.signatures import SigningIdentity
from fedsecure.errors import (
    CertificateError,
    FedSecureError,
    LocalProtocolError,
    PolicyError,
    ReleaseLogError,
    SecAggError,
    StoreError,
    WireError,
)
from fedsecure.method import Cancelled, Method
from fedsecure.plan import Plan
from fedsecure.secagg.machines.due import SessionDue
from fedsecure.secagg.machines.memory import already_released, session_numbers
from fedsecure.secagg.machines.node import SecAggNode
from fedsecure.secagg.machines.vectors import Masked
from fedsecure.secagg.protocol.aborts import abort_bytes
from fedsecure.secagg.protocol.transcript import config_digest
from fedsecure.wire.v1 import coordinator_pb2 as pb
from fedsecure_node.egress import ClearedVectors, Gate
from fedsecure_node.link.connect import Link
from fedsecure_node.log.releases import Release
from fedsecure_node.masking.contribution import Contribution, Contributions
from fedsecure_node.masking.lifetime import Lifetime, longest_s
from fedsecure_node.masking.memory import StoredMemory
from fedsecure_node.masking.opened import Answer, OpenSession
from fedsecure_node.masking.prepared import prepare
from fedsecure_node.masking.refusals import Refusals
from fedsecure_node.masking.settling import say_differing
from fedsecure_node.masking.terms import MaskTerms
from fedsecure_node.plans.institution import CurrentPolicy, PolicyUnusable
from fedsecure_node.progress import Reporter
from fedsecure_node.store.store import Store, now_ms

__all__ = ["LegDesk"]

#: What is said once the coordinator took the answer to each leg.
_TAKEN = (
    "its keys for this session are advertised",
    "its secrets are shared",
    "its masked vectors are with the coordinator",
    "it confirmed whose vectors are summed",
    "its shares are with the coordinator",
)


class LegDesk:
    """At most one session of a run is open: a new one takes the place of the old, whose keys are overwritten.

    ``allowed``: raises unless policy and approval allow the plan at this moment. ``method``: of a plan. ``refusals``:
    the runs whose legs were refused lately; ``""`` stands for all that are not joined.
    """

    def __init__(
        self,
        store: Store,
        gate: Gate,
        reporter: Reporter,
        *,
        node_id: str,
        identity: SigningIdentity,
        terms: MaskTerms,
        allowed: Callable[[Plan, str], CurrentPolicy],
        method: Callable[[Plan], Method],
        threads: int = 1,
    ) -> None:
        self._store = store
        self._gate = gate
        self._reporter = reporter
        self._node = node_id
        self._identity = identity
        self._terms = terms
        self._contributions = Contributions(store, gate, allowed=allowed, method=method)
        self._threads = threads
        self._memory = StoredMemory(store.sessions)
        self.refusals = Refusals()
        self._open: dict[str, OpenSession] = {}
        self._told_still = ""
        self._clock_ms = 0

    def waiting(self) -> frozenset[str]:
        """Digests of the plans whose sessions go on and wait for their next leg. Until their deadline the node begins
        no other computation, since the other nodes of a cohort would wait for its answer. It does answer the legs of
        other sessions: else two nodes that are in two sessions could wait for one another."""
        return frozenset(plan for plan, s in self._open.items() if s.is_going_on and s.left_s > 0)

    def is_under_way(self) -> bool:
        """Whether the next leg of a session comes within seconds, so that nothing slow is to be begun."""
        return any(s.is_under_way and s.left_s > 0 for s in self._open.values())

    def answer(self, leg: pb.Leg, link: Link) -> bool:
        """Answer one leg, or leave its session and tell the coordinator by a fixed code. Returns False when nothing was
        given that the coordinator did not have: the leg is refused (its run rests by ``refusals``), was answered
        before, or the policy cannot be read. Raises ``PolicyError`` when the run is no longer allowed (the session is
        left), ``WireError`` when the line breaks (the same leg comes again and gets the same answer)."""
        self._clock_ms = link.clock_ms
        try:
            session, answer = self._answer(leg)
        except SecAggError as error:
            self._abort(leg, error, link)
            return False
        except PolicyUnusable as fault:
            if self._told_still != str(fault):
                self._told_still = str(fault)
                self._reporter.say("still", f"{fault}; the node holds still: nothing leaves, under masks or not")
            return False
        except (CertificateError, ReleaseLogError, StoreError):
            raise
        except PolicyError as error:
            self._abort(leg, SecAggError(f"WITHDRAWN: {error}"), link)
            raise
        except FedSecureError as error:
            self._abort(leg, SecAggError(str(error)), link)
            raise
        return self._send(leg, session, answer, link)

    def expire(self) -> None:
        """End the sessions whose time is up, or whose run the node left. To be called now and then."""
        active = self._store.runs.active() if self._open else []
        for plan, session in list(self._open.items()):
            if plan not in active:
                self.close(plan, "the node takes no further part in the run")
            elif session.is_going_on and session.left_s <= 0:
                self.close(plan, "its deadline has passed")

    def close(self, plan: str, why: str) -> None:
        """End the session of a run, if one is open: its keys are overwritten."""
        session = self._open.pop(plan, None)
        if session is not None:
            if session.is_going_on:
                self._say("session-left", session.release, f"its session ends here: {why}")
            session.close()

    def close_all(self) -> None:
        """End every session: the node stops."""
        for plan in list(self._open):
            self.close(plan, "the node stops")

    # one leg

    def _answer(self, leg: pb.Leg) -> tuple[OpenSession, Answer]:
        about = self._contributions.of(leg)
        session = self._open.get(leg.plan_digest)
        if session is None or session.digest != leg.config_digest:
            if leg.leg != 0:
                why = "no such session is open here; the node may have started again since"
                raise SecAggError(f"BAD_TRANSCRIPT: {about.key}: {why}")
            session = self._begin(about, leg)
        else:
            self._require_trusted(about, session)
        known = session.known(leg.leg, leg.message)
        if known is None:
            known = self._step(about, session, leg)
            session.keep(leg.leg, leg.message, known)
        return session, known

    def _begin(self, about: Contribution, leg: pb.Leg) -> OpenSession:
        if config_digest(leg.message).hex() != leg.config_digest:
            raise SecAggError(f"BAD_CONFIG: {about.key}: the configuration is not the one that the leg names")
        if about.release.state == "unmasked":
            raise already_released(about.key.exchange, about.key.round)
        self.close(leg.plan_digest, "the coordinator opened another")
        finished = self._store.runs.finished(about.key)
        masks = self._terms.masks(about.plan, about.method, about.key, about.policy)
        if finished is None or masks is None:
            raise SecAggError(f"BAD_CONFIG: {about.key}: there is nothing to sum")
        vectors = prepare(self._store.runs.payload(finished), masks, about.release)
        due = SessionDue(
            node=self._node,
            manifest=masks.manifest,
            experiment=about.key.plan,
            round=about.key.round,
            purpose=about.key.exchange,
            streams=masks.streams,
            state_digest=bytes.fromhex(finished.broadcast),
            prev_result=self._store.sessions.asked(about.key).previous,
            min_survivors=masks.least,
            dp_digest=masks.dp_digest,
            attempts=session_numbers(about.key.attempt),
            is_of_model=bool(about.method.broadcast_schema(about.key.exchange).released),
        )
        nbytes = sum(stream.spec.nbytes for stream in masks.streams)
        lifetime = Lifetime(longest_s(about.plan.deadlines.exchange, nbytes, masks.nodes), self._now)
        machine = SecAggNode(due, self._identity, vectors, self._memory, now_ms=lifetime.now_ms, threads=self._threads)
        session = OpenSession(about.release, leg.config_digest, machine, lifetime)
        self._open[leg.plan_digest] = session
        nodes = f"{masks.nodes} nodes of cohort {masks.manifest.cohort}"
        self._say("session", about.release, f"a session of {about.plan.name}, {about.key} begins, of up to {nodes}")
        return session

    def _require_trusted(self, about: Contribution, session: OpenSession) -> None:
        """Raise ``SecAggError`` BAD_COHORT unless the manifest that the session was begun with is pinned still."""
        masks = self._terms.masks(about.plan, about.method, about.key, about.policy)
        config = session.machine.config
        if masks is None or config is None or masks.manifest.digest != config.cohort_digest:
            raise SecAggError(f"BAD_COHORT: {about.key}: another manifest is pinned now than the session's")

    def _step(self, about: Contribution, session: OpenSession, leg: pb.Leg) -> Answer:
        """The answer to a message that is new, with what the log must say before it leaves."""
        made = session.step(leg.leg, leg.message)
        if isinstance(made, Masked):
            header = pb.MaskedHeader(node_id=self._node, plan_digest=leg.plan_digest, config_digest=leg.config_digest)
            try:
                cleared = self._gate.mask(about.release, header, made, session.machine.transcript1)
            except LocalProtocolError:
                raise already_released(about.key.exchange, about.key.round) from None
            self._say("masked", about.release, f"its summed half leaves under masks ({made.nbytes} bytes)")
            return cleared
        if leg.leg == 3:
            machine = session.machine
            self._gate.sums.confirm(about.release, transcript3=machine.transcript3, survivors=machine.survivors)
        elif leg.leg == 4:
            self._note_unmasked(about, session)
        return made

    def _note_unmasked(self, about: Contribution, session: OpenSession) -> None:
        machine = session.machine
        self._gate.unmask(about.release, transcript3=machine.transcript3, survivors=machine.survivors)
        count = len(machine.survivors)
        self._say("unmasked", about.release, f"the coordinator may read the sum over {count} nodes that it is inside")
        say_differing(self._gate, self._reporter, about.release)

    # answers on their way

    def _send(self, leg: pb.Leg, session: OpenSession, answer: Answer, link: Link) -> bool:
        """Whether the coordinator has the answer now, and had not before."""
        try:
            if isinstance(answer, ClearedVectors):
                link.client.upload_masked(answer, within=self._left_s(leg, session))
            else:
                link.client.answer_leg(leg.plan_digest, leg.config_digest, leg.leg, message=answer)
        except (WireError, CertificateError, Cancelled):
            raise
        except FedSecureError as error:  # over at the coordinator, most often
            text = f"the coordinator does not take the answer: {error}"
            self.refusals.refused(leg.plan_digest, text)
            self.close(leg.plan_digest, text)
            return False
        if not session.is_first_taken(leg.leg):
            return False
        self.refusals.answered(leg.plan_digest)
        self._say("leg", session.release, _TAKEN[leg.leg])
        return True

    def _abort(self, leg: pb.Leg, error: SecAggError, link: Link) -> None:
        """Leave a session, tell the operator why, and the coordinator by a code that says nothing of any record."""
        session = self._open.get(leg.plan_digest)
        message = abort_bytes(error)
        if session is not None and session.digest == leg.config_digest:
            message = session.abort(error)
            self._open.pop(leg.plan_digest)
        text = f"left a session of plan {leg.plan_digest[:12]}: {error}"
        joined = leg.plan_digest in self._store.runs.active()
        if self.refusals.refused(leg.plan_digest if joined else "", text):
            self._reporter.say("session-aborted", text)
        try:
            link.client.answer_leg(leg.plan_digest, leg.config_digest, leg.leg, abort=message)
        except (WireError, CertificateError, Cancelled):
            raise
        except FedSecureError:
            pass  # the session is over there, too

    # time

    def _now(self) -> int:
        """Unix time (ms) by the coordinator's clock: deadlines are by that."""
        return now_ms() + self._clock_ms

    def _left_s(self, leg: pb.Leg, session: OpenSession) -> float:
        """Seconds until the leg, or the session, is over; at least one."""
        return max(min((leg.deadline_unix_ms - self._now()) / 1000, session.left_s), 1.0)

    def _say(self, event: str, release: Release, text: str) -> None:
        self._reporter.say(event, f"release {release.number}: {text}", release=release.number, plan=release.key.plan)
