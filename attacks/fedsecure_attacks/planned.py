"""A plan with the records that its simulation deals out: what an audit of a run makes runs from."""

from __future__ import annotations

from pathlib import Path

from fedsecure.data.check import check_dataset
from fedsecure.data.partition import Dealt, deal
from fedsecure.errors import ConfigError, DataError
from fedsecure.files import shown
from fedsecure.plan import Plan, load_plan

__all__ = ["load_run"]


def load_run(path: Path) -> tuple[Plan, Dealt]:
    """The plan in ``path``, and its records. Raises ``ConfigError`` or ``DataError`` naming what is wrong."""
    if path.is_dir():
        raise ConfigError(
            f"{shown(path)}: a folder, but runs are made anew from a plan",
            hint="name the plan file that was simulated, the one with a [simulation] table",
        )
    plan, simulation = load_plan(path)
    if simulation is None:
        raise ConfigError(f"{shown(path)}: no [simulation] table", hint="name its data and partition; see docs/data.md")
    dealt = deal(simulation, plan.task, plan.seed)
    if plan.cohort.nodes and set(plan.cohort.nodes) != set(dealt.train):
        raise ConfigError(
            f"{shown(path)}: cohort.nodes does not name the nodes that records are dealt to ({', '.join(dealt.train)})"
        )
    if len(dealt.train) < plan.cohort.min_nodes:
        raise ConfigError(
            f"{shown(path)}: records are dealt to {len(dealt.train)} nodes, but cohort.min_nodes is "
            f"{plan.cohort.min_nodes}"
        )
    for node, data in dealt.train.items():
        try:
            check_dataset(data, plan)
        except DataError as error:
            raise DataError(f"node {node}: {error}", hint=error.hint) from None
    return plan, dealt
