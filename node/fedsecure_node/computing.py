"""One exchange computed: fetch what was broadcast, guard against what it may ask, pay, compute, check, keep."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from fedsecure.data.dataset import Dataset
from fedsecure.method import Cancelled, ClientContext, Method
from fedsecure.plan import Plan
from fedsecure.randomness import node_seed
from fedsecure.tensors import Tensors
from fedsecure.wire.codec import encode_contribution
from fedsecure.wire.v1 import coordinator_pb2 as pb
from fedsecure_node.egress import Gate
from fedsecure_node.guarding.rereleases import Rereleases
from fedsecure_node.guarding.stickingout import without_sticking_out
from fedsecure_node.keys import ExchangeKey
from fedsecure_node.link.broadcasts import check_announced, read_broadcast
from fedsecure_node.link.client import NotOnOffer
from fedsecure_node.link.connect import Link
from fedsecure_node.log.noised import with_noise
from fedsecure_node.masking.repeats import Repeats
from fedsecure_node.masking.terms import Terms
from fedsecure_node.plans.institution import CurrentPolicy
from fedsecure_node.progress import Reporter
from fedsecure_node.spending.desk import SpendingDesk
from fedsecure_node.spending.part import Part
from fedsecure_node.store.runbook import Finished
from fedsecure_node.store.store import Store, now_ms

__all__ = ["Computation", "Task"]


@dataclass(frozen=True, slots=True)
class Task:
    """An exchange that was asked for, with everything that it needs and that was checked."""

    key: ExchangeKey
    plan: Plan
    method: Method
    policy: CurrentPolicy
    work: pb.Exchange
    terms: Terms


class Computation:
    """Computes what was asked for, once: what is kept is never computed again."""

    def __init__(
        self,
        store: Store,
        gate: Gate,
        reporter: Reporter,
        stop: threading.Event,
        *,
        node_id: str,
        spending: SpendingDesk,
        device: str,
    ) -> None:
        self._store = store
        self._gate = gate
        self._reporter = reporter
        self._stop = stop
        self._node = node_id
        self._spending = spending
        self._device = device
        self._repeats = Repeats(store.marks)
        self._rereleases = Rereleases(store.answers)

    def compute(self, task: Task, part: Part, link: Link) -> Finished | None:
        """Compute and keep a contribution; a private one is paid for first. A crash before it is kept pays again, as
        what it computed may have been seen. ``None``: it is too late. Raises ``Cancelled`` when the node
        stops."""
        key, plan, method, policy = task.key, task.plan, task.method, task.policy.policy
        self._store.runs.check_order(key)
        schema, masks = method.broadcast_schema(key.exchange), task.terms.masks
        is_of_model = masks is not None and bool(schema.released)  # else it is the same in every round and run
        if is_of_model:
            self._store.runs.check_model(key, task.work.broadcast_digest, task.terms.announced)
            self._repeats.check_model(key, task.work.broadcast_digest)
        check_announced(task.work.broadcast_bytes, schema, policy)
        try:
            raw = link.client.download(task.work.broadcast_digest, task.work.broadcast_bytes)
        except NotOnOffer as error:
            self._reporter.say("late", f"{plan.name}, {key}: over before it was begun: {error}")
            return None
        broadcast = read_broadcast(raw, task.work.broadcast_digest, schema, policy)
        data = self._guarded(task, broadcast, part)
        self._store.sessions.ask(key, task.terms.asked)
        before, local = self._store.runs.local_for(key)
        self._reporter.say("computing", f"{plan.name}, {key}: computing", plan=key.plan, round=key.round + 1)
        try:
            ctx = self._context(task, part, link)
            local, contribution = method.client_update(key.exchange, broadcast, local, data, ctx)
        except Cancelled:
            if self._stop.is_set():
                raise
            self._reporter.say("late", f"{plan.name}, {key}: the deadline passed before it was computed")
            return None
        method.schema(key.exchange).check(contribution)
        payload = with_noise(encode_contribution(contribution), masks, key)
        self._gate.check(plan, method, key, payload, part.counts, policy, records=part.records, masks=masks)
        if masks is not None and is_of_model:
            self._repeats.take(key, task.work.broadcast_digest, payload, masks)
        if plan.privacy is None:
            self._rereleases.take(key, broadcast, data)
        return self._store.runs.finish(
            key, broadcast=task.work.broadcast_digest, payload=payload, before=before, local=local, now_ms=now_ms()
        )

    def _guarded(self, task: Task, broadcast: Tensors, part: Part) -> Dataset:
        """The records that an exchange is computed from. With [privacy] all of them: noise is its guard."""
        if task.plan.privacy is not None:
            return part.data
        policy = task.policy.policy
        about = (task.plan, task.method, task.key, broadcast, part.data, policy)
        data = without_sticking_out(*about, self._reporter, self._device)
        self._rereleases.check(broadcast, data, policy)
        return data

    def _context(self, task: Task, part: Part, link: Link) -> ClientContext:
        """What the method gets besides the records; with [privacy], after it was paid for. Raises ``Cancelled`` where
        there is no time left: then nothing is paid."""
        key, plan = task.key, task.plan
        shared = plan.randomness == "plan"
        deadline = task.work.deadline_unix_ms - link.clock_ms

        def cancelled() -> bool:
            return self._stop.is_set() or now_ms() >= deadline

        if cancelled():
            raise Cancelled(f"{plan.name}, {key}: there is no time left to compute it")
        return ClientContext(
            node=self._node,
            round=key.round,
            seed=node_seed(plan.seed, self._node) if shared else self._store.runs.private_seed(key.plan),
            report=lambda name, value: self._reporter.say("local", f"{plan.name}, {key}: {name} {value:.4g}"),
            progress=lambda done, of: self._reporter.progress(f"{plan.name}, {key}", done, of),
            cancelled=cancelled,
            device=self._device,
            privacy=self._spending.pay(plan, key, part, task.policy.policy),
        )
