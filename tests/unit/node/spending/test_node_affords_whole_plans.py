"""A private plan is refused before it starts when the data set cannot pay for all of it, with what it could pay for."""

from __future__ import annotations

import re

import pytest
import tomli_w

from fedsecure.errors import LocalProtocolError, PrivacyBudgetExceeded
from fedsecure.methods import build_method
from fedsecure.privacy.accounting import epsilon
from fedsecure.privacy.costs import plan_spends
from fedsecure_node.plans.approvals import approve, consider, standing, verdict
from fedsecure_node.plans.describe import describe
from fedsecure_node.plans.institution import PolicyWatch
from fedsecure_node.spending.affordable import CostOf, expected_counts, whole_cost
from fedsecure_node.spending.purse import Purse

DELTA = 1 / (10 * 112)


def rounds_said(words: str) -> int:
    found = re.search(r"(\d+) rounds? could be paid for", words)
    assert found, words
    return int(found[1])


def test_the_number_of_rounds_is_the_most_that_fit(site, plan_of):
    plan = plan_of(rounds=2000)
    (words,) = site.desk.broken(plan, site.policy(epsilon=2.0))
    assert words.startswith("privacy.epsilon: all 2000 rounds would take epsilon from 0 to ")
    rounds = rounds_said(words)
    counts = expected_counts(plan, 112)
    assert epsilon(plan_spends(plan, 112, counts, rounds), DELTA) <= 2.0
    assert epsilon(plan_spends(plan, 112, counts, rounds + 1), DELTA) > 2.0
    assert site.desk.broken(plan_of(rounds=rounds), site.policy(epsilon=2.0)) == ()
    assert len(site.desk.broken(plan_of(rounds=rounds + 1), site.policy(epsilon=2.0))) == 1


def test_what_was_spent_before_counts(site, plan_of):
    policy = site.policy(epsilon=2.0)
    first = site.join(plan_of(name="first"))
    part = site.desk.part(first, first.digest(), policy)
    before = rounds_said(site.desk.broken(plan_of(rounds=2000), policy)[0])  # 10 rounds of the first are to come
    for round_ in range(30):
        site.desk.pay(first, site.key(first, round_), part, policy)
    words = site.desk.broken(plan_of(rounds=2000), policy)[0]
    assert "epsilon from 0 to" not in words
    assert before - 21 <= rounds_said(words) <= before - 19
    assert site.desk.broken(first, policy) == (), "a run that has begun is charged as it goes"


def test_a_daemon_that_asks_again_reads_no_record_again(site, plan_of):
    class Counting:
        def __init__(self, data) -> None:
            self.data, self.looks = data, 0

        def __call__(self, plan):
            self.looks += 1
            return self.data(plan)

        def digests(self, plan):
            self.looks += 1
            return self.data.digests(plan)

    policy, data = site.policy(), Counting(site.data())
    cost = CostOf(site.settings.ledger, data)
    first = [cost(plan_of(), policy) for _ in range(3)]
    assert data.looks == 1
    other = site.join(plan_of(name="other"))
    part = site.desk.part(other, other.digest(), policy)
    seen = [cost(plan_of(), policy) for _ in range(3)]
    assert data.looks == 2, "there is a ledger now, which knows records by their digests"
    site.desk.pay(other, site.key(other), part, policy)
    assert first[-1].before < seen[-1].before < cost(plan_of(), policy).before
    assert data.looks == 2


def test_a_plan_that_no_budget_pays_for(site, plan_of):
    (words,) = site.desk.broken(plan_of(privacy={**plan_of().privacy.model_dump(), "sigma": 0.5}), site.policy())
    assert words.endswith("not one round can be paid for")


def test_consider_refuses_and_approve_says_why(site, plan_of):
    plan = plan_of(rounds=2000)
    site.policy(epsilon=2.0, plans_approval="rule", plans_max_rounds=10_000)
    seen = site.store.plans.record(plan, plan.digest(), "joining", 1)
    seen, judged = consider(site.store, seen, PolicyWatch(site.settings.policy), site.desk.broken)
    assert standing(seen, judged) == "no"
    assert seen.decision == "pending", "the rule approves what can be finished, nothing else"
    assert "could be paid for" in judged.words()
    assert judged.public() == "the institution's policy forbids it (rule privacy.epsilon)", "no figure leaves"
    cost = CostOf(site.settings.ledger, site.data())
    with pytest.raises(PrivacyBudgetExceeded, match="rounds could be paid for"):
        approve(site.store, site.settings.policy, plan.digest(), by="a person", broken=cost.broken)
    with pytest.raises(PrivacyBudgetExceeded, match="rounds could be paid for"):
        site.desk.admit(plan, PolicyWatch(site.settings.policy).read().policy)
    fits = plan_of(rounds=10)
    seen = site.store.plans.record(fits, fits.digest(), "joining", 1)
    seen, judged = consider(site.store, seen, PolicyWatch(site.settings.policy), site.desk.broken)
    assert standing(seen, judged) == "go"
    assert not site.settings.ledger.exists(), "asking makes no ledger"


