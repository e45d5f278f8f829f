"""The coordinator's own computation: updates and evaluations. One thread, one run at a time."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections.abc import Callable, Mapping

import numpy as np

from fedsecure.errors import DataError, LocalProtocolError, RemoteProtocolError, WireError
from fedsecure.method import Aggregate as Sum
from fedsecure.method import Cancelled, ServerContext, sum_contributions
from fedsecure.plan import Plan
from fedsecure.randomness import server_seed
from fedsecure.rounds.events import Aggregate, AttemptFailed, NodeLeft, Phase, ServerUpdated, UpdateFailed
from fedsecure.schema import Contribution
from fedsecure.tensors import Tensors
from fedsecure.wire.codec import decode_payload
from fedsecure.wire.v1 import coordinator_pb2 as pb
from fedsecure_coordinator.masking.sessions import Sessions
from fedsecure_coordinator.runs.registry import Registry
from fedsecure_coordinator.runs.run import Run, one_line
from fedsecure_coordinator.store.blobs import DamagedBlob

__all__ = ["Evaluate", "Worker"]

#: Measures a trained model on the coordinator's test records; raises ``DataError`` when they do not go with the plan.
Evaluate = Callable[[Plan, Tensors], Mapping[str, float]]
#: How long one wait for something to do lasts (seconds).
LOOK_SECONDS = 0.5
#: Why a node is out until it asks for work again, when its contribution is not in the sum.
DROPPED = "dropped out of the masked sum"
_log = logging.getLogger("fedsecure.coordinator")


class Worker:
    """Folds contributions into the coordinator's state, one run at a time, until ``stop`` is set.

    What is summed under masks is summed by ``sessions``, while the worker goes on with other runs. ``device``: a torch
    device name, passed on to the method. ``evaluate``: absent, nothing is measured.
    """

    def __init__(
        self,
        registry: Registry,
        sessions: Sessions,
        stop: threading.Event,
        *,
        device: str = "cpu",
        evaluate: Evaluate | None = None,
    ) -> None:
        self._registry, self._sessions, self._stop = registry, sessions, stop
        self._device, self._evaluate = device, evaluate

    def work(self) -> None:
        """Until stopped: aggregate what is due."""
        while not self._stop.is_set():
            digest = self._registry.next_due(LOOK_SECONDS)
            if digest is not None:
                self.aggregate(digest)

    def aggregate(self, digest: str) -> None:
        """Sum a run's contributions and update its state. A cancelled update is taken up again after the next start.

        Raises ``StoreError`` when the store cannot be used: no run ends by that, and all go on once it is mended.
        """
        registry = self._registry
        with registry.changed:
            run = registry.run(digest)
            if run is None or run.machine.state.phase is not Phase.AGGREGATING:
                return
            (action,) = run.machine.pending()
            assert isinstance(action, Aggregate)
        try:
            before = run.state(registry.blobs)
        except (DataError, DamagedBlob) as error:
            self._feed_failure(digest, UpdateFailed(one_line(error)))
            return
        try:
            total = self._total(run, action)
        except (DataError, DamagedBlob, RemoteProtocolError) as error:
            self._feed_failure(digest, AttemptFailed(one_line(error)))
            return
        if total is None:
            return
        figures: dict[str, float] = {}
        try:
            after = self._update(run, action, before, total, figures)
        except Cancelled:
            return
        except Exception as error:
            self._feed_failure(digest, UpdateFailed(one_line(error)))
            return
        if action.exchange == run.method.exchanges[-1]:
            figures |= self._measure(run, after)
            figures["seconds"] = (registry.clock() - run.row.round_started_ms) / 1000
        self._finish(run, action, total, after, figures)

    def _total(self, run: Run, action: Aggregate) -> Sum | None:
        """The sum of what the contributors sent, of the survivors of a session where it is masked; ``None`` while that
        session is still to come."""
        contributions = self._contributions(run, action)
        if not run.masked(action.exchange):
            return sum_contributions(contributions)
        journal, blobs = self._registry.journal, self._registry.blobs
        found = journal.masked_sum(run.digest, action.round, action.exchange, action.attempt)
        if found is None:
            self._begin_session(run, action)
            return None
        released = {node: contributions[node].released for node in found.survivors}
        return Sum(Tensors.from_bytes(blobs.get(found.summed)), released, found.survivors)

    def _begin_session(self, run: Run, action: Aggregate) -> None:
        try:
            self._sessions.begin(run, action)
        except WireError as error:  # no thread for it now
            _log.warning("%s", error)
            self._stop.wait(LOOK_SECONDS)
            self._registry.take_up_again(run.digest)

    def _contributions(self, run: Run, action: Aggregate) -> dict[str, Contribution]:
        """What the contributors sent, read back and checked as on arrival."""
        stored = self._registry.journal.submissions(run.digest, action.round, action.exchange, action.attempt)
        schema = run.schema(action.exchange)
        found: dict[str, Contribution] = {}
        for node in action.contributors:
            if node not in stored:
                raise DataError(f"node {node}: its contribution is not in the journal")
            key = pb.UploadKey.FromString(stored[node].key)
            found[node] = decode_payload(self._registry.blobs.get(stored[node].payload), key, schema)
        return found

    def _update(
        self,
        run: Run,
        action: Aggregate,
        before: Tensors,
        total: Sum,
        figures: dict[str, float],
    ) -> Tensors:
        ctx = ServerContext(
            round=action.round,
            seed=server_seed(run.plan.seed),
            report=figures.__setitem__,
            cancelled=lambda: self._stop.is_set() or self._registry.run(run.digest) is None,
            device=self._device,
        )
        after = run.method.server_update(action.exchange, before, total, ctx)
        for name, array in after.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise DataError(f"the update diverged: tensor {name} is not finite", hint="lower the learning rate")
        return after

    def _measure(self, run: Run, after: Tensors) -> dict[str, float]:
        if self._evaluate is None:
            return {}
        try:
            return dict(self._evaluate(run.plan, run.method.model(after)))
        except Exception as error:  # a measurement is not worth a run
            self._registry.note(run.digest, "not-evaluated", {"reason": one_line(error)})
            return {}

    def _finish(self, run: Run, action: Aggregate, total: Sum, after: Tensors, figures: Mapping[str, float]) -> None:
        registry = self._registry
        blob = registry.blobs.put(after.to_bytes())
        finite = {name: value if math.isfinite(value) else None for name, value in figures.items()}

        def also() -> None:
            for name, value in finite.items():
                registry.journal.set_metric(run.digest, action.round, name, value)

        with contextlib.suppress(LocalProtocolError, RemoteProtocolError), registry.changed:  # it may have been ended
            last = action.exchange == run.method.exchanges[-1]
            done = [("round", {"round": action.round, "metrics": finite})] if last else []
            for node in sorted(set(action.contributors) - set(total.contributors)):
                registry.feed(run.digest, NodeLeft(node, DROPPED))
            registry.feed(run.digest, ServerUpdated(), server=(blob, after), also=also, first=done)
        registry.prune()

    def _feed_failure(self, digest: str, event: AttemptFailed | UpdateFailed) -> None:
        with contextlib.suppress(LocalProtocolError, RemoteProtocolError):  # the run was ended meanwhile
            self._registry.feed(digest, event)
