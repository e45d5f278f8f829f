"""The scripted coordinator also relays queries: a test puts them in and takes the answers out."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from fedsecure.crypto import authority, enrolment
from fedsecure.crypto.sealing import SealingKey, seal
from fedsecure.crypto.statements import Signer
from fedsecure.method import Prediction
from fedsecure.methods import build_method
from fedsecure.plan import Plan
from fedsecure.prediction.answers import decode_outcome
from fedsecure.prediction.keys import NodeKey, read_node_key
from fedsecure.prediction.queries import Asked, answer_info, make_query, query_info
from fedsecure.prediction.signed import read_answer
from fedsecure.wire.v1 import coordinator_pb2, prediction_pb2
from fedsecure.wire.v1.prediction_pb2_grpc import PredictionServicer, add_PredictionServicer_to_server
from fedsecure_node.store.store import Store

PREDICTION = """
[prediction]
analysts = ["dr-weber"]
max_records_per_hour = {per_hour}
coordinator_routed = {plain}
"""


class Relay(PredictionServicer):
    """Hands queries to the node that asks for them, and keeps what it answers."""

    def __init__(self) -> None:
        self.served: list[prediction_pb2.ServeRequest] = []
        self.waiting: list[prediction_pb2.RelayedQuery] = []
        self.answers: dict[str, prediction_pb2.AnswerRequest] = {}
        self.all_answers: list[prediction_pb2.AnswerRequest] = []
        self.twice = False
        self.cut_polls = 0
        self.polls = 0
        self.open_polls = 0
        self.lock = threading.Lock()

    def Serve(self, request: Any, context: Any) -> Any:
        self.served.append(request)
        return prediction_pb2.ServeReply()

    def NextQuery(self, request: Any, context: Any) -> Any:
        self.polls += 1
        if self.cut_polls:
            self.cut_polls -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "restarting")
        end = time.monotonic() + request.wait_ms / 1000
        with self.lock:
            self.open_polls += 1
        while True:
            with self.lock:
                over = time.monotonic() >= end or not context.is_active()
                if self.waiting or over:
                    self.open_polls -= 1
                    return self._reply()
            time.sleep(0.02)

    def _reply(self) -> Any:
        if not self.waiting:
            return prediction_pb2.NextQueryReply(none=prediction_pb2.NoQuery())
        query = self.waiting[0] if self.twice else self.waiting.pop(0)
        self.twice = False
        return prediction_pb2.NextQueryReply(query=query)

    def relay(self, query: prediction_pb2.RelayedQuery, meanwhile: Callable[[], None] | None) -> None:
        """Hand a query on; ``meanwhile`` is done just before, while the node waits in the poll that gets it."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with self.lock:
                if meanwhile is None or self.open_polls:
                    if meanwhile is not None:
                        meanwhile()
                    self.waiting.append(query)
                    return
            time.sleep(0.005)
        raise AssertionError("the node asks for no queries")

    def Answer(self, request: Any, context: Any) -> Any:
        self.answers[request.query_id] = request
        self.all_answers.append(request)
        return prediction_pb2.AnswerReply()


@pytest.fixture
def script(script: Any) -> Any:
    """The script of all tests of the node, which serves both services."""
    script.relay = Relay()
    register = script.register

    def both(server: grpc.Server) -> None:
        register(server)
        add_PredictionServicer_to_server(script.relay, server)

    script.register = both
    return script


@pytest.fixture(scope="session")
def signers(identities: Path) -> dict[str, Signer]:
    """Two analysts who sign with their certificates."""
    made = {}
    for name in ("dr-weber", "dr-moss"):
        folder = identities / name
        enrolment.create_identity(folder, federation="heart-study", role="analyst", name=name)
        csr = (folder / "tls.csr").read_bytes()
        now = datetime.now(UTC)
        pem = authority.sign_request(
            identities / "ca", csr, role="analyst", name=name, days=9, passphrase=None, now=now
        )
        made[name] = Signer((folder / "tls.key").read_bytes(), pem)
    return made


