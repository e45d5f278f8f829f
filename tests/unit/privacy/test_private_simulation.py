"""The simulation of a private plan: counted once, paid before it is computed, taken up without forgetting, and told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedsecure.commands.simulate import result_json
from fedsecure.config import validate
from fedsecure.data.dataset import Dataset
from fedsecure.errors import DataError
from fedsecure.methods import build_method
from fedsecure.plan import Plan
from fedsecure.privacy.accounting import default_delta, epsilon
from fedsecure.privacy.costs import plan_spends
from fedsecure.simulation import Simulator, simulate
from fedsecure.tensors import Tensors

CLASSES = ("a", "b", "c")
RECORDS = (80, 60, 40)
#: All records in every step: an exact formula, no time.
DP_SGD = {"kind": "dp-sgd", "sigma": 8.0, "batch": 1000, "steps": 2, "count_sigma": 2.0}
FEDAVG = {"name": "fedavg", "local_steps": 1}
METHODS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (FEDAVG, DP_SGD),
    (
        {"name": "fedaf", "ipc": 1, "steps": 2, "min_count": 10, "server": {"epochs": 1, "batch": 8}},
        {"kind": "release", "sigma": 30.0, "count_sigma": 2.0},
    ),
]


def plan(method: dict[str, Any] = FEDAVG, privacy: dict[str, Any] = DP_SGD, **changes: Any) -> Plan:
    raw = {
        "format": 1,
        "name": "p",
        "rounds": 2,
        "task": {"kind": "image", "classes": CLASSES, "shape": [1, 8, 8]},
        "model": {"name": "convnet", "depth": 1, "width": 4},
        "method": method,
        "privacy": privacy,
        "cohort": {"min_nodes": 2},
        **changes,
    }
    return validate(Plan, raw, "plan")


def data(few: int = 40) -> dict[str, Dataset]:
    """Two nodes of three classes; the third has ``few`` records at the second node."""
    sets = {}
    for node, counts in (("node-0", RECORDS), ("node-1", (80, 60, few))):
        y = np.repeat(np.arange(3), counts).astype(np.int64)
        x = np.random.default_rng(len(sets)).random((len(y), 1, 8, 8), dtype=np.float32)
        sets[node] = Dataset(x, y, CLASSES)
    return sets


@pytest.mark.parametrize(("method", "privacy"), METHODS, ids=["fedavg", "fedaf"])
def test_each_node_pays_for_what_it_computes_and_its_label_says_so(method: Any, privacy: Any) -> None:
    p = plan(method, privacy)
    done = simulate(p, build_method(p), data())
    delta = default_delta(180)
    paid = epsilon(plan_spends(p, 180, RECORDS), delta)
    for node in ("node-0", "node-1"):
        assert done.privacy[node].epsilon == pytest.approx(paid)
        label = done.privacy[node].label
        assert (label["label"], label["epsilon"], label["delta"]) == ("dp", pytest.approx(paid), delta)
    first, last = (report.epsilon["node-0"] for report in done.rounds)
    assert 0 < first < last == done.privacy["node-0"].epsilon
    assert simulate(p, build_method(p), data()).server != done.server, "noise is drawn anew"


def test_a_run_that_is_taken_up_neither_counts_again_nor_forgets() -> None:
    p = plan(rounds=3)
    whole = Simulator(p, build_method(p), data())
    rounds = whole.rounds()
    next(rounds)
    tensors, machine = whole.checkpoint()
    second = Simulator(p, build_method(p), data())
    second.resume(Tensors.from_bytes(tensors.to_bytes()), machine)
    assert second.checkpoint()[0] == tensors
    for _ in second.rounds():
        pass
    assert second.privacy()["node-0"].epsilon == pytest.approx(epsilon(plan_spends(p, 180, RECORDS), 1 / 1800))
    counted = "privacy.counts.node-0"
    assert (second.checkpoint()[0][counted] == tensors[counted]).all()


class _Seen:
    """A method that notes which classes it was handed, and how many records it was told of."""

    def __init__(self, p: Plan) -> None:
        self.method, self.seen = build_method(p), list[tuple[str, set[int], tuple[int, ...], int]]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.method, name)

    def client_update(self, exchange: str, broadcast: Any, local: Any, records: Any, ctx: Any) -> Any:
        self.seen.append((ctx.node, set(records.y.tolist()), ctx.privacy.counts, ctx.privacy.records))
        return self.method.client_update(exchange, broadcast, local, records, ctx)


def test_a_class_that_noise_counts_to_nothing_is_not_handed_over() -> None:
    p = plan(privacy={**DP_SGD, "count_sigma": 1.0}, rounds=1)
    left_out = 0
    for _ in range(100):
        method = _Seen(p)
        simulate(p, method, data(few=1))  # type: ignore[arg-type]
        (seen,) = [each for each in method.seen if each[0] == "node-1"]
        assert seen[1] == {c for c in range(3) if seen[2][c] > 0}
        assert seen[3] == 141, "of how many records it is told does not tell how many were left out"
        left_out += seen[2][2] == 0
        if left_out and left_out < len(method.seen):
            break
    assert left_out


def test_where_nothing_takes_part_the_run_ends() -> None:
    p = plan(privacy={**DP_SGD, "count_sigma": 1e6}, rounds=1)

    def often() -> None:
        for _ in range(100):
            simulate(p, build_method(p), data())

    with pytest.raises(DataError, match="by its noisy counts no class takes part"):
        often()


def test_the_result_tells_the_weakest_label() -> None:
    for noise, expected in (("csprng", "dp"), ("torch", "heuristic")):
        p = plan(privacy={**DP_SGD, "noise": noise}, rounds=1)
        simulator = Simulator(p, build_method(p), data())
        rounds = [report.to_json() for report in simulator.rounds()]
        result = result_json(p, rounds, {}, simulator.privacy())
        assert result["guarantee"] == expected
        assert result["privacy"]["node-0"]["epsilon"] == rounds[0]["epsilon"]["node-0"]
        assert result["privacy"]["node-0"]["label"]["label"] == expected
    boundless = plan(privacy={**DP_SGD, "sigma": 1e-4}, rounds=1)
    simulator = Simulator(boundless, build_method(boundless), data())
    rounds = [report.to_json() for report in simulator.rounds()]
    result = result_json(boundless, rounds, {}, simulator.privacy())
    assert (result["guarantee"], result["privacy"]["node-0"]["epsilon"]) == ("none", None)
