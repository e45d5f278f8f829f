"""What ``plan show`` lists: every column, class and analyst, or how many more there are."""

from __future__ import annotations

import pytest

from fedsecure.methods import build_method
from fedsecure.plan import Plan
from fedsecure.policy import Policy
from fedsecure_node.plans.describe import MOST_NAMES, describe


def a_plan(columns: int, classes: int) -> Plan:
    number = {"kind": "numeric", "low": 0.0, "high": 1.0, "mean": 0.0, "std": 1.0}
    raw = {
        "format": 1,
        "name": "p",
        "rounds": 1,
        "task": {
            "kind": "table",
            "classes": [f"class-{i}" for i in range(classes)],
            "columns": [{**number, "name": f"column-{i}"} for i in range(columns)],
        },
        "model": {"name": "mlp", "hidden": [4]},
        "method": {"name": "fedspm"},
        "cohort": {"min_nodes": 3, "nodes": ["a", "b", "c"]},
    }
    return Plan.model_validate(raw, strict=False)


def said(plan: Plan, begin: str, policy: Policy | None = None) -> str:
    (line,) = (line for line in describe(plan, policy, build_method(plan)) if line.startswith(begin))
    return line


@pytest.mark.parametrize("count", [13, 21, MOST_NAMES])
def test_nothing_is_left_out_in_silence(count: int) -> None:
    plan = a_plan(count, count)
    assert f"rows of {count} columns (column-0, " in said(plan, "records: ")
    for begin, name in (("records: ", "column"), ("classes (", "class")):
        assert all(f"{name}-{i}" in said(plan, begin) for i in range(count))
        assert "more" not in said(plan, begin)
    policy = Policy.model_validate(
        {"format": 1, "prediction": {"analysts": [f"dr-{i}" for i in range(count)]}}, strict=False
    )
    assert f", dr-{count - 1} may ask" in said(plan, "after the run: ", policy)


def test_what_is_too_much_for_a_line_is_counted() -> None:
    plan = a_plan(MOST_NAMES + 3, MOST_NAMES + 2)
    assert said(plan, "records: ").endswith(f"column-{MOST_NAMES - 1} and 3 more)")
    assert said(plan, "classes (").endswith(f"class-{MOST_NAMES - 1} and 2 more")
