"""The coordinator's own computation: updates and evaluations. One thread, one run at a time."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Mapping

import numpy as np

from fedsecure.errors import DataError, LocalProtocolError, RemoteProtocolError
from fedsecure.method import Cancelled, ServerContext, sum_contributions
from fedsecure.plan import Plan
from fedsecure.randomness import server_seed
from fedsecure.rounds.events import Aggregate, AttemptFailed, Phase, ServerUpdated, UpdateFailed
from fedsecure.schema import Contribution
from fedsecure.tensors import Tensors
from fedsecure.wire.codec import decode_payload
from fedsecure.wire.v1 import coordinator_pb2 as pb
from fedsecure_coordinator.blobs import DamagedBlob
from fedsecure_coordinator.registry import Registry
from fedsecure_coordinator.runs import Run, one_line

__all__ = ["Evaluate", "Worker"]

#: Measures a trained model on the coordinator's test records; raises ``DataError`` when they do not go with the plan.
Evaluate = Callable[[Plan, Tensors], Mapping[str, float]]
#: How long one wait for something to do lasts (seconds).
LOOK_SECONDS = 0.5


class Worker:
    """Folds contributions into the coordinator's state, one run at a time, until ``stop`` is set.

    ``device``: a torch device name, passed on to the method. ``evaluate``: absent, nothing is measured.
    """

    def __init__(
        self, registry: Registry, stop: threading.Event, *, device: str = "cpu", evaluate: Evaluate | None = None
    ) -> None:
        self._registry, self._stop, self._device, self._evaluate = registry, stop, device, evaluate

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
            contributions = self._contributions(run, action)
        except (DataError, DamagedBlob, RemoteProtocolError) as error:
            self._feed_failure(digest, AttemptFailed(one_line(error)))
            return
        figures: dict[str, float] = {}
        try:
            after = self._update(run, action, before, contributions, figures)
        except Cancelled:
            return
        except Exception as error:
            self._feed_failure(digest, UpdateFailed(one_line(error)))
            return
        if action.exchange == run.method.exchanges[-1]:
            figures |= self._measure(run, after)
            figures["seconds"] = (registry.clock() - run.row.round_started_ms) / 1000
        self._finish(run, action, after, figures)

    def _contributions(self, run: Run, action: Aggregate) -> dict[str, Contribution]:
        """What the contributors sent, read back and checked as on arrival."""
        stored = self._registry.journal.submissions(run.digest, action.round, action.exchange, action.attempt)
        schema = run.method.schema(action.exchange)
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
        contributions: Mapping[str, Contribution],
        figures: dict[str, float],
    ) -> Tensors:
        ctx = ServerContext(
            round=action.round,
            seed=server_seed(run.plan.seed),
            report=figures.__setitem__,
            cancelled=lambda: self._stop.is_set() or self._registry.run(run.digest) is None,
            device=self._device,
        )
        after = run.method.server_update(action.exchange, before, sum_contributions(contributions), ctx)
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

    def _finish(self, run: Run, action: Aggregate, after: Tensors, figures: Mapping[str, float]) -> None:
        registry = self._registry
        blob = registry.blobs.put(after.to_bytes())
        finite = {name: value if math.isfinite(value) else None for name, value in figures.items()}

        def also() -> None:
            for name, value in finite.items():
                registry.journal.set_metric(run.digest, action.round, name, value)

        with contextlib.suppress(LocalProtocolError, RemoteProtocolError), registry.changed:  # it may have been ended
            last = action.exchange == run.method.exchanges[-1]
            done = [("round", {"round": action.round, "metrics": finite})] if last else []
            registry.feed(run.digest, ServerUpdated(), server=(blob, after), also=also, first=done)
        registry.prune()

    def _feed_failure(self, digest: str, event: AttemptFailed | UpdateFailed) -> None:
        with contextlib.suppress(LocalProtocolError, RemoteProtocolError):  # the run was ended meanwhile
            self._registry.feed(digest, event)
