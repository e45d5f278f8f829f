"""What one record can do to the sums that get noise: at most 1, whatever the network is."""

import numpy as np
import pytest
import torch

from fedsecure.condensation.means import ClassRecords
from fedsecure.errors import DataError
from fedsecure.models import outputs
from fedsecure.plan.privacy import ReleaseSettings
from fedsecure.privacy.embedding import CHUNK, GRID, clipped, embedding

SETTINGS = ReleaseSettings(kind="release", sigma=1.0)
SHAPE = (1, 8, 8)
#: Makes of the network what a coordinator who wants to see one record would send.
HOSTILE = {
    "as it is": lambda w: w,
    "weights a million times larger": lambda w: {n: p * 1e6 for n, p in w.items()},
    "a head that shouts": lambda w: {n: p * 1e30 if n.startswith("head") else p for n, p in w.items()},
    "features that all but vanish": lambda w: {n: p * 1e-4 for n, p in w.items()},
}


def without(records, position, index):
    """The records, one of them replaced by one that contributes nothing."""
    groups = [group.clone() for group in records.records]
    groups[position][index] = float("nan")
    return ClassRecords(records.held, tuple(groups))


def far_out(records):
    """The same with a record that fits no other, and one that no image could be."""
    groups = [group.clone() for group in records.records]
    groups[0][0] *= 1e4
    groups[1][1] = 3e37
    return ClassRecords(records.held, tuple(groups))


@pytest.mark.parametrize("network", ["convnet", "mlp"], indirect=True)
@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("projection", [None, 5])
@pytest.mark.parametrize("augment", [False, True])
def test_a_record_moves_one_row_by_at_most_one(network, make_records, hostile, projection, augment):
    blank, w = network
    records = far_out(make_records((4, 5)))
    settings = SETTINGS.model_copy(update={"projection": projection})
    under = embedding(blank, HOSTILE[hostile](w), settings, SHAPE, (0, 1), 3, augment=augment)
    everything = under.sums(records)
    moved = []
    for position, group in enumerate(records.records):
        for index in range(len(group)):
            difference = everything - under.sums(without(records, position, index))
            assert not difference[1 - position].any()
            moved.append(float(difference[position].norm()))
    assert max(moved) <= 1.0
    assert max(moved) > 0.5  # and it does move it


@pytest.mark.parametrize("network", ["mlp"], indirect=True)
def test_a_network_that_waits_for_one_record_does_not_see_more_of_it(network, make_records):
    """Its first unit fires for this record alone, a million times louder than anything does for noise."""
    blank, w = network
    records = make_records((4, 5))
    target = records.records[0][2].flatten() / records.records[0][2].norm()
    rows = torch.randn(16, 64, generator=torch.Generator().manual_seed(1))
    rows = rows - (rows @ target)[:, None] * target  # orthogonal to the record
    rows = rows / rows.norm(dim=1, keepdim=True)
    rows[0] = target
    gain, floor = torch.full((16,), 1e-3), torch.zeros(16)
    gain[0], floor[0] = 1e6, -3.7e6  # after layer norm a unit that is alone has 15 ** 0.5 = 3.87
    loud = {**w, "layers.0.weight": rows, "layers.0.bias": torch.zeros(16), "layers.1.weight": gain}
    under = embedding(blank, {**loud, "layers.1.bias": floor}, SETTINGS, SHAPE, (0, 1), 3)
    with torch.no_grad():
        lengths = under._rows(records.records[0]).norm(dim=1)
    assert int(lengths.argmax()) == 2
    assert float(lengths[2]) > 1e6  # without clipping it would be all that the sum is
    difference = under.sums(records) - under.sums(without(records, 0, 2))
    assert 0.99 < float(difference[0].norm()) <= 1.0


