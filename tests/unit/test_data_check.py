"""Records against the plan, and the report that stays on the node."""

import json
from typing import Any

import numpy as np
import pytest

from fedsecure.config import validate
from fedsecure.data.check import DataReport, check_dataset
from fedsecure.data.dataset import Dataset
from fedsecure.errors import DataError
from fedsecure.plan import Plan


def plan(method: dict[str, Any] | None = None, task: dict[str, Any] | None = None) -> Plan:
    images = {"kind": "image", "classes": ["a", "b", "c"], "shape": [1, 8, 8]}
    raw = {
        "format": 1, "name": "test", "rounds": 1, "task": task or images,
        "model": {"name": "mlp"}, "method": method or {"name": "fedaf", "ipc": 2, "min_count": 5},
    }  # fmt: skip
    return validate(Plan, raw, "plan.toml")


FEDAVG = {"name": "fedavg", "local_epochs": 1}


def data(counts: tuple[int, ...] = (6, 7, 8), shape: tuple[int, ...] = (1, 8, 8)) -> Dataset:
    y = np.repeat(np.arange(len(counts)), counts).astype(np.int64)
    return Dataset(np.random.default_rng(0).random((len(y), *shape), dtype=np.float32), y, ("a", "b", "c"))


def altered(row: int, value: float) -> Dataset:
    whole = data()
    x = whole.x.copy()
    x[row, 0, 3, 3] = value
    return Dataset(x, whole.y, whole.classes)


def test_a_good_data_set() -> None:
    report = check_dataset(data(), plan())
    assert report.records == 21
    assert report.counts == {"a": 6, "b": 7, "c": 8}
    assert (report.held, report.below_floor, report.absent) == (("a", "b", "c"), (), ())
    assert (report.constant, report.duplicates, report.contradictions, report.warnings) == (0, 0, 0, ())
    assert report.plan == plan().digest()


def test_classes_below_the_floor_and_absent() -> None:
    report = check_dataset(data((6, 4, 0)), plan())
    assert (report.held, report.below_floor, report.absent) == (("a",), ("b",), ("c",))
    text = "\n".join(report.lines())
    assert "below the floor of 5 records" in text
    assert "b (4)" in text
    assert "one class only takes part: a" in text
    assert "classes not held here: c" in text


def test_no_class_reaches_the_floor() -> None:
    with pytest.raises(DataError, match=r"no class has 5 records \(method\.min_count\).*a: 4, c: 2"):
        check_dataset(data((4, 0, 2)), plan())
    assert check_dataset(data((4, 0, 2)), plan(FEDAVG)).held == ("a", "c")


def test_more_condensed_images_than_records() -> None:
    report = check_dataset(data(), plan({"name": "feddm", "ipc": 7, "min_count": 5}))
    assert any("no more records than the 7 condensed images made of them: a, b" in w for w in report.warnings)


def test_an_empty_data_set() -> None:
    with pytest.raises(DataError, match="the data set is empty"):
        check_dataset(data((0, 0, 0)), plan())


def test_another_shape() -> None:
    with pytest.raises(DataError, match=r"shape \[1, 8, 9\] where the plan asks for \[1, 8, 8\]"):
        check_dataset(data(shape=(1, 8, 9)), plan())


def test_other_classes() -> None:
    whole = data()
    with pytest.raises(DataError, match="read for classes 'a', 'c', 'b'; the plan has 'a', 'b', 'c'"):
        check_dataset(Dataset(whole.x, whole.y, ("a", "c", "b")), plan())


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite(value: float) -> None:
    with pytest.raises(DataError, match="record 17 holds values that are not finite"):
        check_dataset(altered(17, value), plan())


@pytest.mark.parametrize("value", [-0.001, 1.001, 255.0])
def test_values_out_of_range(value: float) -> None:
    with pytest.raises(DataError, match=r"record 17 has values outside \[0, 1\]"):
        check_dataset(altered(17, value), plan())


