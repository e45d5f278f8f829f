"""One record is a record, wherever records are counted for people."""

from __future__ import annotations

import numpy as np
import pytest

from fedsecure.data.check import check_dataset
from fedsecure.data.dataset import Dataset
from fedsecure.errors import PolicyError
from fedsecure.plan import Plan
from fedsecure.policy import Policy
from fedsecure_node.cli.queries import _line
from fedsecure_node.log.queries import Entry

PLAN = {
    "format": 1,
    "name": "p",
    "rounds": 1,
    "task": {"kind": "image", "classes": ["a", "b"], "shape": [1, 4, 4]},
    "model": {"name": "mlp"},
    "method": {"name": "fedavg", "local_epochs": 1},
    "cohort": {"min_nodes": 2},
}


@pytest.mark.parametrize(("records", "said"), [(1, "1 record after"), (2, "2 records after")])
def test_limits_of_queries(records, said):
    policy = Policy.model_validate(
        {"format": 1, "prediction": {"analysts": ["dr-weber"], "max_records_per_hour": 5}}, strict=False
    )
    with pytest.raises(PolicyError, match=f": {said} 5 of"):
        policy.check_query("dr-weber", records, 5)


def test_the_list_of_queries():
    body = {
        "analyst": "dr-weber", "plan": {"name": "toy"}, "form": "sealed", "unlogged": 0, "verified": True,
        "guarantee": {"label": "none"}, "answer": {"sha256": "0" * 64},
    }  # fmt: skip
    for records, said in ((1, ": 1 record, toy"), (3, ": 3 records, toy")):
        assert said in _line(Entry(1, "2026-01-01T00:00:00", True, {**body, "records": records}))


def test_the_check_of_records():
    x = np.random.default_rng(0).random((40, 1, 4, 4), dtype=np.float32)
    y = np.arange(40) % 2
    x[2], x[3] = x[0], x[5]  # one repeats its class's, and one another's
    y[3], x[7] = 0, 0.5
    report = check_dataset(Dataset(x, y, ("a", "b")), Plan.model_validate(PLAN, strict=False))
    words = " ".join(report.warnings)
    assert "1 record repeats an earlier record" in words
    assert "1 record equals an earlier record of another class" in words
    assert "1 record is one constant value" in words
