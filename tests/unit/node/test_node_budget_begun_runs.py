"""Runs that go on have yet to spend: a plan that leaves them too little is refused before it begins."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fedsecure.errors import PrivacyBudgetExceeded
from fedsecure.plan import Plan
from fedsecure.privacy.costs import count_spend, plan_spends, spends
from fedsecure.privacy.entries import ChargedFor, Entry
from fedsecure.privacy.ledger import Ledger
from fedsecure.privacy.spend import Spend, merged
from fedsecure_node.log.budget import log_entry
from fedsecure_node.plans.approvals import approve
from fedsecure_node.spending.affordable import CostOf
from fedsecure_node.spending.begun import begun_runs, begun_runs_at, still_to_spend
from fedsecure_node.store.countbook import Counted

RECORDS = tuple(bytes(31) + bytes([n]) for n in range(60))
OTHERS = tuple(bytes(30) + b"\1" + bytes([n]) for n in range(60))
METHODS = {
    "dp-sgd": ({"name": "fedavg", "local_steps": 1}, {"kind": "dp-sgd", "sigma": 20.0, "batch": 1000, "steps": 2}),
    "mixing": (
        {"name": "fedspm", "components": 2, "parametrisation": "explicit"},
        {"kind": "dp-sgd", "sigma": 9.0, "batch": 10, "steps": 3, "mixing_every": 4},
    ),
    "release": ({"name": "fedaf", "ipc": 1, "steps": 2, "min_count": 1}, {"kind": "release", "sigma": 20.0}),
}


def plan_of(name="first", kind="dp-sgd", rounds=10, **changes):
    method, privacy = METHODS[kind]
    raw = {
        "format": 1,
        "name": name,
        "rounds": rounds,
        "task": {"kind": "image", "classes": ["a", "b", "c"], "shape": [1, 4, 4]},
        "model": {"name": "mlp", "hidden": [4]},
        "method": method,
        "privacy": privacy,
        "cohort": {"min_nodes": 1, "nodes": ["hospital-a", "hospital-b"]},
    }
    return Plan.model_validate_json(json.dumps({**raw, **changes}))


def charged(plan, *paid):
    """Entries for (round, exchange)."""
    about = [
        ChargedFor(plan.digest(), plan.name, round_, exchange, 0, "hospital-a", "csprng", "dp-sgd")
        for round_, exchange in paid
    ]
    return [Entry(1, "", "", "", "charge", (), None, None, None, None, what, 0) for what in about]


@pytest.mark.parametrize("kind", METHODS)
def test_what_is_left_is_the_whole_without_what_was_paid(kind):
    plan, counts = plan_of(kind=kind), (20, 20, 20)
    exchanges = ("statistics", "condensation") if kind == "release" else ("update" if kind == "mixing" else "round",)
    if kind == "release":
        assert plan.method.sync == "two_phase"
    paid, spent = [], []
    assert still_to_spend(plan, 60, counts, ()) == plan_spends(plan, 60, counts)
    for round_, exchange in [(0, "counting"), *((r, e) for r in range(plan.rounds) for e in exchanges)]:
        cost = (
            (count_spend(plan.privacy),) if exchange == "counting" else spends(plan, exchange, round_, 60, counts)
        )  # fmt: skip
        paid.append((round_, exchange))
        spent += cost
        left = still_to_spend(plan, 60, counts, charged(plan, *paid))
        assert merged((*spent, *left)) == plan_spends(plan, 60, counts)
    assert left == ()


def test_rounds_that_were_missed_are_not_waited_for():
    plan = plan_of(rounds=10)
    left = still_to_spend(plan, 60, (20, 20, 20), charged(plan, (0, "counting"), (7, "round")))
    assert left == (Spend(20.0, 1.0, 4),)


class Known:
    """Records of which no more than the digests is asked."""

    def __init__(self, digests):
        self._digests = digests

    def __call__(self, plan):
        from fedsecure.data.dataset import Dataset

        labels = np.repeat(np.arange(3), 20)
        return Dataset(np.zeros((60, 1, 4, 4), np.float32), labels, plan.task.classes)

    def digests(self, plan):
        return self._digests


@pytest.fixture
def budget(site, settings, store):
    """A policy that pays for one and a half of a plan, and what plans cost these records by it."""
    (site / "policy.toml").write_text(
        'format = 1\n[plans]\nmethods = ["fedavg"]\nmin_nodes = 1\nmin_records = 1\n'
        "[privacy]\nepsilon = 1.2\ndelta = 1e-5\n"
    )

    def join(plan, counted=None):
        store.plans.record(plan, plan.digest(), "running", 1)
        store.runs.join(plan.digest(), 2)
        if counted:
            store.counts.keep(plan.digest(), Counted(counted, (20, 20, 20)), 3)

    cost = CostOf(settings.ledger, Known(RECORDS), begun=lambda: begun_runs(store), node="hospital-a")
    return cost, join


@pytest.fixture
def policy(budget, settings):
    from fedsecure_node.plans.institution import read_policy

    return read_policy(settings.policy).policy


def test_a_second_plan_has_to_leave_enough_for_the_first(budget, policy, settings, store):
    cost, join = budget
    first, second = plan_of(), plan_of("second")
    assert cost.broken(first, policy) == cost.broken(second, policy) == ()
    join(first)
    assert cost.broken(first, policy) == (), "it does not stand in its own way"
    (words,) = cost.broken(second, policy)
    assert "would take epsilon from 0 (0.9059 with the rest of 1 run begun here) to" in words
    assert "rounds could be paid for" in words
    with pytest.raises(PrivacyBudgetExceeded) as refused:
        cost(second, policy).check()
    assert "wait until the runs begun here are over" in refused.value.hint
    store.plans.record(second, second.digest(), "joining", 4)
    with pytest.raises(PrivacyBudgetExceeded, match="begun here"):
        approve(store, settings.policy, second.digest(), by="a person", broken=cost.broken)
    assert begun_runs_at(settings) == begun_runs(store)


@pytest.mark.parametrize("end", ["over here", "over there", "refused"])
def test_a_run_that_is_over_is_not_waited_for(end, budget, policy, store):
    cost, join = budget
    first, second = plan_of(), plan_of("second")
    join(first)
    assert cost.broken(second, policy)
    if end == "over here":
        store.runs.end(first.digest(), "aborted", "no quorum", 17, 5)
    elif end == "over there":
        store.plans.set_offered(first.digest(), "completed")
    else:
        store.plans.decide(first.digest(), "refused", by="ada", reason="no more", now_ms=5)
    assert cost.broken(second, policy) == ()


def test_what_was_charged_is_not_counted_twice_and_other_records_not_at_all(budget, policy, settings, log):
    cost, join = budget
    first, second = plan_of(), plan_of("second")
    with Ledger(settings.ledger) as ledger:
        mine, theirs = ledger.data_set(RECORDS), ledger.data_set(OTHERS)
    join(first, counted=mine)
    full = cost(second, policy)
    with Ledger(settings.ledger) as ledger:
        for round_, exchange in ((0, "counting"), *((n, "round") for n in range(6))):
            its = (count_spend(first.privacy),) if exchange == "counting" else spends(first, "round", 0, 60, ())
            what = ChargedFor(first.digest(), "first", round_, exchange, 0, "hospital-a", "csprng", "dp-sgd")
            log_entry(log, ledger.charge(mine, its, cap=2, delta=1e-5, what=what, epsilon=lambda *_: 1.0))
    later = cost(second, policy)
    assert full.before == 0 < later.before < later.then == pytest.approx(full.then)
    assert later.after == pytest.approx(full.after)
    join(plan_of("of-other-records"), counted=theirs)
    assert cost(second, policy).after == later.after
