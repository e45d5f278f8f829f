"""Lower bounds on epsilon: the table of what can be certified, no bound out of nothing, none above the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from fedsecure_attacks.statistics.epsilon import bonferroni_bound, largest_certifiable, split_bound
from fedsecure_attacks.statistics.scores import Scores


@pytest.mark.parametrize(("n", "largest"), [(50, 2.57), (200, 3.98), (1000, 5.60), (5000, 7.21)])
def test_what_a_perfect_attack_can_certify(n, largest):
    assert largest_certifiable(n, n) == pytest.approx(largest, abs=0.006)
    perfect = Scores(np.full(2 * n, 1.0), np.zeros(2 * n))
    found = split_bound(perfect, np.random.default_rng(0))
    assert found is not None
    assert found.low == found.largest == pytest.approx(largest, abs=0.006)


def test_no_leak_gives_no_bound():
    """With a threshold chosen on the scores themselves most of these would."""
    positive = {"split": 0, "bonferroni": 0}
    for seed in range(300):
        rng = np.random.default_rng(seed)
        scores = Scores(rng.standard_normal(200), rng.standard_normal(200))
        split = split_bound(scores, rng)
        assert split is not None
        positive["split"] += split.low > 0
        positive["bonferroni"] += bonferroni_bound(scores, [-1.0, 0.0, 1.0]).low > 0
    assert all(binom.sf(count - 1, 300, 0.05) > 1e-3 for count in positive.values()), positive


def test_a_bound_stays_below_the_truth_and_comes_near_it():
    """Scores of randomised response with epsilon 2: nothing an attack can do shows more."""
    epsilon, rng, lows = 2.0, np.random.default_rng(5), []
    keep = math.exp(epsilon) / (1 + math.exp(epsilon))
    for _ in range(60):
        scores = Scores((rng.random(2000) < keep).astype(float), (rng.random(2000) > keep).astype(float))
        found = split_bound(scores, rng)
        assert found is not None
        lows.append(found.low)
    assert np.mean(np.array(lows) > epsilon) <= 0.1
    assert np.median(lows) > 1.6


def test_delta_makes_it_smaller():
    rng = np.random.default_rng(2)
    scores = Scores(rng.standard_normal(400) + 2, rng.standard_normal(400))
    plain, with_delta = bonferroni_bound(scores, [1.0]), bonferroni_bound(scores, [1.0], delta=0.05)
    assert 0 < with_delta.low < plain.low


def test_too_few_records_give_none():
    assert split_bound(Scores([1.0, 2.0, 3.0], np.zeros(100)), np.random.default_rng(0)) is None
