"""Five nodes sum under masks over the daemons, and one of them is killed (kill -9) at each stage of a session in turn:
the run ends with the parameters that the survivors' plain sum gives, within the bound of fixed point. When the
coordinator dies with a sum that it alone had, the run goes on without that round.
"""

from __future__ import annotations

import shutil
import signal
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsecure.methods import build_method
from fedsecure.plan import Plan
from fedsecure.rounds.events import Aggregate
from fedsecure.simulation import Simulator
from fedsecure.tensors import Tensors
from fedsecure_coordinator.setup import open_store
from fedsecure_coordinator.store.blobs import BlobStore
from fedsecure_node.keys import ExchangeKey
from fedsecure_node.store.store import Store

sys.path.insert(0, str(Path(__file__).parents[2]))
from forked_nodes import SUM, ForkedDaemon, ForkedNode

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("masked-runs")]
NODES = tuple(f"node-{number}" for number in range(5))
VICTIM = "node-3"
#: In the second round of two: the stage, and whether what the victim contributed is in the sum.
STAGES = {
    "before leg 0": False,
    "after Advertise": False,
    "after shares": False,
    "in mid-upload": False,
    "after the vector": True,
    "after Consistency": True,
}
#: Nodes give no masked sums of one model in two runs: each begins from its own.
SEEDS = count(1)
#: Seconds that a session waits in each leg for a node that does not answer.
LEG_SECONDS = 4


@pytest.fixture(scope="module")
def five(module_federation: Any, node_records: Any) -> Any:
    """Five nodes that agreed on a cohort; coordinator and nodes run, but for the victim."""
    f = module_federation
    f.configure("coordinator", limits={"leg_seconds": LEG_SECONDS})
    f.start("coordinator")
    for number in (3, 4):
        f.add_node(NODES[number], node_records(number))
    root, identity = f.root, "identity.pub"
    whole = root / "cohort.json"
    others = [f"--node={node}={root / node / identity}" for node in NODES[1:]]
    made = f.ask("node", "cohort", "form", "five", *others, "--out", root / "draft.json", "--dir", root / NODES[0])
    copies = [root / f"signed-{node}.json" for node in NODES]
    for node, copy in zip(NODES, copies, strict=True):
        shutil.copy(root / "draft.json", copy)
        f.ask("node", "cohort", "sign", copy, "--dir", root / node)
    f.ask("node", "cohort", "merge", *copies, "--out", whole)
    for node in NODES:
        f.ask("node", "cohort", "trust", whole, "--digest", made["digest"], "--dir", root / node)
    f.ask("coordinator", "cohort", "add", whole, "--dir", root / "coordinator")
    for node in NODES:
        if node != VICTIM:
            start(f, node)
    return f


class OfSurvivors(Simulator):
    """Plain sums: of all nodes in the first round, whose outcome ``first`` then takes the place of (it differs by the
    rounding of fixed point, which training would magnify), of ``survivors`` in the second."""

    def __init__(self, plan: Plan, data: dict[str, Any], first: Tensors, survivors: tuple[str, ...]) -> None:
        super().__init__(plan.model_copy(update={"secagg": "off"}), build_method(plan), data)
        self.first, self.survivors = first, survivors

    def _aggregate(self, action: Aggregate) -> None:
        if action.round == 1:
            action = replace(action, contributors=self.survivors)
        super()._aggregate(action)
        if action.round == 0:
            assert_near(self.first, self.server)
            self.server = self.first


def assert_near(found: Tensors, due: Tensors) -> None:
    """Within 5 * 2^-25 over 120 records, which fixed point may move a mean by, and a rounding of float32 on each side;
    the tolerances are those, rounded up."""
    assert sorted(found) == sorted(due)
    for name in due:
        np.testing.assert_allclose(found[name], due[name], rtol=2.0**-22, atol=1e-8, err_msg=name)


def start(f: Any, node: str, *, dies_at: str = "") -> None:
    f.processes[node] = ForkedNode(f.root / node, f.root / f"{node}.log", dies_at)


def state_now(f: Any, plan: Plan) -> Tensors:
    settings, journal = open_store(f.root / "coordinator", "read")
    row = next(r for r in journal.runs() if r.digest == plan.digest())
    journal.close()
    return Tensors.from_bytes(BlobStore(settings.store / "blobs", reading=True).get(row.server))


