"""Records that are held out: the same people in every run, and in no run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedsecure.config import validate
from fedsecure.data.dataset import Dataset
from fedsecure.data.export import save_npz
from fedsecure.data.fingerprint import record_digests
from fedsecure.data.settings import CsvSource, FolderSource, NpzSource
from fedsecure.errors import DataError
from fedsecure.plan import Plan
from fedsecure.policy import Policy
from fedsecure_node.auditing.holdout import HeldOut, chosen
from fedsecure_node.plans.localdata import LocalData
from fedsecure_node.spending.part import plain_part


def policy(share: float) -> Policy:
    return validate(Policy, {"format": 1, "audit": {"holdout": share}}, "policy")


@dataclass
class Records:
    """Records whose digests nobody asked for."""

    data: Dataset

    def __call__(self, plan: Plan) -> Dataset:
        return self.data

    def digests(self, plan: Plan) -> tuple[bytes, ...]:
        raise AssertionError("records without places in a source are known by their values")


def keys(data: Dataset) -> set[bytes]:
    return {row.tobytes() for row in data.x}


def test_a_share_is_chosen_and_a_larger_one_holds_it() -> None:
    digests = [bytes([i % 256, i // 256]) * 16 for i in range(4000)]
    small, large = chosen(digests, 0.1), chosen(digests, 0.3)
    assert 0.08 < small.mean() < 0.12
    assert 0.27 < large.mean() < 0.33
    assert not (small & ~large).any()
    assert not chosen(digests, 0.0).any()


def test_the_same_people_are_held_out_whatever_the_order_and_whoever_comes_and_goes(plan_of: Any, data_of: Any) -> None:
    plan, data = plan_of(), data_of((200, 200, 200))
    split = HeldOut(Records(data)).split(plan, policy(0.3))
    assert 0.2 < len(split.out) / len(data) < 0.4
    assert len(split.out) + len(split.rest) == len(data)
    assert not keys(split.out) & keys(split.rest)
    order = np.random.default_rng(0).permutation(len(data))[:400]
    again = HeldOut(Records(data.subset(order))).split(plan, policy(0.3))
    assert keys(again.out) == keys(split.out) & keys(data.subset(order))
    other = plan_of(name="another", method={"name": "fedavg", "local_steps": 1})
    assert keys(HeldOut(Records(data)).split(other, policy(0.3)).out) == keys(split.out)


def test_nobody_is_held_out_by_default_and_the_records_are_the_very_same(plan_of: Any, data_of: Any) -> None:
    data = data_of()
    split = HeldOut(Records(data)).split(plan_of(), policy(0.0))
    assert split.rest is data
    assert len(split.out) == 0


def test_counts_and_floors_are_of_the_rest(plan_of: Any, data_of: Any) -> None:
    plan, data = plan_of(), data_of((60, 60, 60))
    split = HeldOut(Records(data)).split(plan, policy(0.5))
    part = plain_part(split.rest, plan, policy(0.5))
    assert part.records == len(split.rest) < 130
    assert part.counts.tolist() == split.rest.counts().tolist()


def test_a_source_of_its_own_is_held_out_also_where_the_records_have_it(
    plan_of: Any, data_of: Any, tmp_path: Path
) -> None:
    data = data_of((20, 20, 20))
    others = Dataset(np.concatenate([data.x[:5], 1 - data.x[:9]]), data.y[np.r_[0:5, 0:9]], data.classes)
    save_npz(others, tmp_path / "others.npz")
    source = NpzSource(kind="npz", path=tmp_path / "others.npz")
    split = HeldOut(Records(data), source).split(plan_of(), policy(0.0))
    assert keys(split.out) == keys(others)
    assert len(split.out) == 14
    assert keys(split.rest) == keys(data) - keys(others)


def test_that_nobody_is_left_is_said(plan_of: Any, data_of: Any, tmp_path: Path) -> None:
    data = data_of()
    save_npz(data, tmp_path / "all.npz")
    source = NpzSource(kind="npz", path=tmp_path / "all.npz")
    with pytest.raises(DataError, match="all records are held out"):
        HeldOut(Records(data), source).split(plan_of(), policy(0.0))


def test_people_of_a_folder_are_known_by_their_files_whatever_the_size_of_images(plan_of: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("aside", "normal", "pneumonia"):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for i in range(30):
            Image.fromarray(rng.integers(0, 256, (16, 16), dtype=np.uint8)).save(
                tmp_path / "pictures" / name / f"{i:02d}.png"
            )
    source = FolderSource(kind="folder", path=tmp_path / "pictures", ignore=("aside",), resize=True)
    task = {"kind": "image", "classes": ["normal", "pneumonia"]}
    found = []
    for side in (8, 12):
        plan = plan_of(task={**task, "shape": [1, side, side]})
        data = LocalData(source, lambda lines: None)
        split = HeldOut(data).split(plan, policy(0.4))
        assert split.out.rows is not None
        found.append(split.out.rows.tolist())
    assert found[0] == found[1]
    digests = record_digests(source)
    out = chosen(digests, 0.4)
    assert found[0] == [i for i in np.flatnonzero(out) if i >= 30], "the ignored folder comes first in the source"


def test_rows_of_a_table_are_known_by_their_cells_whatever_the_plans_columns(plan_of: Any, tmp_path: Path) -> None:
    rows = [f"{i},{i * 2 % 7},{('normal', 'skip', 'pneumonia')[i % 3]}" for i in range(90)]
    path = tmp_path / "table.csv"
    path.write_text("a,b,label\n" + os.linesep.join(rows) + "\n")
    source = CsvSource(kind="csv", path=path, label="label", ignore=("skip",))
    column = {"kind": "numeric", "low": 0.0, "high": 1000.0, "mean": 0.0, "std": 10.0}
    found = []
    for columns in ([{"name": "a", **column}], [{"name": "b", **column}, {"name": "a", **column}]):
        plan = plan_of(task={"kind": "table", "classes": ["normal", "pneumonia"], "columns": columns})
        split = HeldOut(LocalData(source, lambda lines: None)).split(plan, policy(0.4))
        assert split.out.rows is not None
        found.append(split.out.rows.tolist())
    out = chosen(record_digests(source), 0.4)
    assert found[0] == found[1] == [i for i in np.flatnonzero(out) if i % 3 != 1]
