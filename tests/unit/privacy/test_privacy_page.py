"""The tables of docs/privacy.md are what the code says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from fedsecure.config import validate
from fedsecure.plan import Plan
from fedsecure.privacy.accounting import default_delta, epsilon, quick_epsilon
from fedsecure.privacy.calibration import with_sigma
from fedsecure.privacy.costs import plan_spends
from fedsecure.privacy.spend import Spend

PAGE = Path(__file__).resolve().parents[3] / "docs" / "privacy.md"


def table(name: str) -> tuple[list[str], list[list[float]]]:
    """The head and the rows of the table behind ``<!-- costs: name -->``."""
    text = PAGE.read_text(encoding="utf-8")
    block = text[text.index(f"<!-- costs: {name} -->") :].split("\n\n")[0]
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()[1:]]
    return head, [[float(cell.replace(",", "")) for cell in row] for row in rows]


def sigmas(head: list[str]) -> list[float]:
    return [float(re.sub("^sigma ", "", cell)) for cell in head[1:]]


def spends(method: dict[str, Any], privacy: dict[str, Any], rounds: int, sigma: float, records: int) -> list[Spend]:
    raw = {
        "format": 1,
        "name": "p",
        "rounds": rounds,
        "task": {"kind": "image", "classes": ["0", "1"], "shape": [1, 8, 8]},
        "model": {"name": "convnet", "depth": 2},
        "method": method,
        "cohort": {"nodes": ["a", "b"], "min_nodes": 2},
        "privacy": {"sigma": 1.0, **privacy},
    }
    plan = with_sigma(validate(Plan, raw, "plan"), sigma)
    return list(plan_spends(plan, records, (records // 2, records - records // 2)))


def test_releases_over_all_records() -> None:
    head, rows = table("release")
    assert len(rows) == 5
    for rounds, *told in rows:
        for sigma, value in zip(sigmas(head), told, strict=True):
            found = epsilon(spends({"name": "fedaf"}, {"kind": "release"}, int(rounds), sigma, 1000), 1e-4)
            assert value == float(f"{found:.3g}")


SGD: tuple[dict[str, Any], dict[str, Any], int] = (
    {"name": "fedspm"},
    {"kind": "dp-sgd", "batch": 128, "steps": 15},
    200,
)


def test_steps_on_batches() -> None:
    """Each by the quick bound, which is up to a fifth above; one by the accountant that told them."""
    head, rows = table("dp-sgd")
    assert len(rows) == 4
    for records, *told in rows:
        for sigma, value in zip(sigmas(head), told, strict=True):
            above = quick_epsilon(spends(*SGD, sigma, int(records)), default_delta(int(records)))
            assert 0.8 * above < value <= 1.005 * above
    (row,) = [row for row in rows if row[0] == 6000]
    found = epsilon(spends(*SGD, 1.0, 6000), default_delta(6000))
    assert row[1 + sigmas(head).index(1.0)] == pytest.approx(found, rel=0.005)


def test_mechanism_a_against_b() -> None:
    _, rows = table("per-step")
    assert len(rows) == 4
    per_step = {"name": "fedaf", "steps": 1000}
    for of_class, a, b in rows:
        records = 2 * int(of_class)
        found = epsilon(spends({"name": "fedaf"}, {"kind": "release"}, 20, 5.0, records), default_delta(records))
        assert a == float(f"{found:.3g}")
        above = quick_epsilon(spends(per_step, {"kind": "per-step"}, 20, 5.0, records), default_delta(records))
        assert 0.8 * above < b <= 1.005 * above
