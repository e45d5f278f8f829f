"""The discrete Gaussian: the true probabilities, decided in integers alone, and the same whichever way is taken.

Samples come from the operating system's generator, so these tests differ from run to run: each fails for a right
sampler with a probability below 1e-9.
"""

from __future__ import annotations

import ast
import inspect
import math
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chi2, norm

from fedsecure.crypto import discretegaussian, exponential
from fedsecure.crypto.discretegaussian import MAX_VARIANCE, MIN_VARIANCE, discrete_gaussian
from fedsecure.crypto.exponential import Uniform, exp_bounds

#: What a right sampler fails with at most.
RARELY = 1e-11


def p_value(observed, expected) -> float:
    """Of Pearson's chi-square."""
    observed, expected = np.asarray(observed, float), np.asarray(expected, float)
    return float(chi2.sf(((observed - expected) ** 2 / expected).sum(), observed.size - 1))


def p_of_samples(samples, variance: float) -> float:
    """Of the samples against exp(-y^2 / 2 variance), each value a cell, the rare ones at both ends together."""
    reach = 60 + int(40 * math.sqrt(variance))
    values = np.arange(-reach, reach + 1)
    weights = np.exp(-(values.astype(float) ** 2) / (2 * variance))
    expected = samples.size * weights / weights.sum()
    common = np.flatnonzero(expected >= 20)
    counts = np.bincount(samples + reach, minlength=values.size)
    first, last = common[0], common[-1] + 1
    cells = [np.r_[x[:first].sum() + x[last:].sum(), x[first:last]] for x in (counts, expected)]
    if cells[1][0] < 20:  # too few to be a cell of their own
        cells = [np.r_[x[0] + x[1], x[2:]] for x in cells]
    return p_value(*cells)


@pytest.mark.parametrize(
    "variance",
    [MIN_VARIANCE, *(Fraction(v) for v in ("1/2", "16/25", "1", "2", "9", "400/7", "2048", "10007/3"))],
    ids=str,
)
def test_every_value_has_its_probability(variance):
    assert p_of_samples(discrete_gaussian(300_000, variance), float(variance)) > RARELY


def test_the_comparison_sees_a_variance_that_is_five_percent_off_and_a_rounded_gaussian():
    assert p_of_samples(discrete_gaussian(300_000, Fraction(105, 100)), 1.0) < RARELY
    rounded = np.rint(np.random.default_rng(1).normal(0, 1, 300_000)).astype(np.int64)
    assert p_of_samples(rounded, 1.0) < RARELY


@pytest.mark.parametrize("bits", [47, 63, 80, 113, 115])
def test_wide_ones_are_gaussian_above_and_uniform_in_their_lowest_bits(bits):
    variance, count = Fraction((3 << bits) - 1, 3), 200_000
    samples = discrete_gaussian(count, variance)
    edges = norm.ppf(np.arange(1, 256) / 256) * math.sqrt(variance)
    assert p_value(np.bincount(np.searchsorted(edges, samples), minlength=256), np.full(256, count / 256)) > RARELY
    assert p_value(np.bincount(samples & 255, minlength=256), np.full(256, count / 256)) > RARELY


@pytest.mark.parametrize("variance", [Fraction(1), Fraction(9), Fraction(12345, 7), Fraction(1 << 90)], ids=str)
def test_moments(variance):
    count = 400_000
    standard = discrete_gaussian(count, variance) / math.sqrt(variance)
    # deviations of mean, variance, skewness and fourth moment in their own standard deviations: 7 of them is 3e-12
    for power, due, spread in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((standard**power).mean() - due) < 7 * math.sqrt(spread / count), power
    assert abs(np.corrcoef(standard[1:], standard[:-1])[0, 1]) < 7 / math.sqrt(count)


def words(candidates, seed):
    return np.random.default_rng(seed).integers(0, 2**64, (3, candidates), np.uint64)


@pytest.mark.parametrize(
    "variance",
    [MIN_VARIANCE, *(Fraction(v) for v in ("1", "2", "201/100", "12345/7", 1 << 47)), Fraction(3**60, 7), MAX_VARIANCE],
    ids=str,
)
def test_blocks_decide_as_the_exact_rule_does(variance):
    scale = discretegaussian._Scale.of(variance)
    drawn = words(4000, 3)
    values, accepted, undecided = discretegaussian._decide(drawn, scale)
    one_by_one = [discretegaussian._settle(drawn[:, i], scale) for i in range(drawn.shape[1])]
    known = np.flatnonzero(~undecided)
    assert known.size > 0.99 * drawn.shape[1]
    assert [int(values[i]) if accepted[i] else None for i in known] == [one_by_one[i] for i in known]
    assert 0.2 < accepted.mean() < 0.6


