"""A whole federation in a folder: identities by the real commands, daemons as processes of their own on 127.0.0.1.

They are forked (forked_nodes.py) where a test does not ask for the command line."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

from fedsecure.cli import run
from fedsecure.commands.demo.processes import free_port
from fedsecure.crypto import authority
from fedsecure.data.dataset import Dataset
from fedsecure.data.export import save_npz
from fedsecure.plan import Plan, load_plan

sys.path.insert(0, str(Path(__file__).parents[2]))
from forked_nodes import ForkedDaemon

CLASSES = ("a", "b", "c")
POLICY: dict[str, Any] = {
    "format": 1,
    "plans": {
        "methods": ["fedaf", "feddm", "fedavg", "fedspm", "feddrm"],
        "approval": "rule",
        "min_records": 1,
        "min_records_per_class": 4,
        "shared_randomness": True,
    },
    "condensation": {"init": ["noise"], "min_records_per_class": 4},
}
PLAN: dict[str, Any] = {
    "format": 1,
    "rounds": 2,
    "randomness": "plan",
    "task": {"kind": "image", "classes": list(CLASSES), "shape": [1, 8, 8]},
    "model": {"name": "convnet", "depth": 2, "width": 4},
    "cohort": {"min_nodes": 3},
    "deadlines": {"join": 120.0, "exchange": 120.0},
}
ROUTED: dict[str, Any] = {"predict": {"steps": 3, "batch": 8}, "route": {"steps": 4, "batch": 8}}
FAST: dict[str, Any] = {"ipc": 2, "steps": 3, "min_count": 4, "server": {"epochs": 2, "batch": 8}}


def cli(*arguments: object) -> tuple[int, str, str]:
    """One command line in this process: exit code, stdout, stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run([str(a) for a in arguments])
    return code, out.getvalue(), err.getvalue()


def records(node: int, classes: tuple[str, ...] = CLASSES) -> Dataset:
    """24 noisy images of two of three classes; which two depends on the node."""
    rng = np.random.default_rng(node)
    y = np.repeat(np.array([node % 3, (node + 1) % 3], dtype=np.int64), 12)
    x = (rng.random((24, 1, 8, 8)) * 0.5 + 0.2 * y[:, None, None, None]).astype(np.float32)
    return Dataset(x, y, classes)


