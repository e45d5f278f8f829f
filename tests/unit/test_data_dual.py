"""The dual-heterogeneity deal: who gets which record, as which component, under which label, and how it looks."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsecure.config import validate
from fedsecure.data import dual
from fedsecure.data.dataset import Dataset
from fedsecure.data.digits import load_digits
from fedsecure.data.dual import DualDraw, deal_dual, draw_dual, permutations
from fedsecure.data.partition import deal
from fedsecure.data.settings import DigitsSource, DualHeterogeneityPartition, Simulation
from fedsecure.data.shifts import component_shift, node_shift, three_channels
from fedsecure.errors import ConfigError, DataError
from fedsecure.plan.task import ImageTask, TableTask

NAMES = tuple("0123456789")
TASK = ImageTask(kind="image", classes=NAMES, shape=(3, 8, 8))
LABELS = np.repeat(np.arange(10), 700).astype(np.int64)


def partition(**settings: Any) -> DualHeterogeneityPartition:
    return DualHeterogeneityPartition(kind="dual-heterogeneity", **settings)


def simulation(source: dict[str, Any] | None = None, **settings: Any) -> Simulation:
    raw = {"data": source or {"kind": "digits"}, "partition": {"kind": "dual-heterogeneity", **settings}}
    return validate(Simulation, raw, "plan.toml")


def dealt(draw: DualDraw) -> np.ndarray:
    return np.concatenate([*draw.train, *draw.test])


def test_every_record_is_dealt_once_to_one_node_and_one_component() -> None:
    draw = draw_dual(LABELS, 10, partition(), seed=4)
    assert sorted(dealt(draw).tolist()) == list(range(7000))
    for i in range(8):
        mine = np.concatenate([draw.train[i], draw.test[i]])
        assert set(draw.client[mine].tolist()) == {i}
        assert set(draw.component[mine].tolist()) <= {0, 1}


def test_70_to_30_in_each_node() -> None:
    draw = draw_dual(LABELS, 10, partition(), seed=0)
    for train, test in zip(draw.train, draw.test, strict=True):
        assert len(test) == int(0.3 * (len(train) + len(test)) + 0.5)


def test_the_order_is_shuffled() -> None:
    """Labels come class by class out of the Dirichlet deal; the last 30 % must not be the last classes."""
    draw = draw_dual(LABELS, 10, partition(alpha_inter=100.0), seed=0)
    for train, test in zip(draw.train, draw.test, strict=True):
        assert abs(LABELS[train].mean() - LABELS[test].mean()) < 0.5


def test_components_follow_their_proportions() -> None:
    draw = draw_dual(LABELS, 10, partition(), seed=1)
    assert np.allclose(draw.pi.sum(axis=1), 1)
    for i in range(8):
        mine = draw.component[draw.client == i]
        assert abs(float((mine == 1).mean()) - draw.pi[i, 1]) < 4 * 0.5 / np.sqrt(len(mine))
    assert np.ptp(draw.pi[:, 0]) > 0.2


def test_alpha_intra_rules_the_spread_of_proportions() -> None:
    def spread(alpha: float) -> float:
        return float(np.std([draw_dual(LABELS, 10, partition(alpha_intra=alpha), s).pi[:, 0] for s in range(12)]))

    assert spread(0.2) > spread(2.0) > spread(50.0)
    assert abs(spread(2.0) - np.sqrt(0.05)) < 0.05  # the standard deviation of Beta(2, 2)


def test_permutations_are_bijections_and_differ_by_node_and_component() -> None:
    given = draw_dual(LABELS, 10, partition(), seed=0).permutation
    assert given.shape == (8, 2, 10)
    rows = given.reshape(16, 10)
    assert all(sorted(row.tolist()) == list(range(10)) for row in rows)
    assert len({tuple(row.tolist()) for row in rows}) == 16
    fixed = [int((a == b).sum()) for a, b in itertools.combinations(rows, 2)]
    assert 0.5 < np.mean(fixed) < 1.5  # two independent permutations agree in one place on average


def test_without_permutation_labels_stay() -> None:
    assert (permutations(10, partition(permute_labels=False), 0) == np.arange(10)).all()


def test_a_seed_decides_and_streams_are_independent() -> None:
    first, again, other = (draw_dual(LABELS, 10, partition(), seed) for seed in (0, 0, 1))
    assert all(np.array_equal(getattr(first, f), getattr(again, f)) for f in ("client", "component", "permutation"))
    assert not any(np.array_equal(getattr(first, f), getattr(other, f)) for f in ("client", "component", "permutation"))
    intra = draw_dual(LABELS, 10, partition(alpha_intra=0.5), 0)  # the other alpha leaves these as they were
    assert all(np.array_equal(a, b) for a, b in zip(first.train, intra.train, strict=True))
    assert np.array_equal(first.permutation, intra.permutation)
    assert not np.array_equal(first.component, intra.component)
    inter = draw_dual(LABELS, 10, partition(alpha_inter=0.5), 0)
    assert np.array_equal(first.pi, inter.pi)
    assert not np.array_equal(first.client, inter.client)
    assert np.array_equal(first.permutation[:4], draw_dual(LABELS, 10, partition(nodes=4), 0).permutation)


def test_a_share_of_the_records() -> None:
    draw = draw_dual(LABELS, 10, partition(share=0.25), seed=0)
    assert len(set(dealt(draw).tolist())) == len(dealt(draw)) == 1750
    assert ((draw.client == -1) == (draw.component == -1)).all()
    assert int((draw.client == -1).sum()) == 5250


def test_too_few_records() -> None:
    with pytest.raises(DataError, match="50 records cannot give 8 nodes at least 10 each"):
        draw_dual(LABELS[::140], 10, partition(), 0)
    with pytest.raises(DataError, match="7 records cannot give 8 nodes"):
        draw_dual(LABELS, 10, partition(share=0.001), 0)


def test_the_deal_of_one_seed_is_fixed() -> None:
    """A change here changes every published benchmark."""
    draw = draw_dual(LABELS, 10, partition(), seed=0)
    assert [len(t) for t in draw.train] == [634, 852, 566, 336, 615, 637, 582, 678]
    assert [int((draw.component[draw.client == i] == 1).sum()) for i in range(8)] == [
        502,
        553,
        437,
        312,
        418,
        730,
        53,
        474,
    ]
    assert draw.permutation[0, 0].tolist() == [9, 5, 0, 1, 3, 8, 4, 2, 7, 6]


def test_records_are_those_of_the_ground_truth_transformed_in_the_pages_order() -> None:
    """Component transform, then the node's: with the gain the two do not commute."""
    source = load_digits(DigitsSource(kind="digits"), ImageTask(kind="image", classes=NAMES, shape=(1, 8, 8)))
    parts, draw = deal_dual(simulation(nodes=4), TASK, seed=3)
    assert list(parts.train) == list(parts.tests) == ["node-1", "node-2", "node-3", "node-4"]
    swapped = 0
    for i, node in enumerate(parts.train):
        for data, index in ((parts.train[node], draw.train[i]), (parts.tests[node], draw.test[i])):
            component = draw.component[index]
            full = three_channels(source.x[index], 8, 8)
            assert np.array_equal(data.x, node_shift(component_shift(full, component, "all"), i, 0.3, 0.2))
            assert np.array_equal(data.y, draw.permutation[i, component, source.y[index]])
            other = component_shift(node_shift(full, i, 0.3, 0.2), component, "all")
            swapped += int((np.abs(other - data.x) > 0.1).any())
            assert data.x.min() >= 0
            assert data.x.max() <= 1
    assert swapped == 8