def test_joining_holds_the_records(site, plan_of):
    plan, policy = plan_of(), site.policy()
    other = Purse(site.settings.ledger.with_name("other.db"), site.log, node_id="hospital-b")
    other.hold(site.data().digests(plan))
    with pytest.raises(LocalProtocolError, match="computes on it"):
        site.desk.admit(plan, policy)
    other.close()
    site.desk.admit(plan, policy)
    with pytest.raises(LocalProtocolError, match="computes on it"):
        other.hold(site.data().digests(plan))
    other.close()


def test_a_plan_whose_cost_follows_from_its_counts_is_weighed_again(site, plan_of):
    """Mechanism B: the smallest class decides. As if all were equal it fits; as they are counted it does not."""
    method = {"name": "fedaf", "ipc": 1, "steps": 50, "min_count": 10, "sync": "stale"}
    privacy = {"kind": "per-step", "sigma": 20.0, "batch": 10, "count_sigma": 1.0}
    plan = plan_of(privacy=privacy, method=method, rounds=1)
    even = whole_cost(plan, site.policy(epsilon=50.0), 112, (), (37, 37, 38))
    real = whole_cost(plan, site.policy(epsilon=50.0), 112, (), (90, 12, 10))
    assert even.after < real.after
    policy = site.policy(
        epsilon=(even.after + real.after) / 2, mechanisms=["per-step"], plans_methods=["fedaf"], plans_max_rounds=9
    )
    assert site.desk.broken(plan, policy) == ()


def test_the_sheet_tells_mechanism_and_cost(site, plan_of):
    plan, policy = plan_of(), site.policy()
    cost = CostOf(site.settings.ledger, site.data())(plan, policy)
    words = "\n".join(describe(plan, policy, build_method(plan), cost=cost.words()))
    assert "privacy: noise of sigma 20, from keys of the operating system" in words
    assert "differential privacy for each record, zero-out adjacency" in words
    assert "all 10 rounds would take epsilon from 0 to" in words
    assert "guarantee: none" not in words
    assert "  - yes privacy.epsilon" in words
    long = plan_of(rounds=90_000)
    rules = site.desk.broken(long, policy)
    sheet = describe(long, policy, build_method(long), spending=rules)
    assert f"  - NO  {rules[0]}" in sheet
    bare = "\n".join(describe(plan, policy, build_method(plan)))
    assert "its epsilon follows from this node's records: fedsecure node dp-plan" in bare
    seeded = plan_of(privacy={**plan.privacy.model_dump(), "noise": "torch"})
    words = "\n".join(describe(seeded, policy, build_method(seeded), cost=cost.words()))
    assert "guarantee: none is proven - heuristic" in words
    assert "NO  privacy.noise: torch" in words
    plain = plan_of(privacy=None)
    assert "guarantee: none - nothing is proven" in "\n".join(describe(plain, policy, build_method(plain)))
    assert verdict(plain, PolicyWatch(site.settings.policy), cost_of_nothing_asked).passes


def cost_of_nothing_asked(plan, policy):
    assert plan.privacy is None
    return ()


def test_node_check_asks_for_the_whole_cost(site, plan_of, tmp_path):
    from fedsecure_node.cli.first_steps import _budget

    site.policy(epsilon=2.0)
    path = tmp_path / "plan.toml"
    for plan, said in (
        (plan_of(privacy=None), "spends none"),
        (plan_of(), "all 10 rounds would take epsilon from 0 to"),
    ):
        path.write_text(tomli_w.dumps(plan.model_dump(mode="json", exclude_none=True)))
        assert said in _budget(site.settings, path)
    path.write_text(tomli_w.dumps(plan_of(rounds=2000).model_dump(mode="json", exclude_none=True)))
    with pytest.raises(PrivacyBudgetExceeded, match="rounds could be paid for"):
        _budget(site.settings, path)
