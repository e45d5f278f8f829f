"""Resampling, first images, augmentation, and the loop that puts them together."""

import numpy as np
import pytest
import torch

from fedsecure.condensation import loop as loop_module
from fedsecure.condensation.augment import TRANSFORMS, Augmentation, draw_augmentation
from fedsecure.condensation.initial import initial_images
from fedsecure.condensation.loop import match, record_matcher
from fedsecure.condensation.matching import fedaf_loss
from fedsecure.condensation.means import class_records
from fedsecure.condensation.resampling import draw_index, interpolated, is_new_draw, perturbed
from fedsecure.errors import DataError
from fedsecure.method import Cancelled
from fedsecure.models import blank_network, build_model, draw_parameters, parameters_of


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def w(make_plan):
    plan = make_plan("fedaf")
    return parameters_of(build_model(plan.model, plan.task, 1))


@pytest.fixture
def network(make_plan):
    plan = make_plan("fedaf")
    return blank_network(plan.model, plan.task)


# Resampling


def test_draws_by_step_interval_and_round():
    assert [draw_index("step", 3, s) for s in range(4)] == [0, 1, 2, 3]
    assert [draw_index("interval", 3, s) for s in range(7)] == [0, 0, 0, 1, 1, 1, 2]
    assert {draw_index("round", 3, s) for s in range(7)} == {0}
    assert [s for s in range(7) if is_new_draw("interval", 3, s)] == [0, 3, 6]
    assert [s for s in range(3) if is_new_draw("step", 3, s)] == [0, 1, 2]
    assert [s for s in range(7) if is_new_draw("round", 3, s)] == [0]


def test_interpolation_is_gamma_w_plus_a_fresh_draw_and_leaves_w_alone(network, w):
    before = {n: p.clone() for n, p in w.items()}
    mixed = interpolated(network, w, 0.9, generator(4))
    fresh = draw_parameters(network, generator(4))
    for name, p in w.items():
        assert torch.equal(p, before[name])
        assert torch.allclose(mixed[name], 0.9 * p + 0.1 * fresh[name], atol=1e-7)
    assert all(torch.equal(interpolated(network, w, 1.0, generator())[n], w[n]) for n in w)
    assert all(torch.equal(interpolated(network, w, 0.0, generator(4))[n], fresh[n]) for n in w)


def test_perturbation_has_exactly_the_norm_rho_over_all_parameters(w):
    before = {n: p.clone() for n, p in w.items()}
    moved = perturbed({n: p.double() for n, p in w.items()}, 5.0, generator())
    squares = sum(float((moved[n] - w[n].double()).square().sum()) for n in w)
    assert np.sqrt(squares) == pytest.approx(5.0, rel=1e-6)
    assert all(torch.equal(w[n], before[n]) for n in w)
    assert all(torch.equal(perturbed(w, 0.0, generator())[n], w[n]) for n in w)


# First images


def test_noise_reads_no_record():
    a = initial_images("noise", 5, 4, torch.zeros(9, 1, 8, 8), generator())
    b = initial_images("noise", 5, 4, torch.full((3, 1, 8, 8), 7.0), generator())
    assert a.shape == (4, 1, 8, 8)
    assert torch.equal(a, b)
    assert abs(float(a.mean())) < 0.2
    assert 0.8 < float(a.std()) < 1.2


def test_averages_take_each_record_at_most_once():
    records = torch.eye(6)  # the mean of 5 distinct rows holds five entries of 1/5
    first = initial_images("avg", 5, 3, records, generator())
    assert all(sorted(row.tolist()) == pytest.approx([0, 0.2, 0.2, 0.2, 0.2, 0.2]) for row in first)
    few = initial_images("avg", 5, 3, torch.eye(2), generator())
    assert torch.allclose(few.sum(dim=1), torch.ones(3))


def test_real_starts_are_records():
    records = torch.arange(5.0)[:, None]
    assert sorted(initial_images("real", 1, 4, records, generator()).flatten().tolist()) in [
        [i for i in range(5) if i != left_out] for left_out in range(5)
    ]
    assert len(initial_images("real", 1, 9, records, generator())) == 9


# Augmentation


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_are_differentiable_alike_for_all_images_and_keep_the_shape(name):
    x = torch.randn(3, 2, 12, 10, generator=generator(), dtype=torch.float64)
    augment = Augmentation(name, (0.3, 0.8, 0.6))
    y = augment(x)
    assert y.shape == x.shape
    assert not torch.equal(y, x)
    assert torch.allclose(augment(x[1:2]), y[1:2])
    assert torch.autograd.gradcheck(augment, x[:1].clone().requires_grad_(True))


