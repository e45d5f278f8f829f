"""The schema is the coordinator's parser and the node's allow-list: what it does not name does not pass."""

from __future__ import annotations

import numpy as np
import pytest

from fedsecure.errors import DataError
from fedsecure.method import sum_contributions
from fedsecure.schema import Axis, Contribution, Schema, TensorSpec
from fedsecure.tensors import Tensors

ITEMS = Axis("items", 1, 4)
SCHEMA = Schema(
    summed=(TensorSpec("total", "float64", (2,), -10, 10, "a sum"),),
    released=(
        TensorSpec("images", "float32", (ITEMS, 3), -1, 1, "images"),
        TensorSpec("labels", "int64", (ITEMS,), 0, 9, "labels"),
    ),
)


def contribution(**changes: np.ndarray | None) -> Contribution:
    released = {"images": np.zeros((2, 3), np.float32), "labels": np.zeros(2, np.int64)}
    summed = {"total": np.zeros(2)}
    for name, array in changes.items():
        half = summed if name == "total" else released
        if array is None:
            del half[name]
        else:
            half[name] = array
    return Contribution(Tensors(summed), Tensors(released))


def test_accepts_what_it_names() -> None:
    SCHEMA.check(contribution())
    assert SCHEMA.max_nbytes == 16 + 4 * 3 * 4 + 4 * 8


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"extra": np.zeros(1, np.float32)}, "tensor extra: not named"),
        ({"labels": None}, "tensor labels: .*missing"),
        ({"images": np.zeros((2, 3))}, "tensor images: dtype float64 where float32"),
        ({"images": np.zeros((2, 4), np.float32)}, r"tensor images: shape \[2, 4\]"),
        ({"images": np.zeros((5, 3), np.float32), "labels": np.zeros(5, np.int64)}, "tensor images: shape"),
        ({"images": np.zeros((0, 3), np.float32), "labels": np.zeros(0, np.int64)}, "tensor images: shape"),
        ({"labels": np.zeros(3, np.int64)}, r"tensor labels: shape \[3\]"),
        ({"labels": np.zeros((2, 1), np.int64)}, "tensor labels: shape"),
        ({"images": np.full((2, 3), np.nan, np.float32)}, "tensor images: 6 of 6 values are not finite"),
        ({"images": np.full((2, 3), np.inf, np.float32)}, "not finite"),
        ({"images": np.full((2, 3), 1.5, np.float32)}, "tensor images: values 1.5..1.5 outside -1..1"),
        ({"labels": np.array([0, 10])}, "tensor labels: values 0..10 outside 0..9"),
        ({"total": np.array([0.0, -11.0])}, "tensor total: values"),
    ],
)
def test_refuses_everything_else_naming_the_tensor(changes: dict[str, np.ndarray | None], says: str) -> None:
    with pytest.raises(DataError, match=says):
        SCHEMA.check(contribution(**changes))


def test_the_sum_is_in_node_order_and_float64() -> None:
    parts = {
        n: Contribution(Tensors({"x": np.array([v], np.float32)})) for n, v in (("b", 1e8), ("a", 1.0), ("c", -1e8))
    }
    aggregate = sum_contributions(parts)
    assert aggregate.contributors == ("a", "b", "c")
    assert aggregate.summed["x"].dtype == np.float64
    assert aggregate.summed["x"][0] == 1.0
    assert sum_contributions(dict(reversed(parts.items()))).summed == aggregate.summed


def test_summing_nothing_is_an_error() -> None:
    with pytest.raises(DataError, match="no contribution"):
        sum_contributions({})
