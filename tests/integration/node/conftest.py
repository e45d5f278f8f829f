"""A scripted coordinator over real mutual TLS on 127.0.0.1, and a real node daemon in a thread of this process."""

from __future__ import annotations

import hashlib
import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from fedsecure.data.dataset import Dataset
from fedsecure.data.export import save_npz
from fedsecure.errors import DataError, FedSecureError, RemoteProtocolError
from fedsecure.methods import build_method
from fedsecure.plan import Plan
from fedsecure.wire.codec import PROTOCOL, decode_payload
from fedsecure.wire.credentials import TlsFiles, server_credentials
from fedsecure.wire.status import to_status
from fedsecure.wire.v1 import coordinator_pb2 as pb
from fedsecure.wire.v1.coordinator_pb2_grpc import CoordinatorServicer, add_CoordinatorServicer_to_server
from fedsecure_node.assemble import open_log, run_node
from fedsecure_node.cli.first_steps import init_node
from fedsecure_node.progress import PlainReporter
from fedsecure_node.settings import load_settings
from fedsecure_node.store.store import Store

FEDERATION = "heart-study"
CLASSES = ("normal", "pneumonia", "other")
POLICY = """
format = 1
[plans]
methods = ["fedaf", "fedavg"]
approval = "{approval}"
min_records = {min_records}
min_nodes = 1
shared_randomness = true
[release]
hold = {hold}
max_bytes = {max_bytes}
[broadcast]
max_abs_parameter = {max_abs_parameter}
"""
POLICY_DEFAULTS = {
    "approval": "rule",
    "min_records": 1,
    "hold": "false",
    "max_bytes": 10_000_000,
    "max_abs_parameter": 1000.0,
}


