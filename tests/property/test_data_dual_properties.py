"""The dual-heterogeneity deal under any settings: every record used once, everything a function of the seed, pixels
stay pixels."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedsecure.data.dual import draw_dual
from fedsecure.data.settings import DualHeterogeneityPartition
from fedsecure.data.shifts import component_shift, cropped, node_shift, three_channels
from fedsecure.errors import DataError
from fedsecure.randomness import numpy_generator

labels = st.lists(st.integers(0, 5), min_size=0, max_size=300).map(lambda y: np.asarray(y, dtype=np.int64))
partitions = st.builds(
    DualHeterogeneityPartition,
    kind=st.just("dual-heterogeneity"),
    nodes=st.integers(2, 8),
    alpha_inter=st.floats(0.05, 100),
    alpha_intra=st.floats(0.05, 100),
    permute_labels=st.booleans(),
    test_fraction=st.floats(0.01, 0.99),
    share=st.floats(0.2, 1),
    min_size=st.integers(2, 12),
)
pixels = hnp.arrays(
    np.float32,
    st.tuples(st.integers(1, 3), st.sampled_from([1, 3]), st.integers(1, 9), st.integers(1, 9)),
    elements=st.floats(0, 1, width=32),
)


@settings(max_examples=60, deadline=None)
@given(y=labels, partition=partitions, seed=st.integers(0, 2**53 - 1))
def test_draw(y: np.ndarray, partition: DualHeterogeneityPartition, seed: int) -> None:
    try:
        draw = draw_dual(y, 6, partition, seed)
    except DataError:
        return
    used = np.concatenate([*draw.train, *draw.test])
    assert len(np.unique(used)) == len(used) == int(partition.share * len(y) + 0.5 if partition.share < 1 else len(y))
    assert sorted(used.tolist()) == np.flatnonzero(draw.client >= 0).tolist()
    assert ((draw.component >= 0) == (draw.client >= 0)).all()
    for i, (train, test) in enumerate(zip(draw.train, draw.test, strict=True)):
        both = np.concatenate([train, test])
        assert (draw.client[both] == i).all()
        assert min(len(train), len(test)) >= 1
        assert len(both) >= partition.min_size
        assert abs(len(test) - partition.test_fraction * len(both)) <= 1
    assert (np.sort(draw.permutation, axis=2) == np.arange(6)).all()
    again = draw_dual(y, 6, partition, seed)
    assert np.array_equal(draw.component, again.component)
    assert all(np.array_equal(a, b) for a, b in zip(draw.train + draw.test, again.train + again.test, strict=True))


@settings(max_examples=80, deadline=None)
@given(
    x=pixels,
    size=st.tuples(st.integers(2, 12), st.integers(2, 12)),
    node=st.integers(0, 7),
    component=st.integers(0, 1),
    inversion=st.sampled_from(["all", "green", "none"]),
    strengths=st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0.01, 1)),
    seed=st.integers(0, 2**53 - 1),
)
def test_pixels_stay_pixels(
    x: np.ndarray,
    size: tuple[int, int],
    node: int,
    component: int,
    inversion: str,
    strengths: tuple[float, float, float],
    seed: int,
) -> None:
    gain, ramp, crop = strengths
    full = cropped(three_channels(x, *size), crop, numpy_generator(seed, "test"))
    out = node_shift(component_shift(full, np.full(len(x), component), inversion), node, gain, ramp)
    assert out.shape == (len(x), 3, *size)
    assert out.dtype == np.float32
    assert np.isfinite(out).all()
    assert 0 <= out.min() <= out.max() <= 1
