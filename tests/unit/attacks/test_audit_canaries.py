"""Canaries through the real methods, noise and masks: what is as accounted is said to be, and each mutation is caught
by its name."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, norm

from fedsecure.config import validate
from fedsecure.data.dataset import Dataset
from fedsecure.errors import ConfigError
from fedsecure.plan import Plan
from fedsecure.privacy import dpsgd, noise
from fedsecure.privacy.gaussian import exact_gaussian_epsilon
from fedsecure.secagg.machines import nodekeys, unmasking
from fedsecure.secagg.values import noised
from fedsecure_attacks.canaries.audit import CanaryProfile, audit_canaries
from fedsecure_attacks.canaries.directions import Canaries
from fedsecure_attacks.canaries.reading import fitted_epsilon
from fedsecure_attacks.canaries.results import CanaryAudit, canaries_report
from fedsecure_attacks.moves import Moved
from fedsecure_attacks.report.render import html
from fedsecure_attacks.report.validate import check
from fedsecure_attacks.statistics.scores import Scores
from fedsecure_attacks.statistics.tradeoff import against_accounted
from fedsecure_attacks.strictjson import dump
from fedsecure_attacks.verdict import Word

CLASSES = ("a", "b", "c")
FEDAVG = {"name": "fedavg", "local_epochs": 1, "lr": 0.05, "momentum": 0.5}
STEPS = {"batch": 16, "lr": 0.05}
FEDSPM = {
    "name": "fedspm",
    "components": 2,
    "predict": STEPS,
    "route": STEPS,
    "router": {"name": "mlp", "hidden": [12]},
}
EXPLICIT = {**FEDSPM, "parametrisation": "explicit"}
FEDDRM = {"name": "feddrm", "backbone": "shared", "branch": 12, "predict": STEPS, "route": STEPS}
#: All records in every step: what is accounted is exact. Two steps at 2: mu = 0.7.
DP_SGD = {"kind": "dp-sgd", "sigma": 2.0, "batch": 1000, "steps": 2, "count_sigma": 10.0}
PROFILE = CanaryProfile(canaries=400)
CUTS = np.array([0.5, 1.0, 1.5])


def plan(method: dict[str, Any] = FEDAVG, secagg: str = "required", **privacy: Any) -> Plan:
    raw = {
        "format": 1,
        "name": "p",
        "rounds": 2,
        "secagg": secagg,
        "task": {"kind": "image", "classes": CLASSES, "shape": [1, 8, 8]},
        "model": {"name": "mlp", "hidden": [16]},
        "method": method,
        "privacy": {**DP_SGD, **privacy},
        "cohort": {"min_nodes": 3, "nodes": ["u", "v", "w"]},
    }
    return validate(Plan, raw, "plan")


def data() -> dict[str, Dataset]:
    rng, sets = np.random.default_rng(0), {}
    for node, records in (("u", 90), ("v", 60), ("w", 75)):
        y = np.arange(records) % 3
        x = rng.random((records, 1, 8, 8)) * 0.6 + 0.2 * y[:, None, None, None]
        sets[node] = Dataset(x.astype(np.float32), y.astype(np.int64), CLASSES)
    return sets


def audit(p: Plan, profile: CanaryProfile = PROFILE) -> CanaryAudit:
    return audit_canaries(p, data(), profile)


@pytest.fixture(autouse=True)
def seeded_noise(seeded_words):
    """An audit is allowed to be wrong at times: with the system's noise one of these would be, in a thousand runs."""


@pytest.mark.parametrize(
    ("method", "secagg"),
    [(FEDAVG, "required"), (FEDAVG, "off"), (FEDSPM, "required"), (EXPLICIT, "off"), (FEDDRM, "required")],
    ids=["fedavg", "fedavg-plain", "fedspm", "fedspm-explicit", "feddrm-shared"],
)
def test_what_is_as_accounted_contradicts_nothing(method, secagg):
    found = audit(plan(method, secagg))
    assert found.verdict.word is Word.NO_LEAK_DETECTED, found.verdict
    node, total = found.views
    for view in (node, total):
        assert view.noise == pytest.approx(1, abs=0.2)  # 400 canaries: a standard error of 0.035
        assert view.arrived == pytest.approx(1, abs=5 * view.arrived_error)
        assert all(pair.lower <= pair.accounted for pair in view.against.pairs)
        assert view.against.can_tell
    assert total.arrived_error > 1.3 * node.arrived_error  # the noise of the others is in the sum, too
    assert node.clip == pytest.approx(1, abs=1e-5)
    assert ("masks" in {c.name for c in found.controls}) is (secagg == "required")
    report = check(json.loads(dump(canaries_report(found))))
    assert report["epsilon"]["delta"] == found.delta == pytest.approx(1 / 600)
    assert report["canaries"]["sum"]["inside"] + report["canaries"]["sum"]["out"] == 400


