"""The networks: sizes, initialisation without the global generator, state that travels."""

import numpy as np
import pytest
import torch
from torch import nn

from fedsecure.errors import ConfigError, DataError
from fedsecure.models import (
    blank_encoder,
    blank_network,
    build_model,
    draw_parameters,
    encode,
    encoder_specs,
    load_state,
    outputs,
    parameters_of,
    standardise,
    state_of,
    state_specs,
    to_parameters,
)
from fedsecure.plan.models import ConvNetSettings, LeNetSettings, MLPSettings, ResNetSettings
from fedsecure.plan.task import ImageTask, NumericColumn, TableTask
from fedsecure.tensors import Tensors


def images(channels, side, num_classes=10, **more):
    return ImageTask(
        kind="image", classes=tuple(f"c{i}" for i in range(num_classes)), shape=(channels, side, side), **more
    )


TABLE = TableTask(
    kind="table",
    classes=("no", "yes"),
    columns=tuple(NumericColumn(kind="numeric", name=f"f{i}", low=-1, high=1, mean=0, std=1) for i in range(7)),
)
ALL = [
    (ConvNetSettings(name="convnet", depth=2, width=6), images(3, 9)),
    (ConvNetSettings(name="convnet", depth=3, width=4), images(1, 28)),
    (ResNetSettings(name="resnet", blocks=(1, 1, 1), width=8, groups=4), images(3, 16)),
    (ResNetSettings(name="resnet", blocks=(2, 1), width=4, groups=4), images(1, 70)),
    (MLPSettings(name="mlp", hidden=(12, 5)), images(1, 8)),
    (MLPSettings(name="mlp", hidden=(12,)), TABLE),
    (LeNetSettings(name="lenet", channels=(4, 6), groups=(2, 3), hidden=7, padding=2, embedding=5), images(3, 8)),
    (ResNetSettings(name="resnet", blocks=(1, 1), width=4, groups=2, embedding=6), images(3, 16)),
]


@pytest.mark.parametrize(
    ("channels", "side", "num_classes", "count"), [(3, 32, 10, 320_010), (1, 28, 10, 317_706), (3, 32, 100, 504_420)]
)
def test_the_papers_convnet_has_the_papers_parameter_counts(channels, side, num_classes, count):
    network = blank_network(ConvNetSettings(name="convnet"), images(channels, side, num_classes))
    assert sum(p.numel() for p in network.parameters()) == count
    assert network.head.in_features == 2048


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (1, 2, 7, 9), (2, 1, 2, 3)])
def test_pooling_is_pytorchs_average_pooling(shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    ours = build_model(*ALL[0], 0).blocks[3](x)
    assert torch.allclose(ours, nn.AvgPool2d(2)(x), atol=1e-6)


def test_resnet_18_of_width_64_has_its_known_size():
    network = blank_network(ResNetSettings(name="resnet", blocks=(2, 2, 2, 2), width=64), images(3, 32))
    assert sum(p.numel() for p in network.parameters()) == 11_173_962


@pytest.mark.parametrize(("settings", "task"), ALL)
def test_features_and_logits_go_together(settings, task):
    network = build_model(settings, task, seed=3)
    x = torch.randn(5, *task.feature_shape, generator=torch.Generator().manual_seed(0))
    features, logits = outputs(blank_network(settings, task), parameters_of(network), x)
    assert features.shape == (5, network.head.in_features)
    assert logits.shape == (5, len(task.classes))
    assert torch.equal(features, network.features(x))
    assert torch.equal(logits, network(x))


@pytest.mark.parametrize(("settings", "task"), ALL)
def test_one_record_does_not_change_anothers_output(settings, task):
    network = build_model(settings, task, seed=3)
    x = torch.randn(4, *task.feature_shape, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(network(x)[:1], network(x[:1]), atol=1e-5)


@pytest.mark.parametrize(("settings", "task"), ALL)
def test_a_seed_fixes_the_model_and_another_changes_it(settings, task):
    assert state_of(build_model(settings, task, 1)) == state_of(build_model(settings, task, 1))
    assert state_of(build_model(settings, task, 1)) != state_of(build_model(settings, task, 2))


@pytest.mark.parametrize(("settings", "task"), ALL)
def test_specs_describe_the_state(settings, task):
    state = state_of(build_model(settings, task, 1))
    specs = state_specs(settings, task)
    assert [s.name for s in specs] == list(state)
    for spec in specs:
        spec.check_header(state[spec.name].dtype.name, state[spec.name].shape, {})
        spec.check_values(state[spec.name])


@pytest.mark.parametrize(
    ("layer", "default"),
    [
        (lambda: nn.Conv2d(16, 300, 3), lambda: nn.Conv2d(16, 300, 3)),
        (lambda: nn.Linear(40, 2000), lambda: nn.Linear(40, 2000)),
        (lambda: nn.GroupNorm(4, 8), lambda: nn.GroupNorm(4, 8)),
        (lambda: nn.LayerNorm(8), lambda: nn.LayerNorm(8)),
    ],
)
def test_draws_follow_pytorchs_default_distribution(layer, default):
    with torch.device("meta"):
        blank = layer()
    ours = draw_parameters(blank, torch.Generator().manual_seed(0))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        theirs = dict(default().named_parameters())
    assert list(ours) == list(theirs)
    quantiles = torch.linspace(0, 1, 21)
    for name, expected in theirs.items():
        a, b = ours[name].flatten(), expected.detach().flatten()
        spread = float(b.max() - b.min())
        a, b = torch.quantile(a, quantiles), torch.quantile(b, quantiles)
        assert float((a - b).abs().max()) <= 0.08 * spread
        if name == "weight" or spread == 0:  # the large ones
            assert float((a - b).abs().max()) <= 0.02 * spread


def test_an_unknown_kind_of_layer_is_not_left_uninitialised():
    with torch.device("meta"):
        blank = nn.PReLU()
    with pytest.raises(TypeError, match="PReLU"):
        draw_parameters(blank, torch.Generator())


def test_outputs_takes_foreign_parameters_and_leaves_its_own():
    settings, task = ALL[0]
    network = build_model(settings, task, 1)
    before = state_of(network)
    other = parameters_of(build_model(settings, task, 2))
    x = torch.randn(2, *task.feature_shape, generator=torch.Generator().manual_seed(0))
    _, logits = outputs(network, other, x)
    assert torch.equal(logits, build_model(settings, task, 2)(x))
    assert state_of(network) == before


def test_loading_a_state_gives_the_model_back():
    settings, task = ALL[2]
    state = state_of(build_model(settings, task, 1))
    network = build_model(settings, task, 2)
    load_state(network, state)
    assert state_of(network) == state
    assert all(p.dtype == torch.float32 and not p.requires_grad for p in to_parameters(state).values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: {n: a for n, a in s.items() if n != "head.bias"}, "tensor head.bias: the model has it"),
        (lambda s: {**s, "extra": np.zeros(1, np.float32)}, "tensor extra: the state has it"),
        (lambda s: {**s, "head.bias": np.zeros(3, np.float32)}, r"tensor head.bias: shape \[3\] where \[10\] is due"),
    ],
)
def test_a_state_of_another_model_is_refused_by_name(change, message):
    settings, task = ALL[0]
    network = build_model(settings, task, 1)
    with pytest.raises(DataError, match=message) as caught:
        load_state(network, Tensors(change(dict(state_of(network)))))
    assert caught.value.hint


