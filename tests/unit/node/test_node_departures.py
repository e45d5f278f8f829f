"""What ``plan show`` says of a departure is true of the values, in both directions, and is said of every setting."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from fedsecure.methods import build_method
from fedsecure.plan import Plan
from fedsecure.plan.methods import (
    FedAFSettings,
    FedAvgSettings,
    FedDMSettings,
    FedDRMSettings,
    FedSPMSettings,
)
from fedsecure_node.plans.departures import cost
from fedsecure_node.plans.describe import describe

METHODS = {
    "fedaf": FedAFSettings,
    "feddm": FedDMSettings,
    "fedavg": FedAvgSettings,
    "fedspm": FedSPMSettings,
    "feddrm": FedDRMSettings,
}
RAW = {
    "format": 1,
    "name": "p",
    "rounds": 3,
    "task": {"kind": "image", "classes": ["0", "1"], "shape": [1, 8, 8]},
    "model": {"name": "mlp", "hidden": [8]},
    "cohort": {"nodes": ["hospital-a", "hospital-b", "hospital-c"]},
}


def plan(preset: str, method: dict[str, Any]) -> Plan:
    from fedsecure.plan.presets import preset_settings

    given = preset_settings(preset, method["name"], method)
    return Plan.model_validate_json(json.dumps({**RAW, "preset": preset, "method": given}))


def words(preset: str, **method: Any) -> str:
    made = plan(preset, method)
    return "\n".join(describe(made, None, build_method(made)))


def fields(model: type[BaseModel], prefix: str = "") -> list[tuple[str, Any]]:
    """Every setting of a method and its annotation; keys inside tables are dotted."""
    found = []
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found += fields(field.annotation, f"{prefix}{name}.")
        elif name not in ("name", "router"):
            found.append((prefix + name, field))
    return found


def values(field: Any) -> list[Any]:
    """Values of a setting: all of its words, or two numbers on either side of its default."""
    choices = [a for a in get_args(field.annotation) if isinstance(a, str)]
    if choices and field.default in choices:
        return choices
    if isinstance(field.default, bool):
        return [True, False]
    if isinstance(field.default, int):
        return [max(1, field.default // 2), field.default * 2]
    if isinstance(field.default, float):
        return [field.default / 2, min(field.default * 1.01, 0.99) if field.default < 1 else field.default * 2]
    return [5, 20]  # local_epochs, whose preset is 10


CASES = [
    (preset, name, key, value)
    for preset in ("protective", "paper")
    for name, settings in METHODS.items()
    for key, field in fields(settings)
    for value in values(field)
    if key not in ("local_steps",)
]


@pytest.mark.parametrize(("preset", "name"), [(p, n) for p in ("protective", "paper") for n in METHODS])
def test_every_departure_has_a_sentence(preset: str, name: str) -> None:
    said = 0
    for _, _, key, value in (c for c in CASES if c[:2] == (preset, name)):
        table, _, inner = key.rpartition(".")
        method: dict[str, Any] = {"name": name, **({table: {inner: value}} if table else {key: value})}
        if key == "route_prior" and value == "density":
            method["share_counts"] = True
        made = plan(preset, method)
        for departed in made.departed():
            assert cost(made, departed), departed
            said += 1
    assert said > 3


@pytest.mark.parametrize(
    ("preset", "method", "line"),
    [
        ("paper", {"init": "noise"}, "init = noise (preset: avg) - images start from noise, not from records"),
        (
            "protective",
            {"init": "avg"},
            "init = avg (preset: noise) - images start from averages of real records, whose",
        ),
        ("protective", {"init": "real"}, "init = real (preset: noise) - images start from real records, whose traces"),
        ("protective", {"init_n": 9}, "init_n = 9 (preset: 5) - no effect: it counts only with init = avg, not noise"),
        ("paper", {"init_n": 9}, "init_n = 9 (preset: 5) - each image starts from more records: each shows less"),
        ("paper", {"init_n": 2}, "init_n = 2 (preset: 5) - each image starts from fewer: each shows more"),
        (
            "paper",
            {"real_means": "exact", "resample": "round"},
            "real_means = exact (preset: batch) - all records answer together, once a network, not a fresh draw at "
            "every step; with the other settings the records are asked 1 time a round, by the preset 1000: the answers "
            "teach less",
        ),
        ("protective", {"real_means": "batch"}, "asked 100 times a round, by the preset 5: the answers teach more"),
        (
            "protective",
            {"steps": 40},
            "steps = 40 (preset: 100) - with the other settings the records are asked 2 times",
        ),
        ("protective", {"resample_interval": 10}, "asked 10 times a round, by the preset 5: the answers teach more"),
        ("protective", {"resample_interval": 50}, "asked 2 times a round, by the preset 5: the answers teach less"),
        ("paper", {"resample_interval": 50}, "no effect: it counts only with resample = interval, not step"),
        ("protective", {"min_count": 5}, "(preset: 10) - classes of fewer records take part: each record weighs more"),
        ("protective", {"min_count": 50}, "- classes need more records to take part: each record weighs less"),
        ("protective", {"ipc": 20}, "ipc = 20 (preset: 10) - more images leave for each class"),
        ("protective", {"ipc": 2}, "ipc = 2 (preset: 10) - fewer images leave for each class"),
        (
            "protective",
            {"logit_clip": "none"},
            "logit_clip = none (preset: 20.0) - one record's logits are bounded less",
        ),
        ("paper", {"logit_clip": 5.0}, "(preset: none) - one record's logits are bounded more tightly"),
        ("protective", {"gamma": 0.9}, "networks lie closer to the coordinator's model"),
        ("paper", {"gamma": 0.1}, "networks are diluted more by random ones"),
        ("paper", {"server": {"epochs": 3}}, "server.epochs = 3 (preset: 500) - it is about what the coordinator does"),
        ("protective", {"warm_start": False}, "warm_start = false (preset: true) - images start anew in every round"),
    ],
)
def test_a_sentence_is_true_of_the_values(preset: str, method: dict[str, Any], line: str) -> None:
    assert line in words(preset, name="fedaf", **method)


def test_fedavg_and_feddrm_in_both_directions() -> None:
    assert "they tell less of them" in words("protective", name="fedavg", local_epochs=2)
    assert "they tell more of them" in words("protective", name="fedavg", local_epochs=50)
    assert "no effect: with backbone = shared" in words(
        "protective", name="feddrm", backbone="shared", route={"steps": 2}
    )
    assert "no effect: it counts only with backbone" in words("protective", name="feddrm", branch=8)


def test_fedspm_says_what_is_computed_what_leaves_and_what_stays() -> None:
    text = words("protective", name="fedspm")
    for part in (
        "each record is weighed among 3 components once a round",
        "3 heads and the prediction encoder (mlp) are trained on the records for 10 steps",
        "the routing encoder (lenet) and the routing rows for 15",
        "each times this node's number of records, and that number",
        "routing rows (3 nodes x 3 components): trained here for every node",
        "stays here: the 3 heads that tell the classes apart",
        "how well the model fits these records stays here",
        "departures from the preset: none",
    ):
        assert part in text, part
    assert "mass:" not in text
    assert "leaves by itself" not in text


def test_fedspm_names_all_that_settings_add_to_what_leaves() -> None:
    text = words(
        "protective", name="fedspm", parametrisation="explicit", diagnostics="summed", share_counts=True,
        encoders="separate",
    )  # fmt: skip
    for part in (
        "mass: how many of these records each component accounts for",
        "diagnostics: how well the model fits these records (log-likelihood)",
        "number of records: leaves by itself before each round",
        "parameters of 3 prediction and 3 routing encoders",
        "parametrisation = explicit (preset: absorbed) - how many records each component accounts for here leaves",
        "diagnostics = summed (preset: local) - how well the model fits these records, and how it would route them",
        "share_counts = true (preset: false) - this node's number of records leaves by itself",
    ):
        assert part in text, part


def test_feddrm_in_both_forms() -> None:
    text = words("protective", name="feddrm")
    assert "this node's own head and the prediction encoder (mlp) are trained" in text
    assert "weighed among" not in text
    assert "stays here: the head that tells the classes apart" in text
    shared = words("protective", name="feddrm", backbone="shared")
    assert "a backbone (mlp) with two branches" in shared
    assert "parameters of the backbone, of both branches and the routing rows" in shared