def test_faults_beyond_the_first_chunk() -> None:
    x = np.zeros((10_000, 1, 8, 8), np.float32)
    x[9_000] = 2
    with pytest.raises(DataError, match="record 9000 has"):
        check_dataset(Dataset(x, np.zeros(10_000, np.int64), ("a", "b", "c")), plan())


def test_blank_repeated_and_contradicting_records() -> None:
    whole = data()
    x = whole.x.copy()
    x[1] = 0.25  # class a, blank
    x[2] = x[0]  # class a twice
    x[7] = x[0]  # class b, the same picture
    report = check_dataset(Dataset(x, whole.y, whole.classes), plan())
    assert (report.constant, report.duplicates, report.contradictions) == (1, 1, 1)
    assert len(report.warnings) == 3


def test_all_values_equal() -> None:
    whole = data()
    report = check_dataset(Dataset(np.zeros_like(whole.x), whole.y, whole.classes), plan())
    assert "all values of all records are equal" in report.warnings


TABLE = {
    "kind": "table", "classes": ["a", "b", "c"], "columns": [
        {"kind": "numeric", "name": "age", "low": 10, "high": 90, "mean": 50, "std": 20, "missing": "indicator"},
        {"kind": "categorical", "name": "sex", "levels": ["f", "m"], "missing": "level"},
        {"kind": "numeric", "name": "dose", "low": 1, "high": 3, "mean": 0.1, "std": 0.3},
    ],
}  # fmt: skip


def test_encoded_rows_must_lie_in_the_columns_ranges() -> None:
    row = [2.0, 0.0, 1.0, 0.0, 0.0, (3 - 0.1) / 0.3]
    for feature, bad in [(0, 2.01), (0, -2.01), (1, 1.5), (2, -1.0), (5, 2.9)]:
        x = np.array([row], np.float32)
        assert check_dataset(Dataset(x, np.zeros(1, np.int64), ("a", "b", "c")), plan(FEDAVG, TABLE)).records == 1
        x[0, feature] = bad
        with pytest.raises(DataError, match="record 0 has values outside the plan's range of a column"):
            check_dataset(Dataset(x, np.zeros(1, np.int64), ("a", "b", "c")), plan(FEDAVG, TABLE))


def test_a_missing_value_put_at_a_mean_outside_the_range_is_in_order() -> None:
    task = {**TABLE, "columns": [{**TABLE["columns"][2], "missing": "mean"}]}  # type: ignore[dict-item]
    x = np.zeros((1, 1), np.float32)
    assert check_dataset(Dataset(x, np.zeros(1, np.int64), ("a", "b", "c")), plan(FEDAVG, task)).records == 1


def test_the_report_as_json() -> None:
    report = check_dataset(data((6, 4, 0)), plan())
    value = report.to_json()
    assert json.loads(json.dumps(value, allow_nan=False)) == value
    assert value["counts"] == {"a": 6, "b": 4, "c": 0}
    assert set(value) == set(DataReport.__dataclass_fields__)


def test_names_from_a_plan_cannot_steer_a_terminal() -> None:
    classes = ["a\x1b[2J", "b", "c"]
    task = {"kind": "image", "classes": classes, "shape": [1, 8, 8]}
    whole = data((6, 4, 0))
    report = check_dataset(Dataset(whole.x, whole.y, tuple(classes)), plan(task=task))
    assert not any("\x1b" in line for line in report.lines())


def test_a_great_many_classes_are_not_all_listed() -> None:
    classes = [f"class {i}" for i in range(1000)]
    task = {"kind": "image", "classes": classes, "shape": [1, 8, 8]}
    whole = data()
    report = check_dataset(Dataset(whole.x, whole.y, tuple(classes)), plan(task=task))
    assert max(map(len, report.lines())) < 1000
    assert "and 947 more" in "\n".join(report.lines())
