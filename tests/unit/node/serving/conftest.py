"""A node whose run is over and which answers queries, without a network: what it gets and gives are messages."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsecure.crypto import authority, enrolment
from fedsecure.crypto.sealing import SealingKey, seal
from fedsecure.crypto.statements import Signer
from fedsecure.errors import DataError
from fedsecure.method import Prediction
from fedsecure.prediction.answers import decode_outcome
from fedsecure.prediction.queries import answer_info, make_query, query_info
from fedsecure.prediction.signed import read_answer
from fedsecure.privacy.labels import NONE
from fedsecure.schema import Schema, TensorSpec
from fedsecure.tensors import Tensors
from fedsecure.wire.codec import encode_contribution
from fedsecure.wire.credentials import TlsFiles
from fedsecure.wire.v1 import prediction_pb2 as pb
from fedsecure_node.assemble import open_log
from fedsecure_node.link.connect import Link
from fedsecure_node.plans.institution import PolicyWatch
from fedsecure_node.progress import PlainReporter
from fedsecure_node.serving.admission import Admission
from fedsecure_node.serving.answering import Answerer
from fedsecure_node.serving.models import Models

PREDICTION = """
[prediction]
analysts = ["dr-weber", "dr-gone"]
max_records_per_query = {per_query}
max_records_per_hour = {per_hour}
coordinator_routed = {plain}
"""


class Pki:
    """A CA with analysts, of whom ``dr-gone`` is revoked, and a node."""

    def __init__(self, root: Path) -> None:
        self.ca, now = root / "ca", datetime.now(UTC)
        authority.init_ca(self.ca, "heart-study", None, 10, now - timedelta(days=30))
        self.signers: dict[str, Signer] = {}
        for role, name in (
            ("analyst", "dr-weber"), ("analyst", "dr-moss"), ("analyst", "dr-gone"), ("node", "hospital-b"),
            ("node", "hospital-a"),
        ):  # fmt: skip
            folder = root / name
            enrolment.create_identity(folder, federation="heart-study", role=role, name=name)
            pem = authority.sign_request(
                self.ca, (folder / "tls.csr").read_bytes(), role=role, name=name, days=9, passphrase=None, now=now
            )
            self.signers[name] = Signer((folder / "tls.key").read_bytes(), pem)
            if name == "dr-gone":
                authority.revoke(self.ca, name, reason="unspecified", passphrase=None, now=now)

    @property
    def files(self) -> TlsFiles:
        return TlsFiles(Path("/none"), Path("/none"), self.ca / "ca.crt", self.ca / "crl.pem")


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki(tmp_path_factory.mktemp("pki"))


@dataclass
class Serving:
    """A node that answers, and the analysts who ask it."""

    node: Any
    pki: Pki
    method: Any
    log: Any
    answerer: Answerer
    link: Link
    out: Any = field(repr=False)

    def policy(self, *, analysts: bool = True, **changes: Any) -> None:
        self.node.policy()
        rules = {"per_query": 64, "per_hour": 1000, "plain": "false", **changes}
        if analysts:
            with self.node.settings.policy.open("a") as file:
                file.write(PREDICTION.format(**rules))

    @property
    def records(self) -> tuple[Any, ...]:
        return self.log.records()

    def x(self, n: int = 2) -> Any:
        return np.random.default_rng(5).random((n, 1, 8, 8), dtype=np.float32)

    def asked(self, x: Any = None, **changes: Any) -> tuple[Any, SealingKey]:
        """A signed query, and the key its answer is sealed to."""
        reply = SealingKey.generate()
        plain = changes.pop("plain", False)
        signer = self.pki.signers[changes.pop("signer", changes.get("analyst", "dr-weber"))]
        what = {
            "run": self.node.plan.digest(), "node": "" if plain else "hospital-a", "analyst": "dr-weber",
            "x": self.x() if x is None else x, "now_ms": now_ms(), "reply_public": b"" if plain else reply.public,
        }  # fmt: skip
        return make_query(signer, **{**what, **changes}), reply

    def relayed(self, asked: Any, *, plain: bool = False, public: bytes = b"", **changes: Any) -> pb.RelayedQuery:
        run, statement = changes.get("plan_digest", self.node.plan.digest()), asked.statement
        form: dict[str, Any] = {"plain": statement}
        if not plain:
            key = public or self.answerer.public_key
            form = {"sealed": seal(key, statement.SerializeToString(), query_info(run, "hospital-a"))}
        known = {"query_id": "q", "plan_digest": run, "analyst_id": "dr-weber", "deadline_unix_ms": now_ms() + 9_000}
        return pb.RelayedQuery(**{**known, **form, **changes})

    def ask(self, x: Any = None, *, relay: dict[str, Any] | None = None, **changes: Any) -> Any:
        """One query from end to end: the prediction. Raises the error that it was refused with."""
        plain = changes.get("plain", False)
        analyst = changes.get("analyst", "dr-weber")
        asked, reply = self.asked(x, **changes)
        sent = self.answerer.answer(
            self.relayed(asked, plain=plain, **{"analyst_id": analyst, **(relay or {})}), self.link
        )
        return self.opened(sent, asked, reply, self.x() if x is None else x)

    def opened(self, sent: Any, asked: Any, reply: SealingKey, x: Any) -> Any:
        assert (sent.node_id, sent.query_id) == ("hospital-a", "q")
        form = sent.WhichOneof("form")
        if form == "sealed":
            outcome = pb.Outcome.FromString(reply.open(sent.sealed, answer_info(asked.digest)))
        elif form == "signed":
            files = self.pki.files
            outcome = read_answer(
                sent.signed, ca_pem=files.ca_pem(), crl_pem=files.crl_pem(), federation="heart-study",
                node="hospital-a", digest=asked.digest, now=datetime.now(UTC),
            )  # fmt: skip
        else:
            outcome = pb.Outcome(refusal=sent.refusal)
        return decode_outcome(outcome, node="hospital-a", digest=asked.digest, records=len(x), classes=3)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def routed(base: type) -> type:
    """The toy method of the node's tests, which also routes: one parameter more, and heads of one number."""

    class Routed(base):  # type: ignore[misc]
        nodes = ("hospital-a", "hospital-b")
        predicted = 0

        def routing_schema(self) -> Schema:
            return Schema(released=(TensorSpec("nu", "float32", (4,), -9, 9, "a routing parameter"),))

        def routing(self, server: Tensors) -> Tensors:
            return server

        def serving_schema(self) -> Schema:
            return Schema(released=(TensorSpec("theta", "float32", (4,), -9, 9, "a parameter"),))

        def serving(self, server: Tensors) -> Tensors:
            return server

        def route(self, routing: Tensors, x: Any, *, device: str = "cpu") -> Any:
            return np.zeros((len(x), 2))

        def predict(self, node: str, serving: Tensors, local: Tensors, x: Any, *, device: str = "cpu") -> Prediction:
            assert node == "hospital-a"
            type(self).predicted += 1
            if "head" not in local:
                raise DataError("local state holds no heads")
            weight = float(local["head"][0] + serving["theta"].sum())
            logits = x.reshape(len(x), -1)[:, :3] * weight
            p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
            return Prediction(p.astype(np.float32), np.ones((len(x), 1), np.float32))

    return Routed