def test_removing_a_record_moves_the_sum_by_at_most_one_and_nothing_that_rounding_adds(network, make_records):
    blank, w = network
    records = make_records((CHUNK + 30,))
    under = embedding(blank, w, SETTINGS, SHAPE, (0,), 3)
    everything = under.sums(records)
    for index in (0, 3, CHUNK - 1, CHUNK, CHUNK + 29):
        rest = torch.cat([records.records[0][:index], records.records[0][index + 1 :]])
        assert float((everything - under.sums(ClassRecords((0,), (rest,)))).norm()) <= 1.0 + 1e-5
    alone = torch.stack([under.sums(ClassRecords((0,), (x[None],)))[0] for x in records.records[0]])
    assert torch.allclose(alone.sum(dim=0), everything[0], atol=1e-5)


def test_a_record_that_is_not_finite_contributes_nothing(network, make_records):
    blank, w = network
    under = embedding(blank, w, SETTINGS, SHAPE, (0,), 3)
    (group,) = make_records((3,)).records
    poisoned = torch.stack([group[0], torch.full(SHAPE, float("nan")), torch.full(SHAPE, float("inf"))])
    blank_others = torch.stack([group[0], *without(ClassRecords((0,), (group,)), 0, 1).records[0][1:2]])
    assert torch.equal(under.sums(ClassRecords((0,), (poisoned,))), under.sums(ClassRecords((0,), (blank_others,))))
    assert not under.sums(ClassRecords((0,), (poisoned[1:],))).any()


def test_a_class_without_records_sums_to_nothing(network):
    blank, w = network
    sums = embedding(blank, w, SETTINGS, SHAPE, (0, 1), 3).sums(ClassRecords((0, 1), (torch.zeros(0, *SHAPE),) * 2))
    assert sums.shape == (2, 16 + 3)
    assert sums.dtype == torch.float64
    assert not sums.any()


@pytest.mark.parametrize("scale", [1e-300, 1e-9, 0.3, 1.0, 1.0 + 1e-12, 7.0, 1e20, 1e150, 1e300])
def test_clipped_vectors_are_points_of_the_grid_within_the_unit_ball_exactly(scale):
    rows = torch.tensor(np.random.default_rng(2).normal(size=(50, 40)))
    rows = rows / rows.norm(dim=1, keepdim=True) * scale
    whole = clipped(rows) * GRID
    for row in whole.tolist():
        assert all(value == int(value) for value in row)
        assert sum(int(value) ** 2 for value in row) <= int(GRID) ** 2
    if scale == 0.3:
        assert torch.allclose(whole / GRID, rows, atol=1 / GRID)


def test_the_constants_are_median_norms_of_noise_images_and_parts_have_their_shares(network):
    blank, w = network
    under = embedding(blank, w, SETTINGS, SHAPE, (0,), 3)
    noise = torch.randn(5000, *SHAPE, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        features, logits = outputs(blank, w, noise)
    assert under.feature_norm == pytest.approx(float(features.norm(dim=1).median()), rel=0.1)
    assert under.logit_norm == pytest.approx(float(logits.norm(dim=1).median()), rel=0.1)
    with torch.no_grad():
        parts = under.split(under._rows(noise))
    assert [float(p.norm(dim=1).median()) for p in parts] == pytest.approx([0.9, 0.19**0.5], rel=0.1)


def test_a_projection_keeps_lengths_on_average_and_is_the_seeds(network):
    blank, w = network
    wide = SETTINGS.model_copy(update={"projection": 8})
    norms = [
        float(embedding(blank, w, wide, SHAPE, (0,), seed).projection.square().sum(dim=1).mean()) for seed in range(20)
    ]
    assert np.mean(norms) == pytest.approx(1.0, abs=0.05)
    same = [embedding(blank, w, wide, SHAPE, (0,), 4).projection for _ in range(2)]
    assert torch.equal(*same)


@pytest.mark.parametrize("factor", [0.0, float("nan"), 1e38])
def test_a_diverged_model_is_refused_before_any_record_is_read(network, factor):
    blank, w = network
    with pytest.raises(DataError, match="noise images have median norms") as caught:
        embedding(blank, {n: p * factor for n, p in w.items()}, SETTINGS, SHAPE, (0,), 3)
    assert "diverged" in caught.value.hint
