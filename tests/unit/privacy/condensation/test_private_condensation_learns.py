"""FedAF and FedDM learn the digits under differential privacy, through the same five functions as ever."""

import json

import numpy as np
import pytest
from sklearn.datasets import load_digits

from fedsecure.config import validate
from fedsecure.data.dataset import Dataset
from fedsecure.evaluation import evaluate
from fedsecure.methods import build_method
from fedsecure.plan import Plan
from fedsecure.privacy.accounting import quick_epsilon
from fedsecure.privacy.costs import plan_spends
from fedsecure.privacy.counting import counted_once

CLASSES = tuple("0123456789")


def digits():
    """(two nodes that hold half of the classes each and share two, records to test with)"""
    raw = load_digits()
    x, y = (raw.images[:, None] / 16).astype(np.float32), raw.target.astype(np.int64)
    order = np.random.default_rng(0).permutation(len(y))
    test, train = order[:400], order[400:]
    nodes = {"one": train[y[train] < 6], "two": train[y[train] > 3]}
    return {n: Dataset(x[i], y[i], CLASSES) for n, i in nodes.items()}, Dataset(x[test], y[test], CLASSES)


@pytest.mark.parametrize("name", ["fedaf", "feddm"])
def test_at_an_epsilon_of_eight_it_is_far_above_chance(run_rounds, watching, name):
    raw = {
        "format": 1,
        "name": "digits",
        "rounds": 2,
        "task": {"kind": "image", "classes": list(CLASSES), "shape": [1, 8, 8], "mean": [0.3], "std": [0.37]},
        "model": {"name": "mlp", "hidden": [64]},
        "method": {"name": name, "ipc": 5, "steps": 60, "warm_start": True, "server": {"epochs": 30}},
        "cohort": {},
        "privacy": {"kind": "release", "sigma": 1.7, "networks": 4},
    }
    plan = validate(Plan, json.loads(json.dumps(raw)), "digits")
    data, test = digits()
    counts = {node: counted_once(records.counts(), plan.privacy, watching) for node, records in data.items()}
    bills = [plan_spends(plan, len(records), counts[node]) for node, records in data.items()]
    assert all(quick_epsilon(bill, 1e-4) < 8.5 for bill in bills)
    server, history = run_rounds(plan, data, dict.fromkeys(data, watching), counts)
    assert len(watching.calls) == 2 * 4 * 2
    assert evaluate(plan, build_method(plan).model(server), test)["accuracy"] > 0.5
    held = set(history[-1][2]["one"].released["labels"].tolist())
    assert held >= set(range(6))
