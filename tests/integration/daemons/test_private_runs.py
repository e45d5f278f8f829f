"""Differential privacy over real daemons: every release has its label and its entry in the ledger, one daemon at a time
works on a data set, and an older copy of the ledger pays for nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsecure.data import load_dataset
from fedsecure.data.dataset import Dataset
from fedsecure.data.export import save_npz
from fedsecure.data.settings import DigitsSource
from fedsecure.plan.task import ImageTask
from fedsecure.privacy.accounting import epsilon
from fedsecure.privacy.costs import plan_spends
from fedsecure.privacy.ledger import Ledger

CLASSES = [str(digit) for digit in range(10)]
TASK = {"kind": "image", "classes": CLASSES, "shape": [1, 8, 8]}
PRIVACY = {"kind": "dp-sgd", "sigma": 2.0, "batch": 64, "steps": 4}
BUDGET = {"epsilon": 6.0}


def digits() -> Dataset:
    task = ImageTask.model_validate({**TASK, "classes": tuple(CLASSES), "shape": (1, 8, 8)})
    return load_dataset(DigitsSource(kind="digits"), task)


def prepare(federation: Any, shade: float) -> dict[str, Dataset]:
    """A third of the digits for each node, and a budget. ``shade`` of its own for each test: one daemon on a machine
    works on a data set, and tests run side by side."""
    plain = digits()
    everything = Dataset(plain.x * np.float32(shade), plain.y, plain.classes)
    dealt = {node: everything.subset(np.arange(i, len(everything), 3)) for i, node in enumerate(federation.nodes)}
    for node, data in dealt.items():
        save_npz(data, federation.root / node / "records.npz")
        federation.policy(node, privacy=BUDGET, plans={"min_nodes": 1})
    return dealt


def private_plan(federation: Any, name: str, method: dict[str, Any], privacy: dict[str, Any], **changes: Any) -> Any:
    deadlines = {"join": 400.0, "exchange": 400.0}
    return federation.plan(
        name, method, privacy=privacy, task=TASK, randomness="private", deadlines=deadlines, **changes
    )


def releases(federation: Any, node: str) -> list[dict[str, Any]]:
    return list(federation.ask("node", "releases", "--dir", federation.root / node)["releases"])


def ledger_of(federation: Any, node: str) -> Path:
    return Path(federation.root / node / "store" / "ledger.db")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_labels_and_ledger_agree_and_an_older_ledger_is_refused(federation: Any) -> None:
    f = federation
    dealt = prepare(f, 0.99)
    plan = private_plan(f, "private-fedavg", {"name": "fedavg", "local_steps": 1}, PRIVACY)
    f.submit(plan)
    f.start("coordinator")
    for node in f.nodes:
        f.start(node, "--exit-when-done")
    f.finish(plan, seconds=400)
    for node in f.nodes:
        assert f.processes.pop(node).wait(60) == 0, f.log(node)
    for node, data in dealt.items():
        delta = 1 / (10 * len(data))
        with Ledger(ledger_of(f, node)) as ledger:
            entries, history = ledger.entries(), ledger.history(ledger.data_sets()[0].id)
        assert [(e.what.exchange, e.what.round) for e in entries] == [("counting", 0), ("round", 0), ("round", 1)]
        assert epsilon(history, delta) == epsilon(plan_spends(plan, len(data), [1] * 10), delta)
        labels = [release["guarantee"] for release in releases(f, node)]
        assert [label["epsilon"] for label in labels] == [entry.epsilon_after for entry in entries[1:]]
        assert {(label["label"], label["noise"], label["delta"]) for label in labels} == {("dp", "csprng", delta)}
        assert "charged: epsilon" in f.log(node)
        f.ask("node", "verify-log", "--dir", f.root / node)

    kept = ledger_of(f, "node-0")
    older = kept.with_name("older.db")
    shutil.copy(kept, older)
    before = releases(f, "node-0")[-1]["guarantee"]["epsilon"]
    alone = {"min_nodes": 1, "nodes": ["node-0"]}
    second = private_plan(f, "second", {"name": "fedavg", "local_steps": 1}, PRIVACY, rounds=1, cohort=alone)
    f.submit(second)
    f.start("node-0", "--exit-when-done")
    f.finish(second, seconds=400)
    assert f.processes.pop("node-0").wait(60) == 0, f.log("node-0")
    assert releases(f, "node-0")[-1]["guarantee"]["epsilon"] > before, "over the data set's whole life"
    older.replace(kept)
    f.start("node-0", "--exit-when-done")
    assert f.processes.pop("node-0").wait(60) == 5
    assert "lacks 2 entries that the release log knows" in f.log("node-0")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_second_daemon_and_a_plan_that_cannot_be_finished_are_refused(federation: Any) -> None:
    f = federation
    dealt = prepare(f, 0.98)
    save_npz(dealt["node-0"], f.root / "node-1" / "records.npz")  # two nodes, one data set
    twice = private_plan(f, "one-data-set", {"name": "fedavg", "local_steps": 1}, {**PRIVACY, "batch": 1000})
    f.submit(twice)
    f.start("coordinator")
    f.start("node-0")
    f.wait(lambda: "joined" in f.log("node-0"))
    f.start("node-1")
    f.wait(lambda: "another daemon" in f.log("node-1"))
    assert "Traceback" not in f.log("node-1")
    refusals = f.wait(lambda: f.status(twice)["nodes"]["refused"])
    assert set(refusals) == {"node-1"}
    assert "another daemon of the institution works on its records" in refusals["node-1"]
    f.stop("node-1")

    long = private_plan(
        f, "too-long", {"name": "fedavg", "local_steps": 1}, {**PRIVACY, "batch": 1000, "sigma": 10.0}, rounds=90
    )
    f.submit(long)
    f.wait(lambda: "rounds could be paid for" in f.log("node-0"))
    told = f.wait(lambda: f.status(long)["nodes"]["refused"])
    assert "privacy.epsilon" in str(told)
    assert "rounds could" not in str(told), "figures stay here"
    words = next(p for p in f.ask("node", "plans", "--dir", f.root / "node-0")["plans"] if p["name"] == "too-long")
    assert "rounds could be paid for" in "\n".join(words["words"])
    code, said = f.refused("node", "approve", long.digest(), "--dir", f.root / "node-0")
    assert code == 5
    assert "rounds could be paid for" in said
