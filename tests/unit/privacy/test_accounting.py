"""Epsilon against formulas and an independent accountant: right to a share of a percent, and never too low."""

from __future__ import annotations

import ast
import math
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsecure.privacy.accounting import bound, default_delta, epsilon, exact_gaussian_epsilon, quick_epsilon
from fedsecure.privacy.gaussian import gaussian_delta
from fedsecure.privacy.prv import RELATIVE_ERROR, prv_epsilon
from fedsecure.privacy.renyi import rdp_epsilon
from fedsecure.privacy.spend import Spend

ROOT = Path(__file__).resolve().parents[3]


def googles(history: list[Spend], delta: float) -> float:
    """Google's accountant: privacy loss distributions, both directions of add/remove, an upper bound itself."""
    accounting = pytest.importorskip("dp_accounting")
    from dp_accounting.pld.pld_privacy_accountant import PLDAccountant

    both = accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    # Its error grows with the interval and the steps: below 0.0005 of epsilon by these.
    small = quick_epsilon(history, delta) < 3
    interval = 1e-4 if sum(spend.steps for spend in history) > 50_000 else 3e-4 if small else 1e-3
    accountant = PLDAccountant(both, value_discretization_interval=interval)
    for spend in history:
        event = accounting.GaussianDpEvent(spend.sigma)
        if spend.q < 1:
            event = accounting.PoissonSampledDpEvent(spend.q, event)
        accountant.compose(event, spend.steps)
    return float(accountant.get_epsilon(delta))


def drawn_history(seed: int) -> tuple[list[Spend], float]:
    """One to four mechanisms, sampled and whole ones mixed, of an epsilon that somebody could want."""
    rng = random.Random(seed)
    while True:
        history = []
        for _ in range(1 + seed % 4):
            if rng.random() < 0.7:
                q, steps = 10 ** rng.uniform(-3, -0.05), int(10 ** rng.uniform(0, 3.7))
                history.append(Spend(10 ** rng.uniform(-0.2, 1), q, steps))
            else:
                history.append(Spend(10 ** rng.uniform(0.3, 1.7), 1.0, int(10 ** rng.uniform(0, 1.5))))
        delta = 10 ** rng.uniform(-8, -3)
        if 0.03 < quick_epsilon(history, delta) < 30 and any(spend.q < 1 for spend in history):
            return history, delta


@pytest.mark.parametrize("seed", range(30))
def test_a_random_history_against_an_independent_accountant(seed: int) -> None:
    history, delta = drawn_history(seed)
    ours, theirs = epsilon(history, delta), googles(history, delta)
    assert ours >= theirs * (1 - 5e-4)
    assert ours <= theirs * (1 + 3 * RELATIVE_ERROR) + 2e-3


@pytest.mark.parametrize(
    ("spend", "delta"),
    [
        (Spend(1.0, 0.001, 100_000), 1e-6),  # many steps: the mean of a step's loss must be right to the last digits
        (Spend(4.0, 0.01, 200_000), 1e-6),
        (Spend(0.5, 1e-4, 1000), 1e-6),  # rare and large losses
        (Spend(0.3, 0.3, 5), 1e-6),
        (Spend(1.0, 0.999, 10), 1e-6),
        (Spend(1.0, 0.02, 300), 1e-10),
    ],
)
def test_extremes_against_an_independent_accountant(spend: Spend, delta: float) -> None:
    ours, theirs = epsilon([spend], delta), googles([spend], delta)
    assert theirs * (1 - 5e-4) <= ours <= theirs * 1.012 + 2e-3


@given(mu=st.floats(1e-3, 30), delta=st.floats(1e-12, 0.1))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_the_exact_epsilon_is_the_least_that_delta_allows(mu: float, delta: float) -> None:
    found = exact_gaussian_epsilon(mu, delta)
    assert gaussian_delta(mu, found) <= delta
    assert found == 0 or gaussian_delta(mu, found * (1 - 1e-9)) > delta


@pytest.mark.parametrize(("sigma", "steps"), [(10.0, 20), (5.0, 20), (1.0, 1), (0.5, 3), (50.0, 1), (200.0, 4)])
@pytest.mark.parametrize("delta", [1e-4, 1e-5, 1e-8])
def test_over_all_records_every_accountant_meets_the_formula(sigma: float, steps: int, delta: float) -> None:
    whole = [Spend(sigma, 1.0, steps)]
    exact = exact_gaussian_epsilon(math.sqrt(steps) / sigma, delta)
    assert epsilon(whole, delta) == pytest.approx(exact, rel=1e-9)
    by_grid = prv_epsilon(whole, delta, rdp_epsilon(whole, delta))
    assert by_grid is not None
    assert exact * (1 - 1e-9) <= by_grid <= exact * 1.01 + 1.1e-3
    assert exact <= rdp_epsilon(whole, delta) <= exact * 1.6
    assert googles(whole, delta) == pytest.approx(exact, rel=1e-3, abs=1e-5)


