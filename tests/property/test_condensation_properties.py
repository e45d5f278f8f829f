"""Laws that hold for all inputs: distances, resampling, soft-label matching, sampling and statistics."""

import math

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsecure.condensation.augment import TRANSFORMS, Augmentation
from fedsecure.condensation.initial import initial_images
from fedsecure.condensation.resampling import draw_index, is_new_draw, perturbed
from fedsecure.condensation.swd import kappa, swd_p1, swd_p2sq
from fedsecure.methods.held import held_classes
from fedsecure.methods.lgkm import SoftLabels, lgkm_loss
from fedsecure.methods.server_training import stratified_order

QUICK = settings(deadline=None, max_examples=40)
SEEDS = st.integers(0, 2**32)


def normal(seed, *shape, scale=1.0):
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@QUICK
@given(SEEDS, st.integers(2, 50), st.floats(1e-3, 1e3))
def test_swd_is_symmetric_scales_and_sees_only_the_length_of_the_difference(seed, num_classes, scale):
    u, v = normal(seed, 2, 3, num_classes)
    one = swd_p1(u, v)
    assert torch.equal(one, swd_p1(v, u))
    assert torch.allclose(swd_p1(scale * u, scale * v), scale * one, rtol=1e-4)
    rotation, _ = torch.linalg.qr(normal(seed + 1, num_classes, num_classes))
    assert torch.allclose(swd_p1(u @ rotation, v @ rotation), one, rtol=1e-6)
    assert torch.allclose(swd_p2sq(u @ rotation, v @ rotation), swd_p2sq(u, v), rtol=1e-6)
    assert bool((one**2 <= swd_p2sq(u, v) * (1 + 1e-9)).all())  # Jensen


@QUICK
@given(st.integers(2, 10_000))
def test_kappa_falls_like_the_square_root_of_the_classes(num_classes):
    assert kappa(num_classes + 1) < kappa(num_classes)
    assert math.isclose(kappa(num_classes) * math.sqrt(num_classes * math.pi / 2), 1, rel_tol=1 / num_classes)


@QUICK
@given(st.sampled_from(["step", "interval", "round"]), st.integers(1, 9), st.integers(1, 60))
def test_draws_are_numbered_without_gaps_and_new_exactly_when_the_number_changes(resample, interval, steps):
    index = [draw_index(resample, interval, s) for s in range(steps)]
    new = [is_new_draw(resample, interval, s) for s in range(steps)]
    assert sum(new) == max(index) + 1 == len(set(index))
    assert [i for i, fresh in zip(index, new, strict=True) if fresh] == list(range(max(index) + 1))


@QUICK
@given(SEEDS, st.floats(0, 100), st.lists(st.integers(1, 40), min_size=1, max_size=4))
def test_a_perturbation_has_the_norm_it_is_given(seed, rho, sizes):
    w = {str(i): normal(seed + i, n) for i, n in enumerate(sizes)}
    moved = perturbed(w, rho, torch.Generator().manual_seed(seed))
    norm = math.sqrt(sum(float((moved[n] - p).square().sum()) for n, p in w.items()))
    assert math.isclose(norm, rho, rel_tol=1e-6, abs_tol=1e-9)


@QUICK
@given(SEEDS, st.integers(2, 8), st.integers(1, 30), st.floats(0.1, 10))
def test_matching_of_soft_labels_is_a_distance_and_ignores_the_order_of_records(seed, num_classes, n, tau):
    logits = normal(seed, n, num_classes, scale=3.0)
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(num_classes, (n,), generator=g)
    r = torch.softmax(normal(seed + 1, num_classes, num_classes, scale=2.0), dim=1)
    soft = SoftLabels(r, torch.ones(num_classes, dtype=torch.bool), tau)
    loss = lgkm_loss(logits, labels, soft)
    assert float(loss) >= 0
    order = torch.randperm(n, generator=g)
    assert torch.allclose(lgkm_loss(logits[order], labels[order], soft), loss)
    shifted = logits + normal(seed + 2, n, 1)  # softmax does not see a shift of all logits of a record
    assert torch.allclose(lgkm_loss(shifted, labels, soft), loss, atol=1e-9)
    nobody = SoftLabels(r, torch.zeros(num_classes, dtype=torch.bool), tau)
    assert float(lgkm_loss(logits, labels, nobody)) == 0


@QUICK
@given(SEEDS, st.lists(st.integers(0, 30), min_size=1, max_size=6))
def test_stratified_order_keeps_every_class_near_its_share(seed, counts):
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    order = stratified_order(labels, torch.Generator().manual_seed(seed))
    assert sorted(order.tolist()) == list(range(len(labels)))
    for c, count in enumerate(counts):
        if count:
            places = (labels[order] == c).nonzero().flatten().double() / len(labels)
            share = torch.arange(count, dtype=torch.float64) / count
            assert float((places - share).abs().max()) <= 1 / count + len(counts) / len(labels)


@QUICK
@given(st.lists(st.integers(0, 40), min_size=1, max_size=12), st.integers(1, 20))
def test_held_classes_are_the_ones_at_the_floor(counts, floor):
    assert held_classes(np.array(counts), floor) == tuple(c for c, n in enumerate(counts) if n >= floor)


@QUICK
@given(SEEDS, st.sampled_from(["noise", "avg", "real"]), st.integers(1, 7), st.integers(1, 9), st.integers(1, 12))
def test_first_images_have_the_shape_asked_for_and_are_reproducible(seed, init, init_n, ipc, n):
    records = normal(seed, n, 1, 4, 4).float()
    first = [initial_images(init, init_n, ipc, records, torch.Generator().manual_seed(seed)) for _ in range(2)]
    assert first[0].shape == (ipc, 1, 4, 4)
    assert torch.equal(*first)
    if init != "noise":
        assert float(first[0].abs().max()) <= float(records.abs().max()) + 1e-6


@QUICK
@given(SEEDS, st.sampled_from(TRANSFORMS), st.tuples(*[st.floats(0, 1, exclude_max=True)] * 3), st.integers(4, 12))
def test_transforms_treat_every_image_alike(seed, name, numbers, side):
    x = normal(seed, 3, 2, side, side + 1)
    y = Augmentation(name, numbers)(x)
    assert y.shape == x.shape
    assert bool(torch.isfinite(y).all())
    assert torch.allclose(Augmentation(name, numbers)(x[2:]), y[2:])
