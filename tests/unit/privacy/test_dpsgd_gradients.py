"""Gradients of single records are right, and no record moves the clipped sum by more than the clip."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from dp_training import VARIANTS, Exact, context, dp_plan, exchange, records, update, without
from opacus.grad_sample import GradSampleModule
from torch import nn

from fedsecure.errors import ConfigError
from fedsecure.methods import build_method
from fedsecure.methods.joint import outer_name
from fedsecure.mixture.experts import head_log_probabilities, label_log_probabilities, responsibilities
from fedsecure.mixture.gate import joint_logits
from fedsecure.models import outputs, standardise, to_parameters
from fedsecure.privacy import dpsgd
from fedsecure.privacy.clipping import clipped_sums
from fedsecure.privacy.dpsgd import Group, dp_sgd
from fedsecure.tensors import Tensors


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def captured(monkeypatch):
    """captured(plan, data, **context): the module, groups and columns that a method hands to DP-SGD."""

    def run(plan, data, **more):
        held = []

        def keep(module, groups, columns, ctx, after_noise=None):
            held.append((module, groups, columns))
            return {name: p.detach() for name, p in module.named_parameters()}

        monkeypatch.setattr("fedsecure.privacy.dpsgd.dp_sgd", keep)
        update(plan, data, context(plan, data, Exact(), **more))
        monkeypatch.undo()
        return held[0]

    return run


def record_gradients(module, columns):
    """Each record's gradient of ``module``, by Opacus as DP-SGD uses it: name -> (n, *shape)."""
    dpsgd._register_layers(module)
    wrapped = GradSampleModule(module, loss_reduction="sum", strict=False)
    wrapped(*columns).sum().backward()
    return {name: p.grad_sample for name, p in module.named_parameters()}


def losses_by_hand(plan, p, x, y):
    """The loss of the records, by the functional networks that the methods have without privacy."""
    method = build_method(plan)
    if plan.method.name == "fedavg":
        return F.cross_entropy(outputs(method.network, p, x)[1], y)
    g, h = method.predict_features(p, x), method.route_features(p, x)
    label_log = label_log_probabilities(head_log_probabilities(g, p["alpha"], p["beta"]), y)
    constant = p["mixing"].log() if "mixing" in p else 0
    logits = joint_logits(h, p["xi"], p["bias"] + constant)
    w = responsibilities(logits[:, 0].detach(), label_log.detach())
    joint = torch.log_softmax(logits.flatten(1), dim=1).reshape(logits.shape)[:, 0]
    shares = (0.9, 0.1) if getattr(plan.method, "backbone", "") == "shared" else (1, 1)
    return -(w * (shares[0] * label_log + shares[1] * joint)).sum()


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("variant", VARIANTS)
def test_gradients_of_records_equal_brute_force(variant, captured):
    plan, data = dp_plan(variant, privacy={"mixing_every": 2}), records()
    module, _, columns = captured(plan, data, round=1)
    found = record_gradients(module, columns)
    method = build_method(plan)
    sent = to_parameters(method.broadcast(exchange(plan), method.init_server(0)))
    heads = {} if variant == "fedavg" else method.fresh_heads("cpu")
    if variant == "fedavg":
        sent, name_of = {n.removeprefix("model."): p for n, p in sent.items()}, lambda inner: inner[len("network.") :]
    else:
        name_of = outer_name
    p = {n: v.clone().requires_grad_(n != "mixing") for n, v in {**sent, **heads}.items()}
    assert {name_of(n) for n in found} == set(p) - {"mixing"}
    x, y = standardise(plan.task, torch.tensor(data.x)), torch.tensor(data.y)
    for j in range(len(data)):
        for tensor in p.values():
            tensor.grad = None
        losses_by_hand(plan, p, x[j : j + 1], y[j : j + 1]).backward()
        for inner, gradient in found.items():
            due = p[name_of(inner)].grad
            assert torch.allclose(gradient[j], due, rtol=1e-6, atol=2e-6), (inner, j)
    assert sum(float(g.abs().sum()) for g in found.values()) > 1


def clipped_sum(plan, data, change=None):
    """The sum that a step on all records of ``data`` hands to the noise."""
    noise = Exact()
    update(plan, data, context(plan, data, noise, records=50), change=change)
    assert noise.asked == [(plan.privacy.clip, plan.privacy.sigma)]
    return noise.sums[0]


