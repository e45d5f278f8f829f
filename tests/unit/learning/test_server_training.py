"""Knowledge matching against numpy, and the coordinator's training on condensed data."""

import numpy as np
import pytest
import torch

from fedsecure.errors import DataError
from fedsecure.method import Cancelled, ServerContext
from fedsecure.methods.lgkm import SoftLabels, lgkm_loss
from fedsecure.methods.server_training import Matching, stratified_order, train_on_condensed
from fedsecure.models import blank_network, build_model, outputs, parameters_of
from fedsecure.plan.methods import ServerTraining


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def softmax(z):
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def lgkm_by_hand(logits, labels, r, mask, tau):
    total, present = 0.0, sorted(set(labels.tolist()))
    for c in present:
        if mask[c]:
            t = softmax(logits[labels == c].mean(axis=0) / tau)
            total += 0.5 * sum(r[c] * np.log(r[c] / t) + t * np.log(t / r[c]))
    return total / len(present)


@pytest.mark.parametrize("mask", [[True] * 4, [True, False, True, True]])
def test_lgkm_is_the_papers_formula(mask):
    logits = torch.randn(9, 4, generator=generator(), dtype=torch.float64) * 3
    labels = torch.tensor([0, 0, 1, 1, 1, 3, 3, 0, 1])  # class 2 is absent
    r = torch.softmax(torch.randn(4, 4, generator=generator(1), dtype=torch.float64), dim=1)
    ours = lgkm_loss(logits, labels, SoftLabels(r, torch.tensor(mask), tau=2.0))
    by_hand = lgkm_by_hand(logits.numpy(), labels.numpy(), r.numpy(), mask, 2.0)
    assert float(ours) == pytest.approx(by_hand, rel=1e-12)


def test_lgkm_gradient_flows_through_the_model_alone_and_is_right():
    labels = torch.tensor([0, 1, 1, 2])
    r = torch.softmax(torch.randn(3, 3, generator=generator(1), dtype=torch.float64), dim=1)
    soft = SoftLabels(r, torch.tensor([True, True, False]), 1.5)
    logits = torch.randn(4, 3, generator=generator(), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: lgkm_loss(z, labels, soft), logits)
    lgkm_loss(logits, labels, soft).backward()
    assert torch.equal(logits.grad[3], torch.zeros(3, dtype=torch.float64))  # nobody holds class 2


def test_lgkm_is_zero_where_soft_labels_agree_and_finite_where_they_are_hard():
    logits = torch.tensor([[2.0, 0.0, -1.0], [0.0, 1.0, 0.0]])
    labels = torch.tensor([0, 1])
    agree = SoftLabels(
        torch.cat([torch.softmax(logits / 2, 1), torch.zeros(1, 3)]), torch.tensor([1, 1, 0]).bool(), 2.0
    )
    assert float(lgkm_loss(logits, labels, agree)) == pytest.approx(0, abs=1e-6)
    hard = SoftLabels(torch.eye(3), torch.ones(3, dtype=torch.bool), 2.0)
    assert torch.isfinite(lgkm_loss(logits * 1000, labels, hard))


def test_stratified_order_spreads_each_class_evenly():
    labels = torch.tensor([0] * 40 + [1] * 20 + [2] * 4)
    order = stratified_order(labels, generator())
    assert sorted(order.tolist()) == list(range(64))
    for batch in order.split(16):
        counts = torch.bincount(labels[batch], minlength=3).tolist()
        assert abs(counts[0] - 10) <= 1
        assert abs(counts[1] - 5) <= 1
        assert abs(counts[2] - 1) <= 1
    assert order.tolist() != stratified_order(labels, generator(1)).tolist()


@pytest.fixture
def problem(make_plan):
    plan = make_plan("fedaf")
    network = blank_network(plan.model, plan.task)
    w = parameters_of(build_model(plan.model, plan.task, 1))
    labels = torch.arange(3).repeat_interleave(4)
    images = torch.randn(3, 1, 8, 8, generator=generator(5))[labels] + 0.1 * torch.randn(
        12, 1, 8, 8, generator=generator(6)
    )
    r = torch.softmax(torch.randn(3, 3, generator=generator(1)), dim=1)
    return network, w, images, labels, SoftLabels(r, torch.ones(3, dtype=torch.bool), 2.0)