class Script(CoordinatorServicer):
    """Offers plans, hands out exchanges in order, and takes uploads in; every fault is one that a test asks for."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.lock = threading.Lock()
        self.joined: list[str] = []
        self.states: dict[str, Any] = {}
        self.refusals: list[tuple[str, str]] = []
        self.work: list[pb.Exchange] = []
        self.broadcasts: dict[str, bytes] = {}
        self.partial: dict[str, bytearray] = {}
        self.complete: dict[tuple[int, str, int], bytes] = {}
        self.offsets: list[int] = []
        self.hellos = 0
        self.cut_uploads = 0
        self.cut_downloads = 0
        self.cut_polls = 0
        self.refuse_upload: FedSecureError | None = None
        self.refuse_download: FedSecureError | None = None
        self.forget_acknowledgement = False
        self.ended: pb.Ended | None = None
        self.ends_with_the_run = self.told_the_end = False
        self.clock_ms = 0
        self.federation = FEDERATION
        self.protocol = PROTOCOL
        self.chunk = 4096
        self.before_upload: Callable[[], None] = lambda: None
        self.before_hello: Callable[[], None] = lambda: None
        self.schema_of: Callable[[Any], Any] = self._schema

    def register(self, server: grpc.Server) -> None:
        add_CoordinatorServicer_to_server(self, server)

    def _schema(self, key: Any) -> Any:
        plan = next(p for p in self.plans if p.digest() == key.plan_digest)
        return build_method(plan).schema(key.exchange)

    # what a test sets up

    def offer(self, plan: Plan) -> None:
        self.plans.append(plan)

    def ask(
        self,
        plan: Plan,
        round_: int = 0,
        *,
        exchange: str = "",
        attempt: int = 0,
        scale: float = 1.0,
        about: Callable[[str], dict[str, Any]] = lambda broadcast: {},
    ) -> None:
        """``about``: what else the exchange says, of its broadcast's digest."""
        method = build_method(plan)
        name = exchange or method.exchanges[0]
        state = method.init_server(3)
        state = state.with_({n: (a * scale).astype(a.dtype) for n, a in state.items() if a.dtype.kind == "f"})
        data = method.broadcast(name, state).to_bytes()
        digest = hashlib.sha256(data).hexdigest()
        self.broadcasts[digest] = data
        deadline = time.time_ns() // 1_000_000 + 600_000
        self.work.append(
            pb.Exchange(
                plan_digest=plan.digest(),
                round=round_,
                attempt=attempt,
                exchange=name,
                broadcast_digest=digest,
                broadcast_bytes=len(data),
                deadline_unix_ms=deadline + self.clock_ms,
                **about(digest),
            )
        )

    def end(self, plan: Plan, state: Any = pb.RUN_STATE_COMPLETED, reason: str = "") -> None:
        self.ended = pb.Ended(plan_digest=plan.digest(), state=state, reason=reason)

    # the calls

    def Hello(self, request: Any, context: Any) -> Any:
        self.hellos += 1
        self.before_hello()
        return pb.HelloReply(
            federation=self.federation, version="0", protocol=self.protocol,
            unix_ms=time.time_ns() // 1_000_000 + self.clock_ms, max_wait_ms=500, chunk_bytes=self.chunk,
        )  # fmt: skip

    def ListPlans(self, request: Any, context: Any) -> Any:
        if self.ends_with_the_run and self.told_the_end:
            context.abort(grpc.StatusCode.UNAVAILABLE, "gone for good")
        return pb.ListPlansReply(
            plans=[
                pb.OfferedPlan(
                    digest=p.digest(),
                    canonical=p.canonical(),
                    state=self.states.get(p.digest(), pb.RUN_STATE_RUNNING),
                    joined=p.digest() in self.joined,
                )
                for p in self.plans
            ]
        )

    def Join(self, request: Any, context: Any) -> Any:
        self.joined.append(request.plan_digest)
        return pb.JoinReply(state=pb.RUN_STATE_RUNNING)

    def Refuse(self, request: Any, context: Any) -> Any:
        self.refusals.append((request.plan_digest, request.reason))
        self.joined = [d for d in self.joined if d != request.plan_digest]
        return pb.RefuseReply()

    def NextWork(self, request: Any, context: Any) -> Any:
        if self.cut_polls:
            self.cut_polls -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "restarting")
        end = time.monotonic() + request.wait_ms / 1000
        while True:
            with self.lock:
                if self.work and self.work[0].plan_digest in request.plan_digests:
                    return pb.NextWorkReply(exchange=self.work[0])
                if not self.work and self.ended and self.ended.plan_digest in request.plan_digests:
                    self.told_the_end = True
                    return pb.NextWorkReply(ended=self.ended)
            if time.monotonic() > end or not context.is_active():
                return pb.NextWorkReply(nothing=pb.Nothing())
            time.sleep(0.02)

    def Download(self, request: Any, context: Any) -> Iterator[Any]:
        if self.refuse_download is not None:
            with self.lock:
                self.work.clear()  # what is not on offer any more is not asked for either
            to_status(context, self.refuse_download)
        data = self.broadcasts[request.digest]
        for at in range(request.offset, len(data), self.chunk):
            if self.cut_downloads and at > request.offset:
                self.cut_downloads -= 1
                context.abort(grpc.StatusCode.UNAVAILABLE, "cut")
            yield pb.Chunk(data=data[at : at + self.chunk])

    def UploadOffset(self, request: Any, context: Any) -> Any:
        key = request.key
        with self.lock:
            held = len(self.partial.get(key.payload_digest, b""))
            done = (key.round, key.exchange, key.attempt) in self.complete and not self.forget_acknowledgement
        self.offsets.append(held)
        return pb.UploadOffsetReply(offset=held, complete=done)

    def Upload(self, request_iterator: Iterator[Any], context: Any) -> Any:
        self.before_upload()
        key = next(request_iterator).header.key
        held = self.partial.setdefault(key.payload_digest, bytearray())
        try:
            if self.refuse_upload is not None:
                with self.lock:
                    self.work.clear()
                raise self.refuse_upload
            for message in request_iterator:
                held += message.data
                if self.cut_uploads:
                    self.cut_uploads -= 1
                    context.abort(grpc.StatusCode.UNAVAILABLE, "cut")
            decode_payload(bytes(held), key, self.schema_of(key))
        except FedSecureError as error:
            to_status(context, error)
        with self.lock:
            self.complete[key.round, key.exchange, key.attempt] = bytes(held)
            if self.work and (self.work[0].round, self.work[0].exchange) == (key.round, key.exchange):
                self.work.pop(0)
        if self.forget_acknowledgement:
            self.forget_acknowledgement = False
            context.abort(grpc.StatusCode.UNAVAILABLE, "cut before the receipt")
        return pb.UploadReply(offset=len(held), complete=True)


