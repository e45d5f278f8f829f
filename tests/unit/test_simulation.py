"""The simulation: rounds through the machine, reproducible, resumable at every round, and honest about bytes."""

from __future__ import annotations

import numpy as np
import pytest

from fedsecure.config import validate
from fedsecure.data.dataset import Dataset
from fedsecure.errors import DataError, RunAborted
from fedsecure.methods import build_method
from fedsecure.plan import Plan
from fedsecure.simulation import Simulator, simulate

CLASSES = ("a", "b", "c")
FAST = {"ipc": 2, "steps": 3, "min_count": 4, "server": {"epochs": 2, "batch": 8}}
METHODS = [
    {"name": "fedaf", **FAST},
    {"name": "fedaf", "sync": "stale", **FAST},
    {"name": "feddm", **FAST},
    {"name": "fedavg", "local_epochs": 1},
]


def plan(method: dict[str, object], **changes: object) -> Plan:
    raw = {
        "format": 1,
        "name": "p",
        "rounds": 3,
        "task": {"kind": "image", "classes": CLASSES, "shape": [1, 8, 8]},
        "model": {"name": "convnet", "depth": 2, "width": 4},
        "method": method,
        "cohort": {"min_nodes": 3},
        **changes,
    }
    return validate(Plan, raw, "plan")


def data(seed: int = 0) -> dict[str, Dataset]:
    rng = np.random.default_rng(seed)
    sets = {}
    for i, held in enumerate(((0, 1), (1, 2), (0, 2))):
        y = np.repeat(np.array(held, dtype=np.int64), 6)
        x = (rng.random((12, 1, 8, 8)) * 0.5 + 0.2 * y[:, None, None, None]).astype(np.float32)
        sets[f"node-{i}"] = Dataset(x, y, CLASSES)
    return sets


@pytest.mark.parametrize("method", METHODS, ids=lambda m: "-".join(str(m[k]) for k in ("name", "sync") if k in m))
def test_same_plan_same_bits_and_resumed_the_same_bits(method: dict[str, object]) -> None:
    p = plan(method)
    whole = simulate(p, build_method(p), data(), evaluate=lambda server, local: {"n": float(len(server))})
    assert [r.round for r in whole.rounds] == [0, 1, 2]
    assert all(r.metrics["n"] > 0 for r in whole.rounds)
    assert simulate(p, build_method(p), dict(reversed(data().items()))).server == whole.server

    first = Simulator(p, build_method(p), data())
    next(first.rounds())
    checkpoint = first.checkpoint()
    second = Simulator(p, build_method(p), data())
    second.resume(*checkpoint)
    assert [r.round for r in second.rounds()] == [1, 2]
    assert second.server == whole.server


def test_another_seed_gives_another_state() -> None:
    one, two = plan(METHODS[0]), plan(METHODS[0], seed=1)
    assert simulate(one, build_method(one), data()).server != simulate(two, build_method(two), data()).server


def test_bytes_are_those_of_the_serialised_tensors() -> None:
    p = plan(METHODS[3])
    method = build_method(p)
    report = simulate(p, method, data()).rounds[0]
    from fedsecure.randomness import server_seed

    model = method.model(method.init_server(server_seed(p.seed)))
    assert all(down >= model.nbytes for down in report.bytes_down.values())
    assert all(up >= model.nbytes for up in report.bytes_up.values())
    assert report.to_json()["bytes_up"] == sum(report.bytes_up.values())


def test_too_few_nodes_abort_with_the_reason() -> None:
    p = plan(METHODS[3], cohort={"min_nodes": 3, "nodes": ["node-0", "node-1", "node-2"]}, deadlines={"join": 1})
    few = {n: d for n, d in data().items() if n != "node-2"}
    with pytest.raises(RunAborted, match="quorum: fewer than 3 nodes; missing: node-2"):
        simulate(p, build_method(p), few)


def test_a_damaged_checkpoint_is_refused() -> None:
    p = plan(METHODS[3])
    simulator = Simulator(p, build_method(p), data())
    tensors, _ = simulator.checkpoint()
    with pytest.raises(DataError, match="saved state"):
        simulator.resume(tensors, "{}x")
