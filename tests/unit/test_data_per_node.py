"""Test records of each node's own, and nodes with sources of their own."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsecure.config import validate
from fedsecure.data.partition import deal
from fedsecure.data.settings import Simulation, anchored_simulation
from fedsecure.errors import ConfigError, DataError
from fedsecure.plan.task import ImageTask, TableTask

DIGITS = ImageTask(kind="image", classes=tuple("0123456789"), shape=(1, 8, 8))
TABLE = TableTask.model_validate_json(
    """{"kind": "table", "classes": ["no", "yes"], "columns": [
    {"kind": "numeric", "name": "age", "low": 0, "high": 1000, "mean": 0, "std": 1}]}"""
)


def simulation(**settings: Any) -> Simulation:
    partition = {"kind": "dirichlet", "nodes": 3, "alpha": 1.0}
    base = {} if settings.get("partition", {}).get("kind") == "sources" else {"data": {"kind": "digits"}}
    return validate(Simulation, {**base, "partition": partition, **settings}, "plan.toml")


def write(path: Path, ages: range, *, yes_every: int = 2) -> dict[str, Any]:
    path.write_text("age,sick\n" + "".join(f"{a},{'no' if a % yes_every else 'yes'}\n" for a in ages))
    return {"kind": "csv", "path": str(path), "label": "sick"}


def sources(folder: Path, **sizes: range) -> dict[str, Any]:
    nodes = {name.replace("_", "-"): write(folder / f"{name}.csv", ages) for name, ages in sizes.items()}
    return {"partition": {"kind": "sources", "nodes": nodes}}


def test_pooled_is_the_default_and_leaves_nodes_without_test_records() -> None:
    assert simulation().holdout == "pooled"
    assert deal(simulation(), DIGITS, 0).tests == {}


def test_each_node_holds_out_a_part_of_each_of_its_classes() -> None:
    dealt = deal(simulation(holdout="per_node", test_fraction=0.3), DIGITS, seed=0)
    assert list(dealt.train) == list(dealt.tests) == ["node-1", "node-2", "node-3"]
    assert sum(len(d) for d in [*dealt.train.values(), *dealt.tests.values()]) == 1797
    for node, train in dealt.train.items():
        test = dealt.tests[node]
        whole = train.counts() + test.counts()
        assert (np.abs(test.counts() - 0.3 * whole)[whole > 1] <= 1).all()
        rows = {r.tobytes() for r in train.x}
        assert not any(r.tobytes() in rows for r in test.x)
    assert np.array_equal(dealt.test.x, np.concatenate([t.x for t in dealt.tests.values()]))
    assert np.array_equal(dealt.test.y, np.concatenate([t.y for t in dealt.tests.values()]))
    assert len(dealt.test) == sum(map(len, dealt.tests.values()))


def test_the_seed_decides_and_nodes_draw_apart() -> None:
    one, again, other = (deal(simulation(holdout="per_node"), DIGITS, seed) for seed in (0, 0, 1))
    assert [d.fingerprint() for d in one.tests.values()] == [d.fingerprint() for d in again.tests.values()]
    assert one.test.fingerprint() != other.test.fingerprint()


def test_limit_counts_training_and_test_records_together() -> None:
    dealt = deal(simulation(holdout="per_node", limit=400), DIGITS, seed=0)
    assert sum(len(d) for d in [*dealt.train.values(), *dealt.tests.values()]) == 400


def test_sources_of_their_own_per_node(tmp_path: Path) -> None:
    made = simulation(**sources(tmp_path, b_clinic=range(100, 140), a=range(20)), holdout="per_node", test_fraction=0.5)
    dealt = deal(made, TABLE, seed=0)
    assert list(dealt.train) == ["a", "b-clinic"]
    ages = {node: {int(v) for d in (dealt.train[node], dealt.tests[node]) for v in d.x[:, 0]} for node in dealt.train}
    assert ages == {"a": set(range(20)), "b-clinic": set(range(100, 140))}
    assert {node: len(d) for node, d in dealt.tests.items()} == {"a": 10, "b-clinic": 20}


def test_sources_of_their_own_pooled(tmp_path: Path) -> None:
    made = simulation(**sources(tmp_path, a=range(20), b=range(100, 140)), limit=30)
    dealt = deal(made, TABLE, seed=0)
    assert dealt.tests == {}
    assert len(dealt.test) == 12
    assert sum(map(len, dealt.train.values())) == 30
    assert dealt.train["a"].x.max() < 20 <= dealt.train["b"].x.min()
    seen = {int(v) for d in [*dealt.train.values(), dealt.test] for v in d.x[:, 0]}
    assert len(seen) == 42


def test_a_node_whose_source_is_wrong_is_named(tmp_path: Path) -> None:
    settings = sources(tmp_path, a=range(20), b=range(20))
    (tmp_path / "b.csv").unlink()
    with pytest.raises(DataError, match=r"node b: .*b\.csv: no such file"):
        deal(simulation(**settings), TABLE, 0)


def test_a_node_that_can_hold_nothing_out_is_named(tmp_path: Path) -> None:
    settings = sources(tmp_path, a=range(20), b=range(1))
    with pytest.raises(DataError, match="node b: 1 records leave none to test on") as caught:
        deal(simulation(**settings, holdout="per_node"), TABLE, 0)
    assert "holdout" in caught.value.hint


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"partition": {"kind": "sources", "nodes": {}}}, "partition.nodes: has too few entries"),
        (
            {"partition": {"kind": "sources", "nodes": {"St. Mary": {"kind": "digits"}}}},
            "partition.nodes: 'St. Mary' is not a node id",
        ),
        (
            {"partition": {"kind": "sources", "nodes": {"a": {"kind": "csv", "label": "x"}}}},
            r"partition.nodes.a.path: missing",
        ),
        (
            {"partition": {"kind": "sources", "nodes": {"a": {"kind": "digits", "pth": "x"}}}},
            r"partition.nodes.a.pth: unknown key",
        ),
        (
            {"data": {"kind": "digits"}, "partition": {"kind": "sources", "nodes": {"a": {"kind": "digits"}}}},
            "data has no place beside partition.kind 'sources'",
        ),
        ({"data": None}, "data is missing: partition.kind 'dirichlet' deals it out"),
        ({"holdout": "per_node", "test": {"kind": "digits"}}, "test has no place beside holdout 'per_node'"),
        ({"holdout": "none"}, "holdout: 'none' is not one of 'pooled' or 'per_node'"),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        simulation(**settings)


def test_paths_of_sources_start_in_the_plans_folder(tmp_path: Path) -> None:
    made = simulation(partition={"kind": "sources", "nodes": {"a": {"kind": "npz", "path": "x/a.npz"}}})
    nodes = anchored_simulation(made, tmp_path).partition.nodes
    assert nodes["a"].path == tmp_path / "x" / "a.npz"
