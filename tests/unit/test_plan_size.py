"""Sizes are computed from settings as the networks really have them, and products beyond bounds are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedsecure.config import validate
from fedsecure.errors import ConfigError
from fedsecure.methods import build_method
from fedsecure.models import build_model
from fedsecure.models.network import normed_embedding
from fedsecure.plan import Plan
from fedsecure.plan.parameters import encoder_shapes, feature_width, normed_linear, parameter_shapes
from fedsecure.plan.size import header_bytes, parameter_count, release_bytes
from fedsecure.schema import Axis, Contribution, TensorSpec
from fedsecure.secagg.values.masked import masked_streams
from fedsecure.tensors import Tensors
from fedsecure.wire.codec import encode_contribution

IMAGE = {"kind": "image", "classes": ["a", "b", "c"], "shape": [1, 28, 28]}
TABLE = {
    "kind": "table",
    "classes": ["a", "b"],
    "columns": [{"kind": "numeric", "name": "x", "low": 0, "high": 1, "mean": 0, "std": 1}],
}


def plan(task: dict[str, Any], model: dict[str, Any], method: dict[str, Any] | None = None) -> Plan:
    raw = {"format": 1, "name": "p", "rounds": 1, "task": task, "model": model}
    return validate(Plan, {**raw, "method": method or {"name": "fedaf"}}, "plan")


MODELS = [
    (IMAGE, {"name": "convnet", "depth": 3, "width": 128}),
    ({**IMAGE, "shape": [3, 32, 32]}, {"name": "convnet", "depth": 2, "width": 7}),
    ({**IMAGE, "shape": [2, 33, 20]}, {"name": "convnet", "depth": 4, "width": 5}),
    (IMAGE, {"name": "resnet", "blocks": [1, 1, 1], "width": 16, "groups": 8}),
    ({**IMAGE, "shape": [3, 96, 80]}, {"name": "resnet", "blocks": [2, 1], "width": 8, "groups": 2}),
    (IMAGE, {"name": "mlp", "hidden": [16, 4]}),
    (TABLE, {"name": "mlp", "hidden": [3]}),
    (IMAGE, {"name": "convnet", "depth": 3, "width": 8, "embedding": 5}),
    (IMAGE, {"name": "resnet", "blocks": [1, 1], "width": 8, "groups": 4, "embedding": 6}),
    (TABLE, {"name": "mlp", "hidden": [3], "embedding": 2}),
    (IMAGE, {"name": "lenet", "channels": [4, 8], "groups": [2, 4], "hidden": 9}),
    ({**IMAGE, "shape": [3, 32, 32]}, {"name": "lenet", "embedding": 32}),
    ({**IMAGE, "shape": [3, 8, 9]}, {"name": "lenet", "padding": 2, "embedding": 4}),
]


@pytest.mark.parametrize(("task", "model"), MODELS)
def test_parameters_are_those_of_the_built_network(task: dict[str, Any], model: dict[str, Any]) -> None:
    made = plan(task, model)
    network = build_model(made.model, made.task, 0)
    assert parameter_count(made.model, made.task) == sum(p.numel() for p in network.parameters())
    shapes = {name: tuple(p.shape) for name, p in sorted(network.named_parameters())}
    assert list(parameter_shapes(made.model, made.task).items()) == list(shapes.items())
    body = {name: shape for name, shape in shapes.items() if not name.startswith("head.")}
    assert list(encoder_shapes(made.model, made.task).items()) == list(body.items())
    assert feature_width(made.model, made.task) == network.head.in_features


def test_a_branch_has_the_parameters_of_the_built_one() -> None:
    branch = normed_embedding(7, 3)
    assert branch is not None
    assert normed_linear(7, 3) == {name: tuple(p.shape) for name, p in sorted(branch.named_parameters())}


@pytest.mark.parametrize("method", [{"name": "fedaf"}, {"name": "feddm"}, {"name": "fedavg", "local_epochs": 1}])
def test_no_schema_allows_more_than_the_computed_release(method: dict[str, Any]) -> None:
    made = plan(IMAGE, {"name": "convnet"}, method)
    built = build_method(made)
    assert max(built.schema(e).max_nbytes for e in built.exchanges) <= release_bytes(made) + 64


def largest(specs: tuple[TensorSpec, ...]) -> Tensors:
    return Tensors(
        {s.name: np.zeros([d.high if isinstance(d, Axis) else d for d in s.shape], np.dtype(s.dtype)) for s in specs}
    )


NODES = {"nodes": ["hospital-a", "hospital-b", "hospital-c"]}
DEEP = {"name": "resnet", "blocks": [5, 5], "width": 8}


@pytest.mark.parametrize(
    "method",
    [
        {"name": "fedaf"},
        {"name": "fedaf", "sync": "stale"},
        {"name": "feddm"},
        {"name": "fedavg", "local_epochs": 1},
        {"name": "fedspm"},
        {"name": "fedspm", "encoders": "separate", "parametrisation": "explicit", "diagnostics": "summed"},
        {"name": "fedspm", "share_counts": True, "router": {"name": "mlp"}},
        {"name": "feddrm", "share_counts": True, "route_prior": "density"},
        {"name": "feddrm", "backbone": "shared"},
    ],
)
@pytest.mark.parametrize("model", [DEEP, {"name": "mlp", "hidden": [4]}, {"name": "convnet"}])
def test_the_largest_release_with_its_headers_is_known_beforehand(
    method: dict[str, Any], model: dict[str, Any]
) -> None:
    raw = {"format": 1, "name": "p", "rounds": 1, "task": IMAGE, "model": model, "method": method, "cohort": NODES}
    made = validate(Plan, raw, "plan")
    built = build_method(made)
    schemas = [built.schema(e) for e in built.exchanges]
    sizes = [len(encode_contribution(Contribution(largest(s.summed), largest(s.released))).data) for s in schemas]
    bound = release_bytes(made) + header_bytes(made)
    assert sum(sizes) <= bound <= max(sizes) + 400 * sum(len((*s.summed, *s.released)) + 10 for s in schemas)


@pytest.mark.parametrize(
    "method",
    [
        {"name": "fedaf", "averaging": "holders_weighted"},
        {"name": "fedavg", "local_epochs": 1},
        {"name": "fedspm"},
        {"name": "fedspm", "encoders": "separate", "parametrisation": "explicit", "diagnostics": "summed"},
        {"name": "feddrm", "backbone": "shared"},
    ],
)
def test_masked_vectors_are_the_size_of_a_plan_that_may_be_masked(method: dict[str, Any]) -> None:
    raw = {"format": 1, "name": "p", "rounds": 1, "task": IMAGE, "model": DEEP, "method": method}
    cohort = {"min_nodes": 3, "nodes": NODES["nodes"]}
    made = validate(Plan, {**raw, "cohort": cohort, "secagg": "required"}, "plan")
    built = build_method(made)
    leaves = 0
    for exchange in built.exchanges:
        schema = built.schema(exchange)
        streams = masked_streams(schema, method=made.method.name, exchange=exchange, nodes=len(cohort["nodes"]))
        released = encode_contribution(Contribution(largest(()), largest(schema.released)))
        leaves += len(released.data) + sum(stream.spec.nbytes for stream in streams)
    assert leaves <= release_bytes(made) + header_bytes(made)
    plain = made.model_copy(update={"secagg": "off"})
    assert release_bytes(plain) < release_bytes(made) <= 2 * release_bytes(plain)


def test_products_beyond_bounds_are_refused() -> None:
    huge = {"kind": "image", "classes": [str(i) for i in range(10)], "shape": [4, 1024, 1024]}
    with pytest.raises(ConfigError, match=r"model: [0-9,]+ parameters \(allowed: <= 200,000,000\)"):
        plan(huge, {"name": "convnet", "depth": 2, "width": 4096})
    with pytest.raises(ConfigError, match=r"a release of one node could have [0-9,]+ bytes"):
        plan(huge, {"name": "convnet", "depth": 8, "width": 4}, {"name": "fedaf", "ipc": 10_000})