def test_rounds_and_samples_compose():
    """Two rounds of Poisson batches: canaries are in some of the steps, and the noise still fits to a few percent."""
    found = audit(plan(FEDAVG, batch=20, steps=4), CanaryProfile(canaries=400, rounds=2))
    assert found.verdict.word is Word.NO_LEAK_DETECTED
    assert found.counts["rounds"] == 2
    assert found.views[0].noise == pytest.approx(1, abs=0.2)
    assert found.views[0].arrived == pytest.approx(1, abs=5 * found.views[0].arrived_error)


def test_noise_that_is_off_but_accounted(monkeypatch):
    monkeypatch.setattr(noise.CsprngNoise, "add", lambda self, sums, *, sensitivity, sigma: list(sums))
    found = audit(plan())
    assert found.verdict.word is Word.CONTRADICTS_ACCOUNTING
    assert found.verdict.word.exit_code == 13
    assert "in the sum epsilon is at least" in found.verdict.reason
    assert "of the noise that was accounted" in found.verdict.reason
    assert found.views[1].against.worst.contradicts
    report = json.loads(dump(canaries_report(found)))
    assert check(report)["exit_code"] == 13
    assert report["epsilon"]["lower"] > report["epsilon"]["accounted"]
    assert "was accounted" in html(report)


def test_half_the_noise(monkeypatch):
    real = noise.CsprngNoise.add
    monkeypatch.setattr(
        noise.CsprngNoise,
        "add",
        lambda self, sums, *, sensitivity, sigma: real(self, sums, sensitivity=sensitivity, sigma=sigma / 2),
    )
    found = audit(plan(sigma=1.2))
    assert found.verdict.word is Word.CONTRADICTS_ACCOUNTING
    assert found.views[0].against.worst.contradicts
    assert found.views[0].noise == pytest.approx(0.5, abs=0.1)


def test_a_clip_norm_that_is_doubled(monkeypatch):
    real = dpsgd.clipped_sums
    monkeypatch.setattr(dpsgd, "clipped_sums", lambda samples, clip: real(samples, 2 * clip))
    found = audit(plan(sigma=1.2))
    assert found.verdict.word is Word.CONTRADICTS_ACCOUNTING
    assert "one record counts for 2 times the clip norm" in found.verdict.reason
    assert found.views[0].against.worst.contradicts


def test_a_mask_that_does_not_cancel(monkeypatch):
    real = nodekeys.masks_of_node
    monkeypatch.setattr(nodekeys, "masks_of_node", lambda node, *rest: real(node, *rest)[: -1 if node == "v" else None])
    found = audit(plan())
    assert found.verdict.word is Word.INVALID
    assert found.verdict.reason.startswith("control masks: ")


def test_masks_that_are_not_there(monkeypatch):
    monkeypatch.setattr(nodekeys, "masks_of_node", lambda *given: [])
    monkeypatch.setattr(unmasking, "masks_to_remove", lambda *given: [])
    found = audit(plan())
    assert found.verdict.word is Word.INVALID
    assert "what u uploads does not look like chance: it is not masked" in found.verdict.reason


@pytest.mark.parametrize("on", [True, False])
def test_noise_that_nodes_share(monkeypatch, on):
    if not on:
        monkeypatch.setattr(noised, "add_noise", lambda vector, spec: vector.__setitem__(-1, 0))
    found = audit(plan(EXPLICIT, shares="distributed"))
    if on:
        assert found.verdict.word is Word.NO_LEAK_DETECTED, found.verdict
        assert found.shared_noise is not None
        assert 0.15 < found.shared_noise < 4
    else:
        assert found.verdict.word is Word.CONTRADICTS_ACCOUNTING
        assert "of the noise that nodes share" in found.verdict.reason


def test_canaries_that_never_arrive_are_no_sign_of_privacy(monkeypatch):
    """A node that sends its model as it was broadcast: canaries are not found, which says nothing for the noise."""
    monkeypatch.setattr(dpsgd._PrivateSGD, "step", lambda self, closure=None: None)
    monkeypatch.setattr(
        dpsgd._Steps,
        "take",
        lambda self, columns, index, after: dpsgd.clipped_sums([p[None] for p in self._parameters], 1.0),
    )
    found = audit(plan())
    assert found.verdict.word is Word.INVALID
    assert "control planted, node: canaries arrive with" in found.verdict.reason


