"""Runs under masks by five nodes and a coordinator, one node killed (kill -9) at each stage of a session in turn.

Nobody sleeps to hit a stage: the others of the cohort are stopped (SIGSTOP) so that a leg cannot close, their logs tell
how far each one is, and the node is killed while the leg is held.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsecure.methods import build_method
from fedsecure.simulation import Simulator
from fedsecure.tensors import Tensors
from fedsecure_coordinator.blobs import BlobStore
from fedsecure_coordinator.setup import open_store

NODES = tuple(f"node-{i}" for i in range(5))
VICTIM, HOLDER, OTHER = "node-1", "node-3", "node-4"
READY = "the coordinator has it"
KEYS, SHARES = "its keys for this session are advertised", "its secrets are shared"
MASKED, VECTORS = "leaves under masks", "its masked vectors are with the coordinator"
CONFIRMED, GIVEN = "it confirmed whose vectors are summed", "its shares are with the coordinator"
#: Of the whole state after two rounds: float32 training amplifies what the fixed point rounds (2^-25 a value).
TOLERANCE = 2e-5


class Cohort:
    """Five nodes that trust one cohort, and the means to hold one of them still."""

    def __init__(self, federation: Any, node_records: Any) -> None:
        self.f = federation
        self.data = {node: node_records(index) for index, node in enumerate(NODES)}
        for node in NODES[3:]:
            federation.add_node(node, self.data[node])
        self._agree(federation.root)

    def _agree(self, root: Path) -> None:
        f, draft, whole = self.f, root / "draft.json", root / "cohort.json"
        others = [f"--node={n}={root / n / 'identity.pub'}" for n in NODES[1:]]
        digest = f.ask("node", "cohort", "form", "five", *others, "--out", draft, "--dir", root / NODES[0])["digest"]
        copies = [root / f"signed-{node}.json" for node in NODES]
        for node, copy in zip(NODES, copies, strict=True):
            shutil.copy(draft, copy)
            f.ask("node", "cohort", "sign", copy, "--dir", root / node)
        f.ask("node", "cohort", "merge", *copies, "--out", whole)
        for node in NODES:
            f.ask("node", "cohort", "trust", whole, "--digest", digest, "--dir", root / node)
        f.ask("coordinator", "cohort", "add", whole, "--dir", root / "coordinator")

    def plan(self, name: str, routed: Any, **changes: Any) -> Any:
        cohort = {"min_nodes": 4, "nodes": list(NODES)}
        times = {"join": 120.0, "exchange": 60.0}
        method = {"name": "fedspm", **routed, **changes.pop("settings", {})}
        return self.f.plan(name, method, secagg="required", cohort=cohort, deadlines=times, **changes)

    def freeze(self, name: str) -> None:
        self.f.processes[name].send_signal(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self.f.processes[name].send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.f.stop(VICTIM, signal.SIGKILL)

    def says(self, node: str, words: str) -> None:
        self.f.wait(lambda: words in self.f.log(node), 90)

    def swap(self, words: str, frozen: str, running: str) -> None:
        """A leg is held by ``frozen``; once ``running`` answered it (``words``), the next one is held by that."""
        self.says(running, words)
        self.freeze(running)
        self.thaw(frozen)

    def begin(self, plan: Any) -> None:
        """All have contributed but ``HOLDER``, which is frozen."""
        self.f.submit(plan)
        for name in ("coordinator", *NODES):
            if name != NODES[2]:
                self.f.start(name, *([] if name == "coordinator" else ["--exit-when-done"]))
        self.says(HOLDER, "joined")
        self.freeze(HOLDER)
        self.f.start(NODES[2], "--exit-when-done")
        for node in NODES:
            if node != HOLDER:
                self.says(node, READY)

    def state(self) -> Tensors:
        settings, journal = open_store(self.f.root / "coordinator", "read")
        (row,) = journal.runs()
        state = Tensors.from_bytes(BlobStore(settings.store / "blobs").get(row.server))
        journal.close()
        return state


class Survivors(Simulator):
    """The plain run of ``kept[round]`` in each round."""

    kept: tuple[tuple[str, ...], ...] = ()

    def _aggregate(self, action: Any) -> None:
        here = tuple(node for node in action.contributors if node in self.kept[action.round])
        super()._aggregate(replace(action, contributors=here))


def plain_run(plan: Any, data: Any, *kept: tuple[str, ...]) -> Tensors:
    plain = plan.model_copy(update={"secagg": "off"})
    simulator = Survivors(plain, build_method(plain), data)
    simulator.kept = kept
    assert len(list(simulator.rounds())) == plan.rounds
    return simulator.server


def assert_close(masked: Tensors, plain: Tensors) -> None:
    assert set(masked) == set(plain)
    for name, array in plain.items():
        worst = float(np.abs(masked[name].astype(np.float64) - array.astype(np.float64)).max(initial=0.0))
        assert worst <= TOLERANCE, f"{name}: {worst}"


@pytest.fixture
def cohort(federation: Any, node_records: Any) -> Iterator[Cohort]:
    made = Cohort(federation, node_records)
    yield made
    for process in federation.processes.values():
        process.send_signal(signal.SIGCONT)


def before_leg_0(c: Cohort) -> None:
    c.kill()
    c.thaw(HOLDER)


def hold_leg_0(c: Cohort) -> None:
    c.freeze(OTHER)
    c.thaw(HOLDER)
    c.says(VICTIM, KEYS)


def after_advertise(c: Cohort) -> None:
    hold_leg_0(c)
    c.kill()
    c.thaw(OTHER)


def hold_leg_1(c: Cohort) -> None:
    hold_leg_0(c)
    c.swap(KEYS, OTHER, HOLDER)
    c.says(VICTIM, SHARES)


def after_shares(c: Cohort) -> None:
    hold_leg_1(c)
    c.kill()
    c.thaw(HOLDER)


def in_mid_upload(c: Cohort) -> None:
    """The victim gets leg 2 while it is frozen, and goes on while the coordinator is: its upload cannot end."""
    hold_leg_1(c)
    time.sleep(0.5)  # it asks for the next leg
    c.freeze(VICTIM)
    c.thaw(HOLDER)
    c.says(NODES[0], VECTORS)
    c.freeze("coordinator")
    c.thaw(VICTIM)
    for _ in range(20):
        end = time.monotonic() + 3
        while MASKED not in c.f.log(VICTIM) and time.monotonic() < end:
            time.sleep(0.05)
        if MASKED in c.f.log(VICTIM):
            break
        c.thaw("coordinator")  # it had not asked
        time.sleep(0.05)
        c.freeze("coordinator")
    time.sleep(0.5)
    assert VECTORS not in c.f.log(VICTIM)
    c.kill()
    c.thaw("coordinator")


def hold_leg_2(c: Cohort) -> None:
    hold_leg_1(c)
    c.swap(SHARES, HOLDER, OTHER)
    c.says(VICTIM, VECTORS)


def after_the_vector(c: Cohort) -> None:
    hold_leg_2(c)
    c.kill()
    c.thaw(OTHER)


def after_consistency(c: Cohort) -> None:
    hold_leg_2(c)
    c.swap(VECTORS, OTHER, HOLDER)
    c.says(VICTIM, CONFIRMED)
    c.kill()
    c.thaw(HOLDER)


LARGE = {
    "model": {"name": "mlp", "hidden": [32768]},
    "settings": {"router": {"name": "mlp", "hidden": [4]}},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "counts", "changes"),
    [
        (before_leg_0, False, {}),
        (after_advertise, False, {}),
        (after_shares, False, {}),
        (in_mid_upload, False, LARGE),
        (after_the_vector, True, {}),
        (after_consistency, True, {}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_node_killed_at_one_stage(cohort: Cohort, routed: Any, stage: Any, counts: bool, changes: Any) -> None:
    """Its vector counts once it is complete, and not before; the run goes on with the others."""
    plan = cohort.plan("five", routed, **changes)
    cohort.begin(plan)
    stage(cohort)
    cohort.f.finish(plan, seconds=200)
    left = tuple(node for node in NODES if node != VICTIM)
    first = NODES if counts else left
    assert_close(cohort.state(), plain_run(plan, cohort.data, first, left))
    for node in left:
        log = cohort.f.ask("node", "verify-log", "--dir", cohort.f.root / node)
        assert log["releases"] == 2
        assert GIVEN in cohort.f.log(node)
    assert GIVEN not in cohort.f.log(VICTIM)


@pytest.mark.slow
def test_nobody_killed(cohort: Cohort, routed: Any) -> None:
    plan = cohort.plan("five", routed)
    cohort.f.submit(plan)
    for name in ("coordinator", *NODES):
        cohort.f.start(name, "--exit-when-done")
    cohort.f.finish(plan, seconds=200)
    assert_close(cohort.state(), plain_run(plan, cohort.data, NODES, NODES))
