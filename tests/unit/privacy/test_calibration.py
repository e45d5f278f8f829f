"""The noise that a plan needs for a given epsilon: enough, and hardly more than enough."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fedsecure.config import validate
from fedsecure.plan import Plan
from fedsecure.privacy.accounting import default_delta, epsilon
from fedsecure.privacy.calibration import sigma_for, sigma_for_all, with_sigma
from fedsecure.privacy.costs import plan_spends
from fedsecure.privacy.spend import Spend

RELEASE = ({"name": "fedaf"}, {"kind": "release", "sigma": 5.0})
SGD = ({"name": "fedavg", "local_steps": 1}, {"kind": "dp-sgd", "sigma": 5.0, "batch": 64, "steps": 5})


def plan(method: dict[str, Any], privacy: dict[str, Any] | None) -> Plan:
    raw = {
        "format": 1,
        "name": "p",
        "rounds": 4,
        "task": {"kind": "image", "classes": ["0", "1"], "shape": [1, 8, 8]},
        "model": {"name": "convnet", "depth": 2},
        "method": method,
        "cohort": {"nodes": ["a", "b"], "min_nodes": 2},
        **({"privacy": privacy} if privacy else {}),
    }
    return validate(Plan, raw, "plan")


def cost(asked: Plan, sigma: float, counts: tuple[int, ...], history: tuple[Spend, ...] = ()) -> float:
    records = sum(counts)
    return epsilon((*history, *plan_spends(with_sigma(asked, sigma), records, counts)), default_delta(records))


@pytest.mark.parametrize(("parts", "cap"), [(RELEASE, 0.7), (RELEASE, 20.0), (SGD, 3.0)])
def test_the_least_noise_that_fits_is_found(parts: tuple[dict[str, Any], dict[str, Any]], cap: float) -> None:
    asked, counts = plan(*parts), (300, 200)
    sigma = sigma_for(asked, 500, counts, cap, default_delta(500))
    assert 0.99 * cap < cost(asked, sigma, counts) <= cap
    assert sigma_for(with_sigma(asked, 0.01), 500, counts, cap, default_delta(500)) == sigma


def test_what_was_spent_before_leaves_less() -> None:
    asked, counts, before = plan(*RELEASE), (300, 200), (Spend(2.0, 1.0, 1),)
    sigma = sigma_for(asked, 500, counts, 3.0, default_delta(500), before)
    assert sigma > sigma_for(asked, 500, counts, 3.0, default_delta(500))
    assert cost(asked, sigma, counts, before) <= 3.0


def test_no_noise_is_enough_once_the_counting_passes_the_cap() -> None:
    assert sigma_for(plan(*RELEASE), 500, (300, 200), 0.01, default_delta(500)) == math.inf


def test_the_smallest_node_decides_for_all() -> None:
    asked, nodes = plan(*SGD), {"a": (300, 200), "b": (60, 60)}
    sigma = sigma_for_all(asked, nodes, 5.0, default_delta)
    assert sigma == sigma_for(asked, 120, (60, 60), 5.0, default_delta(120))
    assert cost(asked, sigma, (300, 200)) < cost(asked, sigma, (60, 60)) <= 5.0


def test_a_plan_without_privacy_has_no_noise() -> None:
    with pytest.raises(ValueError, match="no differential privacy"):
        sigma_for(plan(RELEASE[0], None), 500, (300, 200), 1.0, 1e-4)
