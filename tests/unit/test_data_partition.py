"""Dealing records out: by Dirichlet draws, by a column, into training and test records."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsecure.config import validate
from fedsecure.data.by_value import MAX_NODES, column_partition, node_names
from fedsecure.data.dataset import Dataset
from fedsecure.data.dirichlet import dirichlet_partition
from fedsecure.data.holdout import holdout
from fedsecure.data.partition import deal
from fedsecure.data.settings import Simulation
from fedsecure.errors import ConfigError, DataError
from fedsecure.plan import NODE_ID
from fedsecure.plan.task import ImageTask, TableTask

DIGITS = ImageTask(kind="image", classes=tuple("0123456789"), shape=(1, 8, 8))
TABLE = TableTask.model_validate_json(
    """{"kind": "table", "classes": ["no", "yes"], "columns": [
    {"kind": "numeric", "name": "age", "low": 0, "high": 1000, "mean": 0, "std": 1}]}"""
)
LABELS = np.repeat(np.arange(10), 600).astype(np.int64)


def simulation(**settings: Any) -> Simulation:
    partition = {"kind": "dirichlet", "nodes": 3, "alpha": 0.1}
    return validate(Simulation, {"data": {"kind": "digits"}, "partition": partition, **settings}, "plan.toml")


@pytest.mark.parametrize("alpha", [0.02, 0.05, 0.1, 1.0, 100.0])
def test_every_record_is_dealt_once_and_nobody_goes_short(alpha: float) -> None:
    parts = dirichlet_partition(LABELS, 10, 10, alpha, 10, seed=3)
    assert sorted(np.concatenate(parts).tolist()) == list(range(6000))
    assert min(len(p) for p in parts) >= 10


def test_skew_grows_as_alpha_falls() -> None:
    def holders(alpha: float) -> float:
        parts = [p for seed in range(8) for p in dirichlet_partition(LABELS, 10, 10, alpha, 10, seed)]
        return float(np.mean([sum(np.bincount(LABELS[p], minlength=10) >= 10) for p in parts]))

    few, some, many = holders(0.02), holders(0.1), holders(10.0)
    assert few < some < many
    assert 1.5 < few < 2.6  # FedAF page, F5: 2.0 holders of 10 at alpha 0.02, 4.0 at 0.1
    assert 3.0 < some < 5.0


def test_a_node_that_holds_its_share_gets_no_more() -> None:
    """The cap is tested before a class is dealt: nobody passes n / nodes by more than one class's records."""
    for seed in range(10):
        for part in dirichlet_partition(LABELS, 10, 10, 0.02, 0, seed):
            assert len(part) < 600 + 600