class Running:
    """A node daemon in a thread."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.stop = threading.Event()
        self.out = io.StringIO()
        self.error: BaseException | None = None
        self._options = options
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            run_node(load_settings(self.folder), reporter=PlainReporter(self.out), stop=self.stop, **self._options)
        except BaseException as error:
            self.error = error

    def join(self, seconds: float = 90.0) -> None:
        self._thread.join(seconds)
        assert not self._thread.is_alive(), self.out.getvalue()

    def end(self, seconds: float = 60.0) -> None:
        self.stop.set()
        self.join(seconds)

    def until(self, condition: Callable[[], Any], seconds: float = 90.0) -> Any:
        end = time.monotonic() + seconds
        while not (value := condition()):
            assert time.monotonic() < end, self.out.getvalue()
            assert self.error is None, f"{self.error!r}\n{self.out.getvalue()}"
            time.sleep(0.02)
        return value

    @property
    def text(self) -> str:
        return self.out.getvalue()


class Site:
    """A node's folder and its scripted coordinator."""

    def __init__(self, folder: Path, script: Script, address: str) -> None:
        self.folder, self.script, self.address = folder, script, address
        self._running: list[Running] = []

    def policy(self, **changes: Any) -> None:
        (self.folder / "policy.toml").write_text(POLICY.format(**{**POLICY_DEFAULTS, **changes}))

    def start(self, **options: Any) -> Running:
        running = Running(self.folder, **options)
        self._running.append(running)
        return running

    def records(self) -> Any:
        settings = load_settings(self.folder)
        with Store(settings.store, create=False) as store:
            return open_log(store, settings).records()

    def close(self) -> None:
        for running in self._running:
            running.end()


@pytest.fixture(scope="session")
def identities(federation_of: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA with a coordinator and a node enrolled."""
    root = tmp_path_factory.mktemp("identities")
    federation = federation_of(root, FEDERATION)
    federation.coordinator(("localhost",), folder="coordinator")
    init_node(root / "node", node="hospital-a", federation=FEDERATION, coordinator="localhost:1")
    federation.certify(root / "node", "node", "hospital-a")
    return root


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def site(identities: Path, script: Script, tmp_path: Path) -> Iterator[Site]:
    import shutil

    files = TlsFiles.in_folder(identities / "coordinator")
    server = grpc.server(ThreadPoolExecutor(8))
    script.register(server)
    port = server.add_secure_port("127.0.0.1:0", server_credentials(files, now=datetime.now(UTC)))
    server.start()
    folder = tmp_path / "node"
    shutil.copytree(identities / "node", folder)
    text = (folder / "node.toml").read_text().replace("localhost:1", f"localhost:{port}")
    text = text.replace('kind = "folder"\npath = "data"', 'kind = "npz"\npath = "records.npz"')
    (folder / "node.toml").write_text(text.replace("threads = 0", "threads = 1"))
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), (15, 12, 4)).astype(np.int64)
    save_npz(Dataset(rng.random((31, 1, 8, 8), dtype=np.float32), y, CLASSES), folder / "records.npz")
    made = Site(folder, script, f"localhost:{port}")
    made.policy()
    yield made
    made.close()
    server.stop(0).wait(5)


@pytest.fixture
def plan_of() -> Callable[..., Plan]:
    def make(method: str = "fedavg", *, settings: dict[str, Any] | None = None, **changes: Any) -> Plan:
        methods = {
            "fedavg": {"name": "fedavg", "local_steps": 2, "batch": 8},
            "fedaf": {"name": "fedaf", "ipc": 2, "steps": 2},
            "fedspm": {
                "name": "fedspm",
                "components": 2,
                "predict": {"steps": 1, "batch": 8},
                "route": {"steps": 1, "batch": 8},
                "router": {"name": "mlp", "hidden": [4]},
            },
        }
        raw = {
            "format": 1,
            "name": f"tiny-{method}",
            "rounds": 2,
            "task": {"kind": "image", "classes": list(CLASSES), "shape": [1, 8, 8]},
            "model": {"name": "mlp", "hidden": [32]},
            "method": {**methods[method], **(settings or {})},
            "cohort": {"min_nodes": 1},
        }
        return Plan.model_validate_json(json.dumps({**raw, **changes}))

    return make


@pytest.fixture
def remote_error() -> Callable[[str], FedSecureError]:
    return lambda kind: {"remote": RemoteProtocolError("round 1 is closed"), "data": DataError("tensor w: too large")}[
        kind
    ]
