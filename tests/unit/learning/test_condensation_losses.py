"""Sliced Wasserstein distances, matching losses and class means against formulas written out in numpy."""

import json

import numpy as np
import pytest
import torch

from fedsecure.condensation.matching import fedaf_loss, feddm_loss
from fedsecure.condensation.means import (
    ClassMeans,
    batch_means,
    class_records,
    exact_means,
    synthetic_means,
)
from fedsecure.condensation.swd import kappa, projections, swd_monte_carlo, swd_p1, swd_p2sq
from fedsecure.models import blank_network, build_model, outputs, parameters_of


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def rows(*shape, seed=0):
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


@pytest.fixture
def settings(make_plan):
    return lambda name, **method: make_plan(name, **method).method


@pytest.fixture
def network_of(make_plan):
    plan = make_plan("fedaf")
    w = parameters_of(build_model(plan.model, plan.task, 1))
    return plan, blank_network(plan.model, plan.task), w


@pytest.mark.parametrize(("num_classes", "value"), [(2, 2 / np.pi), (3, 0.5), (10, 0.25869), (100, 0.079988)])
def test_kappa_has_its_known_values(num_classes, value):
    assert kappa(num_classes) == pytest.approx(value, abs=5e-6)


@pytest.mark.parametrize("num_classes", [2, 10, 100])
def test_closed_form_is_what_monte_carlo_estimates(num_classes):
    u, v = rows(4, num_classes), rows(4, num_classes, seed=1)
    directions = projections(100_000, num_classes, generator(2)).double()
    assert torch.allclose(directions.norm(dim=1), torch.ones(100_000, dtype=torch.float64), atol=1e-6)
    assert torch.allclose(swd_monte_carlo(u, v, directions), swd_p1(u, v), rtol=0.02)
    assert torch.allclose(((u - v) @ directions.T).square().mean(dim=1), swd_p2sq(u, v), rtol=0.02)


def test_gradient_of_order_one_has_length_kappa_at_any_distance():
    for distance in (1e-3, 1.0, 1e3):
        u = torch.tensor([[3.0, 4.0, 0.0]], dtype=torch.float64) * distance
        u.requires_grad_(True)
        swd_p1(u, torch.zeros(1, 3, dtype=torch.float64)).sum().backward()
        assert float(u.grad.norm()) == pytest.approx(kappa(3), rel=1e-6)
    u = torch.zeros(1, 3, requires_grad=True)
    swd_p1(u, torch.zeros(1, 3)).sum().backward()
    assert torch.equal(u.grad, torch.zeros(1, 3))


@pytest.mark.parametrize("kind", ["p1", "p2sq", "mc"])
def test_fedaf_loss_is_the_papers_sum(settings, kind):
    s = settings("fedaf", swd=kind, lambda_loc=0.7, num_projections=100_000)
    real, syn = ClassMeans(rows(3, 6), rows(3, 4)), ClassMeans(rows(3, 6, seed=1), rows(3, 4, seed=2))
    v = rows(3, 4, seed=3).float()
    syn = ClassMeans(syn.features.float(), syn.logits.float())
    mask = torch.tensor([True, False, True])
    terms = fedaf_loss(s, v, mask, seed=9)(ClassMeans(real.features.float(), real.logits.float()), syn, 0)
    dm = float(np.square(real.features.numpy() - syn.features.numpy()).sum())
    delta = (syn.logits - v).numpy()[[0, 2]]
    lengths = np.linalg.norm(delta, axis=1)
    swd = {"p1": kappa(4) * lengths, "mc": kappa(4) * lengths, "p2sq": lengths**2 / 4}[kind].sum()
    assert float(terms["dm"]) == pytest.approx(dm, rel=1e-5)
    assert float(terms["swd"]) == pytest.approx(0.7 * swd, rel=1e-2 if kind == "mc" else 1e-5)


def test_monte_carlo_directions_differ_by_step_and_are_reproducible(settings):
    s = settings("fedaf", swd="mc", num_projections=5)
    v, means = torch.zeros(1, 4), ClassMeans(torch.zeros(1, 2), torch.ones(1, 4))

    def swd(seed, step):
        return float(fedaf_loss(s, v, torch.tensor([True]), seed)(means, means, step)["swd"])

    assert swd(1, 0) == swd(1, 0)
    assert len({swd(1, 0), swd(1, 1), swd(2, 0)}) == 3


@pytest.mark.parametrize(("weight", "mask"), [(0.0, [True, True]), (1.0, [False, False])])
def test_without_weight_or_known_logits_there_is_no_swd_term(settings, weight, mask):
    loss = fedaf_loss(settings("fedaf", lambda_loc=weight), torch.zeros(2, 3), torch.tensor(mask), 0)
    means = ClassMeans(torch.ones(2, 5), torch.ones(2, 3))
    assert set(loss(means, means, 0)) == {"dm"}