class Federation:
    """One CA, one coordinator, three nodes. ``ask`` runs a command that must succeed; ``refused`` one that must not."""

    #: Daemons are started as an operator does, by ``python -m fedsecure``, and import everything anew.
    by_command_line = False

    def __init__(self, root: Path) -> None:
        self.root = root
        self.port = free_port()
        self.address = f"localhost:{self.port}"
        self.nodes = ("node-0", "node-1", "node-2")
        self.processes: dict[str, subprocess.Popen[bytes] | ForkedDaemon] = {}
        # A CA that is a month old, so that it can have issued certificates which have expired since.
        made_then = datetime.now(UTC) - timedelta(days=30)
        self.ca_fingerprint = authority.init_ca(root / "ca", "test", None, 10, made_then).fingerprint
        made = self.ask(
            *("coordinator", "init", "--dir", root / "coordinator", "--federation", "test"),
            *("--dns", "localhost", "--listen", f"127.0.0.1:{self.port}"),
        )
        self.enrol("coordinator", "coordinator", made["csr_fingerprint"])
        self.configure("coordinator", compute={"device": "cpu", "threads": 1})
        for index, node in enumerate(self.nodes):
            self.add_node(node, records(index))

    def add_node(self, node: str, data: Dataset) -> None:
        folder = self.root / node
        made = self.ask(*("node", "init", node, "--dir", folder, "--federation", "test", "--coordinator", self.address))
        self.enrol("node", node, made["csr_fingerprint"])
        save_npz(data, folder / "records.npz")
        self.configure(node, data={"kind": "npz", "path": "records.npz"}, compute={"device": "cpu", "threads": 1})
        self.policy(node)

    def enrol(self, role: str, name: str, csr_fingerprint: str) -> None:
        folder, cert = self.root / name, self.root / "ca" / f"{name}.crt"
        self.ask(
            *("ca", "sign", folder / "tls.csr", "--ca", self.root / "ca", "--out", cert),
            *("--expect-fingerprint", csr_fingerprint),
        )
        self.ask(
            *(role, "enroll", "--dir", folder, "--cert", cert, "--ca-cert", self.root / "ca" / "ca.crt"),
            *("--fingerprint", self.ca_fingerprint),
        )

    def configure(self, name: str, **tables: object) -> None:
        path = self.root / name / ("coordinator.toml" if name == "coordinator" else "node.toml")
        path.write_text(tomli_w.dumps({**tomllib.loads(path.read_text()), **tables}))

    def policy(self, node: str, **tables: dict[str, Any]) -> None:
        merged = {k: {**v, **tables.get(k, {})} if isinstance(v, dict) else v for k, v in POLICY.items()}
        merged |= {k: v for k, v in tables.items() if k not in merged}
        (self.root / node / "policy.toml").write_text(tomli_w.dumps(merged))

    def plan(self, name: str, method: dict[str, Any], **changes: Any) -> Plan:
        path = self.root / f"{name}.toml"
        path.write_text(tomli_w.dumps({**PLAN, "name": name, "method": method, **changes}))
        return load_plan(path)[0]

    def submit(self, plan: Plan) -> None:
        """Submit it; a coordinator that runs has it open afterwards, so that a node which is started then hears of it
        in its first list of plans."""
        self.ask("coordinator", "submit", self.root / f"{plan.name}.toml", "--dir", self.root / "coordinator")
        if "coordinator" in self.processes:
            self.wait(lambda: self.status(plan)["state"] != "NEW")

    def ask(self, *arguments: object) -> Any:
        code, out, err = cli(*arguments, "--json")
        assert code == 0, f"{' '.join(map(str, arguments))}: {code}: {err}"
        return json.loads(out)

    def refused(self, *arguments: object) -> tuple[int, str]:
        code, _, err = cli(*arguments)
        assert code != 0, f"{' '.join(map(str, arguments))} was not refused"
        return code, err

    def start(self, name: str, *options: str) -> None:
        """Start a daemon; its output goes to ``<name>.log``."""
        role = "coordinator" if name == "coordinator" else "node"
        log = self.root / f"{name}.log"
        log.touch()
        if not self.by_command_line:
            self.processes[name] = ForkedDaemon(role, self.root / name, log, *options)
            return
        with log.open("ab") as file:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "fedsecure", role, "run", "--dir", str(self.root / name), *options],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
            )

    def start_all(self, *options: str) -> None:
        for name in ("coordinator", *self.nodes):
            self.start(name, *options)

    def log(self, name: str) -> str:
        return (self.root / f"{name}.log").read_text(errors="replace")

    def status(self, plan: Plan) -> dict[str, Any]:
        runs = self.ask("coordinator", "status", "--dir", self.root / "coordinator")["runs"]
        return dict(next(r for r in runs if r["digest"] == plan.digest()))

    def wait(self, what: Callable[[], Any], seconds: float = 120.0) -> Any:
        """Poll until ``what()`` is true; fails with the ends of all logs."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if found := what():
                return found
            time.sleep(0.2)
        logs = "\n".join(f"--- {p.name}\n{p.read_text(errors='replace')[-1500:]}" for p in self.root.glob("*.log"))
        raise AssertionError(f"not within {seconds} s\n{logs}")

    def finish(self, plan: Plan, state: str = "COMPLETED", seconds: float = 120.0) -> dict[str, Any]:
        ended = ("COMPLETED", "ABORTED")
        self.wait(lambda: self.status(plan)["state"] in ended, seconds)
        view = self.status(plan)
        assert view["state"] == state, f"{view['state']}: {view['reason']}"
        return view

    def stop(self, name: str, how: signal.Signals = signal.SIGTERM, seconds: float = 60.0) -> int:
        process = self.processes.pop(name)
        process.send_signal(how)
        return process.wait(timeout=seconds)

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait(timeout=60)


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    made = Federation(tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def module_federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """One federation for the tests of a module; nothing of it runs yet."""
    made = Federation(tmp_path_factory.mktemp("federation"))
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def shared_federation(module_federation: Federation) -> Federation:
    """One federation for the tests of a module that leave it as it was; its coordinator runs, its nodes do not."""
    made = module_federation
    made.start("coordinator")
    made.wait(lambda: "listening" in made.log("coordinator") or "serving" in made.log("coordinator"), 60)
    return made


@pytest.fixture(scope="session")
def node_records() -> Callable[[int], Dataset]:
    return records


@pytest.fixture
def fast() -> dict[str, Any]:
    return FAST


@pytest.fixture
def routed() -> dict[str, Any]:
    return ROUTED
