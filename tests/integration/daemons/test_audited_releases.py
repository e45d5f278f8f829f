"""Real daemons with the audit at the gate: a release with people in it never leaves, the node's log says why, and the
coordinator learns that this node withholds it; one without passes with its verdict; a kill in between loses nothing."""

from __future__ import annotations

import hashlib
import json
import signal
import stat
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsecure.cli import run
from fedsecure.data.dataset import Dataset
from fedsecure.data.export import save_npz

sys.path.insert(0, str(Path(__file__).parents[2]))
from forked_nodes import ForkedDaemon

CLASSES = ("a", "b", "c")
METHOD: dict[str, Any] = {"name": "feddm", "ipc": 4, "steps": 3, "min_count": 8, "server": {"epochs": 2, "batch": 8}}
AUDIT = {"max_tpr": 0.1, "max_auc": 0.65}
#: Puts eight of the node's records among the images that its method gives, as networks see them.
PLANTS = """
from fedsecure.methods.feddm import FedDM
from fedsecure.schema import Contribution
made = FedDM.client_update
def client_update(self, exchange, broadcast, local, data, ctx):
    local, contribution = made(self, exchange, broadcast, local, data, ctx)
    images = contribution.released["images"].copy()
    images[:8] = (data.x[:8] - 0.5) / 0.5  # by the plan's mean and deviation
    return local, Contribution(released=contribution.released.with_({"images": images}))
FedDM.client_update = client_update
"""
#: Dies between the audit and the log.
DIES = """
import os, signal
from fedsecure_node.egress import Gate
Gate.log = lambda *given, **more: os.kill(os.getpid(), signal.SIGKILL)
"""


#: Small images: what an audit costs follows from their features.
SMALL: dict[str, Any] = {
    "task": {"kind": "image", "classes": list(CLASSES), "shape": [1, 4, 4]},
    "model": {"name": "mlp", "hidden": [8]},
    "deadlines": {"join": 900.0, "exchange": 900.0},
}


def people(count: int, seed: int) -> Dataset:
    rng = np.random.default_rng(seed)
    y = np.arange(count, dtype=np.int64) % 3
    return Dataset((0.5 * rng.random((count, 1, 4, 4)) + 0.2 * y[:, None, None, None]).astype(np.float32), y, CLASSES)


def prepare(federation: Any) -> None:
    """Few records for each node, and for the first as many as an audit needs, and people held out."""
    for index, node in enumerate(federation.nodes):
        save_npz(people(60 if index else 1200, 40 + index), federation.root / node / "records.npz")
        federation.policy(node, plans={"min_nodes": 2}, **({} if index else {"audit": AUDIT}))
    save_npz(people(2100, 50), federation.root / "node-0" / "others.npz")
    federation.configure("node-0", holdout={"kind": "npz", "path": "others.npz"})


def started(federation: Any, node: str, before: str) -> None:
    log = federation.root / f"{node}.log"
    federation.processes[node] = ForkedDaemon("node", federation.root / node, log, before=before)


def releases(federation: Any, node: str) -> list[dict[str, Any]]:
    return list(federation.ask("node", "releases", "--dir", federation.root / node)["releases"])


def report_of(federation: Any, node: str, release: dict[str, Any]) -> dict[str, Any]:
    path = federation.root / node / "store" / "audits" / f"{release['audit']['report']}.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert hashlib.sha256(path.read_bytes()).hexdigest() == release["audit"]["report"]
    return dict(json.loads(path.read_bytes()))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_people_in_a_release_are_withheld_and_a_clean_one_passes(federation: Any, tmp_path: Path, capsys: Any) -> None:
    f = federation
    prepare(f)
    plan = f.plan("planted", METHOD, rounds=1, cohort={"min_nodes": 2, "nodes": list(f.nodes)}, **SMALL)
    f.submit(plan)
    f.start("coordinator")
    f.start("node-1")
    f.start("node-2")
    started(f, "node-0", PLANTS)
    view = f.finish(plan, seconds=500)

    (withheld,) = releases(f, "node-0")
    assert withheld["state"] == "withheld"
    assert (withheld["audit"]["result"], withheld["audit"]["profile"]) == ("LEAK", "quick")
    assert "8 records of this node are in it as they are" in withheld["audit"]["reason"]
    assert [event["kind"] for event in withheld["events"]] == ["withheld"]
    assert report_of(f, "node-0", withheld)["verdict"] == "LEAK"
    assert "8 records of this node" in f.log("node-0")
    assert "Traceback" not in f.log("node-0")
    assert view["nodes"]["refused"] == {"node-0": "round 1, exchange round: the institution withholds its release"}
    told = f.log("coordinator") + json.dumps(view)
    for word in ("audit", "LEAK", "member", "8 records", withheld["audit"]["report"], withheld["payload"]["sha256"]):
        assert word not in told, f"the coordinator learnt {word!r}"
    assert {r["audit"]["result"] for r in releases(f, "node-1")} == {"INCONCLUSIVE"}, "nobody is held out there"

    f.stop("node-0")
    clean = f.plan("clean", METHOD, rounds=1, cohort={"min_nodes": 3, "nodes": list(f.nodes)}, **SMALL)
    started(f, "node-0", DIES)
    f.submit(clean)
    f.wait(lambda: f.processes["node-0"].poll() is not None, 500)
    assert f.processes.pop("node-0").wait(60) == -signal.SIGKILL
    assert len(releases(f, "node-0")) == 1, "it died before the log"
    f.start("node-0")
    f.finish(clean, seconds=500)
    _, passed = releases(f, "node-0")
    assert passed["state"] == "acknowledged"
    assert passed["audit"]["result"] == "NO-LEAK-DETECTED", passed["audit"]["reason"]
    assert report_of(f, "node-0", passed)["counts"]["members_compared"] == 1200
    assert f.log("node-0").count("membership audit: NO-LEAK-DETECTED") == 2, "once before the kill, once after"
    assert len(list((f.root / "node-0" / "store" / "audits").iterdir())) == 2, "the same bytes have the same report"
    f.ask("node", "verify-log", "--dir", f.root / "node-0")

    out = tmp_path / "again"
    code = run(["audit", "release", str(withheld["release"]), "--dir", str(f.root / "node-0"), "--out", str(out)])
    said = capsys.readouterr().out
    assert code == 10, said
    assert "before it could leave, its audit said LEAK" in said
    assert json.loads((out / "report.json").read_bytes())["plan"]["kind"] == "full"
    assert (out / "report.html").exists()
    assert f.refused("audit", "release", "999", "--dir", f.root / "node-0")[1].startswith("error: there is no release")