@pytest.mark.parametrize("hostile", [False, True])
@pytest.mark.parametrize("variant", [v for v in VARIANTS if v != "fedspm explicit"])
def test_leaving_out_any_record_moves_the_sum_by_at_most_the_clip(variant, hostile):
    """Parameters may be anything within their range, and records anything finite: one is absurdly far out."""
    plan, data, clip = dp_plan(variant, privacy={"steps": 1, "clip": 0.7}), records(9), 0.7
    change = (lambda _, a: (a * 300 if a.dtype == np.float32 else a).clip(-1000, 1000)) if hostile else None
    if hostile:
        data.x[4] = 3e38
    whole = clipped_sum(plan, data, change)
    assert whole.isfinite().all()
    moved = [float((whole - clipped_sum(plan, without(data, j), change)).norm()) for j in range(len(data))]
    assert max(moved) <= clip
    assert max(moved) > 0.9 * clip, "the clip was not reached, so that nothing was tested"


def test_a_record_is_clipped_to_the_clip_and_no_longer():
    torch.manual_seed(0)
    samples = [torch.randn(5, 4, 3), torch.randn(5), torch.zeros(5, 0)]
    samples[0][0], samples[1][0] = 1e-3, 1e-3
    samples[0][1], samples[1][2], samples[0][3, 0, 0] = 1e30, float("nan"), float("inf")
    for clip in (1e-6, 1.0, 1e6):
        for j in range(5):
            (one, other, none) = clipped_sums([s[j : j + 1] for s in samples], clip)
            norm = float(torch.cat((one.flatten(), other.flatten())).norm())
            before = float(torch.cat((samples[0][j].flatten(), samples[1][j : j + 1])).double().norm())
            assert norm <= clip
            assert norm == pytest.approx(min(before, clip) if np.isfinite(before) else 0.0, rel=2e-6)
            assert none.shape == (0,)
    assert all(not s.any() for s in clipped_sums([s[:0] for s in samples], 1.0))


def fit_heads(module, columns, steps=60):
    """Train the heads alone on the records, without noise, as nobody may."""
    for _ in range(steps):
        module.zero_grad()
        module(*columns).mean().backward()
        with torch.no_grad():
            for name, p in module.named_parameters():
                if name.startswith("heads."):
                    p.sub_(p.grad, alpha=3.0)


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_a_head_trained_outside_lets_a_record_move_the_sum_by_more_than_the_clip_and_is_refused(captured):
    """What the accountant assumes would be wrong for every other record; the configuration is what we can see."""
    plan, clip = dp_plan("feddrm", privacy={}), 1.0
    data = records(13)
    data.y[:] = np.r_[np.zeros(6, np.int64), np.ones(6, np.int64), 2]  # one record alone has the last class
    data.x[:] = data.x[:1] + 0.01 * data.x  # and all look alike

    def summed(part):
        module, _, columns = captured(plan, part)
        fit_heads(module, columns)
        found = record_gradients(module, columns)
        sums = clipped_sums([g for n, g in found.items() if not n.startswith("heads.")], clip)
        return torch.cat([s.flatten() for s in sums])

    assert float((summed(data) - summed(without(data, 12))).norm()) > 1.2 * clip
    check_heads_outside_are_refused(*captured(plan, data), context(plan, data))


def check_heads_outside_are_refused(module, groups, columns, ctx):
    inside = [Group(tuple(n for n in g.names if not n.startswith("heads.")), g.lr) for g in groups]
    with pytest.raises(ConfigError, match=r"parameter heads\.\w+: is outside the mechanism"):
        dp_sgd(module, inside, columns, ctx)
    module.heads.requires_grad_(False)
    with pytest.raises(ConfigError, match=r"parameter heads\.\w+: is outside the mechanism"):
        dp_sgd(module, groups, columns, ctx)
    module.requires_grad_(True)
    loose = torch.ones(1, requires_grad=True)

    class Smuggling(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = module

        def forward(self, *columns):
            return self.inner(*columns) * loose[0]

    renamed = [Group(tuple(f"inner.{n}" for n in g.names), g.lr) for g in groups]
    with pytest.raises(ConfigError, match=r"a tensor of shape \[1\]: is outside the mechanism"):
        dp_sgd(Smuggling(), renamed, columns, ctx)


def test_local_heads_are_in_the_mechanism():
    """With a clip that lets nothing through, heads stay where they are, too."""
    plan, data = dp_plan("fedspm 1x", privacy={"clip": 1e-30, "sigma": 1e-6}), records()
    local, _ = update(plan, data, context(plan, data))
    fresh = build_method(plan).fresh_heads("cpu")
    heads = Tensors({n: local[f"head.{n}"] for n in fresh})
    moved = dp_plan("fedspm 1x", privacy={"clip": 1e3, "sigma": 1e-6})
    other, _ = update(moved, data, context(moved, data))
    decay = 1 - moved.method.predict.lr * moved.method.predict.weight_decay
    assert np.allclose(heads["beta"], fresh["beta"].numpy(), rtol=20 * 15 * (1 - decay), atol=0)
    assert not np.allclose(other["head.beta"], fresh["beta"].numpy(), rtol=0, atol=1e-3)
