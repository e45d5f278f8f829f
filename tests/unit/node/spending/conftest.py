"""A node with records on disk, a policy with a budget, its store, log and ledger; no network and no daemon."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

from fedsecure.crypto.signatures import generate_identity
from fedsecure.data.dataset import Dataset
from fedsecure.data.export import save_npz
from fedsecure.plan import Plan
from fedsecure.policy import Policy
from fedsecure_node.assemble import open_log
from fedsecure_node.keys import ExchangeKey
from fedsecure_node.log.releaselog import ReleaseLog
from fedsecure_node.plans.institution import read_policy
from fedsecure_node.plans.localdata import LocalData
from fedsecure_node.progress import PlainReporter
from fedsecure_node.settings import NodeSettings
from fedsecure_node.spending.desk import SpendingDesk
from fedsecure_node.spending.purse import Purse
from fedsecure_node.store.store import Store

CLASSES = ("a", "b", "c")
#: All records in every step, so that epsilon has an exact formula.
PRIVACY = {"kind": "dp-sgd", "sigma": 20.0, "batch": 1000, "steps": 2}


def records(counts: tuple[int, ...] = (60, 50, 2), seed: int = 0) -> Dataset:
    y = np.repeat(np.arange(len(counts)), counts).astype(np.int64)
    x = np.random.default_rng(seed).random((len(y), 1, 4, 4), dtype=np.float32)
    return Dataset(x, y, CLASSES)


def plan(privacy: dict[str, Any] | None = PRIVACY, **changes: Any) -> Plan:
    raw = {
        "format": 1,
        "name": "private",
        "rounds": 10,
        "task": {"kind": "image", "classes": CLASSES, "shape": [1, 4, 4]},
        "model": {"name": "mlp", "hidden": [4]},
        "method": {"name": "fedavg", "local_steps": 1},
        "cohort": {"min_nodes": 1},
        **({} if privacy is None else {"privacy": privacy}),
        **changes,
    }
    return Plan.model_validate_json(json.dumps(raw))


@dataclass
class Site:
    """``desk`` works with ``purse`` as one process would; ``again`` is the next process."""

    settings: NodeSettings
    store: Store
    log: ReleaseLog
    purse: Purse
    desk: SpendingDesk
    said: io.StringIO
    purses: list[Purse] = field(default_factory=list)

    def policy(self, **rules: Any) -> Policy:
        """Write the policy; rules of [privacy] by their names, those of [plans] with ``plans_`` before."""
        plans = {"methods": ["fedavg", "fedaf", "feddm"], "min_nodes": 1, "min_records": 1, "min_records_per_class": 10}
        plans |= {name.removeprefix("plans_"): value for name, value in rules.items() if name.startswith("plans_")}
        privacy = {"epsilon": 8.0} | {n: v for n, v in rules.items() if not n.startswith("plans_") and v is not None}
        text = tomli_w.dumps({"format": 1, "plans": plans, "privacy": privacy})
        self.settings.policy.write_text(text)
        return read_policy(self.settings.policy).policy

    def again(self) -> SpendingDesk:
        """The desk of a process that comes after this one."""
        self.purse.close()
        self.log = open_log(self.store, self.settings)
        self.log.recover()
        self.purse = Purse(self.settings.ledger, self.log, node_id=self.settings.node)
        self.purses.append(self.purse)
        self.desk = SpendingDesk(self.store, self.purse, PlainReporter(self.said), data=self.data())
        return self.desk

    def data(self) -> LocalData:
        return LocalData(self.settings.data, lambda lines: None)

    def put(self, data: Dataset) -> None:
        """Other records in the place of those before."""
        save_npz(data, Path(str(self.settings.data.path)))  # type: ignore[union-attr]

    def join(self, plan: Plan) -> Plan:
        self.store.plans.record(plan, plan.digest(), "running", 1)
        self.store.runs.join(plan.digest(), 2)
        return plan

    def key(self, plan: Plan, round_: int = 0, attempt: int = 0) -> ExchangeKey:
        return ExchangeKey(plan.digest(), round_, 0, attempt, "round")

    def paid(self) -> list[tuple[int, str]]:
        """Round and exchange of each entry in the ledger."""
        return [(entry.what.round, entry.what.exchange) for entry in self.purse.ledger().entries()]


@pytest.fixture
def site(tmp_path: Path, machine: None) -> Iterator[Site]:
    generate_identity(tmp_path / "identity.key")
    save_npz(records(), tmp_path / "records.npz")
    raw = {
        "format": 1,
        "node": "hospital-a",
        "federation": "heart",
        "coordinator": "localhost:1",
        "store": str(tmp_path / "store"),
        "policy": str(tmp_path / "policy.toml"),
        "identity": str(tmp_path / "identity.key"),
        "data": {"kind": "npz", "path": str(tmp_path / "records.npz")},
    }
    settings = NodeSettings.model_validate_json(json.dumps(raw))
    with Store(settings.store) as store:
        log, said = open_log(store, settings), io.StringIO()
        purse = Purse(settings.ledger, log, node_id="hospital-a")
        data = LocalData(settings.data, lambda lines: None)
        made = Site(
            settings, store, log, purse, SpendingDesk(store, purse, PlainReporter(said), data=data), said, [purse]
        )
        made.policy()
        yield made
        for each in made.purses:
            each.close()


@pytest.fixture
def plan_of() -> Callable[..., Plan]:
    return plan


@pytest.fixture
def records_of() -> Callable[..., Dataset]:
    return records
