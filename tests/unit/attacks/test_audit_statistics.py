"""The audit's statistics: rates, the exact tail test, intervals, Holm, and what is refused rather than guessed."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from fedsecure.errors import AuditError
from fedsecure_attacks.statistics.intervals import auc_interval, cluster_interval, share_interval
from fedsecure_attacks.statistics.multiplicity import holm
from fedsecure_attacks.statistics.roc import NotMeasurable, Rate, auc, precision_at_prior, roc, tpr_at
from fedsecure_attacks.statistics.scores import Scores
from fedsecure_attacks.statistics.tail import least_count, tail_p, tail_test


def normal(n1: int, n0: int, effect: float = 0.0, seed: int = 0) -> Scores:
    rng = np.random.default_rng(seed)
    return Scores(rng.standard_normal(n1) + effect, rng.standard_normal(n0))


def test_the_area_counts_pairs_and_halves_ties():
    scores = Scores([3.0, 1.0, 1.0], [1.0, 0.0])
    pairs = [(a > b) + (a == b) / 2 for a in scores.members for b in scores.nonmembers]
    assert auc(scores) == pytest.approx(np.mean(pairs))
    assert auc(Scores([1.0, 1.0], [1.0])) == 0.5
    assert auc(Scores(scores.nonmembers, scores.members)) == pytest.approx(1 - auc(scores))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_score_that_is_not_a_number_is_named_and_never_dropped(bad):
    with pytest.raises(AuditError, match=r"^scores of members: 1 of 3 are not finite$"):
        Scores([1.0, bad, 2.0], [0.0])


def test_one_kind_alone_is_no_audit():
    with pytest.raises(AuditError, match="non-members: there are none"):
        Scores([1.0], [])
    with pytest.raises(AuditError, match="members: there are none"):
        Scores([], [1.0])
    with pytest.raises(AuditError, match=r"shape \[2, 1\]"):
        Scores([[1.0], [2.0]], [0.0])


def test_a_rate_needs_ten_false_positives():
    assert isinstance(tpr_at(normal(50, 999), 0.01), NotMeasurable)
    rate = tpr_at(normal(50, 1000, effect=1.0), 0.01)
    assert isinstance(rate, Rate)
    assert rate.false == 10
    missing = tpr_at(normal(50, 999), 0.01)
    assert isinstance(missing, NotMeasurable)
    assert missing.why == "999 non-members are too few (at least 1000)"


def test_ties_at_the_threshold_count_against_the_attacker():
    scores = Scores(np.full(20, 5.0), np.r_[np.full(30, 5.0), np.zeros(970)])
    rate = tpr_at(scores, 0.01)
    assert isinstance(rate, Rate)
    assert (rate.count, rate.false) == (0, 0)
    tied = tpr_at(Scores(np.ones(5), np.ones(5000)), 0.01)
    assert isinstance(tied, NotMeasurable)
    assert tied.why == "all scores are equal"


def test_the_curve_rises_from_nothing_to_all():
    curve = roc(Scores([3.0, 1.0, 1.0], [1.0, 0.0]))
    assert curve.fpr.tolist() == [0, 0, 0.5, 1]
    assert curve.tpr.tolist() == [0, pytest.approx(1 / 3), 1, 1]
    scores = normal(40, 60, 1.0)
    curve = roc(scores)
    assert float(np.trapezoid(curve.tpr, curve.fpr)) == pytest.approx(auc(scores))


def test_the_tail_test_is_the_exact_probability():
    """By counting every way to choose who the members are."""
    scores = Scores([9.0, 8.0, 1.0], [7.0, 2.0, 3.0, 0.0])
    test = tail_test(scores)
    assert test.count == 2
    everyone = [*scores.members, *scores.nonmembers]
    top = 0
    for chosen in combinations(range(7), 3):
        others = [everyone[i] for i in range(7) if i not in chosen]
        top += sum(everyone[i] > max(others) for i in chosen) >= 2
    assert test.p == pytest.approx(top / math.comb(7, 3))
    assert tail_p(0, 3, 4) == 1.0


def test_ten_copies_of_three_hundred_are_invisible_to_the_area_and_plain_in_the_tail():
    rng = np.random.default_rng(1)
    scores = Scores(np.r_[np.full(10, 9.0), rng.standard_normal(290)], rng.standard_normal(2000))
    assert 0.46 < auc(scores) < 0.55
    assert tail_test(scores).p == pytest.approx(1.3e-9, rel=0.2)


@pytest.mark.parametrize(("members", "nonmembers", "least"), [(1000, 1000, 10), (100, 1000, 3)])
def test_what_the_tail_test_can_see(members, nonmembers, least):
    assert least_count(members, nonmembers, 1e-3) == least
    assert least_count(2, 3, 1e-6) is None


def test_shares_have_exact_intervals():
    found = share_interval(10, 1000)
    assert (found.low, found.high) == (pytest.approx(0.004805, abs=1e-5), pytest.approx(0.018314, abs=1e-5))
    assert share_interval(0, 10).low == 0
    assert share_interval(10, 10).high == 1
    for of, high in ((50, 0.058), (200, 0.031), (1000, 0.017)):  # one-sided reading of 1 % observed, audit page 3
        assert share_interval(round(of * 0.01), of, 0.9).high == pytest.approx(high, abs=0.036 if of == 50 else 0.002)


def test_intervals_of_the_area():
    assert auc_interval(normal(200, 400, 1.0)).method.startswith("DeLong")
    inside = [auc_interval(normal(40, 60, 1.0, seed)) for seed in range(400)]
    truth = 0.5 * math.erfc(-1.0 / 2)
    covered = np.mean([i.low <= truth <= i.high for i in inside])
    assert 0.92 <= covered <= 0.98
    small = auc_interval(normal(8, 8, seed=3))
    assert small.low < 0.5 < small.high
    assert small.high - small.low > 0.4
    perfect = auc_interval(Scores([5.0, 6.0, 7.0], [1.0, 2.0, 3.0]))
    assert perfect.high == 1
    assert 0.3 < perfect.low < 0.9
    assert auc_interval(Scores(perfect_members := [1.0, 2.0], [5.0, 6.0])).low == 0, perfect_members


def test_clusters():
    found = cluster_interval([0.5, 0.6, 0.7])
    assert found is not None
    assert (found.low + found.high) / 2 == pytest.approx(0.6)
    assert cluster_interval([0.5]) is None
    ends = cluster_interval([0.0, 1.0]), cluster_interval([1.0, 0.9])
    assert [(one.low >= 0, one.high) for one in ends if one] == [(True, 1.0), (True, 1.0)]


def test_holm_keeps_order_and_never_passes_one():
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == {"a": 0.03, "b": 0.06, "c": 0.06}
    assert holm({"a": 0.9, "b": 0.8}) == {"a": 1.0, "b": 1.0}


def test_precision_depends_on_the_prior():
    rate = Rate(0.01, 20, 100, 10)
    assert precision_at_prior(rate, 0.5) == pytest.approx(0.2 / 0.21)
    assert precision_at_prior(rate, 0.01) == pytest.approx(0.01 * 0.2 / (0.01 * 0.2 + 0.99 * 0.01))
