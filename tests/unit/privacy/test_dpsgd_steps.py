"""Steps of DP-SGD: without noise they are SGD's, in parts they are the same, and what breaks the claim is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from dp_training import Exact, context, dp_plan, records, update
from torch import nn

from fedsecure.errors import ConfigError, LocalProtocolError
from fedsecure.method import Cancelled, ClientContext
from fedsecure.plan.privacy import DPSGDSettings
from fedsecure.privacy.context import PrivacyContext
from fedsecure.privacy.dpsgd import Group, dp_sgd
from fedsecure.privacy.noise import noise_source


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


STEP = {"steps": 3, "batch": 64, "lr": 0.05, "momentum": 0.8, "weight_decay": 0.01}
PLAIN = {
    "fedavg": {"lr": 0.1, "prox_mu": 2.0, "weight_decay": 0.01},
    "feddrm shared": {"predict": STEP},
    "feddrm": {"predict": STEP, "route": {**STEP, "lr": 0.1}},
    "fedspm 1x": {"predict": STEP, "route": {**STEP, "lr": 0.1}},
    "fedspm Cx": {"predict": STEP, "route": {**STEP, "lr": 0.1}},
}


@pytest.mark.parametrize("variant", PLAIN)
def test_without_noise_and_clip_a_full_batch_is_plain_training(variant):
    """f1 and f2 of FedSPM share no parameter, so that one joint step is its two M-steps at once."""
    data = records()
    due = dp_plan(variant, **PLAIN[variant])
    ctx = ClientContext("one", 0, 5)
    local, made = update(due, data, ctx)
    plan = dp_plan(variant, privacy={"steps": 3, "batch": 64, "clip": 1e4, "sigma": 1e-10}, **PLAIN[variant])
    private_local, private_made = update(plan, data, context(plan, data))
    assert set(private_made.summed) == set(made.summed)
    for name, array in made.summed.items():
        assert np.allclose(private_made.summed[name], array, atol=1e-4), name
    for name in ("head.alpha", "head.beta"):
        if name in local:
            assert np.allclose(private_local[name], local[name], atol=1e-5)


def trained(variant, seed, data=None, **privacy):
    data = records(40) if data is None else data
    plan = dp_plan(variant, privacy={"batch": 20, "steps": 4, **privacy})
    _, made = update(plan, data, context(plan, data, noise_source("torch", seed)))
    return made.summed


@pytest.mark.parametrize("variant", ["fedavg", "fedspm 1x"])
def test_parts_of_a_batch_give_what_the_batch_gives(variant):
    whole, parts = (trained(variant, 7, physical_batch=size) for size in (1000, 3))
    for name, array in whole.items():
        assert np.allclose(parts[name], array, atol=2e-4), name
    assert any(not np.allclose(trained(variant, 8)[n], a, atol=1e-2) for n, a in whole.items())


@pytest.mark.parametrize("noise", ["csprng", "discrete"])
def test_a_seeded_pytorch_trains_another_model_each_time(noise):
    plan, data, found = dp_plan("fedavg", privacy={"noise": noise}), records(), []
    state = torch.get_rng_state()
    for _ in range(2):
        torch.manual_seed(0)
        found.append(update(plan, data, context(plan, data, noise_source(noise)))[1].summed["model.head.weight"])
    torch.set_rng_state(state)
    assert not np.allclose(found[0], found[1], atol=1e-2)


class Linear(nn.Module):
    """Records (n, 2) to losses (n,): w . x, whose gradient is x."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1, bias=False)
        nn.init.zeros_(self.layer.weight)

    def forward(self, x):
        return self.layer(x)[:, 0]


def linear_context(noise, records_=10, **settings):
    kept = DPSGDSettings(**{"kind": "dp-sgd", "sigma": 1.0, "steps": 1, "batch": 4, **settings})
    privacy = PrivacyContext(settings=kept, counts=(records_,), records=records_, noise=noise)
    return ClientContext("one", 0, 5, report={}.__setitem__, privacy=privacy)


class Chosen(Exact):
    """Samples that are given, one after the other; remembers the rates."""

    def __init__(self, *samples):
        super().__init__()
        self.samples, self.rates = list(samples), []

    def sample(self, records, q):
        self.rates.append(q)
        return np.array(self.samples.pop(0), np.int64)


GROUPS = [Group(("layer.weight",), lr=1.0)]


def test_the_divisor_is_the_expected_batch_and_never_the_batch():
    x = torch.tensor([[0.3, 0.0], [0.0, 0.4], [0.1, 0.1]])
    for sample in ([0], [0, 1, 2]):
        noise = Chosen(sample)
        moved = dp_sgd(Linear(), GROUPS, [x], linear_context(noise))["layer.weight"]
        assert torch.allclose(moved[0], -x[sample].sum(dim=0) / 4, atol=1e-6)
        assert noise.rates == [0.4]
    noise = Chosen([0])
    moved = dp_sgd(Linear(), GROUPS, [x], linear_context(noise, records_=3))["layer.weight"]
    assert torch.allclose(moved[0], -x[0] / 3, atol=1e-6)
    assert noise.rates == [1.0]


@pytest.mark.parametrize("count", [0, 3])
def test_an_empty_batch_is_a_step_of_noise_alone(count):
    """Of a node without any record of a class that takes part, too: its n is public, what it has left is not."""
    noise = Chosen([], [])
    ctx = linear_context(noise, steps=2)
    moved = dp_sgd(Linear(), GROUPS, [torch.ones(count, 2)], ctx)["layer.weight"]
    assert torch.equal(moved, torch.zeros(1, 2))
    assert [s.tolist() for s in noise.sums] == [[0, 0], [0, 0]]
    real = linear_context(noise_source("csprng"), steps=20)
    assert dp_sgd(Linear(), GROUPS, [torch.ones(count, 2)], real)["layer.weight"].abs().min() > 0