def test_images_are_standardised_per_channel_and_rows_pass():
    x = torch.rand(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    task = images(3, 4, mean=(0.1, 0.2, 0.3), std=(0.5, 0.25, 2.0))
    expected = (x.numpy() - np.float32([0.1, 0.2, 0.3]).reshape(1, 3, 1, 1)) / np.float32([0.5, 0.25, 2]).reshape(
        1, 3, 1, 1
    )
    assert np.allclose(standardise(task, x).numpy(), expected, atol=1e-6)
    assert torch.allclose(standardise(images(3, 4), x), (x - 0.5) / 0.5)
    rows = torch.rand(2, 7, generator=torch.Generator().manual_seed(0))
    assert torch.equal(standardise(TABLE, rows), rows)


def test_a_convnet_on_a_table_is_refused():
    with pytest.raises(ConfigError, match="needs images"):
        build_model(ConvNetSettings(name="convnet"), TABLE, 0)


def test_groups_must_divide_the_width():
    with pytest.raises(ValueError, match="groups 8 does not divide width 12"):
        ResNetSettings(name="resnet", width=12, groups=8)


def test_the_pages_routing_encoder_has_its_known_size():
    """FedSPM page, P11: 0.89 M parameters on three channels of 32 pixels."""
    settings, task = LeNetSettings(name="lenet", embedding=32), images(3, 32)
    assert sum(int(np.prod(s.shape)) for s in encoder_specs(settings, task)) == 891_040


def test_an_encoder_is_its_network_without_the_head():
    settings, task = ConvNetSettings(name="convnet", depth=2, width=4, embedding=5), images(1, 8)
    network = build_model(settings, task, 3)
    parameters = {n: p for n, p in parameters_of(network).items() if not n.startswith("head.")}
    encoder = blank_encoder(settings, task)
    x = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    assert encoder.dim == 5
    assert torch.equal(encode(encoder, parameters, x), network.features(x))
    assert {s.name for s in encoder_specs(settings, task)} == set(parameters)
    assert float(network.features(x).detach().min()) >= 0  # behind a ReLU
