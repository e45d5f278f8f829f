"""One release: what gets noise, how often, what is left of the sums without it, and who paid."""

import dataclasses
import gc
import weakref

import numpy as np
import pytest
import torch

from fedsecure.condensation.means import ClassRecords, exact_means
from fedsecure.errors import LocalProtocolError
from fedsecure.models import outputs
from fedsecure.plan.privacy import ReleaseSettings
from fedsecure.privacy.condensation import Allowance, release, release_of_sample
from fedsecure.privacy.embedding import embedding
from fedsecure.privacy.spend import Spend

SETTINGS = ReleaseSettings(kind="release", sigma=1.0)
SHAPE = (1, 8, 8)


@pytest.fixture
def make_embedding(network):
    return lambda held=(0, 1), seed=3, **more: embedding(*network, SETTINGS.model_copy(update=more), SHAPE, held, seed)


def released(under, records, noise, counts=(4, 5), sigma=1.0, allowed=1):
    allowance = Allowance([Spend(sigma, 1.0, allowed)])
    return release(under, records, counts, sigma=sigma, seed=3, noise=noise, allowance=allowance)


def test_noise_is_drawn_once_for_all_classes_at_sensitivity_one(make_embedding, make_records, watching):
    released(make_embedding(), make_records((4, 5)), watching, sigma=2.5)
    assert watching.calls == [([(2, 16 + 3)], 1.0, 2.5)]
    assert watching.samples == []


def test_the_sums_without_noise_are_gone_when_the_release_returns(make_embedding, make_records, watching):
    seen = []

    class Spying(type(watching)):
        def add(self, sums, *, sensitivity, sigma):
            seen.extend(weakref.ref(s) for s in sums)
            seen.extend(weakref.ref(s.untyped_storage()) for s in sums)
            assert all(reference() is not None for reference in seen[:1])
            return super().add(sums, sensitivity=sensitivity, sigma=sigma)

    spying = Spying()
    gc.disable()  # nothing may be left that only a collection would find
    try:
        means = released(make_embedding(), make_records((4, 5)), spying)
    finally:
        gc.enable()
    assert seen
    assert [reference() for reference in seen] == [None] * len(seen)
    assert all(not isinstance(value, torch.Tensor) for value in dataclasses.astuple(means))


def test_without_noise_to_speak_of_means_are_those_of_the_clipped_vectors(
    make_embedding, make_records, network, watching
):
    records = make_records((4, 5))
    under = make_embedding()
    means = released(under, records, watching, sigma=1e-9)
    for position, (group, count) in enumerate(zip(records.records, (4, 5), strict=True)):
        features, logits = (part.double().numpy() for part in map(torch.Tensor.detach, outputs(*network, group)))
        rows = np.hstack([0.9 * features / under.feature_norm, 0.19**0.5 * logits / under.logit_norm])
        rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
        assert np.allclose(means.features[position], rows[:, :16].sum(axis=0) / count, atol=1e-6)
        assert np.allclose(means.logits[position], rows[:, 16:].sum(axis=0) / count, atol=1e-6)
    assert (means.feature_norm, means.logit_norm, means.seed) == (under.feature_norm, under.logit_norm, 3)


def test_where_nothing_is_clipped_they_are_the_exact_means_in_the_networks_units(
    make_embedding, make_records, network, watching
):
    records = make_records((4, 5))
    wide = dataclasses.replace(make_embedding(), feature_norm=1e3, logit_norm=1e3)
    means = released(wide, records, watching, sigma=1e-9).class_means(wide)
    exact = exact_means(*network, records)
    assert torch.allclose(means.features, exact.features, atol=1e-4)
    assert torch.allclose(means.logits, exact.logits, atol=1e-4)


def test_condensed_images_are_embedded_and_clipped_as_records_are(make_embedding, make_records, watching):
    (group,) = make_records((6,)).records
    for more in ({}, {"projection": 5}):
        under = make_embedding(held=(0,), **more)
        means = released(under, ClassRecords((0,), (group,)), watching, counts=(6,), sigma=1e-9).class_means(under)
        images = group[None].clone().requires_grad_(True)  # (1, 6, *shape)
        same = under.means(images)
        assert torch.allclose(same.features, means.features, atol=1e-5)
        assert torch.allclose(same.logits, means.logits, atol=1e-5)
        (same.features.sum() + same.logits.sum()).backward()
        assert float(images.grad.abs().max()) > 0


