"""A federation with real certificates, a coordinator that really listens, and a caller for each node."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import grpc
import numpy as np
import pytest

from fedsecure.cli import run
from fedsecure.errors import DataError
from fedsecure.schema import Axis, Contribution, Schema, TensorSpec
from fedsecure.tensors import Tensors
from fedsecure.wire.codec import PROTOCOL, encode_contribution, upload_key
from fedsecure.wire.credentials import TlsFiles, channel_credentials
from fedsecure.wire.status import from_rpc_error
from fedsecure.wire.v1 import coordinator_pb2 as pb
from fedsecure.wire.v1 import prediction_pb2
from fedsecure.wire.v1.coordinator_pb2_grpc import CoordinatorStub
from fedsecure.wire.v1.prediction_pb2_grpc import PredictionStub
from fedsecure_coordinator.daemon import Daemon
from fedsecure_coordinator.settings import load_settings
from fedsecure_coordinator.setup import write_settings
from fedsecure_coordinator.store.journal import RunRow

sys.path.insert(0, str(Path(__file__).parents[2]))
from forked_nodes import ForkedDaemon

FEDERATION = "test.example"
SIZE = 50_000  # floats: a payload of some chunks


class VectorSum:
    """The state is the sum of all vectors ever contributed."""

    exchanges = ("one",)

    def schema(self, exchange):
        return Schema(
            (TensorSpec("x", "float32", (SIZE,), -100.0, 100.0, "a vector"),),
            (TensorSpec("labels", "int64", (Axis("n", 0, 8),), 0.0, 2.0, "labels"),),
        )

    def broadcast_schema(self, exchange):
        return Schema((), (TensorSpec("total", "float64", (SIZE,), -1e9, 1e9, "the sum so far"),))

    def init_server(self, seed):
        return Tensors({"total": np.zeros(SIZE)})

    def broadcast(self, exchange, server):
        return server

    def client_update(self, exchange, broadcast, local, data, ctx):
        raise NotImplementedError

    def server_update(self, exchange, server, aggregate, ctx):
        return Tensors({"total": server["total"] + aggregate.summed["x"]})

    def model(self, server):
        return server


class RoutedSum(VectorSum):
    """The same, and records (2,) are routed: node number i scores i times the first value of a record."""

    nodes = ("a", "b", "c")

    def routing_schema(self):
        return Schema((), (TensorSpec("w", "float64", (SIZE,), -1e9, 1e9, "the sum"),))

    def routing(self, server):
        return Tensors({"w": server["total"]})

    def serving_schema(self):
        return self.broadcast_schema("one")

    def serving(self, server):
        return server

    def route(self, routing, x, *, device="cpu"):
        if x.shape[1:] != (2,) or not np.isfinite(x).all():
            raise DataError(f"tensor x: records of shape {list(x.shape[1:])} where [2] is due, or not finite")
        return x[:, :1].astype(np.float64) * np.arange(3.0)

    def predict(self, node, serving, local, x, *, device="cpu"):
        raise NotImplementedError


class Caller:
    """A node or an analyst as the wire sees it. Errors come back as the errors of ours that they were."""

    def __init__(self, name, folder, port, options=()):
        self.name = name
        credentials = channel_credentials(TlsFiles.in_folder(folder), now=datetime.now(UTC))
        self.channel = grpc.secure_channel(f"localhost:{port}", credentials, options=options)
        self._stub, self.predictions = CoordinatorStub(self.channel), PredictionStub(self.channel)

    def call(self, method, request, timeout=60):
        try:
            return getattr(self._stub if hasattr(self._stub, method) else self.predictions, method)(
                request, timeout=timeout
            )
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None

    def hello(self, *, node_id=None, protocol=PROTOCOL, skew_ms=0):
        now = time.time_ns() // 1_000_000 + skew_ms
        return self.call(
            "Hello", pb.HelloRequest(node_id=node_id or self.name, version="t", protocol=protocol, unix_ms=now)
        )

    def join(self, digest):
        return self.call("Join", pb.JoinRequest(node_id=self.name, plan_digest=digest)).state

    def work(self, *digests, wait_ms=10_000):
        request = pb.NextWorkRequest(node_id=self.name, wait_ms=wait_ms, plan_digests=digests)
        return self.call("NextWork", request)

    def download(self, digest, offset=0):
        try:
            request = pb.DownloadRequest(node_id=self.name, digest=digest, offset=offset)
            return b"".join(chunk.data for chunk in self._stub.Download(request, timeout=60))
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None

    def sealed(self, digest, contribution=None, *, round_=0, attempt=0, node_id=None):
        payload = encode_contribution(contribution or give())
        key = upload_key(
            payload, node_id=node_id or self.name, plan_digest=digest, round_=round_, attempt=attempt, exchange="one"
        )
        return payload.data, key

    def offset(self, key):
        return self.call("UploadOffset", pb.UploadOffsetRequest(key=key))

    def upload(self, key, data, offset=0, chunk=64 << 10):
        def messages():
            yield pb.UploadMessage(header=pb.UploadHeader(key=key, offset=offset))
            for at in range(0, len(data), chunk):
                yield pb.UploadMessage(data=data[at : at + chunk])

        return self.call("Upload", messages())

    def contribute(self, digest, contribution=None, *, round_=0):
        data, key = self.sealed(digest, contribution, round_=round_)
        return self.upload(key, data)

    # Routed prediction ------------------------------------------------------------------------------------------------
    def hello_analyst(self, *, protocol=PROTOCOL, skew_ms=0):
        now = time.time_ns() // 1_000_000 + skew_ms
        request = prediction_pb2.HelloAnalystRequest(analyst_id=self.name, version="t", protocol=protocol, unix_ms=now)
        return self.call("HelloAnalyst", request)

    def models(self):
        return self.call("ListModels", prediction_pb2.ListModelsRequest(analyst_id=self.name)).models

    def routing(self, digest, offset=0):
        request = prediction_pb2.DownloadRoutingRequest(analyst_id=self.name, plan_digest=digest, offset=offset)
        try:
            return b"".join(chunk.data for chunk in self.predictions.DownloadRouting(request, timeout=60))
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None

    def ask(self, digest, node, sealed=b"sealed", *, wait_ms=10_000):
        request = prediction_pb2.AskSealedRequest(
            analyst_id=self.name, plan_digest=digest, node_id=node, sealed=sealed, wait_ms=wait_ms
        )
        return self.call("AskSealed", request, timeout=60 + wait_ms / 1000).sealed

    def ask_plain(self, digest, query, *, rank=0, scores=False, wait_ms=10_000):
        request = prediction_pb2.AskPlainRequest(
            analyst_id=self.name, plan_digest=digest, query=query, rank=rank, scores=scores, wait_ms=wait_ms
        )
        return self.call("AskPlain", request, timeout=60 + wait_ms / 1000)

    def serve(self, *digests, key=None):
        made = prediction_pb2.SignedStatement(label="node-query-key", body=b"b", certificate=b"c", signature=b"s")
        return self.call("Serve", prediction_pb2.ServeRequest(node_id=self.name, plan_digests=digests, key=key or made))

    def next_query(self, *, wait_ms=10_000):
        request = prediction_pb2.NextQueryRequest(node_id=self.name, wait_ms=wait_ms)
        reply = self.call("NextQuery", request)
        return reply.query if reply.WhichOneof("what") == "query" else None

    def answer(self, query_id, **form):
        return self.call("Answer", prediction_pb2.AnswerRequest(node_id=self.name, query_id=query_id, **form))


def give(value=1.0, labels=(0, 1), **tensors):
    summed = {"x": np.full(SIZE, value, np.float32)}
    return Contribution(Tensors(tensors or summed), Tensors({"labels": np.asarray(labels, dtype=np.int64)}))


@pytest.fixture(scope="session")
def enrolled(federation_of, tmp_path_factory):
    """A CA, a coordinator and nodes a, b, c, each enrolled in a folder of its own by the real steps."""
    root = tmp_path_factory.mktemp("federation")
    made = federation_of(root, FEDERATION)

    def enrol(name, role="node", dns=()):
        made.enrol(role, name, dns)
        return root / f"{role}-{name}"

    enrol("coordinator", "coordinator", ("localhost", "127.0.0.1"))
    for name in "abc":
        enrol(name)
    for name in ("anna", "bert"):
        enrol(name, "analyst")
    return SimpleNamespace(root=root, ca=made.ca, enrol=enrol)


@pytest.fixture
def coordinator_folder(enrolled, tmp_path):
    """A copy of the coordinator's folder with settings for a free port of the loopback."""
    import shutil

    folder = tmp_path / "coordinator"
    shutil.copytree(enrolled.root / "coordinator-coordinator", folder)
    write_settings(folder, federation=FEDERATION, listen="127.0.0.1:0")
    return folder


