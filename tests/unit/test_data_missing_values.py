"""Values that mean "not recorded" in one column of a table alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsecure.config import validate
from fedsecure.data import load_dataset
from fedsecure.data.settings import CsvSource
from fedsecure.errors import DataError
from fedsecure.plan.task import TableTask

TASK = TableTask.model_validate_json(
    """{"kind": "table", "classes": ["no", "yes"], "columns": [
    {"kind": "numeric", "name": "chol", "low": 50, "high": 1000, "mean": 200, "std": 50, "missing": "indicator"},
    {"kind": "numeric", "name": "ca", "low": 0, "high": 3, "mean": 1, "std": 1, "missing": "indicator"},
    {"kind": "categorical", "name": "thal", "levels": ["0", "3"], "missing": "level"}]}"""
)


def load(path: Path, text: str, **settings: Any) -> np.ndarray:
    path.write_text("chol,ca,thal,sick\n" + text, encoding="utf-8")
    raw = {"kind": "csv", "path": str(path), "label": "sick", **settings}
    return load_dataset(validate(CsvSource, raw, "node.toml"), TASK).x


def test_zero_is_missing_in_one_column_and_a_value_in_another(tmp_path: Path) -> None:
    x = load(tmp_path / "a.csv", "0,0,3,no\n250,0,3,no\n,,,no\n", missing_values={"chol": ["0", " -9 "]})
    assert x[0].tolist() == [0.0, 1.0, -1.0, 0.0, 0.0, 1.0, 0.0]
    assert x[1].tolist() == [1.0, 0.0, -1.0, 0.0, 0.0, 1.0, 0.0]
    assert x[2].tolist() == [0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0]  # `missing` holds beside it


def test_without_it_zero_is_out_of_range(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"line 2, column chol: outside 50\.\.1000") as caught:
        load(tmp_path / "a.csv", "0,0,3,no\n")
    assert "missing_values" in caught.value.hint


def test_tokens_compare_as_they_are_spelled(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"line 2, column chol: outside 50\.\.1000"):
        load(tmp_path / "a.csv", "0.0,0,3,no\n", missing_values={"chol": ["0"]})


def test_it_wins_over_a_level_that_is_spelled_alike(tmp_path: Path) -> None:
    assert load(tmp_path / "a.csv", "60,0,0,no\n", missing=["0"])[0, 4:].tolist() == [1.0, 0.0, 0.0]
    assert load(tmp_path / "a.csv", "60,0,0,no\n", missing_values={"thal": ["0"]})[0, 4:].tolist() == [0.0, 0.0, 1.0]


def test_the_files_own_names_of_columns_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    with pytest.raises(DataError, match="missing_values names 'Cholesterol', not among the plan's columns"):
        load(path, "60,0,3,no\n", missing_values={"Cholesterol": ["0"]})


def test_a_value_cannot_be_a_level_and_missing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="column thal: '9' in levels and in missing_values"):
        load(tmp_path / "a.csv", "60,0,3,no\n", levels={"thal": {"9": "3"}}, missing_values={"thal": ["9"]})
