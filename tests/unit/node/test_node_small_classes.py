"""Records of classes below the institution's floor take part in nothing: no method sees them, no count holds them."""

from __future__ import annotations

import numpy as np

from fedsecure.config import validate
from fedsecure.data.dataset import Dataset
from fedsecure.policy import Policy
from fedsecure_node.plans.localdata import taking_part


def policy(**plans: object) -> Policy:
    return validate(Policy, {"format": 1, "plans": plans}, "policy")


def test_records_of_small_classes_take_no_part_whatever_the_method() -> None:
    y = np.array([0, 1, 0, 2, 0, 1], dtype=np.int64)
    data = Dataset(np.arange(6, dtype=np.float32).reshape(6, 1), y, ("a", "b", "c"))
    rules = policy(min_records_per_class=2)
    kept = taking_part(data, rules.plans.min_records_per_class)
    assert kept.y.tolist() == [0, 1, 0, 0, 1]
    assert kept.x[:, 0].tolist() == [0, 1, 2, 4, 5]
    assert kept.classes == data.classes
    assert len(taking_part(data, policy().plans.min_records_per_class)) == 0  # ten of a class are the default
    assert taking_part(data, 1) is data
