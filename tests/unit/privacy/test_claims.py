"""Ways to break a claim of differential privacy that no setting opens: what docs/privacy-labels.md says of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel
from torch import nn

from fedsecure.config import validate
from fedsecure.data.check import check_dataset
from fedsecure.data.dataset import Dataset
from fedsecure.errors import ConfigError, DataError
from fedsecure.methods import build_method
from fedsecure.models import build_model
from fedsecure.plan import Plan
from fedsecure.plan.methods import FedAFSettings, FedAvgSettings, FedDMSettings, FedDRMSettings, FedSPMSettings
from fedsecure.plan.privacy import DPSGDSettings, PerStepSettings, ReleaseSettings

DP_SGD = {"kind": "dp-sgd", "sigma": 1.0}
RELEASE = {"kind": "release", "sigma": 5.0}
NODES = {"min_nodes": 2, "nodes": ["a", "b"]}


def plan(method: dict[str, Any], privacy: dict[str, Any] | None, **changes: Any) -> Plan:
    raw = {
        "format": 1,
        "name": "p",
        "rounds": 1,
        "task": {"kind": "image", "classes": ("x", "y"), "shape": [1, 8, 8]},
        "model": {"name": "convnet", "depth": 1, "width": 4},
        "method": method,
        "cohort": NODES,
        **({} if privacy is None else {"privacy": privacy}),
        **changes,
    }
    return validate(Plan, raw, "plan")


@pytest.mark.parametrize(
    ("method", "privacy", "said"),
    [
        ({"name": "fedspm", "diagnostics": "summed"}, DP_SGD, "sends sums without noise"),
        ({"name": "feddrm", "diagnostics": "summed"}, DP_SGD, "sends sums without noise"),
        ({"name": "fedaf", "init": "avg"}, RELEASE, "shows records without noise"),
        ({"name": "feddm", "init": "real"}, RELEASE, "shows records without noise"),
        ({"name": "fedaf"}, DP_SGD, "has no place in method 'fedaf'"),
        ({"name": "fedavg", "local_steps": 1}, RELEASE, "has no place in method 'fedavg'"),
    ],
)
def test_a_plan_that_would_send_something_without_noise_is_none(method, privacy, said):
    with pytest.raises(ConfigError, match=said):
        plan(method, privacy)
    plan(method, None)  # which other plans may


@pytest.mark.parametrize(
    ("method", "privacy"),
    [
        ({"name": "fedavg", "local_steps": 1}, DP_SGD),
        ({"name": "fedspm"}, DP_SGD),
        ({"name": "fedspm", "parametrisation": "explicit", "share_counts": True}, DP_SGD),
        ({"name": "feddrm", "backbone": "shared", "branch": 8}, DP_SGD),
        ({"name": "fedaf"}, RELEASE),
        ({"name": "feddm"}, RELEASE),
    ],
)
def test_what_leaves_is_on_the_schema_and_no_metric_is(method, privacy):
    """Losses, accuracies and gradients' norms have no tensor to leave in."""
    made = build_method(plan(method, privacy))
    for exchange in made.exchanges:
        schema = made.schema(exchange)
        for spec in (*schema.summed, *schema.released):
            assert not any(word in f"{spec.name} {spec.role}" for word in ("loss", "accuracy", "likelihood", "metric"))


def test_no_setting_stops_early_or_chooses_a_round():
    def keys(settings: type[BaseModel]) -> set[str]:
        found = set(settings.model_fields)
        for each in settings.model_fields.values():
            if isinstance(each.annotation, type) and issubclass(each.annotation, BaseModel):
                found |= keys(each.annotation)
        return found

    every = {
        key
        for settings in (
            *(FedAFSettings, FedAvgSettings, FedDMSettings, FedDRMSettings, FedSPMSettings),
            *(DPSGDSettings, PerStepSettings, ReleaseSettings),
        )
        for key in keys(settings)
    }
    assert {"sigma", "lr_img", "warm_start"} <= every, "the walk sees settings"
    assert not [
        key for key in every if any(word in key for word in ("early", "patience", "valid", "best", "weighting"))
    ]


@pytest.mark.parametrize(
    "model",
    [
        {"name": "convnet", "depth": 3},
        {"name": "resnet"},
        {"name": "lenet", "padding": 2},
        {"name": "mlp", "hidden": [8]},
    ],
)
def test_no_network_that_is_shipped_has_statistics_of_a_batch(model):
    made = plan({"name": "fedavg", "local_steps": 1}, DP_SGD, model=model)
    network = build_model(made.model, made.task, 0)
    kinds = (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)
    assert not [name for name, module in network.named_modules() if isinstance(module, kinds)]


def test_exact_counts_decide_nothing_of_a_private_plan():
    """Whether a class has enough records, and so whether a node joins, would tell of one of them."""
    y = np.repeat(np.arange(2), (5, 4)).astype(np.int64)
    data = Dataset(np.random.default_rng(0).random((9, 1, 8, 8), dtype=np.float32), y, ("x", "y"))
    method = {"name": "fedaf", "min_count": 10}
    with pytest.raises(DataError, match="no class has 10 records"):
        check_dataset(data, plan(method, None))
    assert check_dataset(data, plan(method, RELEASE)).floor == 1
