"""Tiny plans that ask for differential privacy, data for them, and noise sources that watch what they are given."""

import json

import numpy as np
import pytest
import torch

from fedsecure.condensation.means import class_records
from fedsecure.config import validate
from fedsecure.data.dataset import Dataset
from fedsecure.method import ClientContext, ServerContext, sum_contributions
from fedsecure.methods import build_method
from fedsecure.models import blank_network, build_model, parameters_of
from fedsecure.plan import Plan
from fedsecure.plan.presets import preset_settings
from fedsecure.privacy.context import PrivacyContext
from fedsecure.privacy.noise import noise_source
from fedsecure.randomness import node_seed, server_seed
from fedsecure.schema import Contribution
from fedsecure.tensors import Tensors

QUICK = {"ipc": 2, "steps": 6, "resample_interval": 3, "min_count": 4, "lr_img": 0.1, "server": {"epochs": 2}}


class Watching:
    """The operating system's noise; ``calls`` are (shape, sensitivity, sigma), ``samples`` the rates, in order."""

    def __init__(self):
        self.source = noise_source("csprng")
        self.calls, self.samples = [], []

    def add(self, sums, *, sensitivity, sigma):
        self.calls.append(([tuple(s.shape) for s in sums], sensitivity, sigma))
        return self.source.add(sums, sensitivity=sensitivity, sigma=sigma)

    def sample(self, records, q):
        self.samples.append(q)
        return self.source.sample(records, q)

    def count(self, counts, *, sigma):
        return self.source.count(counts, sigma=sigma)


class Blind(Watching):
    """Noise so strong that nothing of the sums is left: the same for all sums of a shape."""

    def add(self, sums, *, sensitivity, sigma):
        super().add(sums, sensitivity=sensitivity, sigma=sigma)
        generator = torch.Generator().manual_seed(len(self.calls))
        return [torch.randn(s.shape, generator=generator).to(s.dtype) for s in sums]


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def watching():
    return Watching()


@pytest.fixture
def blind():
    return Blind()


@pytest.fixture
def make_plan():
    """make_plan("fedaf", {"kind": "release", "sigma": 1.0}, steps=3): a plan with little to compute."""

    def make(name="fedaf", privacy=None, *, rounds=2, model=None, **method):
        raw = {
            "format": 1,
            "name": "tiny",
            "rounds": rounds,
            "task": {"kind": "image", "classes": ["a", "b", "c"], "shape": [1, 8, 8], "mean": [0.4], "std": [0.3]},
            "model": model or {"name": "convnet", "depth": 2, "width": 4},
            "method": preset_settings("protective", name, {"name": name, **QUICK, **method}),
            "cohort": {},
            "privacy": {"kind": "release", "sigma": 1.0, **(privacy or {})},
        }
        return validate(Plan, json.loads(json.dumps(raw)), "tiny plan")

    return make


@pytest.fixture
def make_data():
    """make_data((5, 0, 7), seed): so many records of each class."""

    def make(counts, seed=0):
        rng = np.random.default_rng([seed, 11])
        patterns = np.random.default_rng(7).uniform(0.1, 0.9, size=(len(counts), 1, 8, 8))
        y = np.repeat(np.arange(len(counts)), counts).astype(np.int64)
        x = np.clip(patterns[y] + rng.normal(0, 0.1, size=(len(y), 1, 8, 8)), 0, 1).astype(np.float32)
        return Dataset(x, y, ("a", "b", "c"))

    return make


@pytest.fixture
def make_records(make_plan, make_data):
    """make_records((5, 7)): standardised records of classes 0, 1, …"""

    def make(counts, seed=0):
        data = make_data((*counts, *(0 for _ in range(3 - len(counts)))), seed)
        return class_records(make_plan().task, data, tuple(range(len(counts))))

    return make


@pytest.fixture(params=["convnet"])
def network(request, make_plan):
    """(network, parameters) of a plan: a small convnet or, asked for by name, a multilayer perceptron."""
    model = {"convnet": {"name": "convnet", "depth": 2, "width": 4}, "mlp": {"name": "mlp", "hidden": [16]}}
    plan = make_plan(model=model[request.param])
    return blank_network(plan.model, plan.task), parameters_of(build_model(plan.model, plan.task, 1))


@pytest.fixture
def context():
    """context(plan, data, noise, counts=None, round=0): what a node is handed; its reports in ``.report.__self__``."""

    def make(plan, data, noise, counts=None, round=0, node="one"):  # noqa: A002
        counts = tuple(int(n) for n in data.counts()) if counts is None else counts
        privacy = PrivacyContext(settings=plan.privacy, counts=counts, records=len(data), noise=noise)
        seed = node_seed(plan.seed, node)
        return ClientContext(node=node, round=round, seed=seed, report={}.__setitem__, privacy=privacy)

    return make


@pytest.fixture
def run_rounds(context):
    """run_rounds(plan, {node: data}, {node: noise}, {node: counts}): every round in process; schemas are checked.
    Returns the coordinator's state and what happened: (round, exchange, contributions, nodes' local state after it)."""

    def run(plan, data, noise, counts):
        method = build_method(plan)
        server, local, history = method.init_server(server_seed(plan.seed)), {}, []
        for round_ in range(plan.rounds):
            for exchange in method.exchanges:
                sent = method.broadcast(exchange, server)
                method.broadcast_schema(exchange).check(Contribution(released=sent))
                contributions = {}
                for node, records in data.items():
                    ctx = context(plan, records, noise[node], counts[node], round_, node)
                    before = local.get(node, Tensors())
                    local[node], contributions[node] = method.client_update(exchange, sent, before, records, ctx)
                    method.schema(exchange).check(contributions[node])
                ctx = ServerContext(round_, server_seed(plan.seed))
                server = method.server_update(exchange, server, sum_contributions(contributions), ctx)
                history.append((round_, exchange, contributions, dict(local)))
        return server, history

    return run
