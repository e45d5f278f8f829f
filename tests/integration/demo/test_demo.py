"""``fedsecure demo`` keeps what README promises of it: the comparison, the artefacts, and no key left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image

from fedsecure.tensors import Tensors


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_demonstration(tmp_path: Path) -> None:
    out = tmp_path / "demo with spaces é"
    done = subprocess.run(
        [sys.executable, "-m", "fedsecure", "demo", "--json", "--out", str(out)],
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    fedaf, fedavg = (result["methods"][name] for name in ("fedaf", "fedavg"))
    first = [m["rounds"][0]["accuracy"] for m in (fedaf, fedavg)]
    assert first[0] >= first[1] + 0.25
    assert fedaf["final_accuracy"] >= 0.90
    assert fedaf["final_accuracy"] > fedavg["final_accuracy"]
    assert len(fedaf["rounds"]) == len(fedavg["rounds"]) == 3

    assert len(result["nodes"]) == 3
    for node in result["nodes"].values():
        assert node["bytes_up"] == sum(r["payload"]["bytes"] for r in node["releases"])
        assert node["labels"] == ["none"]
        assert node["log"]["verified"] is True
        assert {r["state"] for r in node["releases"]} == {"acknowledged"}
    previews = [Path(p) for name, p in result["artefacts"].items() if name.startswith("preview.")]
    assert len([p for p in previews if p.suffix == ".html"]) == 3 * (3 * 2 + 3)
    for name, place in result["artefacts"].items():
        path = Path(place)
        assert path.exists(), name
        if path.suffix == ".png":
            with Image.open(path) as image:
                image.load()
        elif path.suffix == ".html":
            HTMLParser().feed(path.read_text(encoding="utf-8"))
        elif path.suffix == ".safetensors":
            assert len(Tensors.from_bytes(path.read_bytes())) > 0
    assert json.loads((out / "result.json").read_text(encoding="utf-8")) == result
    assert not list(out.rglob("*.key"))


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    done = subprocess.run(
        [sys.executable, "-m", "fedsecure", "demo", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 3
    assert "not made by a demonstration" in done.stderr
    assert (tmp_path / "thesis.txt").read_text() == "mine"


@pytest.mark.skipif(os.environ.get("FEDSECURE_EXHAUSTIVE") != "1", reason="three minutes: FEDSECURE_EXHAUSTIVE=1")
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_demonstration_of_fedspm(tmp_path: Path) -> None:
    out = tmp_path / "fedspm"
    done = subprocess.run(
        [sys.executable, "-m", "fedsecure", "demo", "--method", "fedspm", "--json", "--out", str(out)],
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    fedspm, fedavg = (result["methods"][name] for name in ("fedspm", "fedavg"))
    assert fedspm["final_system_accuracy"] >= fedavg["final_system_accuracy"] + 0.10
    assert fedspm["final_routing_accuracy"] >= 0.95
    assert len(result["nodes"]) == 4
    assert len(result["routed"]["examples"]) == 10
    assert sum(node["answers"] for node in result["nodes"].values()) == result["routed"]["queries"]
    for node in result["nodes"].values():
        assert node["log"]["verified"] is True
        assert sum(e["records"] for e in node["queries"] if e["answered"]) == node["answers"]
    assert not list(out.rglob("*.key"))
    assert all(Path(place).exists() for place in result["artefacts"].values())
