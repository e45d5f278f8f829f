"""Daemons killed in the middle of a run come back, lose nothing, and end in the bits of an undisturbed run."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from fedsecure.methods import build_method
from fedsecure.simulation import simulate
from fedsecure.tensors import Tensors
from fedsecure_coordinator.setup import open_store
from fedsecure_coordinator.store.blobs import BlobStore


@pytest.mark.slow
def test_kill_9_of_a_node_and_of_the_coordinator(federation: Any, node_records: Any, fast: Any) -> None:
    f = federation
    method = {"name": "fedaf", **fast, "steps": 200, "resample_interval": 50}
    plan = f.plan("long", method, rounds=3, cohort={"min_nodes": 3, "nodes": list(f.nodes)})
    f.submit(plan)
    f.start_all()
    f.wait(lambda: f.status(plan)["history"] and "accuracy" not in f.log("coordinator"))
    f.stop("node-1", signal.SIGKILL)
    f.start("node-1")
    f.wait(lambda: len(f.status(plan)["history"]) >= 2)
    f.stop("coordinator", signal.SIGKILL)
    f.start("coordinator")
    f.wait(lambda: f.log("coordinator").count("listening") == 2)
    f.stop("node-0", signal.SIGTERM)
    f.start("node-0")
    f.finish(plan, seconds=240)

    settings, journal = open_store(f.root / "coordinator", "read")
    row = journal.runs()[0]
    state = Tensors.from_bytes(BlobStore(settings.store / "blobs").get(row.server))
    journal.close()
    data = {node: node_records(index) for index, node in enumerate(f.nodes)}
    assert state == simulate(plan, build_method(plan), data).server
    for node in f.nodes:
        log = f.ask("node", "verify-log", "--dir", f.root / node)
        assert log["releases"] == 6, "one release for each exchange, however often the daemon was killed"