def test_seeds_decide() -> None:
    first, again, other = (dirichlet_partition(LABELS, 10, 5, 0.1, 10, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_the_deal_of_one_seed_is_fixed() -> None:
    """A change here changes every published simulation."""
    parts = dirichlet_partition(LABELS, 10, 5, 0.1, 10, seed=0)
    assert [len(p) for p in parts] == [1748, 1144, 1226, 1463, 419]


def test_one_node_gets_everything() -> None:
    assert sorted(dirichlet_partition(LABELS, 10, 1, 0.1, 10, 0)[0].tolist()) == list(range(6000))


def test_absent_classes_are_no_fault() -> None:
    y = np.full(100, 7, dtype=np.int64)
    parts = dirichlet_partition(y, 10, 2, 1.0, 1, 0)
    assert sum(map(len, parts)) == 100


@pytest.mark.parametrize(
    ("nodes", "alpha", "min_size", "match"),
    [
        (10, 0.1, 601, "6000 records cannot give 10 nodes at least 601 each"),
        (30, 0.001, 150, "1000 deals with alpha 0.001 leave one of 30 nodes fewer than 150 of 6000 records"),
        (0, 0.1, 1, "cannot deal to 0 nodes"),
        (3, 0.0, 1, "cannot deal to 3 nodes with alpha 0"),
    ],
)
def test_deals_that_cannot_be(nodes: int, alpha: float, min_size: int, match: str) -> None:
    with pytest.raises(DataError, match=match):
        dirichlet_partition(LABELS, 10, nodes, alpha, min_size, 0)


@pytest.mark.parametrize("alpha", [1e-300, 1e-12, 1e-4, 1e6])
def test_extreme_alphas_end(alpha: float) -> None:
    parts = dirichlet_partition(LABELS, 10, 4, alpha, 0, 0)
    assert sorted(np.concatenate(parts).tolist()) == list(range(6000))


def test_a_node_for_each_value() -> None:
    parts = column_partition(["Süd", "Nord", "Süd", "St. Mary's"])
    assert {node: index.tolist() for node, index in parts.items()} == {"nord": [1], "st-mary-s": [3], "sud": [0, 2]}


@pytest.mark.parametrize(
    "values",
    [
        ["A b", "a-b", "a b", "a_b-2"],
        ["北京", "東京", "--", "..."],
        ["x" * 100, "x" * 99, "x" * 63],
        ["-a-", "0", "é", "1.0"],
    ],
)
def test_node_ids_are_valid_distinct_and_stable(values: list[str]) -> None:
    ids = node_names(sorted(values))
    assert len(set(ids.values())) == len(values)
    assert all(re.fullmatch(NODE_ID, node) for node in ids.values())
    assert ids == node_names(sorted(values))


def test_too_many_values() -> None:
    with pytest.raises(DataError, match=f"1001 different values in the partition's column: .*{MAX_NODES} at most"):
        column_partition([str(i) for i in range(1001)])


def test_holdout_is_stratified() -> None:
    y = np.repeat(np.arange(4), (100, 10, 2, 1)).astype(np.int64)
    data = Dataset(np.arange(113, dtype=np.float32)[:, None], y, ("a", "b", "c", "d"))
    rest, out = holdout(data, 0.2, seed=0)
    assert out.counts().tolist() == [20, 2, 1, 0]
    assert sorted([*rest.x[:, 0].tolist(), *out.x[:, 0].tolist()]) == list(range(113))
    assert holdout(data, 0.2, seed=0)[1].x.tolist() == out.x.tolist()
    assert holdout(data, 0.2, seed=1)[1].x.tolist() != out.x.tolist()
    assert holdout(data, 0.999, seed=0)[0].counts().tolist() == [1, 1, 1, 1]


def test_holdout_of_nothing() -> None:
    data = Dataset(np.zeros((2, 1), np.float32), np.array([0, 1]), ("a", "b"))
    with pytest.raises(DataError, match="2 records leave none to test on"):
        holdout(data, 0.5, 0)
    with pytest.raises(DataError, match="cannot hold out the fraction 1"):
        holdout(data, 1.0, 0)


def test_deal_digits() -> None:
    dealt = deal(simulation(), DIGITS, seed=0)
    nodes, test = dealt.train, dealt.test
    assert list(nodes) == ["node-1", "node-2", "node-3"]
    assert sum(map(len, nodes.values())) + len(test) == 1797
    assert 355 <= len(test) <= 365
    rows = {r.tobytes() for r in test.x}
    assert not any(r.tobytes() in rows for data in nodes.values() for r in data.x)
    again = deal(simulation(), DIGITS, seed=0).train
    assert {n: d.fingerprint() for n, d in nodes.items()} == {n: d.fingerprint() for n, d in again.items()}


def test_names_of_many_nodes_sort() -> None:
    nodes = deal(simulation(partition={"kind": "dirichlet", "nodes": 12, "alpha": 1.0}), DIGITS, seed=0).train
    assert list(nodes) == sorted(nodes) == [f"node-{k:02d}" for k in range(1, 13)]


def test_limit_and_test_source() -> None:
    dealt = deal(simulation(limit=500, test={"kind": "digits"}), DIGITS, seed=0)
    nodes, test = dealt.train, dealt.test
    assert (sum(map(len, nodes.values())), len(test)) == (500, 1797)
    everything = deal(simulation(limit=10**6), DIGITS, seed=0).train
    assert sum(map(len, everything.values())) > 1400


def write_sites(path: Path, sites: list[str]) -> dict[str, Any]:
    rows = [f"{i},{'yes' if i % 2 else 'no'},{site}" for i, site in enumerate(sites)]
    path.write_text("age,sick,site\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return {
        "data": {"kind": "csv", "path": str(path), "label": "sick"},
        "partition": {"kind": "column", "column": "site"},
    }


def test_deal_by_column(tmp_path: Path) -> None:
    sites = ["Nord", "Süd", "Süd"] * 20
    dealt = deal(simulation(**write_sites(tmp_path / "a.csv", sites)), TABLE, seed=0)
    nodes, test = dealt.train, dealt.test
    assert list(nodes) == ["nord", "sud"]
    assert all(sites[int(r[0])] == "Nord" for r in nodes["nord"].x)
    assert all(sites[int(r[0])] == "Süd" for r in nodes["sud"].x)
    assert sum(map(len, nodes.values())) + len(test) == 60


def test_a_node_left_without_records(tmp_path: Path) -> None:
    settings = write_sites(tmp_path / "a.csv", ["Nord"] * 50 + ["Süd"])
    few = simulation(**settings, limit=2)
    with pytest.raises(DataError, match="node sud: all its records went to the test set or over the limit"):
        deal(few, TABLE, 0)


def test_a_column_needs_a_table() -> None:
    with pytest.raises(ConfigError, match="kind 'column' needs a table, not simulation.data.kind 'digits'"):
        deal(simulation(partition={"kind": "column", "column": "site"}), DIGITS, seed=0)
