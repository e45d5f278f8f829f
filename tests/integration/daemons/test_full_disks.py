"""Disks that fill up under running daemons are named, with an exit code; nothing is lost once there is room."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedsecure.methods import build_method
from fedsecure.simulation import simulate
from fedsecure.tensors import Tensors
from fedsecure_coordinator.setup import open_store
from fedsecure_coordinator.store.blobs import BlobStore

#: A model of about 400 kB: larger than the limit below, smaller than the disk. The store.db journal is below both.
MODEL = {"name": "mlp", "hidden": [768, 64]}
LIMIT = 352 << 10
DISK = 6 << 20


def shared(folder: Path) -> bool:
    """Mount a tiny file system over ``folder``; false where that is not allowed."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=700", "tmpfs", str(folder)]
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=30).returncode == 0
    except OSError:
        return False


@pytest.fixture
def mounted(federation: Any) -> Iterator[Callable[[str], Path]]:
    """``mounted(name)`` puts a daemon's store on a tiny disk of its own."""
    made: list[Path] = []

    def mount(name: str) -> Path:
        store = federation.root / name / "store"
        store.mkdir(mode=0o700)
        if not shared(store):
            pytest.skip("this user may not mount a file system")
        made.append(store)
        return Path(store)

    yield mount
    federation.close()
    for store in made:
        subprocess.run(["umount", "-l", str(store)], check=True, timeout=30)


def fill(store: Path) -> Path:
    """Leave no byte of the disk."""
    ballast = store / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12):
            try:
                while file.write(b"\0" * size):
                    pass
            except OSError:
                continue
    return ballast


def check(f: Any, plan: Any, node_records: Any) -> None:
    """The run ended in the bits of an undisturbed one, and every node's log is whole."""
    settings, journal = open_store(f.root / "coordinator", "read")
    state = Tensors.from_bytes(BlobStore(settings.store / "blobs").get(journal.runs()[0].server))
    journal.close()
    data = {node: node_records(index) for index, node in enumerate(f.nodes)}
    assert state == simulate(plan, build_method(plan), data).server
    for node in f.nodes:
        assert f.ask("node", "verify-log", "--dir", f.root / node)["releases"] == plan.rounds


@pytest.mark.slow
def test_a_full_disk_under_a_node_and_under_the_coordinator(federation: Any, node_records: Any, mounted: Any) -> None:
    f = federation
    at_node, at_coordinator = mounted("node-1"), mounted("coordinator")
    method = {"name": "fedavg", "local_steps": 20}
    plan = f.plan("full", method, model=MODEL, rounds=2, cohort={"min_nodes": 3, "nodes": list(f.nodes)})
    f.start("coordinator")
    f.start("node-1")
    f.wait(lambda: "connected" in f.log("node-1"))
    ballast = fill(at_node)
    f.submit(plan)
    assert f.processes.pop("node-1").wait(120) == 19
    error, hint = f.log("node-1").splitlines()[-2:]
    assert error.startswith(f"error: {at_node}/")
    assert hint.startswith("hint: ")
    ballast.unlink()

    f.start("node-0")
    f.start("node-2")
    f.wait(lambda: f.status(plan)["nodes"]["joined"] == ["node-0", "node-2"])
    ballast = fill(at_coordinator)
    f.start("node-1")
    f.wait(lambda: "No space left" in f.log("coordinator") or "disk is full" in f.log("coordinator"))
    ballast.unlink()
    if f.processes["coordinator"].poll() is not None:  # it stops where its own work fails, not where a node's call does
        assert f.processes.pop("coordinator").returncode == 19
        f.start("coordinator")
    f.finish(plan, seconds=240)
    check(f, plan, node_records)


@pytest.mark.slow
def test_files_that_may_not_grow(federation: Any, node_records: Any) -> None:
    """The same with a limit on the size of files, which every user can set."""
    f = federation

    def limit(name: str, soft: int) -> None:
        pid = f.processes[name].pid
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]))

    method = {"name": "fedavg", "local_steps": 20}
    plan = f.plan("limited", method, model=MODEL, rounds=2, cohort={"min_nodes": 3, "nodes": list(f.nodes)})
    f.start("coordinator")
    f.start("node-1")
    f.wait(lambda: "connected" in f.log("node-1"))
    limit("node-1", LIMIT)
    f.submit(plan)
    f.start("node-0")
    f.start("node-2")
    assert f.processes.pop("node-1").wait(120) == 19
    assert "cannot be written: File too large" in f.log("node-1")
    assert "hint: raise the limit" in f.log("node-1")
    limit("coordinator", LIMIT)
    f.start("node-1")
    f.wait(lambda: "cannot be written: File too large" in f.log("coordinator"))
    limit("coordinator", resource.RLIM_INFINITY)
    if f.processes["coordinator"].poll() is not None:
        assert f.processes.pop("coordinator").returncode == 19
        f.start("coordinator")
    f.finish(plan, seconds=240)
    check(f, plan, node_records)
    assert (f.root / "node-1.log").stat().st_size < LIMIT  # or the log itself met the limit