def test_words_at_the_edges_are_left_to_the_exact_rule():
    scale = discretegaussian._Scale.of(Fraction(100))
    (low, high), (third, _) = exp_bounds(Fraction(1), 64), exp_bounds(Fraction(3), 64)
    assert high - low == 1
    shells = [low - 1, low, high, third, 0, 1, 2**64 - 1]
    drawn = np.array([[0] * len(shells), shells, [2**64 - 1] * len(shells)], np.uint64)
    assert discretegaussian._decide(drawn, scale)[2].tolist() == [False, True, False, True, True, True, False]
    # z = r: exp(-g) is exp(-u); with u = 0 it is 1, which every number lies below
    least = discretegaussian._Scale.of(Fraction(2))
    assert least.ratio == 2
    one = np.array([0, exp_bounds(Fraction(2), 64)[0] - 1, 2**64 - 1], np.uint64)
    assert discretegaussian._settle(one, least) == 2
    values, accepted, undecided = discretegaussian._decide(one.reshape(3, 1), least)
    assert bool(undecided[0]) or (bool(accepted[0]) and values[0] == 2)


def test_a_candidate_far_out_is_settled_and_zero_has_one_sign():
    scale = discretegaussian._Scale.of(Fraction(100))
    assert discretegaussian._settle(np.array([0, 0, 1 << 63], np.uint64), scale) is None
    plus, minus = (np.array([sign, 2**64 - 1, 0], np.uint64) for sign in (0, 1))
    assert discretegaussian._settle(plus, scale) == 0
    assert discretegaussian._settle(minus, scale) is None
    assert discretegaussian._decide(minus.reshape(3, 1), scale)[1].tolist() == [False]
    assert discretegaussian._decide(plus.reshape(3, 1), scale)[1].tolist() == [True]


def exact_exp(exponent: Fraction, bits: int) -> Decimal:
    with localcontext() as context:
        context.prec = 400
        return (Decimal(-exponent.numerator) / Decimal(exponent.denominator)).exp() * (1 << bits)


@pytest.mark.parametrize("bits", [1, 63, 64, 128, 700])
@pytest.mark.parametrize(
    "exponent",
    [Fraction(e) for e in ("0", "1e-30", "1/4096", "1/2", "1", "22/7", "44", "100.000000000000000001", "1000000")],
    ids=str,
)
def test_bounds_of_exp_hold_and_are_tight(exponent, bits):
    low, high = exp_bounds(exponent, bits)
    assert low <= exact_exp(exponent, bits) <= high
    assert 0 <= high - low <= 2


def test_the_table_holds_bounds():
    lower, upper = discretegaussian._exponentials()
    assert (lower.size, upper.size) == (discretegaussian.LAST + 2, discretegaussian.LAST + 1)
    for index in (0, 1, 2, 777, 4096, discretegaussian.LAST):
        exact = exact_exp(Fraction(index, 4096), 63)
        assert int(lower[index]) <= exact <= int(upper[index]) <= int(lower[index]) + 2
    assert lower[-1] == 0


def test_more_digits_are_drawn_only_where_the_first_do_not_tell(monkeypatch):
    exponent = Fraction(3, 7)
    low, _ = exp_bounds(exponent, 64)
    following = exp_bounds(exponent, 128)[0] - (low << 64)
    asked = []
    for digits, more, below in ((low, following - 1, True), (low, following + 1, False)):
        monkeypatch.setattr(exponential.secrets, "randbits", lambda n, more=more: asked.append(n) or more)
        number = Uniform(digits, 64)
        assert number.is_below_exp(exponent) is below
        assert number.is_below_exp(exponent) is below  # the digits stay
    assert asked == [64, 64]
    assert Uniform(low - 1, 64).is_below_exp(exponent)
    assert not Uniform(low + 1, 64).is_below_exp(exponent)
    assert Uniform(2**64 - 1, 64).is_below_exp(Fraction(0))
    assert len(asked) == 2


@pytest.mark.parametrize("module", [discretegaussian, exponential])
def test_no_floating_point_takes_part(module):
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        assert not isinstance(node, ast.Div), "a division that is not of integers"
        assert not (isinstance(node, ast.Constant) and isinstance(node.value, float))
        names = {getattr(node, "id", ""), getattr(node, "attr", "")}
        assert not any(name.startswith("float") or name in {"math", "exp", "log", "sqrt"} for name in names)


def test_there_is_no_seed_and_no_two_calls_agree():
    assert list(inspect.signature(discrete_gaussian).parameters) == ["count", "variance"]
    first, second = (discrete_gaussian(1000, Fraction(1 << 60)) for _ in range(2))
    assert (first == second).mean() < 0.01
    assert first.dtype == np.int64
    assert discrete_gaussian(0, Fraction(1)).size == 0
    assert discrete_gaussian(1, Fraction(1)).shape == (1,)


@pytest.mark.parametrize("variance", [Fraction(0), Fraction(-1), MIN_VARIANCE / 2, MAX_VARIANCE + 1], ids=str)
def test_a_variance_out_of_range_is_refused(variance):
    with pytest.raises(ValueError, match="variance"):
        discrete_gaussian(1, variance)