def train(problem, settings=None, matching=None, ctx=None):
    network, w, images, labels, _ = problem
    return train_on_condensed(network, w, images, labels, settings or QUICK, ctx or ServerContext(0, 3), matching)


QUICK = ServerTraining(epochs=40, batch=5, optimizer="sgd", lr=0.05)
FEW = QUICK.model_copy(update={"epochs": 4})


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("sampling", ["shuffle", "stratified"])
def test_training_learns_the_condensed_data_and_reports_it(problem, optimizer, sampling):
    _, w, *_ = problem
    before = {n: p.clone() for n, p in w.items()}
    reports = {}
    settings = ServerTraining(epochs=40, batch=5, lr=0.02, optimizer=optimizer, sampling=sampling)
    train(problem, settings, ctx=ServerContext(0, 3, report=reports.__setitem__))
    assert reports["server_accuracy"] == 1.0
    assert 0 < reports["server_ce"] < 0.2
    assert "server_lgkm" not in reports
    assert all(torch.equal(w[n], before[n]) for n in w)


def test_one_step_of_sgd_by_hand(problem):
    network, w, images, labels, _ = problem
    settings = ServerTraining(epochs=1, batch=12, optimizer="sgd", lr=0.1, momentum=0.9, weight_decay=0.01)
    leaf = {n: p.clone().requires_grad_(True) for n, p in w.items()}
    torch.nn.functional.cross_entropy(outputs(network, leaf, images)[1], labels).backward()
    trained = train(problem, settings)
    for name, p in w.items():
        assert torch.allclose(trained[name], p - 0.1 * (leaf[name].grad + 0.01 * p), atol=1e-6)


@pytest.mark.parametrize("scope", ["batch", "full"])
def test_matching_pulls_soft_labels_towards_the_nodes(problem, scope):
    network, w, images, labels, soft = problem
    reports = {}
    trained = train(problem, matching=Matching(soft, 20.0, scope), ctx=ServerContext(0, 3, report=reports.__setitem__))
    plain = train(problem)
    distance = [float(lgkm_loss(outputs(network, p, images)[1], labels, soft)) for p in (trained, plain, w)]
    assert distance[0] < 0.05 < min(distance[1:])
    assert reports["server_lgkm"] == pytest.approx(distance[0], abs=0.1)


def test_full_and_batch_matching_are_the_same_for_one_batch(problem):
    one = ServerTraining(epochs=3, batch=12, optimizer="sgd", lr=0.05)
    both = [train(problem, one, Matching(problem[4], 1.0, scope)) for scope in ("batch", "full")]
    assert all(torch.allclose(both[0][n], both[1][n], atol=1e-5) for n in both[0])
    small = [train(problem, FEW, Matching(problem[4], 1.0, scope)) for scope in ("batch", "full")]
    assert not torch.allclose(small[0]["head.weight"], small[1]["head.weight"], atol=1e-5)


def test_training_is_reproducible_and_differs_by_round(problem):
    first, again = train(problem, FEW), train(problem, FEW)
    assert all(torch.equal(first[n], again[n]) for n in first)
    other = train(problem, FEW, ctx=ServerContext(1, 3))
    assert not torch.equal(first["head.weight"], other["head.weight"])


def test_training_stops_when_asked(problem):
    seen = []
    with pytest.raises(Cancelled):
        train(
            problem,
            ctx=ServerContext(0, 3, progress=lambda *step: seen.append(step), cancelled=lambda: len(seen) == 2),
        )
    assert seen == [(1, 40), (2, 40)]


def test_divergence_is_named(problem):
    with pytest.raises(DataError, match="loss is not finite in epoch") as caught:
        train(problem, ServerTraining(epochs=60, batch=5, optimizer="sgd", lr=1000.0, weight_decay=900.0))
    assert "method.server.lr" in caught.value.hint
