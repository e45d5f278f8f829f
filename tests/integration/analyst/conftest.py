"""A coordinator's Prediction service over real mutual TLS, in this process, with two nodes that open, check and answer.

The model is a toy: records have two numbers, u and v; node ``a`` matches by u, node ``b`` by v.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from concurrent import futures
from datetime import UTC, datetime
from pathlib import Path

import grpc
import numpy as np
import pytest

from fedsecure.analyst import session
from fedsecure.analyst.session import Question
from fedsecure.analyst.settings import CONFIG_NAME, AnalystSettings, load_settings
from fedsecure.cli import run
from fedsecure.crypto.sealing import SealingKey, seal
from fedsecure.crypto.statements import Signer
from fedsecure.errors import FedSecureError, NodeUnreachable, PolicyError, RemoteProtocolError
from fedsecure.method import Prediction
from fedsecure.plan import Plan
from fedsecure.prediction.answers import encode_prediction, encode_refusal
from fedsecure.prediction.keys import node_key_statement
from fedsecure.prediction.padding import padded
from fedsecure.prediction.queries import answer_info, query_info, read_query
from fedsecure.prediction.signed import sign_answer
from fedsecure.schema import Schema, TensorSpec
from fedsecure.tensors import Tensors
from fedsecure.wire.credentials import TlsFiles, peer_identity, server_credentials
from fedsecure.wire.status import to_status
from fedsecure.wire.v1 import prediction_pb2 as pb
from fedsecure.wire.v1.prediction_pb2_grpc import PredictionServicer, add_PredictionServicer_to_server

NODES = ("a", "b")
WEIGHTS = Tensors({"weights": np.eye(2, dtype=np.float32)})


def now_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


class Toy:
    """A RoutedMethod: scores are the record's two numbers; node ``a`` says yes, node ``b`` says no."""

    nodes = NODES
    exchanges = ()

    def routing_schema(self):
        return Schema(released=(TensorSpec("weights", "float32", (2, 2), -10, 10, "routing weights"),))

    def route(self, routing, x, *, device="cpu"):
        return x.astype(np.float64) @ routing["weights"].astype(np.float64)

    def predict(self, node, serving, local, x, *, device="cpu"):
        sure = np.linspace(0.6, 0.9, len(x), dtype=np.float32)
        yes = sure if node == "a" else 1 - sure
        return Prediction(np.stack([yes, 1 - yes], axis=1), np.full((len(x), 2), 0.5, dtype=np.float32))

    def _not_here(self, *_, **__):
        raise AssertionError("an analyst does not train")

    schema = broadcast_schema = init_server = broadcast = client_update = server_update = model = _not_here
    routing = serving_schema = serving = _not_here


def toy_plan(**changes) -> Plan:
    number = {"kind": "numeric", "low": -10.0, "high": 10.0, "mean": 0.0, "std": 1.0}
    raw = {
        "format": 1,
        "name": "toy",
        "rounds": 1,
        "task": {"kind": "table", "classes": ["yes", "no"], "columns": [{**number, "name": n} for n in ("u", "v")]},
        "model": {"name": "mlp"},
        "method": {"name": "fedavg", "local_epochs": 1},
        "cohort": {"min_nodes": 2, "nodes": list(NODES)},
    }
    return Plan.model_validate({**raw, **changes}, strict=False)


