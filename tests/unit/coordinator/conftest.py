"""A tiny deterministic method and a store, for tests of the coordinator without torch or network."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fedsecure.errors import DataError
from fedsecure.schema import Axis, Contribution, Schema, TensorSpec
from fedsecure.tensors import Tensors
from fedsecure.wire.codec import encode_contribution, upload_key
from fedsecure.wire.v1 import coordinator_pb2 as pb
from fedsecure_coordinator.cohorts.manifests import Cohorts
from fedsecure_coordinator.masking.calls import MaskingCalls
from fedsecure_coordinator.masking.sessions import Sessions
from fedsecure_coordinator.masking.times import Times
from fedsecure_coordinator.runs.preparation import Preparer
from fedsecure_coordinator.runs.registry import Registry
from fedsecure_coordinator.service.desk import Desk
from fedsecure_coordinator.service.uploads import Uploads
from fedsecure_coordinator.store.blobs import BlobStore
from fedsecure_coordinator.store.journal import Journal, RunRow
from fedsecure_coordinator.work.worker import Worker

#: ``masked_nodes`` lies there and is no test itself.
sys.path.insert(0, str(Path(__file__).parents[2]))


class VectorSum:
    """The state is the sum of all vectors ever contributed, plus the round; labels are released and dropped."""

    def __init__(self, exchanges=("one",), fail_in_round=None):
        self.exchanges, self._fail = exchanges, fail_in_round

    def schema(self, exchange):
        length = Axis("n", 0, 8)
        return Schema(
            (TensorSpec("x", "float32", (4,), -100.0, 100.0, "a vector"),),
            (TensorSpec("labels", "int64", (length,), 0.0, 2.0, "labels"),),
        )

    def broadcast_schema(self, exchange):
        return Schema((), (TensorSpec("total", "float64", (4,), -1e9, 1e9, "the sum so far"),))

    def init_server(self, seed):
        return Tensors({"total": np.full(4, float(seed % 7))})

    def broadcast(self, exchange, server):
        return server

    def client_update(self, exchange, broadcast, local, data, ctx):
        return local, Contribution(Tensors({"x": np.ones(4, np.float32)}), Tensors({"labels": np.zeros(2, np.int64)}))

    def server_update(self, exchange, server, aggregate, ctx):
        if ctx.round == self._fail:
            raise DataError("the update diverged")
        ctx.report("loss", float(ctx.round))
        return Tensors({"total": server["total"] + aggregate.summed["x"] + ctx.round})

    def model(self, server):
        return server


def contribution(value=1.0, labels=(0, 1)):
    return Contribution(
        Tensors({"x": np.full(4, value, np.float32)}), Tensors({"labels": np.asarray(labels, dtype=np.int64)})
    )


@pytest.fixture
def toy(sum_plan):
    """``method``, ``plan``, ``contribution``: the pieces of a toy run."""
    return SimpleNamespace(method=VectorSum, plan=sum_plan, contribution=contribution)


@pytest.fixture
def open_office(tmp_path):
    """Opens (and reopens) a coordinator's store: everything but the network. ``office.clock.now`` is its time (ms)."""
    opened = []

    def open_(method=None, evaluate=None, memory=None, **masking):
        clock = opened[-1].clock if opened else SimpleNamespace(now=1_000_000)
        notices = []
        journal = Journal(tmp_path / "journal.sqlite")
        blobs = BlobStore(tmp_path / "blobs")
        registry = Registry(
            journal, blobs, lambda plan: method or VectorSum(), clock=lambda: clock.now, listen=notices.append
        )
        sessions = Sessions(registry, **masking)
        cohorts = Cohorts(tmp_path / "cohorts")
        desk = Desk(registry, legs=sessions.leg)
        uploads = Uploads(tmp_path / "partial", desk)
        registry.on_exchange_over(uploads.discard)
        registry.on_exchange_over(sessions.end)
        stop = threading.Event()
        worker = Worker(registry, sessions, stop, evaluate=evaluate)
        preparer = Preparer(registry, cohorts, stop, memory=memory)

        def submit(plan):
            journal.add_run(RunRow(plan.digest(), plan.name, plan.canonical(), clock.now))
            preparer.take_up()
            return plan.digest()

        def gather(plan):
            digest = submit(plan)
            for node in "abc":
                desk.join(node, digest)
            return digest

        def send(digest, node, given=None, *, round_=0, exchange="one", attempt=0):
            payload = encode_contribution(given or contribution())
            key = upload_key(
                payload, node_id=node, plan_digest=digest, round_=round_, attempt=attempt, exchange=exchange
            )
            return uploads.receive(key, uploads.offset(key)[0], [payload.data])

        def work():
            while (due := registry.next_due(0)) is not None:
                worker.aggregate(due)

        office = SimpleNamespace(
            clock=clock,
            journal=journal,
            blobs=blobs,
            registry=registry,
            desk=desk,
            sessions=sessions,
            cohorts=cohorts,
            uploads=uploads,
            worker=worker,
            preparer=preparer,
            stop=stop,
            notices=notices,
            submit=submit,
            gather=gather,
            send=send,
            work=work,
        )
        opened.append(office)
        return office

    yield open_
    for office in opened:
        office.sessions.close()
        office.journal.close()