def test_transforms_do_what_they_are_called():
    x = torch.arange(64.0).reshape(1, 1, 8, 8)
    assert torch.equal(Augmentation("flip", (0.1, 0, 0))(x), x.flip(3))
    assert torch.equal(Augmentation("flip", (0.9, 0, 0))(x), x)
    shifted = Augmentation("shift", (0.999, 0.5, 0))(x)
    assert torch.equal(shifted[:, :, 1:], x[:, :, :-1])
    assert float(shifted[:, :, 0].abs().sum()) == 0
    cut = Augmentation("cutout", (0.5, 0.5, 0))(x + 1)
    assert int((cut == 0).sum()) == 16
    assert torch.allclose(Augmentation("rotate", (0.5, 0, 0))(x), x, atol=1e-4)
    assert torch.allclose(Augmentation("scale", (0.5, 0.5, 0))(x), x, atol=1e-4)
    assert torch.allclose(Augmentation("colour", (0.5, 0.5, 0.5))(x), x, atol=1e-4)


def test_every_transform_is_drawn():
    g = generator()
    assert {draw_augmentation(g).name for _ in range(200)} == set(TRANSFORMS)


# The loop


@pytest.fixture
def condense_with(make_plan, make_data, client_context):
    """condense_with(…method settings…): the loop on two held classes; returns the result, the draws and the start."""

    def run(ctx=None, table=False, images=None, **method):
        plan = make_plan("fedaf", table=table, **method)
        w = parameters_of(build_model(plan.model, plan.task, 1))
        network = blank_network(plan.model, plan.task)
        records = class_records(plan.task, make_data((6, 0, 9), table=table), (0, 2))
        start = torch.randn(2, 2, *plan.task.feature_shape, generator=generator(3)) if images is None else images
        draws = []

        def draw(index):
            draws.append(index)
            return interpolated(network, w, plan.method.gamma, generator(100 + index))

        loss = fedaf_loss(plan.method, torch.zeros(2, 3), torch.tensor([True, True]), 0)
        ctx = ctx or client_context()
        matcher = record_matcher(plan.method, network, records, draw, ctx)
        result = match(plan.method, matcher, start, loss, ctx)
        return result, draws, start

    return run


@pytest.mark.parametrize(("resample", "draws"), [("step", [0, 1, 2, 3, 4, 5]), ("interval", [0, 1]), ("round", [0])])
def test_networks_are_drawn_as_the_plan_says(condense_with, resample, draws):
    assert condense_with(resample=resample)[1] == draws


@pytest.mark.parametrize(("means", "reads"), [("exact", 2), ("batch", 6)])
def test_records_are_read_once_a_draw_with_exact_means_and_once_a_step_with_batches(
    condense_with, monkeypatch, means, reads
):
    seen = []
    for name in ("exact_means", "batch_means"):
        original = getattr(loop_module, name)
        monkeypatch.setattr(loop_module, name, lambda *a, o=original: (seen.append(1), o(*a))[1])
    condense_with(real_means=means)
    assert len(seen) == reads


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("table", [False, True])
def test_the_loss_falls(condense_with, optimizer, table):
    result, _, start = condense_with(table=table, steps=60, resample="round", image_optimizer=optimizer, lr_img=0.05)
    assert sum(result.last.values()) < 0.3 * sum(result.first.values())
    assert result.images.shape == start.shape
    assert not result.images.requires_grad


def test_the_first_step_of_sgd_is_the_gradient(condense_with):
    """v_1 = g, so x_1 = x_0 - lr g: twice the rate, twice the step."""
    one, _, start = condense_with(steps=1, lr_img=0.01)
    two, _, _ = condense_with(steps=1, lr_img=0.02)
    assert torch.allclose(two.images - start, 2 * (one.images - start), atol=1e-6)
    momentum = condense_with(steps=2, lr_img=0.01, momentum_img=0.9)[0].images
    assert not torch.equal(momentum, condense_with(steps=2, lr_img=0.01, momentum_img=0.0)[0].images)


@pytest.mark.parametrize("means", ["exact", "batch"])
def test_augmentation_changes_the_result_reproducibly(condense_with, means):
    plain = condense_with(real_means=means)[0].images
    augmented = condense_with(real_means=means, augment="dsa")[0].images
    assert torch.equal(augmented, condense_with(real_means=means, augment="dsa")[0].images)
    assert not torch.equal(augmented, plain)


def test_pixels_stay_within_the_bound_and_beyond_the_range_of_real_ones(condense_with):
    images = condense_with(lr_img=50.0, pixel_bound=3.0)[0].images
    assert float(images.abs().max()) == 3.0
    assert float(condense_with(lr_img=50.0, pixel_bound=1e6)[0].images.abs().max()) > 3.0


def test_the_loop_stops_when_asked_and_tells_how_far_it_is(condense_with, client_context):
    seen = []
    condense_with(ctx=client_context(progress=lambda done, of: seen.append((done, of))))
    assert seen == [(i, 6) for i in range(1, 7)]
    with pytest.raises(Cancelled):
        condense_with(ctx=client_context(cancelled=lambda: len(seen) >= 6))


def test_a_loss_that_is_not_finite_ends_in_a_clear_error(condense_with):
    with pytest.raises(DataError, match="not finite at step 1 of 6") as caught:
        condense_with(images=torch.full((2, 2, 1, 8, 8), float("nan")))
    assert "lr_img" in caught.value.hint
