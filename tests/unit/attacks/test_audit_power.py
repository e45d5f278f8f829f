"""The power that is told before an audit is the power that it has: closed forms against simulated audits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedsecure_attacks.judging import measure
from fedsecure_attacks.statistics.power import (
    chance_to_clear,
    people_needed,
    planted_needed,
    power_of,
    records_needed,
    visible_effect,
)
from fedsecure_attacks.statistics.tail import rate_p, tail_p
from fedsecure_attacks.verdict import Thresholds, Word, decide

POLICY = Thresholds()


def words(n1: int, n0: int, effect: float, runs: int, thresholds: Thresholds = POLICY, attacks: int = 1) -> list[Word]:
    """Verdicts of audits of one attack whose scores are normal, members' higher by ``effect``."""
    inside, found = np.arange(n1 + n0) < n1, []
    for seed in range(runs):
        rng = np.random.default_rng([seed, n1])
        scores = {f"{i}": rng.standard_normal(n1 + n0) + effect * inside for i in range(attacks)}
        results = measure(scores, inside, thresholds)
        found.append(decide(results, (), thresholds, primary="0", facts={}, doubts=(), copies=0).word)
    return found


@pytest.mark.parametrize(
    ("n1", "n0", "effect"), [(100, 1000, 0.5), (600, 1000, 0.35), (60, 200, 0.7), (60, 1000, 0.2), (30, 300, 1.4)]
)
def test_a_leak_is_seen_as_often_as_was_said(n1, n0, effect):
    runs = 100
    seen = words(n1, n0, effect, runs).count(Word.LEAK) / runs
    said = power_of(n1, n0, POLICY, effect, rated=1, tails=1)
    error = math.sqrt(max(said * (1 - said), 0.01) / runs)
    assert said - 4 * error <= seen <= said + 4 * error + 0.1  # the likeliest finding is counted alone: it says less


@pytest.mark.parametrize("n", [1000, 1800])
def test_none_is_said_as_often_as_was_said(n):
    runs = 80
    cleared = words(n, n, 0.0, runs).count(Word.NO_LEAK_DETECTED) / runs
    said = chance_to_clear(n, n, POLICY, rated=1)
    error = math.sqrt(said * (1 - said) / runs)
    assert said - 4 * error <= cleared <= said + 4 * error + 0.05


def test_people_needed_are_the_fewest():
    for ratio in (1.0, 4.0):
        found = people_needed(POLICY, per_member=ratio)
        assert found.nonmembers == max(1000, ratio * found.members)
        assert chance_to_clear(found.members, found.nonmembers, POLICY) >= 0.8
        fewer = int(found.members * 0.8)
        assert chance_to_clear(fewer, int(max(1000, fewer * ratio)), POLICY) < 0.8
    assert 1000 < records_needed(POLICY) < 2500  # the order of a thousand that the audit page gives
    assert records_needed(POLICY, chance=0.5) < records_needed(POLICY) < records_needed(Thresholds(tpr=0.015))
    assert records_needed(POLICY, effect=0.05) > records_needed(POLICY)


@pytest.mark.parametrize("never", [Thresholds(tpr=0.02, auc=0.5), Thresholds(tpr=0.02, auc=0.51)])
def test_thresholds_that_no_number_of_people_shows_are_named(never):
    with pytest.raises(ValueError, match="^no number of people shows a rate of at most 0.02 at 0.01 and an area"):
        people_needed(never, effect=0.1)


def test_with_too_few_others_nothing_can_be_cleared_but_a_leak_is_seen():
    assert chance_to_clear(100_000, 999, POLICY) == 0
    assert power_of(100, 300, POLICY, 2.0) > 0.99
    assert power_of(100, 300, POLICY, 0.0) < 0.05
    powers = [power_of(200, 1000, POLICY, effect) for effect in (0.0, 0.2, 0.4, 0.8, 1.6)]
    assert powers == sorted(powers)


def test_the_visible_leak_shrinks_with_people():
    some, many = visible_effect(100, 1000, POLICY), visible_effect(1000, 10_000, POLICY)
    assert some is not None
    assert many is not None
    assert many < some
    assert power_of(100, 1000, POLICY, some) == pytest.approx(0.8, abs=0.01)
    assert visible_effect(1, 1, POLICY) is None


def test_planted_people_that_the_tail_shows():
    least = planted_needed(300, 3000)
    assert least is not None
    assert tail_p(least, 300, 3000) < 1e-3 / 9 <= tail_p(least - 1, 300, 3000)
    assert planted_needed(2, 3) is None
    assert planted_needed(300, 3000, tails=1) == 3


def test_the_exact_test_of_a_rate():
    """With none allowed it is the tail's; under exchangeable scores its p is uniform at most."""
    assert rate_p(4, 50, 500, 0) == pytest.approx(tail_p(4, 50, 500))
    assert rate_p(0, 50, 500, 5) == 1.0
    rng, below = np.random.default_rng(0), 0
    for _ in range(2000):
        scores = rng.standard_normal(340)
        threshold = np.sort(scores[40:])[::-1][3]
        below += rate_p(int((scores[:40] > threshold).sum()), 40, 300, 3) < 0.05
    assert below / 2000 <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 2000)
    with pytest.raises(ValueError, match="above a threshold"):
        rate_p(5, 4, 10, 0)


@pytest.mark.parametrize(("n1", "n0"), [(3000, 1000), (60, 150)])
def test_the_strictest_policy_calls_no_leak_without_one(n1, n0):
    """Area of one half and rate of chance accepted, seven attacks: at most one audit in twenty."""
    strict = Thresholds(tpr=0.010001, auc=0.5)
    alarms = words(n1, n0, 0.0, 40, strict, attacks=7).count(Word.LEAK)
    assert alarms <= 6  # binomial, 5 % of 40: more than six happen once in three hundred


def test_absurd_questions_are_refused():
    for wrong in ((0, 10, 1.0), (10, 0, 1.0), (10, 10, -1.0), (10, 10, math.nan)):
        with pytest.raises(ValueError, match="members"):
            power_of(wrong[0], wrong[1], POLICY, wrong[2])
    with pytest.raises(ValueError, match="chance 1.0"):
        people_needed(POLICY, chance=1.0)