def test_the_pooled_test_records_are_the_nodes_own_in_order() -> None:
    parts = deal(simulation(), TASK, seed=0)
    assert len(parts.tests) == 8
    assert np.array_equal(parts.test.x, np.concatenate([d.x for d in parts.tests.values()]))
    assert np.array_equal(parts.test.y, np.concatenate([d.y for d in parts.tests.values()]))
    assert sum(map(len, parts.train.values())) + len(parts.test) == 1797


def test_crops_touch_training_records_alone() -> None:
    plain, cut = deal(simulation(), TASK, 0), deal(simulation(crop=0.6), TASK, 0)
    assert np.array_equal(plain.test.x, cut.test.x)
    for node in plain.train:
        assert np.array_equal(plain.train[node].y, cut.train[node].y)
        assert not np.array_equal(plain.train[node].x, cut.train[node].x)
    again = deal(simulation(crop=0.6), TASK, 0)
    assert all(np.array_equal(cut.train[n].x, again.train[n].x) for n in cut.train)


def test_digits_at_another_size() -> None:
    parts = deal(simulation(nodes=2, inversion="green"), TASK.model_copy(update={"shape": (3, 16, 12)}), 0)
    assert parts.test.x.shape[1:] == (3, 16, 12)


def test_both_halves_of_a_named_set_are_pooled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from fedsecure.data import native

    def load(source: Any, task: ImageTask) -> Dataset:
        count = {"train": 300, "test": 100}[source.split]
        assert task.shape == (1, 28, 28)
        x = np.zeros((count, 1, 28, 28), dtype=np.float32)
        return Dataset(x, np.arange(count, dtype=np.int64) % 10, task.classes)

    monkeypatch.setattr(native, "load_dataset", load)
    source = {"kind": "torchvision", "name": "MNIST", "path": str(tmp_path)}
    sizes = {}
    for pooled in (True, False):
        parts = deal(simulation(source, nodes=2, pool_splits=pooled), TASK, 0)
        sizes[pooled] = sum(map(len, parts.train.values())) + len(parts.test)
    assert sizes == {True: 400, False: 300}