def killed_at(f: Any, name: str, stage: str, routed: Any) -> Plan:
    """A run of two rounds whose second session waits for the victim, which died at ``stage``."""
    plan: Plan = f.plan(
        name,
        {"name": "fedspm", **routed},
        secagg="required",
        seed=next(SEEDS),
        cohort={"min_nodes": 4, "nodes": list(NODES)},
        deadlines={"join": 120.0, "exchange": 20.0 if stage == "before leg 0" else 60.0},
    )
    f.submit(plan)
    start(f, VICTIM, dies_at=stage)
    assert f.wait(lambda: f.processes[VICTIM].poll() is not None, 200)
    assert f.processes.pop(VICTIM).returncode == -signal.SIGKILL
    view = f.status(plan)
    assert (view["state"], view["round"], view["exchange"]) == ("AGGREGATING", 2, build_method(plan).exchanges[-1])
    return plan


def survivors_of(view: dict[str, Any]) -> list[tuple[str, ...]]:
    return [tuple(entry["masked"][0]["survivors"]) for entry in view["history"]]


@pytest.mark.parametrize("stage", STAGES)
def test_a_node_is_killed(five: Any, node_records: Any, routed: Any, stage: str) -> None:
    f = five
    plan = killed_at(f, stage.replace(" ", "-").lower(), stage, routed)
    first = state_now(f, plan)
    view = f.finish(plan, seconds=240)
    survivors = tuple(n for n in NODES if n != VICTIM or STAGES[stage])
    assert survivors_of(view) == [NODES, survivors]
    data = {node: node_records(number) for number, node in enumerate(NODES)}
    reference = OfSurvivors(plan, data, first, survivors)
    for _ in reference.rounds():
        pass
    assert_near(state_now(f, plan), reference.server)
    for node in NODES:  # what the survivors logged says the same, and is whole after the kill
        assert f.ask("node", "verify-log", "--dir", f.root / node)["releases"] > 0
    assert "the coordinator may read the sum" in f.log(NODES[0])


def test_the_coordinator_and_a_node_are_killed_and_both_come_back(five: Any, node_records: Any, routed: Any) -> None:
    f = five
    before = {node: f.ask("node", "verify-log", "--dir", f.root / node)["releases"] for node in NODES}
    plan = killed_at(f, "both", "after shares", routed)
    f.stop("coordinator", signal.SIGKILL)
    f.start("coordinator")
    start(f, VICTIM)
    first = state_now(f, plan)
    view = f.finish(plan, seconds=240)
    assert survivors_of(view) == [NODES, NODES]
    reference = OfSurvivors(plan, {node: node_records(n) for n, node in enumerate(NODES)}, first, NODES)
    for _ in reference.rounds():
        pass
    assert_near(state_now(f, plan), reference.server)
    f.stop(VICTIM)
    for node in NODES:  # a new session over the same contributions: nobody computed or released again
        assert f.ask("node", "verify-log", "--dir", f.root / node)["releases"] == before[node] + 2


def test_the_coordinator_is_killed_between_shares_and_sum(five: Any, routed: Any) -> None:
    """All nodes gave their shares for the sum of round 2, which is lost: round 3 begins from the model of round 2."""
    f = five
    cohort = {"min_nodes": 4, "nodes": list(NODES)}
    run = {"secagg": "required", "seed": next(SEEDS), "cohort": cohort, "rounds": 3}
    plan: Plan = f.plan("lost", {"name": "fedspm", **routed}, **run)
    f.stop("coordinator")
    f.processes["coordinator"] = ForkedDaemon(
        "coordinator", f.root / "coordinator", f.root / "coordinator.log", dies_at=SUM
    )
    f.submit(plan)
    start(f, VICTIM)
    assert f.wait(lambda: f.processes["coordinator"].poll() is not None, 200)
    assert f.processes.pop("coordinator").returncode == -signal.SIGKILL
    first = state_now(f, plan)
    f.start("coordinator")
    view = f.finish(plan, seconds=240)
    assert view["skipped"] == [2]
    assert [bool(entry["skipped"]) for entry in view["history"]] == [False, True, False]
    assert [[s["survivors"] for s in entry["masked"]] for entry in view["history"]] == [
        [list(NODES)],
        [],
        [list(NODES)],
    ]
    assert "its sum is lost, and the round is skipped" in f.log("coordinator")
    assert any((first[name] != array).any() for name, array in state_now(f, plan).items())
    f.stop(VICTIM)
    name = build_method(plan).exchanges[0]
    for node in NODES:
        listed = f.ask("node", "releases", "--dir", f.root / node)["releases"]
        assert [r["state"] for r in listed if r["plan"]["digest"] == plan.digest()] == ["unmasked"] * 3
        f.ask("node", "verify-log", "--dir", f.root / node)
        with Store(f.root / node / "store") as store:
            done = [store.runs.finished(ExchangeKey(plan.digest(), round_, 0, 0, name)) for round_ in range(3)]
        before, lost, third = (each.broadcast for each in done if each is not None)
        assert before != lost == third, "the coordinator's state is as it was"