def test_augmentations_are_the_seeds_come_before_the_clip_and_are_the_same_for_both_sides(
    network, make_records, watching
):
    records = make_records((4, 5))
    under, again, other = (embedding(*network, SETTINGS, SHAPE, (0, 1), seed, augment=True) for seed in (3, 3, 4))
    assert under.augmentations == again.augmentations != other.augmentations
    plain = embedding(*network, SETTINGS, SHAPE, (0, 1), 3)
    moved = tuple(augment(group) for augment, group in zip(under.augmentations, records.records, strict=True))
    assert torch.allclose(under.sums(records), plain.sums(ClassRecords((0, 1), moved)), atol=1e-5)
    images = torch.stack([group[:4] for group in records.records])
    moved = torch.stack([augment(x) for augment, x in zip(under.augmentations, images, strict=True)])
    assert torch.allclose(under.means(images).features, plain.means(moved).features, atol=1e-5)


def test_noise_has_the_size_that_was_charged(make_embedding, make_records, watching):
    records, under = make_records((4, 5)), make_embedding(projection=1)
    clean = under.sums(records).numpy()
    drawn = []
    for _ in range(400):
        means = released(under, records, watching, sigma=30.0)
        drawn.append(np.hstack([means.features, means.logits]) * np.array([[4.0], [5.0]]) - clean)
    drawn = np.array(drawn)
    assert drawn.std() == pytest.approx(30.0, rel=0.1)
    assert abs(drawn.mean()) < 4.0
    assert len(np.unique(drawn[:, 0, 0])) >= 395  # of float32, of which two may be alike


def test_means_cannot_be_written_to(make_embedding, make_records, watching):
    means = released(make_embedding(), make_records((4, 5)), watching)
    with pytest.raises(ValueError, match="read-only"):
        means.features[0, 0] = 1.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        means.logits = means.logits


def test_what_was_not_paid_for_is_refused_before_a_record_is_read(make_embedding, watching):
    under, no_records = make_embedding(), None
    for charged in ([], [Spend(2.0, 1.0, 5)], [Spend(1.0, 0.5, 5)]):
        with pytest.raises(LocalProtocolError, match="sigma 1 at rate 1 was not paid for"):
            release(under, no_records, (4,), sigma=1.0, seed=3, noise=watching, allowance=Allowance(charged))
    assert watching.calls == []


def test_an_allowance_is_used_up(make_embedding, make_records, watching):
    allowance = Allowance([Spend(1.0, 1.0, 1), Spend(1.0, 1.0, 1), Spend(1.0, 0.5, 1)])
    for _ in range(2):
        allowance.take(1.0, 1.0)
    with pytest.raises(LocalProtocolError):
        allowance.take(1.0, 1.0)
    allowance.take(1.5, 0.25)  # costs less than what is left
    with pytest.raises(LocalProtocolError):
        allowance.take(1.5, 0.25)


def test_samples_are_poisson_at_each_classs_own_rate_and_divided_by_what_is_expected(
    make_embedding, make_records, watching
):
    records, under = make_records((4, 40)), make_embedding()
    sizes, sums = [], []

    class Counting(type(watching)):
        def sample(self, records, q):
            drawn = super().sample(records, q)
            sizes.append(len(drawn))
            return drawn

    counting = Counting()
    for _ in range(200):
        means = release_of_sample(
            under,
            records,
            (5, 40),  # noisy counts: the first class has one record fewer
            batch=8,
            sigma=1e-9,
            seed=3,
            noise=counting,
            allowance=Allowance([Spend(1e-9, 1.0, 1)]),
        )
        sums.append(np.hstack([means.features, means.logits]) * np.array([[5.0], [8.0]]))
    assert counting.samples == [1.0, 8 / 40] * 200
    assert len(counting.calls) == 200
    small, large = sizes[::2], sizes[1::2]
    assert set(small) == {4}
    assert np.mean(large) == pytest.approx(8.0, abs=1.2)
    assert np.std(large) == pytest.approx((8 * 0.8) ** 0.5, rel=0.3)
    everything = under.sums(records).numpy()
    assert np.allclose(sums[0][0], everything[0], atol=1e-5)
    assert np.allclose(np.mean([s[1] for s in sums], axis=0), everything[1] * 0.2, atol=0.6)
