"""``fedsecure demo --dp``: ledgers, labels and accuracies with and without are of one run over real daemons. The run
itself, a minute and a half, is made with FEDSECURE_EXHAUSTIVE=1 alone (``make test-exhaustive``); private runs over
daemons are tested as a rule in ``tests/integration/daemons``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def demo(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fedsecure", "demo", *words],
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.skipif(os.environ.get("FEDSECURE_EXHAUSTIVE") != "1", reason="a minute and a half: FEDSECURE_EXHAUSTIVE=1")
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_demonstration_with_differential_privacy(tmp_path: Path) -> None:
    done = demo("--dp", "8", "--rounds", "1", "--nodes", "2", "--json", "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout)
    private, plain = (result["methods"][name] for name in ("fedaf-dp", "fedaf"))
    assert result["dp"]["accuracy"] == {"with": private["final_accuracy"], "without": plain["final_accuracy"]}
    assert 0.5 < private["final_accuracy"] < plain["final_accuracy"] + 0.1
    spent = []
    for node in result["nodes"].values():
        budget = node["budget"]
        assert budget["cap"] == 8.0
        assert budget["delta"] == pytest.approx(1 / (10 * node["records"]))
        spent.append(budget["epsilon"])
        of = {key: [r for r in node["releases"] if r["plan"]["name"].endswith("-dp") == key] for key in (True, False)}
        assert {r["guarantee"]["label"] for r in of[True]} == {"dp"}
        assert max(r["guarantee"]["epsilon"] for r in of[True]) == pytest.approx(budget["epsilon"])
        assert {r["guarantee"]["label"] for r in of[False]} == {"none"}
        assert budget["unprotected"] == len(of[False])
    assert 0.99 * 8 < max(spent) <= 8


@pytest.mark.parametrize(("asked", "said"), [("0.001", "--dp 0.001: out of range"), ("0.1", "no noise is enough")])
def test_a_budget_that_nothing_fits_into_is_refused(tmp_path: Path, asked: str, said: str) -> None:
    done = demo("--dp", asked, "--out", str(tmp_path / "out"))
    assert done.returncode == 3
    assert said in done.stderr
