"""Dealing out: every index exactly once, nobody short, the same seed the same deal."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsecure.data.by_value import column_partition, node_names
from fedsecure.data.dataset import Dataset
from fedsecure.data.dirichlet import dirichlet_partition
from fedsecure.data.holdout import holdout
from fedsecure.errors import DataError
from fedsecure.plan import NODE_ID

labels = st.lists(st.integers(0, 5), max_size=200).map(lambda y: np.asarray(y, dtype=np.int64))


@settings(max_examples=60, deadline=None)
@given(
    y=labels,
    nodes=st.integers(1, 12),
    alpha=st.floats(1e-9, 1e5),
    min_size=st.integers(0, 20),
    seed=st.integers(0, 2**53 - 1),
)
def test_dirichlet(y: np.ndarray, nodes: int, alpha: float, min_size: int, seed: int) -> None:
    try:
        parts = dirichlet_partition(y, 6, nodes, alpha, min_size, seed)
    except DataError:
        assert min_size > 0
        return
    assert len(parts) == nodes
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(y)))
    assert min(len(part) for part in parts) >= min_size
    assert all(part.dtype == np.int64 for part in parts)
    again = dirichlet_partition(y, 6, nodes, alpha, min_size, seed)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


@settings(max_examples=60, deadline=None)
@given(y=labels, fraction=st.floats(0.001, 0.999), seed=st.integers(0, 2**53 - 1))
def test_holdout(y: np.ndarray, fraction: float, seed: int) -> None:
    data = Dataset(np.arange(len(y), dtype=np.float32)[:, None], y, tuple("abcdef"))
    if not len(y) or np.bincount(y).max() < 2:
        with pytest.raises(DataError):
            holdout(data, fraction, seed)
        return
    rest, out = holdout(data, fraction, seed)
    assert sorted([*rest.x[:, 0].tolist(), *out.x[:, 0].tolist()]) == list(range(len(y)))
    whole, kept, held = data.counts(), rest.counts(), out.counts()
    for c in range(6):
        if whole[c] > 1:
            assert kept[c] >= 1
            assert held[c] >= 1
            assert abs(held[c] - fraction * whole[c]) <= 1
        else:
            assert held[c] == 0


@settings(max_examples=200, deadline=None)
@given(values=st.lists(st.text(max_size=80), min_size=1, max_size=60))
def test_columns(values: list[str]) -> None:
    ids = node_names(sorted(set(values)))
    assert all(re.fullmatch(NODE_ID, node) for node in ids.values())
    parts = column_partition(values)
    assert sorted(i for part in parts.values() for i in part.tolist()) == list(range(len(values)))
    for value, node in ids.items():
        assert {values[i] for i in parts[node]} == {value}