def test_momentum_sees_noisy_gradients_and_starts_from_zero():
    x = torch.tensor([[0.5, 0.0]])
    groups = [Group(("layer.weight",), lr=1.0, momentum=0.5)]
    for _ in range(2):
        moved = dp_sgd(Linear(), groups, [x], linear_context(Chosen([0], []), steps=2))["layer.weight"]
        assert torch.allclose(moved, torch.tensor([[-0.125 - 0.0625, 0.0]]), atol=1e-6)


def test_noise_has_the_plans_size():
    ctx = linear_context(noise_source("csprng"), sigma=2.0, clip=3.0)
    moved = [dp_sgd(Linear(), GROUPS, [torch.ones(0, 2)], ctx)["layer.weight"] for _ in range(150)]
    assert torch.cat(moved).std().item() == pytest.approx(2.0 * 3.0 / 4, rel=0.25)


class Wrapped(nn.Module):
    """One layer, then the mean of its outputs: a loss for each record, or what ``reduce`` makes of them."""

    def __init__(self, layer, reduce=lambda losses: losses):
        super().__init__()
        self.first, self.layer, self.reduce = nn.Conv2d(1, 2, 1), layer, reduce

    def forward(self, x):
        return self.reduce(self.layer(self.first(x)).flatten(1).mean(dim=1))


@pytest.mark.parametrize(
    "layer",
    [
        nn.BatchNorm2d(2),
        nn.BatchNorm2d(2, affine=False),
        nn.BatchNorm2d(2, track_running_stats=False),
        nn.SyncBatchNorm(2),
        nn.InstanceNorm2d(2, track_running_stats=True),
        nn.Sequential(nn.Flatten(), nn.BatchNorm1d(32)),
    ],
)
def test_layers_that_mix_records_are_refused_by_name(layer):
    module = Wrapped(layer)
    groups = [Group(tuple(n for n, _ in module.named_parameters()), 0.1)]
    with pytest.raises(ConfigError, match=r"layer layer(\.1)? \(\w+Norm\w*\): its output for one record") as caught:
        dp_sgd(module, groups, [torch.rand(4, 1, 4, 4)], linear_context(noise_source("csprng")))
    assert "GroupNorm" in caught.value.hint


@pytest.mark.parametrize("layer", [nn.GroupNorm(2, 2), nn.InstanceNorm2d(2, affine=True), nn.LayerNorm([2, 4, 4])])
def test_layers_that_keep_records_apart_are_trained(layer):
    module = Wrapped(layer)
    groups = [Group(tuple(n for n, _ in module.named_parameters()), 0.1)]
    dp_sgd(module, groups, [torch.rand(4, 1, 4, 4)], linear_context(noise_source("csprng")))


def test_a_layer_without_gradients_of_records_is_refused_by_name():
    module = nn.ModuleDict({"layer": nn.LSTM(2, 2)})
    groups = [Group(tuple(n for n, _ in module.named_parameters()), 0.1)]
    with pytest.raises(ConfigError, match=r"layer layer \(LSTM\)"):
        dp_sgd(module, groups, [torch.rand(4, 2)], linear_context(noise_source("csprng")))


def test_a_mean_over_the_batch_is_no_loss_of_records():
    module = Wrapped(nn.Identity(), reduce=torch.mean)
    groups = [Group(tuple(n for n, _ in module.named_parameters()), 0.1)]
    with pytest.raises(ConfigError, match=r"a loss of shape \[\] where one for each of \d records is due"):
        dp_sgd(module, groups, [torch.rand(4, 1, 4, 4)], linear_context(Exact(), records_=4))


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([], "parameter layer.weight: is outside the mechanism"),
        (GROUPS * 2, "parameter layer.weight: is in two groups"),
        ([*GROUPS, Group(("other",), 0.1)], "parameter other: the module has none of that name"),
    ],
)
def test_groups_hold_every_parameter_once(groups, message):
    with pytest.raises(ConfigError, match=message):
        dp_sgd(Linear(), groups, [torch.ones(3, 2)], linear_context(Exact()))


def test_without_settings_or_records_there_is_no_dp_sgd():
    for ctx in (ClientContext("one", 0, 5), linear_context(Exact(), records_=0)):
        with pytest.raises(LocalProtocolError, match="DP-SGD"):
            dp_sgd(Linear(), GROUPS, [torch.ones(3, 2)], ctx)


def test_it_stops_when_asked_between_parts_of_a_batch():
    plan, data, asked = dp_plan("fedavg", privacy={"physical_batch": 1, "steps": 1}), records(), []
    ctx = context(plan, data, Exact(), cancelled=lambda: asked.append(1) or len(asked) > 5)
    with pytest.raises(Cancelled):
        update(plan, data, ctx)
    assert len(asked) == 6


def test_progress_and_reports_tell_nothing_of_records():
    seen = []
    for variant in ("fedavg", "fedspm 1x", "fedspm explicit", "feddrm shared"):
        plan, data = dp_plan(variant, privacy={"steps": 3}), records()
        ctx = context(plan, data, progress=lambda *step: seen.append(step))
        update(plan, data, ctx)
        assert set(ctx.report.__self__) == {"noisy_gradient"}
    assert seen == [(i, 3) for i in (1, 2, 3)] * 4