@pytest.fixture
def live(enrolled, coordinator_folder, sum_plan):
    """``live.start()`` runs a daemon; ``live.caller("a")`` dials it; ``live.submit(plan)`` adds a run."""
    with contextlib.ExitStack() as stack:
        state = SimpleNamespace(daemon=None, notices=[], folder=coordinator_folder, enrolled=enrolled)
        state.plan, state.give = sum_plan, give

        def start(method=None):
            settings = load_settings(coordinator_folder)
            daemon = Daemon(settings, lambda plan: method or VectorSum(), listen=state.notices.append)
            state.daemon = stack.enter_context(daemon)
            return daemon

        def caller(name, folder=None, **options):
            role = "analyst" if (enrolled.root / f"analyst-{name}").exists() else "node"
            made = Caller(name, folder or enrolled.root / f"{role}-{name}", state.daemon.port, **options)
            stack.callback(made.channel.close)
            return made

        def submit(plan):
            journal = state.daemon.journal
            journal.add_run(RunRow(plan.digest(), plan.name, plan.canonical(), time.time_ns() // 1_000_000))
            until(lambda: not state.daemon.registry.unprepared())
            return plan.digest()

        def until(condition, seconds=60):
            end = time.monotonic() + seconds
            while not condition():
                assert time.monotonic() < end, "it did not happen in time"
                time.sleep(0.02)

        def complete(plan):
            """A run of a ``RoutedSum``, trained; returns its digest."""
            digest = submit(plan)
            nodes = [caller(name) for name in "abc"]
            for node in nodes:
                node.join(digest)
            for round_ in range(2):
                for node in nodes:
                    node.work(digest)
                    node.contribute(digest, round_=round_)
            until(lambda: digest in state.daemon.registry.ended())
            return digest

        state.routed, state.complete = RoutedSum, complete
        state.start, state.caller, state.submit, state.until = start, caller, submit, until
        state.stop = lambda: state.daemon.__exit__(None, None, None)
        yield state


@pytest.fixture
def run_cli(capsys):
    """Run a command of the coordinator in this process: its stdout, or, when another exit code is due, its stderr."""

    def call(*arguments, code=0):
        capsys.readouterr()
        ended = run(["coordinator", *map(str, arguments)])
        said = capsys.readouterr()
        assert ended == code, said.err + said.out
        return said.out if code == 0 else said.err

    return call


class Process:
    """``fedsecure coordinator run`` with JSON logs; ``port`` is where it listens."""

    def __init__(self, folder, log, *more):
        self._log = log
        log.touch()
        self._begin = log.stat().st_size
        self.process = ForkedDaemon("coordinator", folder, log, "--log-format", "json", *more)
        self.port = self.find("ready")["port"]

    def records(self):
        text = self._log.read_bytes()[self._begin :].decode()
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def find(self, event, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = [r for r in self.records() if r.get("event") == event]
            if found:
                return found[-1]
            assert self.process.poll() is None, self._log.read_text()
            time.sleep(0.05)
        raise AssertionError(f"no {event} in time: {self._log.read_text()}")

    def end(self, number):
        self.process.send_signal(number)
        return self.process.wait(60)


@pytest.fixture
def begin(coordinator_folder, tmp_path):
    """Starts daemons; none outlives its test."""
    started = []

    def start(*more):
        process = Process(coordinator_folder, tmp_path / "log", *map(str, more))
        started.append(process)
        return process

    yield start
    for process in started:
        if process.process.poll() is None:
            process.process.kill()
            process.process.wait(60)


@pytest.fixture
def dial(live, enrolled):
    """``dial("a", port)``: a caller for a node, at a coordinator in another process."""

    def dial(name, port):
        live.daemon = type("Elsewhere", (), {"port": port})
        return live.caller(name)

    return dial