class FakeNode:
    """Opens, checks, answers. ``twist(outcome)`` changes what it says; ``analysts`` are those it answers."""

    def __init__(self, world, name) -> None:
        self.world, self.name = world, name
        files = world.federation.enrol("node", name)
        self.signer = Signer(files.key.read_bytes(), files.cert.read_bytes())
        self.analysts, self.up, self.served = {"dr-weber"}, True, []
        self.twist = lambda outcome: outcome
        self.restart()

    def restart(self) -> None:
        """A new key, as after a new start of its daemon."""
        self.key = SealingKey.generate()
        self.statement = self.sign()

    def sign(self, life_ms=3_600_000) -> pb.SignedStatement:
        return node_key_statement(self.signer, "heart", self.name, self.key.public, now_ms() + life_ms)

    def answer(self, run, analyst, sealed) -> bytes:
        statement = pb.SignedStatement.FromString(self.key.open(sealed, query_info(run, self.name)))
        query = self.read(statement, run, analyst, self.name)
        outcome = self.twist(self.decide(query))
        return seal(query.reply_key, padded(outcome), answer_info(query.digest))

    def read(self, statement, run, analyst, node):
        ca_pem, crl_pem = (self.world.federation.ca / "ca.crt").read_bytes(), self.world.federation.crl.read_bytes()
        return read_query(
            statement, ca_pem=ca_pem, crl_pem=crl_pem, federation="heart", run=run, node=node, analyst=analyst,
            now=datetime.now(UTC),
        )  # fmt: skip

    def decide(self, query) -> pb.Outcome:
        if query.analyst not in self.analysts:
            return encode_refusal(PolicyError(f"prediction.analysts: {query.analyst} is not among them"))
        x = query.x["x"]
        self.served.append(len(x))
        return encode_prediction(self.name, query.digest, Toy().predict(self.name, None, None, x))


class World(PredictionServicer):
    """The coordinator and its nodes. ``seen``: every message that came in; ``alter`` and ``falsify``
    change a listed model, or a plain reply, before it is sent."""

    def __init__(self, federation) -> None:
        self.federation, self.plan, self.routing = federation, toy_plan(), WEIGHTS.to_bytes()
        self.nodes = {name: FakeNode(self, name) for name in NODES}
        self.seen, self.max_query_bytes, self.clock_ms, self.cut = [], 1 << 20, 0, 0
        self.alter = lambda model: None
        self.falsify = lambda reply: None

    def guarded(self, request, context, answer):
        self.seen.append(request)
        try:
            peer = peer_identity(
                context, federation="heart", ca_pem=(self.federation.ca / "ca.crt").read_bytes(),
                crl_pem=self.federation.crl.read_bytes(), now=datetime.now(UTC),
            )  # fmt: skip
            peer.require("analyst", request.analyst_id)
            return answer()
        except FedSecureError as error:
            to_status(context, error)

    def HelloAnalyst(self, request, context):
        return self.guarded(
            request, context, lambda: pb.HelloAnalystReply(
                federation="heart", version="0", protocol=1, unix_ms=now_ms() + self.clock_ms, max_wait_ms=5000,
                max_query_bytes=self.max_query_bytes,
            ),
        )  # fmt: skip

    def ListModels(self, request, context):
        model = pb.ServedModel(
            plan_digest=self.plan.digest(),
            canonical=self.plan.canonical(),
            routing_digest=hashlib.sha256(self.routing).hexdigest(),
            routing_bytes=len(self.routing),
            nodes=[pb.ServingNode(node_id=n.name, reachable=n.up, key=n.statement) for n in self.nodes.values()],
        )
        self.alter(model)
        return self.guarded(request, context, lambda: pb.ListModelsReply(models=[model]))

    def DownloadRouting(self, request, context):
        self.guarded(request, context, lambda: None)
        end = self.cut if self.cut and request.offset < self.cut else len(self.routing)
        for at in range(request.offset, end, 50):
            yield pb.RoutingChunk(data=self.routing[at : min(at + 50, end)])

    def AskSealed(self, request, context):
        def answer():
            node = self.require(request.node_id)
            try:
                sealed = node.answer(request.plan_digest, request.analyst_id, request.sealed)
            except FedSecureError as error:
                raise RemoteProtocolError(f"node {node.name}: {error}") from None
            return pb.AskSealedReply(sealed=sealed)

        return self.guarded(request, context, answer)

    def AskPlain(self, request, context):
        def answer():
            x = Tensors.from_bytes(pb.Query.FromString(request.query.body).records)["x"]
            scores = Toy().route(WEIGHTS, x)[0]
            node = self.require(NODES[int(np.argsort(-scores, kind="stable")[request.rank])])
            query = node.read(request.query, request.plan_digest, request.analyst_id, "")
            answer = sign_answer(node.signer, query.digest, node.twist(node.decide(query)))
            reply = pb.AskPlainReply(node_id=node.name, answer=answer)
            if request.scores:
                reply.nodes.extend(NODES)
                reply.scores.extend(scores.tolist())
            self.falsify(reply)
            return reply

        return self.guarded(request, context, answer)

    def require(self, name) -> FakeNode:
        if not self.nodes[name].up:
            raise NodeUnreachable(f"node {name} cannot be reached: it asks for no queries")
        return self.nodes[name]

    def asked(self) -> list[str]:
        return [r.node_id for r in self.seen if isinstance(r, pb.AskSealedRequest)]


