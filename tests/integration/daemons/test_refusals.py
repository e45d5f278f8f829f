"""What an institution refuses, over the real daemons: each refusal reaches the operator with its rule named."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

NAMED = {"min_nodes": 3, "nodes": ["node-0", "node-1", "node-2"]}


@pytest.mark.slow
def test_plans_that_an_institution_refuses(federation: Any, fast: Any) -> None:
    """Less privacy than allowed, no policy at all, and a contribution that is not finite: each ends the run by name."""
    f = federation
    f.start_all()
    asks_more = f.plan("asks-more", {"name": "fedaf", **fast, "init": "avg"}, cohort=NAMED)
    f.submit(asks_more)
    view = f.finish(asks_more, "ABORTED")
    assert "rule condensation.init" in view["reason"]
    assert "avg" not in view["reason"]  # what is allowed, and what was asked, stays at the node
    assert len(view["nodes"]["missing"]) == 1  # the first refusal ends it: fewer than three remain

    (f.root / "node-0" / "policy.toml").unlink()
    no_policy = f.plan("no-policy", {"name": "fedaf", **fast}, cohort=NAMED)
    f.submit(no_policy)
    view = f.finish(no_policy, "ABORTED")
    assert view["nodes"]["missing"] == ["node-0"]
    assert "no usable policy" in view["reason"]
    f.policy("node-0")

    diverges = f.plan("diverges", {"name": "fedavg", "local_steps": 50, "lr": 900.0, "momentum": 0.99}, cohort=NAMED)
    f.submit(diverges)
    view = f.finish(diverges, "ABORTED")
    assert "training diverged" in view["reason"]
    assert "tensor model." in view["reason"]
    for node in f.nodes:
        assert f.ask("node", "releases", "--dir", f.root / node)["releases"] == []
        assert f.ask("node", "verify-log", "--dir", f.root / node)["ok"]
    for name in ("coordinator", *f.nodes):
        assert f.stop(name) == 0, f.log(name)
    runs = f.ask("coordinator", "runs", "--dir", f.root / "coordinator")["runs"]
    assert [r["state"] for r in runs] == ["ABORTED"] * 3
    assert all(r["reason"] for r in runs)


class Reader(HTMLParser):
    """Collects the text of a page, and everything it would load from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self.foreign, self.scripts = "", [], 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        for name, value in attrs:
            if name in ("src", "href") and value and not value.startswith(("data:", "#")):
                self.foreign.append(value)

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.slow
def test_approval_holding_and_preview(federation: Any, fast: Any, tmp_path: Path) -> None:
    """A person approves by digest, looks at what is held, lets it go; another refuses, and the run ends by name."""
    f = federation
    f.policy("node-0", plans={"approval": "manual"}, release={"hold": True})
    f.start_all()
    plan = f.plan("careful", {"name": "fedaf", "sync": "stale", **fast}, rounds=1, cohort=NAMED)
    f.submit(plan)
    f.wait(lambda: f.status(plan)["nodes"]["joined"] == ["node-1", "node-2"])
    folder = f.root / "node-0"
    offered = f.wait(lambda: f.ask("node", "plans", "--dir", folder)["plans"])[0]
    assert (offered["decision"], offered["policy_passes"]) == ("pending", True)
    assert any("2 condensed images" in line for line in offered["words"])
    code, said = f.refused("node", "approve", "0123456789", "--dir", folder)
    assert code == 3
    assert "0123456789" in said
    f.ask("node", "approve", plan.digest()[:12], "--dir", folder)

    held = f.wait(lambda: [r for r in _releases(f, "node-0") if r["state"] == "held"])[0]
    f.wait(lambda: f.status(plan)["nodes"]["contributed"] == ["node-1", "node-2"])
    made = f.ask("node", "preview", held["release"], "--dir", folder, "--out", tmp_path / "preview")
    page = Reader()
    page.feed(Path(made["html"]).read_text(encoding="utf-8"))
    assert page.foreign == []
    assert page.scripts == 0
    for expected in (held["payload"]["sha256"], plan.digest(), "none", "images", held["destination"]["certificate"]):
        assert expected in page.text
    with Image.open(made["png"]) as sheet:
        assert sheet.width > 100
    f.ask("node", "release", held["release"], "--dir", folder)
    f.finish(plan)
    release = f.wait(lambda: [r for r in _releases(f, "node-0") if r["state"] == "acknowledged"])[0]
    assert release["guarantee"]["label"] == "none"
    assert release["class_counts"] == {"a": 2, "b": 2, "c": 0}

    second = f.plan("careful-2", {"name": "fedaf", "sync": "stale", **fast}, rounds=1, cohort=NAMED)
    f.submit(second)
    f.wait(lambda: len(f.ask("node", "plans", "--dir", folder)["plans"]) == 2)
    f.ask("node", "approve", second.digest(), "--dir", folder)
    held = f.wait(lambda: [r for r in _releases(f, "node-0") if r["state"] == "held"])[0]
    f.ask("node", "refuse", held["release"], "--reason", "images look like people", "--dir", folder)
    view = f.finish(second, "ABORTED")
    assert view["nodes"]["missing"] == ["node-0"]
    assert f.ask("node", "verify-log", "--dir", folder)["releases"] == 2


def _releases(federation: Any, node: str) -> Any:
    return federation.ask("node", "releases", "--dir", federation.root / node)["releases"]
