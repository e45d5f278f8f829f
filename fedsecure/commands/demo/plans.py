"""The plan files of a demonstration: the packaged examples, for a given number of nodes, and privately."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

if TYPE_CHECKING:
    from fedsecure.data.dataset import Dataset
    from fedsecure.data.settings import Simulation
    from fedsecure.plan import Plan

__all__ = ["key_of", "write_plans", "write_private"]

#: method -> the packaged examples that its demonstration runs.
EXAMPLES = {
    "fedaf": ("digits-fedaf", "digits-fedavg"),
    "feddm": ("digits-feddm", "digits-fedavg"),
    "fedavg": ("digits-fedavg",),
    "fedspm": ("digits-fedspm", "digits-dual-fedavg"),
}
#: method -> the table [privacy] of its demonstration with differential privacy, but for sigma.
PRIVACY: dict[str, dict[str, Any]] = {
    "fedaf": {"kind": "release"},
    "feddm": {"kind": "release"},
    "fedavg": {"kind": "dp-sgd", "batch": 64, "steps": 60},
    "fedspm": {"kind": "dp-sgd", "batch": 64, "steps": 30},
}


def key_of(plan: Plan) -> str:
    """What a plan's results are called: its method, and whether it is private."""
    return plan.method.name if plan.privacy is None else f"{plan.method.name}-dp"


def write_plans(
    root: Path, method: str, nodes: int, *, rounds: int = 0, alone: bool = False
) -> tuple[list[Plan], Simulation]:
    """Write the method's plan and, unless it is wanted ``alone``, FedAvg's beside it to ``plans/``; returns them, and
    how the records are dealt out. ``rounds``: 0 for the examples' own."""
    from fedsecure.errors import ConfigError
    from fedsecure.plan import load_plan
    from fedsecure.plan.examples import read_example

    (root / "plans").mkdir()
    plans, simulation = [], None
    for name in EXAMPLES[method][: 1 if alone else None]:
        raw = tomllib.loads(read_example(name))
        raw["simulation"]["partition"]["nodes"] = nodes
        raw["cohort"] = {"min_nodes": nodes, "nodes": [f"node-{i + 1:0{len(str(nodes))}d}" for i in range(nodes)]}
        raw["deadlines"] = {"join": 900.0, "exchange": 600.0}
        raw["rounds"] = rounds or raw["rounds"]
        raw["randomness"] = "plan"  # so that the demonstration comes out the same every time
        path = root / "plans" / f"{name}.toml"
        path.write_text(tomli_w.dumps(raw), encoding="utf-8")
        plan, simulation = load_plan(path)
        plans.append(plan)
    if simulation is None:
        raise ConfigError("the packaged example plans have no [simulation] table")
    return plans, simulation


def write_private(root: Path, plan: Plan, nodes: Mapping[str, Dataset], epsilon: float) -> Plan:
    """Write the same plan with differential privacy to ``plans/``, beside it; returns it. Its noise is the least with
    which the whole of it costs no node, each with its own number of records, more than ``epsilon``, and which the
    nodes' policies allow.

    Raises ``ConfigError`` where no noise is enough."""
    from fedsecure.errors import ConfigError
    from fedsecure.plan import load_plan
    from fedsecure.privacy.calibration import sigma_for_all
    from fedsecure.privacy_rules import PrivacyRules

    raw = tomllib.loads((root / "plans" / f"{plan.name}.toml").read_text(encoding="utf-8"))
    raw["name"] = f"{plan.name}-dp"
    raw["privacy"] = {"sigma": 1.0, **PRIVACY[plan.method.name]}
    path = root / "plans" / f"{raw['name']}.toml"
    path.write_text(tomli_w.dumps(raw), encoding="utf-8")
    counts = {node: tuple(int(count) for count in data.counts()) for node, data in nodes.items()}
    sigma = sigma_for_all(load_plan(path)[0], counts, epsilon)
    if math.isinf(sigma):
        raise ConfigError(
            f"--dp {epsilon:g}: no noise is enough, for counting these few records alone costs more",
            hint="ask for 0.5 or more",
        )
    raw["privacy"]["sigma"] = max(sigma, PrivacyRules().min_sigma)
    path.write_text(tomli_w.dumps(raw), encoding="utf-8")
    return load_plan(path)[0]
