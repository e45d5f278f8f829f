"""A node without a network: a small plan, a method made of simple arithmetic, a policy, a store and a log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsecure.crypto.signatures import generate_identity, load_identity
from fedsecure.data.dataset import Dataset
from fedsecure.plan import Plan
from fedsecure.schema import Axis, Contribution, Schema, TensorSpec
from fedsecure.tensors import Tensors
from fedsecure_node.assemble import open_log
from fedsecure_node.cli.first_steps import init_node
from fedsecure_node.egress import Gate
from fedsecure_node.keys import ExchangeKey
from fedsecure_node.log.records import Destination
from fedsecure_node.log.releaselog import ReleaseLog
from fedsecure_node.log.releases import fold
from fedsecure_node.plans.institution import read_policy
from fedsecure_node.settings import NodeSettings, load_settings
from fedsecure_node.store.store import Store

#: ``institutions`` lies here and is no test itself.
sys.path.insert(0, str(Path(__file__).parent))

CLASSES = ("normal", "pneumonia", "<b>odd & name</b>")
POLICY = """
format = 1
[plans]
methods = ["fedaf", "fedavg"]
approval = "{approval}"
min_records = 1
shared_randomness = true
[release]
hold = {hold}
max_bytes = {max_bytes}
max_bytes_per_run = {max_bytes_per_run}
[condensation]
max_ipc = {max_ipc}
min_records_per_class = {min_records}
[broadcast]
max_abs_logit = {max_abs_logit}
"""
POLICY_DEFAULTS = {
    "approval": "manual", "hold": "false", "max_bytes": 1_000_000, "max_bytes_per_run": 10_000_000,
    "max_ipc": 50, "min_records": 10, "max_abs_logit": 1000.0,
}  # fmt: skip


class ToyMethod:
    """FedAF's two exchanges with arithmetic in place of training: what goes in and out has the real names and
    shapes."""

    exchanges = ("statistics", "condensation")

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.calls: list[tuple[str, int]] = []
        self.mend: Callable[[str, Contribution], Contribution] = lambda exchange, c: c

    def schema(self, exchange: str) -> Schema:
        c = len(self.plan.task.classes)
        if exchange == "statistics":
            return Schema(
                summed=(
                    TensorSpec("mean_logits", "float32", (c, c), -1e6, 1e6, "mean logits of each held class", "logits"),
                    TensorSpec("class_weight", "int64", (c,), 0, 1, "whether the class is held", "class_weight"),
                )
            )
        n = Axis("condensed", 0, c * self.plan.method.ipc)
        return Schema(
            released=(
                TensorSpec(
                    "images", "float32", (n, *self.plan.task.feature_shape), -20, 20, "condensed records", "condensed"
                ),
                TensorSpec("labels", "int64", (n,), 0, c - 1, "the class of each condensed record", "labels"),
            )
        )

    def broadcast_schema(self, exchange: str) -> Schema:
        return Schema(released=(TensorSpec("model.w", "float32", (4,), -1e6, 1e6, "a parameter"),))

    def init_server(self, seed: int) -> Tensors:
        return Tensors({"model.w": np.zeros(4, np.float32)})

    def broadcast(self, exchange: str, server: Tensors) -> Tensors:
        return server

    def client_update(
        self, exchange: str, broadcast: Tensors, local: Tensors, data: Dataset, ctx: Any
    ) -> tuple[Tensors, Contribution]:
        self.calls.append((exchange, ctx.round))
        counts = data.counts()
        held = np.flatnonzero(counts >= self.plan.method.min_count)
        rng = np.random.default_rng([ctx.seed, ctx.round, int(float(broadcast["model.w"].sum()))])
        c = len(self.plan.task.classes)
        kept = local.with_({"rounds": np.array([len(self.calls)], np.int64)})
        if exchange == "statistics":
            logits = np.zeros((c, c), np.float32)
            logits[held] = rng.normal(size=(len(held), c))
            weight = np.zeros(c, np.int64)
            weight[held] = 1
            made = Contribution(summed=Tensors({"mean_logits": logits, "class_weight": weight}))
        else:
            labels = np.repeat(held, self.plan.method.ipc).astype(np.int64)
            images = rng.normal(size=(len(labels), *self.plan.task.feature_shape)).astype(np.float32)
            made = Contribution(released=Tensors({"images": images, "labels": labels}))
        return kept, self.mend(exchange, made)

    def server_update(self, exchange: str, server: Tensors, aggregate: Any, ctx: Any) -> Tensors:
        return server

    def model(self, server: Tensors) -> Tensors:
        return server.under("model")


@dataclass
class Node:
    """Everything of a node that needs no network."""

    folder: Path
    settings: NodeSettings
    store: Store
    log: ReleaseLog
    gate: Gate
    plan: Plan
    method: ToyMethod
    data: Dataset
    destination: Destination

    def policy(self, **changes: Any) -> None:
        text = POLICY.format(**{**POLICY_DEFAULTS, **changes})
        self.settings.policy.write_text(text)

    def current(self) -> Any:
        return read_policy(self.settings.policy)

    def key(self, exchange: str = "condensation", round_: int = 0, attempt: int = 0) -> ExchangeKey:
        step = self.method.exchanges.index(exchange)
        return ExchangeKey(self.plan.digest(), round_, step, attempt, exchange)

    def contribution(self, exchange: str = "condensation", round_: int = 0) -> Contribution:
        from fedsecure.method import ClientContext

        broadcast = Tensors({"model.w": np.ones(4, np.float32)})
        ctx = ClientContext("hospital-a", round_, 7)
        return self.method.client_update(exchange, broadcast, Tensors(), self.data, ctx)[1]

    def gate_with(self, *, hold: bool) -> Gate:
        return Gate(self.store, self.log, node_id="hospital-a", hold=hold)

    def other_plan(self, **changes: Any) -> Plan:
        return self.plan.model_copy(update=changes)


def make_plan(**changes: Any) -> Plan:
    raw: dict[str, Any] = {
        "format": 1,
        "name": "toy",
        "rounds": 2,
        "task": {"kind": "image", "classes": list(CLASSES), "shape": [1, 8, 8]},
        "model": {"name": "mlp", "hidden": [4]},
        "method": {"name": "fedaf", "ipc": 2, "steps": 1},
        "cohort": {"min_nodes": 3},
    }
    return Plan.model_validate_json(__import__("json").dumps({**raw, **changes}))


def make_data(counts: tuple[int, ...] = (12, 15, 3)) -> Dataset:
    y = np.repeat(np.arange(len(counts)), counts).astype(np.int64)
    x = np.random.default_rng(1).random((len(y), 1, 8, 8), dtype=np.float32)
    return Dataset(x, y, CLASSES)


@pytest.fixture
def plan_of() -> Callable[..., Plan]:
    return make_plan


@pytest.fixture
def data_of() -> Callable[..., Dataset]:
    return make_data


@pytest.fixture
def node(tmp_path: Path) -> Any:
    folder = tmp_path / "node"
    folder.mkdir(mode=0o700)
    generate_identity(folder / "identity.key")
    settings = NodeSettings.model_validate_json(
        '{"format": 1, "node": "hospital-a", "federation": "heart-study", "coordinator": "localhost:1",'
        ' "data": {"kind": "digits"}}'
    )
    settings = settings.model_copy(
        update={
            "store": folder / "store",
            "policy": folder / "policy.toml",
            "identity": folder / "identity.key",
        }
    )
    plan = make_plan()
    with Store(settings.store) as store:
        log = open_log(store, settings)
        made = Node(
            folder, settings, store, log, Gate(store, log, node_id="hospital-a", hold=False),
            plan, ToyMethod(plan), make_data(), Destination("localhost:1", "SHA256:aa"),
        )  # fmt: skip
        made.policy()
        store.plans.record(plan, plan.digest(), "joining", 1)
        store.runs.join(plan.digest(), 2)
        yield made


@pytest.fixture
def make_release(node: Node) -> Callable[..., Any]:
    """Carries a contribution through check, store and log, as the daemon does, without sending it."""
    from fedsecure.wire.codec import encode_contribution

    def make(exchange: str = "condensation", round_: int = 0, *, hold: bool = False, gate: Gate | None = None) -> Any:
        gate = gate or node.gate_with(hold=hold)
        key = node.key(exchange, round_)
        payload = encode_contribution(node.contribution(exchange, round_))
        contribution = gate.check(node.plan, node.method, key, payload, node.data.counts(), node.current().policy)
        done = node.store.runs.finish(key, broadcast="b" * 64, payload=payload, before="", local=Tensors(), now_ms=3)
        release = gate.log(node.plan, node.method, done, payload, contribution, node.current(), node.destination)
        return fold(node.log.records())[release.number], payload

    return make


@pytest.fixture
def reopened(node: Node) -> Callable[[], ReleaseLog]:
    """The log as a new process sees it."""

    def reopen() -> ReleaseLog:
        load_identity(node.settings.identity)
        return open_log(node.store, node.settings)

    return reopen


@pytest.fixture
def institutions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Three institutions that form cohorts by commands."""
    from institutions import Institutions

    return Institutions(tmp_path, capsys)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A node's folder as ``node init`` makes it, with a budget of 8 and an empty store."""
    folder = tmp_path / "site"
    init_node(folder, node="hospital-a", federation="heart-study", coordinator="localhost:1")
    (folder / "policy.toml").write_text("format = 1\n[privacy]\nepsilon = 8.0\ndelta = 1e-5\n")
    Store(folder / "store").close()
    return folder


@pytest.fixture
def settings(site: Path) -> NodeSettings:
    """Of ``site``."""
    return load_settings(site)


@pytest.fixture
def store(settings: NodeSettings) -> Iterator[Store]:
    """That of ``site``."""
    with Store(settings.store) as opened:
        yield opened


@pytest.fixture
def log(store: Store, settings: NodeSettings) -> ReleaseLog:
    """That of ``site``."""
    return open_log(store, settings)
