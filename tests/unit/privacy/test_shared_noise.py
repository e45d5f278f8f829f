"""Noise that a cohort shares: which plans may ask for it, what it costs, what labels promise, and the noise itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from fedsecure.config import validate
from fedsecure.data.dataset import Dataset
from fedsecure.errors import ConfigError
from fedsecure.masked_plan import masked_exchanges, noised_streams
from fedsecure.masked_simulation import MaskedSums
from fedsecure.method import ClientContext
from fedsecure.methods import build_method
from fedsecure.methods.private import MIXING_FLOOR, linear_mass, shared_mixing
from fedsecure.plan import Plan
from fedsecure.plan.shares import SharedNoise
from fedsecure.privacy.accounting import epsilon
from fedsecure.privacy.context import PrivacyContext
from fedsecure.privacy.costs import plan_spends, spends
from fedsecure.privacy.labels import guarantee_words, label_of
from fedsecure.privacy.noise import noise_source
from fedsecure.privacy.shares import SharedHistory, mechanism_of
from fedsecure.privacy.spend import Spend
from fedsecure.privacy_rules import PrivacyRules
from fedsecure.schema import Contribution
from fedsecure.simulation import simulate
from fedsecure.tensors import Tensors

CLASSES = ("a", "b", "c")
COUNTS = (80, 60, 40)
SMALL = {"name": "convnet", "depth": 1, "width": 2}
SPM = {"name": "fedspm", "parametrisation": "explicit", "components": 2, "router": SMALL}
SHARED = {
    "kind": "dp-sgd", "sigma": 8.0, "batch": 1000, "steps": 1, "count_sigma": 2.0,
    "shares": "distributed", "mixing_sigma": 4.0, "mixing_every": 2,
}  # fmt: skip


def plan(
    *, nodes: int = 3, method: dict[str, Any] = SPM, privacy: dict[str, Any] | None = None, **changes: Any
) -> Plan:
    names = [f"n{i}" for i in range(nodes)]
    raw = {
        "format": 1,
        "name": "shared",
        "rounds": 2,
        "task": {"kind": "image", "classes": CLASSES, "shape": [1, 8, 8]},
        "model": SMALL,
        "method": method,
        "privacy": {**SHARED, **(privacy or {})},
        "secagg": "required",
        "cohort": {"min_nodes": 2 * nodes // 3 + 1, "nodes": names},
        **changes,
    }
    return validate(Plan, raw, "plan")


def context(of: Plan, round_: int = 0) -> ClientContext:
    assert of.privacy is not None
    privacy = PrivacyContext(of.privacy, COUNTS, 180, noise_source("csprng"))
    return ClientContext(node="n0", round=round_, seed=1, privacy=privacy)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"secagg": "optional"}, "allowed with secagg: 'required'"),
        ({"method": {**SPM, "parametrisation": "absorbed"}}, "sums nothing that is linear in records"),
        ({"method": {"name": "fedavg", "local_steps": 1}}, "sums nothing that is linear in records"),
        ({"privacy": {"noise": "torch"}}, "shares are drawn from the operating system's keys"),
        ({"privacy": {"colluders": 3}}, "privacy.colluders 3 of 3 nodes"),
        ({"privacy": {"shares": "local", "colluders": 1}}, "privacy.colluders is for noise that is shared"),
    ],
)
def test_plans_that_have_no_sum_for_shares_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        plan(**changes)


def test_noise_that_its_stream_has_no_room_for_is_refused_when_the_plan_is_checked() -> None:
    tiny = plan(privacy={"mixing_sigma": 1e-9})
    with pytest.raises(ConfigError, match=r"noise of stream fedspm\.update\.mass: sigma"):
        masked_exchanges(tiny, build_method(tiny))


@pytest.mark.parametrize("nodes", [3, 5, 10, 20, 50])
@pytest.mark.parametrize("colluders", [None, 0, 1, 2])
def test_promise_and_noise_are_of_the_same_shares(nodes: int, colluders: int | None) -> None:
    asked = plan(nodes=nodes, privacy={"colluders": colluders})
    streams = masked_exchanges(asked, build_method(asked))["update"]
    found, (noise,) = noised_streams(asked, 0, streams)
    shared = SharedNoise.of(nodes, colluders)
    assert (noise.shares, noise.nodes, noise.colluders) == (shared.shares, shared.nodes, shared.colluders)
    assert math.sqrt(float(noise.variance)) >= shared.local_sigma(4.0) * 2**noise.stream.spec.frac_bits
    assert [s.spec.name for s in found] == [s.spec.name for s in streams]
    assert noise.stream in found
    assert noised_streams(asked, 1, streams) == (streams, ())  # zeros are sent in between
    assert SharedNoise.parse(f"dp-sgd, {shared.mark}") == shared


def test_a_record_adds_a_vector_of_norm_one_at_most_and_sums_are_exact() -> None:
    asked = plan()
    rows = torch.softmax(torch.randn(5000, 2, generator=torch.Generator().manual_seed(3)) * 20, dim=1)
    rows[0] = torch.tensor([1.0, 1e-7])  # float32 may sum to more than 1
    rows[1] = torch.tensor([0.6, 0.6])
    whole, ctx = linear_mass(rows, context(asked)), context(asked)
    for index in (0, 1, 17, 4999):
        moved = whole - linear_mass(torch.cat((rows[:index], rows[index + 1 :])), ctx)
        assert 0 < np.linalg.norm(moved) <= 1
        assert np.array_equal(moved, linear_mass(rows[index : index + 1], ctx))
    assert np.allclose(whole, rows.double().sum(dim=0), atol=5000 * 2**-19 + 0.3)
    assert not linear_mass(rows, context(asked, 1)).any()


def test_mixing_weights_of_those_heard_follow_from_the_noisy_sum_alone() -> None:
    before = np.full((3, 2), 1 / 6, np.float32)
    mass = np.array([[90.0, 10.0], [-5.0, 55.0], [3.0, -1.0]])  # the third node is not in the sum
    mixing = shared_mixing(mass, [0, 1], None, before)
    assert np.isclose(mixing.sum(), 1)
    assert np.allclose(mixing[0] / mixing[0].sum(), [0.9, 0.1])
    assert np.isclose(mixing[1, 0] / mixing[1].sum(), MIXING_FLOOR)
    assert np.isclose(mixing[0].sum() / mixing[1].sum(), 2)
    assert np.array_equal(mixing[2], before[2].astype(np.float64))
    sized = shared_mixing(mass, [0, 1], np.array([30, 90, 5]), before)
    assert np.isclose(sized[1].sum() / sized[0].sum(), 3)
    assert np.array_equal(shared_mixing(-mass, [0], None, before), before.astype(np.float64))


def sums_of(masks: MaskedSums, asked: Plan, rounds: range, clean: np.ndarray) -> np.ndarray:
    """``mass`` as unmasked in each round, of nodes that send ``clean`` and no parameters."""
    schema = build_method(asked).schema("update")
    zeros = {s.name: np.zeros([int(d) for d in s.shape], s.dtype) for s in schema.summed}  # type: ignore[arg-type]
    sent = {node: Contribution(summed=Tensors({**zeros, "mass": clean})) for node in asked.cohort.nodes}
    return np.stack([
        masks.add("update", round_, 0, sent, bytes([round_ % 250]) * 32).summed["mass"] for round_ in rounds
    ])  # fmt: skip


def test_sums_have_noise_of_the_cohort_on_them() -> None:
    """Chi-square: the variance of (rounds x 6) elements is N / (t - n_c) times that which is charged."""
    asked = plan(privacy={"mixing_every": 1}, method={**SPM, "router": SMALL})
    clean = np.array([[10.0, 5.0], [0, 0], [0, 0]])
    noisy = sums_of(MaskedSums(asked, build_method(asked)), asked, range(60), clean)
    z = ((noisy - 3 * clean) / (4.0 * math.sqrt(3 / 2))).ravel()
    assert abs((z**2).sum() - z.size) < 8 * math.sqrt(2 * z.size)
    assert (noisy < 0).any(), "noise is not cut off at the range of what nodes may send"
    assert len(np.unique(z)) == z.size
    quiet = plan()
    assert np.array_equal(sums_of(MaskedSums(quiet, build_method(quiet)), quiet, range(1, 2), clean)[0], 3 * clean)


def test_charged_with_the_noise_of_the_whole_and_told_with_that_of_one_share() -> None:
    asked = plan()
    assert Spend(4.0, 1.0, 1) in spends(asked, "update", 0, 180, COUNTS)
    assert Spend(4.0, 1.0, 1) not in spends(asked, "update", 1, 180, COUNTS)
    assert plan_spends(asked, 180, COUNTS) == plan_spends(plan(privacy={"shares": "local"}), 180, COUNTS)
    assert asked.privacy is not None
    history = SharedHistory()
    trained, paid = (Spend(8.0, 1.0, 2),), (Spend(4.0, 1.0, 1),)  # q = 1: an exact formula, no time
    assert mechanism_of(asked.privacy, 3, trained) == "dp-sgd"
    history.add(trained, "dp-sgd")
    assert history.trust(1e-4, epsilon) is None
    history.add(paid, mechanism_of(asked.privacy, 3, paid))
    trust = history.trust(1e-4, epsilon)
    assert trust is not None
    assert trust.epsilon_local == epsilon([*trained, Spend(4.0 / math.sqrt(2), 1.0, 1)], 1e-4)
    spent = epsilon([*trained, *paid], 1e-4)
    label = label_of(asked.privacy, spent, 1e-4, trust=trust).to_json()
    assert label["epsilon"] == spent < label["epsilon_local"]
    said = guarantee_words(label)
    assert f"if at most 1 of 3 nodes collude with the coordinator; else epsilon is {trust.epsilon_local:.4g}" in said
    assert "trust" not in label_of(asked.privacy, spent, 1e-4).to_json()


def test_a_simulation_learns_mixing_weights_from_the_masked_sum() -> None:
    asked = plan()
    data = {}
    for i, node in enumerate(asked.cohort.nodes):
        y = np.repeat(np.arange(3), COUNTS).astype(np.int64)
        data[node] = Dataset(np.random.default_rng(i).random((len(y), 1, 8, 8), dtype=np.float32), y, CLASSES)
    result = simulate(asked, build_method(asked), data)
    mixing = result.server["mixing"]
    assert np.isclose(mixing.sum(), 1, atol=1e-5)
    assert (mixing > 0).all()
    assert not np.allclose(mixing, 1 / 6)
    assert "pi" not in result.local["n0"]
    paid = result.privacy["n0"]
    assert paid.epsilon == pytest.approx(epsilon(plan_spends(asked, 180, COUNTS), paid.delta))
    assert paid.label["trust"] == "at most 1 of 3 nodes collude with the coordinator"
    assert paid.label["epsilon_local"] > paid.epsilon


def test_a_policy_allows_noise_that_rests_on_others_only_where_it_says_so() -> None:
    rule = r"privacy.shares: distributed (allowed: local)"
    assert rule in list(PrivacyRules(epsilon=9.0).violations(plan()))
    assert not list(PrivacyRules(epsilon=9.0).violations(plan(privacy={"shares": "local"})))
    assert not list(PrivacyRules(epsilon=9.0, shares=("local", "distributed")).violations(plan()))