class Study:
    """A node, a run that it took part in, and the analysts who ask about it."""

    def __init__(self, site: Any, plan: Plan, signers: dict[str, Signer], ca: Path) -> None:
        self.site, self.script, self.relay, self.plan = site, site.script, site.script.relay, plan
        self.signers, self.ca = signers, ca
        self.method = build_method(plan)
        self.state = self.method.init_server(7)
        self.policy()

    def policy(self, *, analysts: bool = True, per_hour: int = 1000, plain: str = "false") -> None:
        self.site.policy()
        path = self.site.folder / "policy.toml"
        text = path.read_text().replace('"fedavg"]', '"fedavg", "fedspm"]')
        if analysts:
            text += PREDICTION.format(per_hour=per_hour, plain=plain)
        path.with_suffix(".new").write_text(text)
        path.with_suffix(".new").replace(path)

    def run(self, *, serving: bytes | None = None) -> None:
        """One exchange, then the end of the run with parameters to serve."""
        self.script.offer(self.plan)
        self.script.ask(self.plan)
        data = self.method.serving(self.state).to_bytes()
        digest = hashlib.sha256(data).hexdigest()
        self.script.broadcasts[digest] = data if serving is None else serving
        self.script.ended = coordinator_pb2.Ended(
            plan_digest=self.plan.digest(), state=coordinator_pb2.RUN_STATE_COMPLETED,
            serving_digest=digest, serving_bytes=len(data),
        )  # fmt: skip

    def key(self, number: int = -1) -> NodeKey:
        """The key of an announcement, verified as an analyst does."""
        return read_node_key(
            self.relay.served[number].key, ca_pem=(self.ca / "ca.crt").read_bytes(), crl_pem=None,
            federation="heart-study", node="hospital-a", now=datetime.now(UTC),
        )  # fmt: skip

    def x(self, n: int = 3) -> Any:
        return np.random.default_rng(n).random((n, 1, 8, 8), dtype=np.float32)

    def put(
        self, x: Any, *, analyst: str = "dr-weber", plain: bool = False, public: bytes = b"", to: str = "hospital-a",
        meanwhile: Callable[[], None] | None = None,
    ) -> tuple[str, Asked, SealingKey]:  # fmt: skip
        """Have a query relayed; its id, and what its answer is opened with. ``meanwhile``: see ``Relay.relay``."""
        reply, run, now = SealingKey.generate(), self.plan.digest(), time.time_ns() // 1_000_000
        asked = make_query(
            self.signers[analyst], run=run, node="" if plain else to, analyst=analyst, x=x, now_ms=now,
            reply_public=b"" if plain else reply.public,
        )  # fmt: skip
        form: dict[str, Any] = {"plain": asked.statement}
        if not plain:
            key = public or self.key().public
            form = {"sealed": seal(key, asked.statement.SerializeToString(), query_info(run, to))}
        number = f"q{time.monotonic_ns()}"
        query = prediction_pb2.RelayedQuery(
            query_id=number, plan_digest=run, analyst_id=analyst, deadline_unix_ms=now + 60_000, **form
        )
        self.relay.relay(query, meanwhile)
        return number, asked, reply

    def ask(self, node: Any, x: Any, **how: Any) -> Prediction:
        """A query from end to end. Raises what it was refused with."""
        number, asked, reply = self.put(x, **how)
        node.until(lambda: number in self.relay.answers, 60)
        return self.opened(self.relay.answers[number], asked, reply, x)

    def opened(self, answer: Any, asked: Asked, reply: SealingKey, x: Any) -> Prediction:
        form = answer.WhichOneof("form")
        if form == "sealed":
            outcome = prediction_pb2.Outcome.FromString(reply.open(answer.sealed, answer_info(asked.digest)))
        elif form == "signed":
            outcome = read_answer(
                answer.signed, ca_pem=(self.ca / "ca.crt").read_bytes(), crl_pem=None, federation="heart-study",
                node="hospital-a", digest=asked.digest, now=datetime.now(UTC),
            )  # fmt: skip
        else:
            outcome = prediction_pb2.Outcome(refusal=answer.refusal)
        return decode_outcome(outcome, node="hospital-a", digest=asked.digest, records=len(x), classes=3)

    def expected(self, x: Any) -> Prediction:
        """What the node's own heads say, read from its store."""
        with Store(self.site.folder / "store", create=False) as store:
            local = store.runs.local(self.plan.digest())
        return self.method.predict("hospital-a", self.method.serving(self.state), local, x)  # type: ignore[attr-defined,no-any-return]

    def serves(self, node: Any) -> None:
        """Wait until the node announced this run and asks for queries."""
        node.until(lambda: self.relay.served and list(self.relay.served[-1].plan_digests) == [self.plan.digest()])


@pytest.fixture
def study(site: Any, plan_of: Callable[..., Plan], signers: dict[str, Signer], identities: Path) -> Study:
    plan = plan_of("fedspm", cohort={"min_nodes": 1, "nodes": ["hospital-a", "hospital-b"]})
    return Study(site, plan, signers, identities / "ca")
