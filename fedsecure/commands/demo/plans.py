"""The plan files of a demonstration: the packaged examples, for a given number of nodes."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import tomli_w

if TYPE_CHECKING:
    from fedsecure.data.settings import Simulation
    from fedsecure.plan import Plan

__all__ = ["write_plans"]

#: method -> the packaged examples that its demonstration runs.
EXAMPLES = {
    "fedaf": ("digits-fedaf", "digits-fedavg"),
    "feddm": ("digits-feddm", "digits-fedavg"),
    "fedavg": ("digits-fedavg",),
    "fedspm": ("digits-fedspm", "digits-dual-fedavg"),
}


def write_plans(root: Path, method: str, nodes: int) -> tuple[list[Plan], Simulation]:
    """Write the method's plan and FedAvg's beside it to ``plans/``; returns them, and how the records are dealt out."""
    from fedsecure.errors import ConfigError
    from fedsecure.plan import load_plan
    from fedsecure.plan.examples import read_example

    (root / "plans").mkdir()
    plans, simulation = [], None
    for name in EXAMPLES[method]:
        raw = tomllib.loads(read_example(name))
        raw["simulation"]["partition"]["nodes"] = nodes
        raw["cohort"] = {"min_nodes": nodes, "nodes": [f"node-{i + 1:0{len(str(nodes))}d}" for i in range(nodes)]}
        raw["deadlines"] = {"join": 300.0, "exchange": 600.0}
        raw["randomness"] = "plan"  # so that the demonstration comes out the same every time
        path = root / "plans" / f"{name}.toml"
        path.write_text(tomli_w.dumps(raw), encoding="utf-8")
        plan, simulation = load_plan(path)
        plans.append(plan)
    if simulation is None:
        raise ConfigError("the packaged example plans have no [simulation] table")
    return plans, simulation