def test_feddm_matches_features_and_logits(settings):
    real = ClassMeans(rows(2, 5), rows(2, 3))
    syn = ClassMeans(rows(2, 5, seed=1), rows(2, 3, seed=2))
    terms = feddm_loss(settings("feddm"))(real, syn, 0)
    for name, a, b in (("dm", real.features, syn.features), ("logits", real.logits, syn.logits)):
        assert float(terms[name]) == pytest.approx(float(np.square(a.numpy() - b.numpy()).sum()))
    assert set(feddm_loss(settings("feddm", match_logits=False))(real, syn, 0)) == {"dm"}


def test_exact_means_are_the_means_over_all_records(network_of, make_data, monkeypatch):
    plan, network, w = network_of
    data = make_data((5, 0, 7))
    records = class_records(plan.task, data, (0, 2))
    monkeypatch.setattr("fedsecure.condensation.means.CHUNK", 3)
    means = exact_means(network, w, records)
    for row, c in enumerate((0, 2)):
        x = torch.tensor((data.x[data.y == c] - 0.4) / 0.3)
        features, logits = (t.numpy().astype(np.float64) for t in outputs(network, w, x))
        assert np.allclose(means.features[row].numpy(), features.mean(axis=0), atol=1e-6)
        assert np.allclose(means.logits[row].numpy(), logits.mean(axis=0), atol=1e-6)
    assert not means.features.requires_grad


def test_a_clip_bounds_each_records_logits_before_the_mean(network_of, make_data):
    plan, network, w = network_of
    data = make_data((9, 0, 0))
    records = class_records(plan.task, data, (0,))
    _, logits = outputs(network, w, torch.tensor((data.x - 0.4) / 0.3))
    expected = np.clip(logits.numpy(), -0.1, 0.1).mean(axis=0)
    clipped = exact_means(network, w, records, logit_clip=0.1)
    assert np.allclose(clipped.logits[0].numpy(), expected, atol=1e-6)
    assert np.abs(np.clip(logits.numpy().mean(axis=0), -0.1, 0.1) - expected).max() > 1e-4
    assert torch.equal(clipped.features, exact_means(network, w, records).features)


def test_batch_means_draw_without_replacement_and_take_all_of_a_small_class(network_of, make_data):
    plan, network, w = network_of
    records = class_records(plan.task, make_data((6, 0, 30)), (0, 2))
    exact = exact_means(network, w, records)
    drawn = batch_means(network, w, records, 6, generator())
    assert torch.allclose(drawn.features[0], exact.features[0], atol=1e-6)
    assert not torch.allclose(drawn.features[1], exact.features[1], atol=1e-4)
    assert torch.equal(drawn.features, batch_means(network, w, records, 6, generator()).features)
    everything = batch_means(network, w, records, 256, generator())
    assert torch.allclose(everything.features, exact.features, atol=1e-6)


def test_synthetic_means_group_images_by_class(network_of):
    _, network, w = network_of
    images = torch.randn(2, 3, 1, 8, 8, generator=generator())
    means = synthetic_means(network, w, images)
    for h in range(2):
        features, logits = outputs(network, w, images[h])
        assert torch.allclose(means.features[h], features.mean(dim=0), atol=1e-6)
        assert torch.allclose(means.logits[h], logits.mean(dim=0), atol=1e-6)


def test_gradient_on_the_pixels_is_that_of_the_formula(make_plan):
    """Finite differences in float64 through a network and the whole FedAF loss."""
    plan = make_plan("fedaf", table=True)
    w = {n: p.double() for n, p in parameters_of(build_model(plan.model, plan.task, 2)).items()}
    network = blank_network(plan.model, plan.task)
    real = ClassMeans(rows(2, 6), rows(2, 3))
    loss = fedaf_loss(plan.method, rows(2, 3, seed=5), torch.tensor([True, True]), 0)

    def total(images):
        return torch.stack(list(loss(real, synthetic_means(network, w, images), 0).values())).sum()

    assert torch.autograd.gradcheck(total, rows(2, 3, 5, seed=6).requires_grad_(True))


def test_gradient_of_the_feature_term_by_hand(make_plan):
    """Linear features: d/dx ||mu - mean(W x)||^2 = -2/P W^T (mu - mean(W x))."""
    weight, mu, images = rows(4, 5), rows(1, 4, seed=1), rows(1, 3, 5, seed=2).requires_grad_(True)
    syn = ClassMeans((images @ weight.T).mean(dim=1), torch.zeros(1, 3))
    loss = fedaf_loss(make_plan("fedaf").method, torch.zeros(1, 3), torch.tensor([False]), 0)
    loss(ClassMeans(mu, torch.zeros(1, 3)), syn, 0)["dm"].backward()
    residual = mu.numpy()[0] - images.detach().numpy()[0].mean(axis=0) @ weight.numpy().T
    expected = np.broadcast_to(-2 / 3 * residual @ weight.numpy(), (3, 5))
    assert np.allclose(images.grad.numpy()[0], expected)


def test_records_are_not_shown(make_plan, make_data):
    text = repr(class_records(make_plan("fedaf").task, make_data((5, 0, 7)), (0, 2)))
    assert json.dumps("tensor") not in text
    assert text == "ClassRecords([(0, 5), (2, 7)])"
