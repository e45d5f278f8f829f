"""The closed forms against simulation: F5 over the grid of the audit page, and the others where they apply."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedsecure_attacks.statistics import theory
from fedsecure_attacks.statistics.roc import auc
from fedsecure_attacks.statistics.scores import Scores


def trace(
    d: int, n: int, taus: tuple[float, ...], runs: int, rng: np.random.Generator, n_ref: int = 0
) -> list[tuple[list[float], list[float]]]:
    """For each noise of ``taus``: AUC of the likelihood ratio against one released mean, and what F5 says of that
    release. The people are the same for all of them."""
    lam = np.ones(d)
    found: list[tuple[list[float], list[float]]] = [([], []) for _ in taus]
    for _ in range(runs):
        inside, outside = rng.standard_normal((n, d)), rng.standard_normal((500, d))
        known = rng.standard_normal((n_ref, d)).mean(0) if n_ref else np.zeros(d)
        for tau, (areas, said) in zip(taus, found, strict=True):
            tau2 = theory.reference_noise(lam, n_ref, tau**2) if n_ref else np.full(d, tau**2)
            m = inside.mean(0) + tau * rng.standard_normal(d) - known
            w = m / (lam / n + tau2)
            areas.append(auc(Scores((inside - known) @ w, (outside - known) @ w)))
            said.append(theory.auc_of(theory.conditional_effect(m, lam, n, tau2)))
    return found


@pytest.mark.parametrize("n", [20, 200])
@pytest.mark.parametrize("d", [10, 64, 512])
def test_f5_holds_on_the_grid(d, n):
    taus = (0.0, 0.05, 0.2)
    found = trace(d, n, taus, runs=60 if n == 200 else 120, rng=np.random.default_rng(d * n))
    for tau, (areas, said) in zip(taus, found, strict=True):
        error = np.std(areas, ddof=1) / math.sqrt(len(areas))
        assert abs(np.mean(areas) - np.mean(said)) < max(4 * error, 0.006), tau


def test_f2_and_f4_say_what_happens_on_average():
    rng = np.random.default_rng(3)
    ((areas, _),) = trace(512, 200, (0.0,), 40, rng)
    assert np.mean(areas) == pytest.approx(theory.auc_of(theory.likelihood_effect(np.ones(512), 200)), abs=0.01)
    ((areas, _),) = trace(512, 200, (0.0,), 40, rng, n_ref=200)
    effect = theory.likelihood_effect(np.ones(512), 200, theory.reference_noise(np.ones(512), 200))
    assert np.mean(areas) == pytest.approx(theory.auc_of(effect), abs=0.012)


def test_noise_makes_the_area_fall():
    found = [theory.auc_of(theory.likelihood_effect(np.ones(64), 50, tau**2)) for tau in (0, 0.05, 0.2, 1, 10, 1000)]
    assert found == sorted(found, reverse=True)
    assert found[-1] == pytest.approx(0.5, abs=1e-3)


def test_f1_an_outlier_is_easier():
    lam = np.ones(64)
    z = np.full(64, 2.0)
    assert theory.auc_of(theory.fixed_person_effect(z, lam, 400, 0.02**2)) == pytest.approx(0.700, abs=0.002)
    assert theory.auc_of(theory.likelihood_effect(lam, 400, 0.02**2)) == pytest.approx(0.604, abs=0.002)


def test_f3_the_plain_inner_product_is_weaker_where_the_spectrum_falls():
    lam = 1 / np.arange(1, 513)
    assert theory.inner_product_effect(lam, 200) < theory.likelihood_effect(lam, 200)
    flat = np.ones(100)
    assert theory.inner_product_effect(flat, 50) == pytest.approx(theory.likelihood_effect(flat, 50))


@pytest.mark.parametrize(
    ("ipc", "group", "omega2", "tpr"),
    [(10, 1, 0.0, 0.030), (50, 5, 0.0, 0.505), (50, 10, 0.25, 0.210), (10, 50, 0.0, 0.211), (50, 10, 4.0, 0.013)],
)
def test_f6_averaged_images(ipc, group, omega2, tpr):
    found = theory.averaged_images_tpr(0.01, ipc=ipc, group=group, n=500, d=256, omega2=omega2)
    assert found == pytest.approx(tpr, abs=0.002)


def test_f7_and_f8():
    assert theory.dp_effect(2.0, 4) == 1.0
    assert float(theory.tpr_of(1.67, 0.01)) == pytest.approx(0.26, abs=0.005)
    assert theory.auc_of(theory.pool_effect(100, 50, 110)) == pytest.approx(0.912, abs=0.001)


def test_a_masked_mean_exposes_the_smallest_node():
    found = theory.masked_mean_effect(64, np.array([20.0, 200.0, 200.0]))
    assert found[0] > 5 * found[1]
    equal = theory.masked_mean_effect(64, np.array([50.0, 50.0]))
    assert equal[0] == pytest.approx(math.sqrt(64 / 100))