@pytest.mark.parametrize(
    ("changes", "profile", "said"),
    [
        ({"privacy": None}, PROFILE, r"^plan p: no \[privacy\] table"),
        (
            {"privacy": {"kind": "release", "sigma": 5.0}, "method": {"name": "fedaf", "ipc": 1}},
            PROFILE,
            "privacy.kind 'release'",
        ),
        ({}, CanaryProfile(node="x"), r"^--node x: .*\(it has u, v, w\)$"),
        ({}, CanaryProfile(canaries=39), r"^39 canaries \(at least 40\)"),
    ],
)
def test_what_cannot_be_asked(changes, profile, said):
    raw = {**plan(secagg="off").model_dump(mode="json"), **changes}
    with pytest.raises(ConfigError, match=said):
        audit(validate(Plan, {k: v for k, v in raw.items() if v is not None}, "plan"), profile)


def test_a_sound_mechanism_is_not_contradicted_over_a_hundred_runs():
    """The Gaussian mechanism of mu 1 itself, 400 canaries: bounds above what is true in at most one run of twenty."""
    deltas = (1e-4, 1e-2, 0.1, 0.2)
    true = {delta: exact_gaussian_epsilon(1.0, delta) for delta in deltas}
    wrong, seen = 0, []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        inside = rng.random(400) < 0.5
        found = against_accounted(Scores.of(rng.standard_normal(400) + inside, inside), true, CUTS)
        wrong += found.worst.contradicts
        seen.append(max(pair.lower for pair in found.pairs))
    assert binom.sf(wrong - 1, 100, 0.05) > 1e-3, wrong
    assert np.median(seen) > 0.2  # bounds of nothing would be never wrong


def test_one_of_twice_the_sensitivity_is():
    true = {delta: exact_gaussian_epsilon(1.0, delta) for delta in (1e-4, 1e-2, 0.1, 0.2)}
    caught = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        inside = rng.random(1000) < 0.5
        scores = Scores.of(rng.standard_normal(1000) + 2 * inside, inside)
        caught += against_accounted(scores, true, CUTS * 2).worst.contradicts
    assert caught >= 28
    with pytest.raises(ValueError, match="0 thresholds"):
        against_accounted(scores, true, [])


def test_a_contradiction_may_show_at_a_large_delta_alone():
    """Twice the sensitivity at mu 0.5: at delta 1e-5 a thousand canaries cannot contradict, at 0.1 they do."""
    rng = np.random.default_rng(3)
    inside = rng.random(1000) < 0.5
    scores = Scores.of(rng.standard_normal(1000) + inside, inside)
    small, large = ({d: exact_gaussian_epsilon(0.5, d)} for d in (1e-5, 0.1))
    assert not against_accounted(scores, small, CUTS).worst.contradicts
    assert against_accounted(scores, large, CUTS).worst.contradicts


@pytest.mark.parametrize("mu", [0.5, 1.0, 3.0])
def test_the_fit_is_the_gaussian_mechanisms_epsilon(mu):
    """Behind noise alone cosines have mean mu / sqrt d and spread 1 / sqrt d (Andrew et al. 2023)."""
    d, levels = 10_000, (np.arange(4000) + 0.5) / 4000
    cosines = (norm.ppf(levels) + mu) / np.sqrt(d)
    assert fitted_epsilon(cosines, d, 1e-5) == pytest.approx(exact_gaussian_epsilon(mu, 1e-5), rel=0.02)
    assert fitted_epsilon(norm.ppf(levels) / np.sqrt(d), d, 0.01) == pytest.approx(0, abs=0.02)


def test_canaries_are_orthonormal_and_each_has_its_own_coin():
    drawn = Canaries.draw(300, 1000, np.random.default_rng(0))
    assert len(drawn) == 150
    assert np.abs(drawn.rows @ drawn.rows.T - np.eye(150)).max() < 1e-5
    inside = [int(Canaries.draw(300, 150, np.random.default_rng(seed)).inside.sum()) for seed in range(8)]
    assert len(set(inside)) > 1


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_moves_are_those_of_sgd(momentum):
    """One gradient in step t moves a parameter by the rate times its weight; all together by ``length``."""
    moved = Moved(0.1, momentum, 0.0)
    for t in range(4):
        velocity = position = 0.0
        for step in range(4):
            velocity = momentum * velocity + (step == t)
            position += 0.1 * velocity
        assert position == pytest.approx(moved.weights(4)[t] * moved.length(4))