class MaskedRun:
    """A run under masks: an office, the nodes of its cohort, and what each of them does when it is asked.

    ``values``: node -> what it contributes. ``vanish``: node -> the leg from which on it answers nothing.
    """

    def __init__(self, office, manifest, nodes):
        self.office, self.manifest, self.nodes = office, manifest, nodes
        self.calls = MaskingCalls(office.sessions, office.cohorts)
        self.values = {name: float(place) for place, name in enumerate(nodes)}
        self.vanish, self.answered, self.results = {}, [], []

    def open(self, plan):
        digest = self.office.submit(plan)
        for name in self.nodes:
            self.office.desk.join(name, digest)
        return digest

    def ended(self, digest):
        return self.office.registry.ended().get(digest)

    def pump(self, digest, until, *, seconds=240, tick_ms=50):
        """Let nodes and worker work until ``until()``; the office's clock goes on by ``tick_ms`` each time round."""
        end = time.monotonic() + seconds
        while not until():
            assert time.monotonic() < end, [(n.kind, n.detail) for n in self.office.notices]
            self.office.clock.now += tick_ms
            self.office.work()
            for name in self.nodes:
                self.step(digest, name)
            time.sleep(0.005)

    def step(self, digest, name):
        """One poll of a node, and what it does about it."""
        if self.vanish.get(name, 9) < 0:
            return None
        work = self.office.desk.next_work(name, [digest], 0, lambda: False)
        if work is None or work.ended is not None:
            return work
        if work.leg is not None:
            if self.vanish.get(name, 9) > work.leg.leg:
                self.reply(name, work.leg)
            return work
        self.results.append((work.slot.round, name, work.cohort, work.result))
        self.contribute(name, work)
        return work

    def contribute(self, name, work):
        slot = work.slot
        left = self.nodes[name].contribute(
            contribution(self.values[name]),
            round_=slot.round,
            exchange=slot.exchange,
            broadcast=work.broadcast,
            result=work.result,
        )
        at = {"round_": slot.round, "exchange": slot.exchange, "attempt": slot.attempt}
        return self.office.send(slot.digest, name, left, **at)

    def reply(self, name, leg):
        what, made = self.nodes[name].answer(leg, VectorSum().schema(leg.exchange))
        self.answered.append((name, leg.leg, what))
        self.deliver(name, leg, what, made)

    def deliver(self, name, leg, what, made):
        about = {"node_id": name, "plan_digest": leg.plan_digest, "config_digest": leg.config_digest}
        if what == "masked":
            messages = [pb.MaskedMessage(chunk=chunk) for chunk in made.chunks()]
            messages.append(pb.MaskedMessage(done=made.done))
            self.calls.upload(pb.MaskedHeader(**about), iter(messages), lambda: False)
        else:
            self.calls.answer(pb.LegAnswer(**about, leg=leg.leg, **{what: made}))


@pytest.fixture
def masked_run(open_office, toy):
    """``masked_run("abcd")``: an office that holds the manifest of these nodes, signed by all, and the nodes."""
    from masked_nodes import cohort_of

    def make(names="abcd", **office):
        opened = open_office(times=lambda first: Times(5.0, 5.0), **office)
        manifest, nodes = cohort_of("test.example", tuple(names), clock=lambda: opened.clock.now)
        opened.cohorts.add(manifest, federation="test.example")
        return MaskedRun(opened, manifest, nodes)

    return make


@pytest.fixture
def masked_plan(toy):
    """``masked_plan(secagg="optional", rounds=1)``: a plan of nodes a, b, c and d, of which three must stay."""

    def make(names="abcd", *, min_nodes=3, **changes):
        cohort = {"min_nodes": min_nodes, "nodes": list(names)}
        return toy.plan(**{"secagg": "required", "cohort": cohort, **changes})

    return make
