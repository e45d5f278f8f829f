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


def write_plans(root: Path, method: str, nodes: int) -> tuple[list[Plan], Simulation]:
    """Write ``plans/digits-<method>.toml`` and FedAvg's beside it; returns them, and how the records are dealt out."""
    from fedsecure.errors import ConfigError
    from fedsecure.plan import load_plan
    from fedsecure.plan.examples import read_example

    (root / "plans").mkdir()
    plans, simulation = [], None
    for name in dict.fromkeys((method, "fedavg")):
        raw = tomllib.loads(read_example(f"digits-{name}"))
        raw["simulation"]["partition"]["nodes"] = nodes
        raw["cohort"] = {"min_nodes": nodes, "nodes": [f"node-{i + 1:0{len(str(nodes))}d}" for i in range(nodes)]}
        raw["deadlines"] = {"join": 300.0, "exchange": 600.0}
        raw["randomness"] = "plan"  # so that the demonstration comes out the same every time
        path = root / "plans" / f"digits-{name}.toml"
        path.write_text(tomli_w.dumps(raw), encoding="utf-8")
        plan, simulation = load_plan(path)
        plans.append(plan)
    if simulation is None:
        raise ConfigError("the packaged example plans have no [simulation] table")
    return plans, simulation
