"""One thread for torch in every test process: tests run side by side, and results do not depend on the core count."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

import pytest

from fedsecure.plan import Plan


@pytest.fixture(scope="session")
def sum_plan() -> Callable[..., Plan]:
    """Makes a plan of two rounds for nodes a, b and c, with the given keys changed: for coordinators with a toy method
    that sums vectors."""

    def make(**changes: Any) -> Plan:
        raw = {
            "format": 1,
            "name": "sum",
            "rounds": 2,
            "seed": 5,
            "task": {"kind": "image", "classes": ["a", "b"], "shape": [1, 8, 8]},
            "model": {"name": "mlp"},
            "method": {"name": "fedavg", "local_epochs": 1},
            "cohort": {"min_nodes": 2, "nodes": ["a", "b", "c"]},
            "deadlines": {"join": 60.0, "exchange": 30.0},
        }
        return Plan.model_validate({**raw, **changes}, strict=False)

    return make