@pytest.fixture
def world(federation_of, tmp_path: Path):
    """The service, up; ``world.settings`` are those of analyst dr-weber, ``world.folder`` is where they lie."""
    federation = federation_of(tmp_path)
    made = World(federation)
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(futures.ThreadPoolExecutor(max_workers=4))
        server = grpc.server(pool)
        add_PredictionServicer_to_server(made, server)
        port = server.add_secure_port("127.0.0.1:0", server_credentials(federation.coordinator(), now=federation.now))
        server.start()
        stack.callback(lambda: server.stop(0).wait(10))
        made.address = f"localhost:{port}"
        made.folder = enrolled(made, "dr-weber")
        made.settings = load_settings(made.folder)
        yield made


def enrolled(world, name) -> Path:
    files: TlsFiles = world.federation.enrol("analyst", name)
    folder = files.key.parent
    text = f'format = 1\nanalyst = "{name}"\nfederation = "heart"\ncoordinator = "{world.address}"\n'
    (folder / CONFIG_NAME).write_text(text)
    return folder


@pytest.fixture
def another_analyst(world):
    """Settings of another analyst of the federation."""

    def make(name: str) -> AnalystSettings:
        return load_settings(enrolled(world, name))

    return make


@pytest.fixture
def queries(tmp_path: Path):
    """Writes records (n, 2) as an .npz; returns its path."""

    def write(rows, name="q.npz", key="x") -> Path:
        np.savez(tmp_path / name, **{key: np.asarray(rows, dtype=np.float32)})
        return tmp_path / name

    return write


@pytest.fixture
def toy_method():
    return lambda plan: Toy()


@pytest.fixture
def ask(world, queries, toy_method):
    """Asks in the sealed form: records for nodes a, b, a unless it is told others."""

    def run(rows=([3.0, 1.0], [1.0, 3.0], [3.0, 1.0]), settings=None, **how):
        paths = how.pop("paths", None) or (queries(rows),)
        question = Question(tuple(paths), how.pop("run", world.plan.digest()), **how)
        return whole(session.predict(settings or world.settings, question, toy_method))

    return run


def whole(answered):
    """All answers, or the error that such a command ends with."""
    if answered.fault is not None:
        raise answered.fault
    return answered


@pytest.fixture
def cli(capsys):
    """Runs a command line; (exit code, stdout, stderr)."""

    def call(*arguments):
        code = run([str(a) for a in arguments])
        got = capsys.readouterr()
        return code, got.out, got.err

    return call


@pytest.fixture
def predict(cli, world, toy_method, monkeypatch):
    """``fedsecure predict … --dir DIR --run DIGEST``."""
    monkeypatch.setattr("fedsecure.commands.predict._build_method", toy_method)
    shutil.copy(world.federation.crl, world.folder)

    def call(*arguments, digest=None):
        return cli("predict", *arguments, "--dir", world.folder, "--run", digest or world.plan.digest())

    return call