@pytest.fixture
def make_answerer(node: Any, pki: Pki) -> Any:
    """A node's answering part as a daemon that has just started has it."""
    import io

    def make(guarantee_of: Any = lambda plan, digest: NONE) -> Any:
        method = routed(type(node.method))
        out = io.StringIO()
        log = open_log(node.store, node.settings)
        log.recover()
        models = Models(node.store, method)
        admission = Admission(
            node="hospital-a", federation="heart-study", files=lambda: pki.files,
            watch=PolicyWatch(node.settings.policy), models=models, tally=log.queries,
        )  # fmt: skip
        answerer = Answerer(
            node.store, log, PlainReporter(out), models=models, admission=admission, node="hospital-a", device="cpu",
            signer=lambda: pki.signers["hospital-a"], guarantee_of=guarantee_of,
        )  # fmt: skip
        return Serving(node, pki, method, log, answerer, Link(None, node.destination, 0, 1000), out)

    return make


@pytest.fixture
def serving(node: Any, make_answerer: Any) -> Serving:
    """A run that is over, kept to answer queries about."""
    digest = node.plan.digest()
    node.store.plans.decide(digest, "approved", by="a person", reason="", now_ms=1)
    payload = encode_contribution(node.contribution())
    local = Tensors({"head": np.array([0.5], np.float32)})
    node.store.runs.finish(node.key(round_=1), broadcast="b" * 64, payload=payload, before="", local=local, now_ms=3)
    node.store.serving.keep(digest, Tensors({"theta": np.ones(4, np.float32)}).to_bytes(), 4)
    node.store.runs.end(digest, "completed", "", 0, 5)
    made: Serving = make_answerer()
    made.policy()
    return made