def test_an_archive_keeps_its_own_size(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name, shape in (("grey", (200, 6, 5)), ("colour", (200, 3, 6, 5))):
        np.savez(tmp_path / f"{name}.npz", x=rng.random(shape, dtype=np.float32), y=np.arange(200) % 10)
        parts = deal(simulation({"kind": "npz", "path": str(tmp_path / f"{name}.npz")}, nodes=2), TASK, 0)
        assert parts.test.x.shape[1:] == (3, 8, 8)
    np.savez(tmp_path / "last.npz", x=rng.random((200, 8, 8, 3), dtype=np.float32), y=np.arange(200) % 10)
    with pytest.raises(DataError, match="has the channels last"):
        deal(simulation({"kind": "npz", "path": str(tmp_path / "last.npz")}), TASK, 0)


@pytest.mark.parametrize("shape", [(1, 8, 8), (4, 8, 8)])
def test_three_channels_are_needed(shape: tuple[int, int, int]) -> None:
    with pytest.raises(ConfigError, match=r"needs images with 3 channels, not task.shape \[\d, 8, 8\]"):
        deal(simulation(), TASK.model_copy(update={"shape": shape}), 0)


def test_tables_are_refused() -> None:
    table = TableTask.model_validate_json(
        '{"kind": "table", "classes": ["a", "b"], "columns": [{"kind": "categorical", "name": "c", '
        '"levels": ["x", "y"]}]}'
    )
    with pytest.raises(ConfigError, match="needs images with 3 channels, not a table"):
        deal(simulation(), table, 0)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"nodes": 9}, r"partition.nodes: 9 is out of range \(allowed: <= 8\)"),
        ({"nodes": 1}, "partition.nodes: 1 is out of range"),
        ({"gain": 1.5}, "partition.gain: 1.5 is out of range"),
        ({"inversion": "red"}, "partition.inversion: 'red' is not one of 'all', 'green' or 'none'"),
        ({"crop": 0}, "partition.crop: 0 is out of range"),
        ({"share": 1.1}, "partition.share: 1.1 is out of range"),
    ],
)
def test_settings_out_of_range(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        simulation(**settings)


@pytest.mark.parametrize("key", ["test", "test_fraction", "holdout", "limit"])
def test_what_the_partition_settles_itself(key: str) -> None:
    value = {"test": {"kind": "digits"}, "test_fraction": 0.2, "holdout": "per_node", "limit": 10}[key]
    raw = {"data": {"kind": "digits"}, "partition": {"kind": "dual-heterogeneity"}, key: value}
    with pytest.raises(ConfigError, match=f"leave out {key}: partition.kind 'dual-heterogeneity'"):
        validate(Simulation, raw, "plan.toml")


def test_other_partitions_have_no_transforms() -> None:
    raw = {"data": {"kind": "digits"}, "partition": {"kind": "dirichlet", "nodes": 3, "alpha": 1.0}}
    with pytest.raises(ConfigError, match="partition.kind is 'dirichlet', which transforms no images"):
        dual.load_images(validate(Simulation, raw, "plan.toml"), TASK)
