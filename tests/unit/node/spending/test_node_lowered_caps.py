"""A cap that is lowered, or a clock that is set back, after something was charged."""

from __future__ import annotations

import time

import pytest

from fedsecure.errors import PolicyError, PrivacyBudgetExceeded


@pytest.fixture
def begun(site, plan_of):
    """A run that paid for two rounds, and epsilon of that."""
    policy = site.policy(epsilon=8.0)
    plan = site.join(plan_of())
    part = site.desk.part(plan, plan.digest(), policy)
    for round_ in range(2):
        site.desk.pay(plan, site.key(plan, round_), part, policy)
    return plan, part, site.purse.ledger().entries()[-1].epsilon_after


def test_what_was_charged_does_not_leave_past_a_lowered_cap(site, begun):
    plan, part, spent = begun
    assert site.desk.label(plan, part, site.policy(epsilon=spent)).epsilon == spent
    lowered = site.policy(epsilon=spent * 0.999)
    with pytest.raises(PrivacyBudgetExceeded, match="privacy.epsilon: its data set has spent epsilon .* nothing more"):
        site.desk.label(plan, part, lowered)
    with pytest.raises(PrivacyBudgetExceeded, match="past the cap of"):
        site.desk.pay(plan, site.key(plan, 2), part, lowered)
    assert len(site.paid()) == 3
    with pytest.raises(PolicyError, match="the policy names no budget"):
        site.desk.label(plan, part, lowered.model_copy(update={"privacy": type(lowered.privacy)()}))


def test_a_smaller_delta_is_a_lowered_cap_too(site, begun):
    plan, part, spent = begun
    with pytest.raises(PrivacyBudgetExceeded, match="at delta 1e-09"):
        site.desk.label(plan, part, site.policy(epsilon=spent, delta=1e-9))


def test_a_clock_that_is_set_back_hides_nothing(site, begun, monkeypatch):
    plan, _, spent = begun
    desk, policy, now = site.again(), site.policy(epsilon=8.0), time.time_ns()
    monkeypatch.setattr(site.purse.ledger(), "_clock", lambda: now - 10**18)
    site.purse.check()
    desk.pay(plan, site.key(plan, 2), desk.part(plan, plan.digest(), policy), policy)
    entries = site.purse.ledger().entries()
    assert [entry.counter for entry in entries] == [1, 2, 3, 4]
    assert entries[-1].time_ms < entries[0].time_ms
    assert entries[-1].epsilon_before == spent < entries[-1].epsilon_after
    assert len(site.log.charges()) == 4
