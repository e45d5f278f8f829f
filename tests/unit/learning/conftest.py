"""Tiny plans, data and rounds for the tests of networks, condensation and methods."""

import json

import numpy as np
import pytest
import torch

from fedsecure.config import validate
from fedsecure.data.dataset import Dataset
from fedsecure.evaluation import evaluate
from fedsecure.method import ClientContext, ServerContext, sum_contributions
from fedsecure.methods import build_method
from fedsecure.plan import Plan
from fedsecure.plan.presets import preset_settings
from fedsecure.randomness import node_seed, server_seed
from fedsecure.schema import Contribution
from fedsecure.tensors import Tensors

IMAGE_TASK = {"kind": "image", "classes": ["a", "b", "c"], "shape": [1, 8, 8], "mean": [0.4], "std": [0.3]}
TABLE_TASK = {
    "kind": "table",
    "classes": ["a", "b", "c"],
    "columns": [
        {"kind": "numeric", "name": f"column{i}", "low": -10.0, "high": 10.0, "mean": 0.0, "std": 1.0} for i in range(5)
    ],
}
QUICK = {
    "ipc": 2,
    "steps": 6,
    "resample_interval": 3,
    "min_count": 4,
    "image_optimizer": "sgd",
    "lr_img": 1.0,
    "server": {"epochs": 3, "batch": 4, "optimizer": "sgd", "lr": 1e-3},
}


ROUTED = {
    "predict": {"steps": 4, "batch": 8},
    "route": {"steps": 5, "batch": 8},
}
QUICK_METHODS = {
    "fedavg": {"batch": 8},
    "feddm": QUICK,
    "fedaf": {**QUICK, "gamma": 0.9},
    "fedspm": ROUTED,
    "feddrm": ROUTED,
}


@pytest.fixture(autouse=True)
def one_thread_and_untouched_global_generator():
    """Every test runs on one thread, and none may move PyTorch's global generator."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    before = torch.get_rng_state()
    yield
    torch.set_num_threads(threads)
    assert torch.equal(before, torch.get_rng_state())


@pytest.fixture
def make_plan():
    """make_plan("fedaf", lambda_loc=0.0, …): a plan with little to compute."""

    def make(name, *, table=False, rounds=2, preset="protective", model=None, cohort=None, **method):
        quick = QUICK_METHODS[name]
        network = {"name": "mlp", "hidden": [6]} if table else {"name": "convnet", "depth": 2, "width": 4}
        raw = {
            "format": 1,
            "name": "tiny",
            "preset": preset,
            "rounds": rounds,
            "task": TABLE_TASK if table else IMAGE_TASK,
            "model": model or network,
            "method": preset_settings(preset, name, {"name": name, **quick, **method}),
            "cohort": cohort or ({"min_nodes": 2, "nodes": ["one", "two"]} if name in ("fedspm", "feddrm") else {}),
        }
        return validate(Plan, json.loads(json.dumps(raw)), "tiny plan")

    return make


@pytest.fixture
def make_data():
    """make_data((5, 0, 7), seed): records that a tiny network can tell apart, with so many of each class."""

    def make(counts, seed=0, *, table=False):
        rng = np.random.default_rng([seed, 11])
        shape = (5,) if table else (1, 8, 8)
        patterns = np.random.default_rng(7).uniform(0.1, 0.9, size=(len(counts), *shape))
        y = np.repeat(np.arange(len(counts)), counts).astype(np.int64)
        x = np.clip(patterns[y] + rng.normal(0, 0.1, size=(len(y), *shape)), 0, 1).astype(np.float32)
        x = (x - np.float32(0.5)) / np.float32(0.3) if table else x  # rows of a table come standardised
        return Dataset(x, y, ("a", "b", "c"))

    return make


@pytest.fixture
def client_context():
    """client_context(round=1, cancelled=…): a context that keeps its reports in ``.report.__self__``."""

    def make(node="one", round=0, seed=5, **more):  # noqa: A002
        return ClientContext(node=node, round=round, seed=seed, report={}.__setitem__, **more)

    return make


@pytest.fixture
def run_rounds():
    """run_rounds(plan, {node: data}): every round in process; schemas are checked. Returns the coordinator's state,
    the nodes' local state, and what happened: (round, exchange, broadcast, contributions, state, reports)."""

    def run(plan, data, rounds=None):
        method = build_method(plan)
        server, local, history = method.init_server(server_seed(plan.seed)), {}, []
        for round_ in range(plan.rounds if rounds is None else rounds):
            for exchange in method.exchanges:
                sent = method.broadcast(exchange, server)
                method.broadcast_schema(exchange).check(Contribution(released=sent))
                contributions, reports = {}, {}
                for node, records in data.items():
                    reports[node] = {}
                    ctx = ClientContext(
                        node=node, round=round_, seed=node_seed(plan.seed, node), report=reports[node].__setitem__
                    )
                    before = local.get(node, Tensors())
                    local[node], contributions[node] = method.client_update(exchange, sent, before, records, ctx)
                    method.schema(exchange).check(contributions[node])
                reports["server"] = {}
                ctx = ServerContext(round_, server_seed(plan.seed), report=reports["server"].__setitem__)
                server = method.server_update(exchange, server, sum_contributions(contributions), ctx)
                history.append((round_, exchange, sent, contributions, server, reports))
        return server, local, history

    return run


@pytest.fixture
def accuracy():
    """accuracy(plan, server_state, data)"""
    return lambda plan, server, data: evaluate(plan, build_method(plan).model(server), data)["accuracy"]
