"""The daemons over mutual TLS and the simulation in one process end in the same coordinator's state, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest

from fedsecure.methods import build_method
from fedsecure.plan import Plan
from fedsecure.simulation import simulate
from fedsecure.tensors import Tensors
from fedsecure_coordinator.setup import open_store
from fedsecure_coordinator.store.blobs import BlobStore
from fedsecure_node.settings import load_settings
from fedsecure_node.store.store import Store


@pytest.mark.slow
def test_fedaf_feddm_and_fedavg_end_in_the_same_bits(federation: Any, node_records: Any, fast: Any) -> None:
    federation.by_command_line = True
    plans = [
        federation.plan("fedaf", {"name": "fedaf", **fast}),
        federation.plan("fedaf-stale", {"name": "fedaf", "sync": "stale", **fast}),
        federation.plan("feddm", {"name": "feddm", **fast}),
        federation.plan("fedavg", {"name": "fedavg", "local_epochs": 2}),
        federation.plan("fedprox", {"name": "fedavg", "local_steps": 3, "prox_mu": 0.1}, seed=7),
    ]
    _run_and_compare(federation, plans, node_records)


@pytest.mark.slow
def test_fedspm_and_feddrm_end_in_the_same_bits_and_the_same_heads(
    federation: Any, node_records: Any, routed: Any
) -> None:
    nodes = {"cohort": {"min_nodes": 3, "nodes": list(federation.nodes)}}
    explicit = {"parametrisation": "explicit", "share_counts": True, "diagnostics": "summed"}
    plans = [
        federation.plan("fedspm", {"name": "fedspm", **routed}, **nodes),
        federation.plan("fedspm-explicit", {"name": "fedspm", **explicit, **routed}, **nodes),
        federation.plan("fedspm-cx", {"name": "fedspm", "encoders": "separate", "e_step": "batch", **routed}, **nodes),
        federation.plan("feddrm", {"name": "feddrm", **routed}, **nodes),
        federation.plan("feddrm-shared", {"name": "feddrm", "backbone": "shared", "branch": 8, **routed}, **nodes),
    ]
    _run_and_compare(federation, plans, node_records)


def _run_and_compare(federation: Any, plans: list[Plan], node_records: Any) -> None:
    for plan in plans:
        federation.submit(plan)
    federation.start_all("--exit-when-done")
    data = {node: node_records(index) for index, node in enumerate(federation.nodes)}
    for plan in plans:
        federation.finish(plan, seconds=240)
    processes = federation.processes.values()
    federation.wait(lambda: all(process.poll() is not None for process in processes), 60)
    assert [process.returncode for process in processes] == [0] * len(processes)
    settings, journal = open_store(federation.root / "coordinator", "read")
    blobs = BlobStore(settings.store / "blobs")
    states = {row.digest: Tensors.from_bytes(blobs.get(row.server)) for row in journal.runs()}
    journal.close()
    for plan in plans:
        expected = simulate(plan, build_method(plan), data)
        assert states[plan.digest()] == expected.server, plan.name
        for node, local in expected.local.items():
            with Store(load_settings(federation.root / node).store) as store:
                assert store.runs.local(plan.digest()) == local, f"{plan.name}, {node}"
