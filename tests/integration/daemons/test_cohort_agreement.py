"""A cohort of three agreed upon by the real commands, with a real coordinator that relays it and can change nothing."""

from __future__ import annotations

import json
import shutil


def test_three_institutions_agree_on_a_cohort(federation, node_records):
    root, nodes = federation.root, federation.nodes
    coordinator = root / "coordinator"
    federation.start("coordinator")
    draft, whole = root / "draft.json", root / "cohort.json"
    others = [f"--node={n}={root / n / 'identity.pub'}" for n in nodes[1:]]
    made = federation.ask("node", "cohort", "form", "cardiology", *others, "--out", draft, "--dir", root / "node-0")
    digest = made["digest"]
    code, text = federation.refused("coordinator", "cohort", "add", draft, "--dir", coordinator)
    assert (code, "not signed by node-0, node-1, node-2" in text) == (6, True)
    copies = [root / f"signed-{node}.json" for node in nodes]
    for node, copy in zip(nodes, copies, strict=True):
        shutil.copy(draft, copy)
        assert federation.ask("node", "cohort", "sign", copy, "--dir", root / node)["digest"] == digest
    merged = federation.ask("node", "cohort", "merge", *copies, "--out", whole)
    assert (merged["digest"], merged["missing"]) == (digest, [])
    federation.wait(lambda: "serving" in federation.log("coordinator") or "listening" in federation.log("coordinator"))

    # a running coordinator relays it from the moment on that it was added, and only to nodes that are in it
    fetched = root / "fetched.json"
    fetch = ("node", "cohort", "fetch", digest, "--out", fetched, "--dir")
    code, text = federation.refused(*fetch, root / "node-2")
    assert (code, "has no manifest" in text) == (9, True)
    assert federation.ask("coordinator", "cohort", "add", whole, "--dir", coordinator)["new"] is True
    federation.add_node("node-3", node_records(3))
    code, text = federation.refused(*fetch, root / "node-3")
    assert (code, "has no manifest" in text) == (9, True)
    assert federation.ask(*fetch, root / "node-2")["missing"] == []
    assert json.loads(fetched.read_text()) == json.loads(whole.read_text())

    for node, file in zip(nodes, (whole, whole, fetched), strict=True):
        given = ("node", "cohort", "trust", file, "--digest", digest, "--dir", root / node)
        assert federation.ask(*given)["new"] is True
        (checked,) = federation.ask("node", "cohort", "verify", file, "--coordinator", "--dir", root / node)["cohorts"]
        assert checked["compared"] == [str(file), "the coordinator's"]
    code, text = federation.refused("node", "cohort", "trust", whole, "--digest", digest, "--dir", root / "node-3")
    assert (code, "node 'node-3' is not in version 1" in text) == (6, True)

    # a daemon of each node keeps the pin over its life
    federation.start("node-0")
    federation.wait(lambda: federation.log("node-0"))
    federation.stop("node-0")
    (pinned,) = federation.ask("node", "cohort", "show", "--dir", root / "node-0")["cohorts"]
    assert (pinned["digest"], pinned["version"]) == (digest, 1)
