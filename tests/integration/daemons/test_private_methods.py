"""Every private method over real daemons: what it charges and when, the label of what leaves, and a plan of it that
cannot be finished, which is refused with the rounds that could be. One data set a node pays for all of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsecure.data.dataset import Dataset
from fedsecure.data.export import save_npz
from fedsecure.plan import Plan
from fedsecure.privacy.accounting import epsilon
from fedsecure.privacy.costs import affordable_rounds, plan_spends
from fedsecure.privacy.entries import Entry
from fedsecure.privacy.ledger import Ledger
from fedsecure.privacy.spend import Spend
from fedsecure_node.spending.affordable import expected_counts

RECORDS, CAP, ROUNDS = 60, 3.0, 2
DELTA = 1 / (10 * RECORDS)
NODES = ("node-0", "node-1")
CONDENSED = {"ipc": 2, "steps": 3, "min_count": 4}
SERVER = {"server": {"epochs": 1, "batch": 8}}
MLP = {"name": "mlp", "hidden": [4]}
#: All records in every step, so that every epsilon has an exact formula.
DP_SGD = {"kind": "dp-sgd", "sigma": 20.0, "batch": 1000, "steps": 2, "count_sigma": 5.0}
RELEASE = {"kind": "release", "sigma": 20.0, "networks": 2, "count_sigma": 5.0}
PER_STEP = {"kind": "per-step", "sigma": 40.0, "batch": 1000, "count_sigma": 5.0}
METHODS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "fedaf": ({"name": "fedaf", **CONDENSED, **SERVER}, RELEASE),
    "fedaf-stale": ({"name": "fedaf", "sync": "stale", **CONDENSED, **SERVER}, PER_STEP),
    "feddm": ({"name": "feddm", **CONDENSED, **SERVER}, RELEASE),
    "fedspm": (
        {"name": "fedspm", "parametrisation": "explicit", "components": 2, "router": MLP},
        {**DP_SGD, "mixing_sigma": 20.0, "mixing_every": 2},
    ),
}
#: Exchanges that are paid for in each round; of the others of a method, all follows from these.
CHARGED = {"fedaf": ["statistics"], "fedaf-stale": ["round"], "feddm": ["round"], "fedspm": ["update"]}
LEAVE = {"fedaf": ["statistics", "condensation"], "fedspm": ["update"]}


def prepare(f: Any) -> None:
    """Records that no other test has, and a budget."""
    for index, node in enumerate(NODES):
        rng, y = np.random.default_rng([77, index]), np.arange(RECORDS, dtype=np.int64) % 2
        x = (rng.random((RECORDS, 1, 8, 8)) * 0.5 + 0.3 * y[:, None, None, None]).astype(np.float32)
        save_npz(Dataset(x, y, ("a", "b")), f.root / node / "records.npz")
        mechanisms = ["dp-sgd", "release", "per-step"]
        f.policy(
            node,
            privacy={"epsilon": CAP, "mechanisms": mechanisms},
            condensation={"fresh_queries": True},
            plans={"min_nodes": 1, "max_rounds": 1000},
        )


def plan_of(f: Any, name: str, method: str, **changes: Any) -> Plan:
    settings, privacy = METHODS[method]
    fixed = {
        "rounds": ROUNDS,
        "model": MLP if method == "fedspm" else {"name": "convnet", "depth": 1, "width": 4},
        "task": {"kind": "image", "classes": ["a", "b"], "shape": [1, 8, 8]},
        "randomness": "private",
        "cohort": {"min_nodes": 2, "nodes": list(NODES)},
        "deadlines": {"join": 400.0, "exchange": 400.0},
    }
    made: Plan = f.plan(name, settings, privacy=privacy, **{**fixed, **changes})
    return made


def charges(f: Any, node: str) -> tuple[Entry, ...]:
    with Ledger(f.root / node / "store" / "ledger.db", "read") as ledger:
        assert len(ledger.data_sets()) == 1, "another picture size, model or method is no other data set"
        return ledger.entries(ledger.data_sets()[0].id)


def history(entries: tuple[Entry, ...]) -> tuple[Spend, ...]:
    return tuple(spend for entry in entries for spend in entry.spends)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_each_method_pays_is_labelled_and_is_refused_when_it_cannot_be_finished(federation: Any) -> None:
    f = federation
    prepare(f)
    for name in ("coordinator", *NODES):
        f.start(name)
    plans = [plan_of(f, f"private-{method}", method) for method in METHODS]
    for plan in plans:  # one after the other, so that labels follow in the order of the charges
        f.submit(plan)
        f.finish(plan, seconds=400)
    for node in NODES:
        for method, plan in zip(METHODS, plans, strict=True):
            check_run(f, node, method, plan)
        f.ask("node", "verify-log", "--dir", f.root / node)
    for method in METHODS:
        check_refusal(f, method)


def check_run(f: Any, node: str, method: str, plan: Plan) -> None:
    """Its charges, as the accountant foresaw them, and the labels of what it released."""
    entries = charges(f, node)
    its = [entry for entry in entries if entry.what.plan == plan.digest()]
    paid = [(entry.what.exchange, entry.what.round) for entry in its]
    assert paid == [("counting", 0), *[(exchange, r) for r in range(ROUNDS) for exchange in CHARGED[method]]]
    assert plan.privacy is not None
    assert {(e.what.mechanism, e.what.noise, e.what.node) for e in its} == {(plan.privacy.kind, "csprng", node)}
    whole = plan_spends(plan, RECORDS, expected_counts(plan, RECORDS))
    assert epsilon(history(tuple(its)), DELTA) == pytest.approx(epsilon(whole, DELTA)), "as dp-plan says"
    released = [
        r for r in f.ask("node", "releases", "--dir", Path(f.root) / node)["releases"] if r["plan"]["name"] == plan.name
    ]
    labels = [release["guarantee"] for release in released]
    assert Counter(r["exchange"] for r in released) == dict.fromkeys(LEAVE.get(method, CHARGED[method]), ROUNDS)
    after = {entry.epsilon_after for entry in its}
    assert {label["epsilon"] for label in labels} <= after, "what follows from what was paid for costs nothing"
    assert labels[-1]["epsilon"] == its[-1].epsilon_after == pytest.approx(epsilon(history(upto(entries, its)), DELTA))
    assert {(label["label"], label["delta"], label["unprotected"]) for label in labels} == {("dp", DELTA, 0)}


def upto(entries: tuple[Entry, ...], its: list[Entry]) -> tuple[Entry, ...]:
    """The data set's whole life until the last of ``its``."""
    return tuple(entry for entry in entries if entry.counter <= its[-1].counter)


def check_refusal(f: Any, method: str) -> None:
    """A plan of more rounds than the rest of the budget pays for."""
    cohort = {"min_nodes": 1, "nodes": [*NODES, "node-2"]}  # whose third node never comes, so that it stays open
    plan, node = plan_of(f, f"long-{method}", method, rounds=1000, cohort=cohort), NODES[0]
    before = charges(f, node)
    counts = expected_counts(plan, RECORDS)
    rounds = affordable_rounds(plan, RECORDS, counts, history(before), CAP, DELTA)
    assert 0 < rounds < 1000
    f.submit(plan)
    told = f.wait(lambda: f.status(plan)["nodes"]["refused"].get(node))
    assert "privacy.epsilon" in str(told)
    assert "rounds could" not in str(told), "figures stay here"
    code, said = f.refused("node", "approve", plan.digest(), "--dir", f.root / node)
    assert code == 5
    assert f"{rounds} rounds could be paid for" in said
    assert charges(f, node) == before