def test_figures_that_were_worked_out_elsewhere() -> None:
    assert exact_gaussian_epsilon(math.sqrt(20) / 10, 1e-5) == pytest.approx(1.760, abs=5e-4)
    assert exact_gaussian_epsilon(math.sqrt(20) / 5, 1e-5) == pytest.approx(3.85, abs=5e-3)
    for target, sigma in ((1, 14.3), (3, 5.5), (8, 2.4)):  # 20 releases, delta 1e-4
        assert exact_gaussian_epsilon(math.sqrt(20) / sigma, 1e-4) == pytest.approx(target, rel=0.02)
    for target, mu in ((1, 0.27), (3, 0.72), (8, 1.67), (10, 2.0)):
        assert exact_gaussian_epsilon(mu, 1e-5) == pytest.approx(target, rel=0.01)


@pytest.mark.parametrize(
    ("records", "sigma", "by_rdp", "by_prv"),
    [
        (1000, 0.7, 164, 154),
        (1000, 2.0, 21.7, 20.1),
        (3000, 1.0, 17.8, 16.4),
        (6000, 1.0, 8.0, 7.4),
        (6000, 4.0, 1.2, 1.1),
        (20_000, 0.7, 5.7, 5.0),
        (20_000, 4.0, 0.35, 0.33),
    ],
)
def test_3000_steps_of_128_records(records: int, sigma: float, by_rdp: float, by_prv: float) -> None:
    history, delta = [Spend(sigma, 128 / records, 3000)], default_delta(records)
    found = bound(history, delta)
    assert found.accountant == "prv"
    assert found.epsilon == pytest.approx(by_prv, rel=0.03)
    assert quick_epsilon(history, delta) == pytest.approx(by_rdp, rel=0.03)
    assert found.epsilon < quick_epsilon(history, delta)


def test_neither_order_nor_division_of_a_history_matters() -> None:
    history = [Spend(1.1, 0.02, 300), Spend(10.0, 1.0, 1), Spend(2.0, 0.1, 7), Spend(20.0, 1.0, 4)]
    cut = [
        *(Spend(x.sigma, x.q, 1) for x in history),
        *(Spend(x.sigma, x.q, x.steps - 1) for x in history if x.steps > 1),
    ]
    assert epsilon(history, 1e-5) == epsilon(history[::-1], 1e-5) == epsilon(cut, 1e-5)


def test_more_is_never_cheaper() -> None:
    base = [Spend(1.2, 0.03, 200), Spend(10.0, 1.0, 1)]
    spent = epsilon(base, 1e-5)
    for more in (Spend(1.2, 0.03, 20), Spend(30.0, 1.0, 2), Spend(4.0, 0.2, 20)):
        assert epsilon([*base, more], 1e-5) > spent
    assert epsilon(base, 1e-6) > spent
    assert epsilon([Spend(1.2, 0.03, 200)], 1e-5) < epsilon([Spend(1.2, 1.0, 200)], 1e-5)


def test_nothing_costs_nothing_and_absurd_histories_have_no_bound() -> None:
    assert epsilon([], 1e-5) == 0
    assert epsilon([Spend(1e-6, 1.0, 10**9)], 1e-5) == math.inf
    assert epsilon([Spend(1e-6, 0.01, 10**9)], 1e-5) == math.inf
    assert epsilon([Spend(1e6, 1.0, 1)], 1e-3) == 0
    assert bound([Spend(0.2, 0.5, 1000)], 1e-5).accountant in ("exact", "rdp")  # above 300, where nobody composes
    assert epsilon([Spend(0.01, 0.5, 1)], 1e-5) == exact_gaussian_epsilon(100, 1e-5)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan])
def test_a_delta_that_is_none(delta: float) -> None:
    for of in (epsilon, quick_epsilon):
        with pytest.raises(ValueError, match="delta"):
            of([Spend(1.0, 1.0, 1)], delta)


def test_default_delta() -> None:
    assert default_delta(1000) == pytest.approx(1e-4)
    with pytest.raises(ValueError, match="0 records"):
        default_delta(0)


def test_the_limit_theorem_reports_too_little_and_is_used_nowhere() -> None:
    from opacus.accountants.analysis.gdp import compute_eps_poisson

    history = [Spend(0.7, 128 / 20_000, 3000)]
    limit = compute_eps_poisson(steps=3000, noise_multiplier=0.7, sample_rate=128 / 20_000, delta=5e-6)
    assert limit < 0.9 * epsilon(history, 5e-6)
    banned = {"gdp", "GaussianAccountant", "create_accountant", "PrivacyEngine", "make_private"}
    for package in ("fedsecure", "node", "coordinator", "attacks"):
        for path in (ROOT / package).rglob("*.py"):
            found = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            assert not {word for node in found for word in _names(node)} & banned, path


def _names(node: ast.AST) -> set[str]:
    match node:
        case ast.Name(name) | ast.Attribute(attr=name):
            return {name}
        case ast.Import(names) | ast.ImportFrom(names=names):
            module = getattr(node, "module", None) or ""
            return {part for text in (module, *(alias.name for alias in names)) for part in text.split(".")}
        case ast.Constant(str(text)):
            return {text}
    return set()
