"""The daemons over mutual TLS and the simulation in one process end in the same coordinator's state, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest

from fedsecure.methods import build_method
from fedsecure.simulation import simulate
from fedsecure.tensors import Tensors
from fedsecure_coordinator.blobs import BlobStore
from fedsecure_coordinator.setup import open_store


@pytest.mark.slow
def test_fedaf_feddm_and_fedavg_end_in_the_same_bits(federation: Any, node_records: Any, fast: Any) -> None:
    plans = [
        federation.plan("fedaf", {"name": "fedaf", **fast}),
        federation.plan("fedaf-stale", {"name": "fedaf", "sync": "stale", **fast}),
        federation.plan("feddm", {"name": "feddm", **fast}),
        federation.plan("fedavg", {"name": "fedavg", "local_epochs": 2}),
        federation.plan("fedprox", {"name": "fedavg", "local_steps": 3, "prox_mu": 0.1}, seed=7),
    ]
    for plan in plans:
        federation.submit(plan)
    federation.start_all("--exit-when-done")
    data = {node: node_records(index) for index, node in enumerate(federation.nodes)}
    for plan in plans:
        federation.finish(plan, seconds=240)
    settings, journal = open_store(federation.root / "coordinator", "read")
    blobs = BlobStore(settings.store / "blobs")
    states = {row.digest: Tensors.from_bytes(blobs.get(row.server)) for row in journal.runs()}
    journal.close()
    for plan in plans:
        expected = simulate(plan, build_method(plan), data).server
        assert states[plan.digest()] == expected, plan.name
    for process in federation.processes.values():
        assert process.wait(timeout=60) == 0
