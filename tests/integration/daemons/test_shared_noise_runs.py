"""Noise that a cohort shares, over real daemons: the run completes, is paid for, and labels say on whom it rests."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from fedsecure.privacy.ledger import Ledger

MLP = {"name": "mlp", "hidden": [4]}
METHOD = {"name": "fedspm", "parametrisation": "explicit", "components": 2, "router": MLP}
PRIVACY = {
    "kind": "dp-sgd", "sigma": 8.0, "batch": 1000, "steps": 1, "count_sigma": 1.0, "mixing_sigma": 8.0,
    "mixing_every": 1, "shares": "distributed",
}  # fmt: skip


def trust_one_another(f: Any) -> None:
    """Form a manifest of all nodes, have each sign it, and pin it everywhere."""
    first, *others = f.nodes
    named = [f"--node={node}={f.root / node / 'identity.pub'}" for node in others]
    draft, whole = f.root / "draft.json", f.root / "cohort.json"
    made = f.ask("node", "cohort", "form", "three", *named, "--out", draft, "--dir", f.root / first)
    copies = [f.root / f"signed-{node}.json" for node in f.nodes]
    for node, copy in zip(f.nodes, copies, strict=True):
        shutil.copy(draft, copy)
        f.ask("node", "cohort", "sign", copy, "--dir", f.root / node)
    f.ask("node", "cohort", "merge", *copies, "--out", whole)
    for node in f.nodes:
        f.ask("node", "cohort", "trust", whole, "--digest", made["digest"], "--dir", f.root / node)
    f.ask("coordinator", "cohort", "add", whole, "--dir", f.root / "coordinator")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_with_shared_noise_completes_and_says_on_whom_its_epsilon_rests(federation: Any) -> None:
    f = federation
    trust_one_another(f)
    for node in f.nodes:
        f.policy(node, privacy={"epsilon": 50.0, "shares": ["distributed"]})
    plan = f.plan(
        "shared",
        METHOD,
        privacy=PRIVACY,
        secagg="required",
        randomness="private",
        model=MLP,
        cohort={"min_nodes": 3, "nodes": list(f.nodes)},
        deadlines={"join": 400.0, "exchange": 400.0},
    )
    f.submit(plan)
    f.start("coordinator")
    for node in f.nodes:
        f.start(node, "--exit-when-done")
    f.finish(plan, seconds=400)
    for node in f.nodes:
        assert f.processes.pop(node).wait(60) == 0, f.log(node)
        releases = f.ask("node", "releases", "--dir", f.root / node)["releases"]
        assert len(releases) == plan.rounds
        for release in releases:
            label = release["guarantee"]
            assert label["trust"] == "at most 1 of 3 nodes collude with the coordinator"
            assert label["epsilon"] < label["epsilon_local"]
        with Ledger(f.root / node / "store" / "ledger.db") as ledger:
            marks = [entry.what.mechanism for entry in ledger.entries()]
        assert marks == ["dp-sgd", *["dp-sgd, noise shared by 3 nodes, 1 colluding"] * plan.rounds]
        kept = [path.read_bytes() for path in (f.root / node / "store" / "releases").glob("*.bin")]
        assert not [data for data in kept if b'"mass"' in data], "no sum without noise is on the disk"
        f.ask("node", "verify-log", "--dir", f.root / node)
