"""The policy's rules for differential privacy: each refusal names its rule."""

from __future__ import annotations

from typing import Any

import pytest

from fedsecure.config import validate
from fedsecure.errors import ConfigError
from fedsecure.plan import Plan
from fedsecure.policy import Policy

SGD = {"kind": "dp-sgd", "sigma": 1.0}


def plan(privacy: dict[str, Any] | None, method: dict[str, Any] | None = None) -> Plan:
    raw = {
        "format": 1,
        "name": "p",
        "rounds": 3,
        "task": {"kind": "image", "classes": ["0", "1"], "shape": [1, 8, 8]},
        "model": {"name": "convnet", "depth": 2},
        "method": method or {"name": "fedavg", "local_steps": 1},
        **({"privacy": privacy} if privacy else {}),
    }
    return validate(Plan, raw, "plan")


def broken(asked: Plan, **rules: Any) -> list[str]:
    policy = {
        "format": 1,
        "plans": {"methods": ["fedavg", "fedaf"]},
        "privacy": rules,
        "condensation": {"fresh_queries": True},
    }
    return validate(Policy, policy, "policy").violations(asked)


def test_a_budget_is_spent_only_where_the_institution_sets_one() -> None:
    (line,) = broken(plan(SGD))
    assert line.startswith("privacy.epsilon: spends a budget that this policy does not set")
    assert broken(plan(SGD), epsilon=8.0) == []
    assert broken(plan(None)) == []


def test_a_policy_can_ask_for_differential_privacy() -> None:
    assert broken(plan(None), required=True) == [
        "privacy.required: no differential privacy (allowed: a plan with [privacy])"
    ]
    assert broken(plan(SGD), required=True, epsilon=8.0) == []


@pytest.mark.parametrize(
    ("privacy", "method", "rule"),
    [
        ({"kind": "per-step", "sigma": 9.0}, {"name": "fedaf"}, "privacy.mechanisms: per-step (allowed: dp-sgd, rele"),
        ({**SGD, "noise": "torch"}, None, "privacy.noise: torch (allowed: csprng, discrete)"),
        ({**SGD, "sigma": 0.49}, None, "privacy.min_sigma: sigma 0.49 (allowed: >= 0.5)"),
        ({**SGD, "mixing_sigma": 0.3}, None, "privacy.min_sigma: mixing_sigma 0.3 (allowed: >= 0.5)"),
    ],
)
def test_weaker_protection_is_refused_naming_the_rule(
    privacy: dict[str, Any], method: dict[str, Any] | None, rule: str
) -> None:
    (line,) = broken(plan(privacy, method), epsilon=8.0)
    assert line.startswith(rule)
    allowed = {"mechanisms": ["dp-sgd", "per-step"], "noise": ["torch", "csprng"], "min_sigma": 0.1}
    assert broken(plan(privacy, method), epsilon=8.0, **allowed) == []


def test_counting_is_held_to_the_least_noise_as_well() -> None:
    assert broken(plan({**SGD, "sigma": 30.0}), epsilon=8.0, min_sigma=12.0) == [
        "privacy.min_sigma: count_sigma 10 (allowed: >= 12)"
    ]


@pytest.mark.parametrize(
    "rules", [{"epsilon": 0.0}, {"epsilon": -1.0}, {"delta": 1.0}, {"delta": 0.0}, {"noise": ["none"]}, {"cap": 8.0}]
)
def test_rules_that_are_none(rules: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"privacy\."):
        broken(plan(SGD), **rules)
