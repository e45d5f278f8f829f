"""Answers to queries about a private run are labelled by what their data set has paid for when they are given."""

from __future__ import annotations

import pytest

from fedsecure.privacy.labels import NONE
from fedsecure_node.spending.answers import AnswerLabels


@pytest.fixture
def paid_run(site, plan_of):
    policy, plan = site.policy(), site.join(plan_of())
    part = site.desk.part(plan, plan.digest(), policy)
    site.desk.pay(plan, site.key(plan), part, policy)
    return plan, part, policy


def labels(site):
    return AnswerLabels(site.purse, site.store.counts, site.log)


def test_an_answer_has_the_label_of_what_was_paid_until_then(site, plan_of, paid_run):
    plan, part, policy = paid_run
    first = labels(site)(plan, plan.digest())
    assert first == site.desk.label(plan, part, policy)
    assert first.to_json()["label"] == "dp"
    assert len(site.paid()) == 2, "post-processing costs nothing"
    site.desk.pay(plan, site.key(plan, 1), part, policy)
    assert labels(site)(plan, plan.digest()).epsilon > first.epsilon


def test_nothing_is_said_of_answers_that_nothing_paid_for(site, plan_of, paid_run):
    plain, other = site.join(plan_of(privacy=None, name="plain")), site.join(plan_of(name="not-begun"))
    assert labels(site)(plain, plain.digest()) == NONE
    assert labels(site)(other, other.digest()) == NONE


def test_nothing_is_said_by_a_ledger_that_does_not_tell_all(site, plan_of, paid_run):
    plan, part, policy = paid_run
    site.purse.close()
    older = site.settings.ledger.read_bytes()
    site.again().pay(plan, site.key(plan, 1), part, policy)
    site.purse.close()
    site.settings.ledger.write_bytes(older)
    site.again()
    assert labels(site)(plan, plan.digest()) == NONE
    site.purse.close()
    site.settings.ledger.unlink()
    site.again()
    assert labels(site)(plan, plan.digest()) == NONE
    assert not site.settings.ledger.exists(), "looking makes no ledger"
