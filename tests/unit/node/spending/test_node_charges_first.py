"""Ledger, log, then the draw or the computation; counted once; and what takes part follows from noisy counts."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest

from fedsecure.errors import DataError, LocalProtocolError, PolicyError, PrivacyBudgetExceeded
from fedsecure.method import ClientContext
from fedsecure.methods import build_method
from fedsecure.privacy.accounting import epsilon
from fedsecure.privacy.counting import counted_once
from fedsecure.privacy.labels import guarantee_words
from fedsecure.privacy.ledger import Ledger
from fedsecure.tensors import Tensors
from fedsecure.wire.codec import encode_contribution
from fedsecure_node.egress import Gate
from fedsecure_node.log.chain import CHARGED
from fedsecure_node.log.records import Destination
from fedsecure_node.plans.institution import read_policy
from fedsecure_node.spending import desk as desk_module


def test_records_are_counted_once_by_whichever_process(site, plan_of, monkeypatch):
    counted = []

    def count(*given):
        counted.append(given)
        return counted_once(*given)

    monkeypatch.setattr(desk_module, "counted_once", count)
    policy, plan = site.policy(), site.join(plan_of())
    part = site.desk.part(plan, plan.digest(), policy)
    assert site.paid() == [(0, "counting")]
    again = site.again().part(plan, plan.digest(), policy)
    assert site.paid() == [(0, "counting")]
    assert (again.counts == part.counts).all()
    assert len(counted) == 1
    other = site.join(plan_of(name="another"))
    site.desk.part(other, other.digest(), policy)
    assert len(counted) == 2, "drawn anew for each run"
    assert site.paid() == [(0, "counting")] * 2


def test_what_takes_part_follows_from_noisy_counts_alone(site, plan_of, records_of):
    """With noise of a thousand records the counts say nothing of the records, and are what decides all the same."""
    policy, kept = site.policy(epsilon=1000.0), []
    privacy = {**plan_of().privacy.model_dump(), "count_sigma": 1000.0}
    for index in range(12):
        plan = site.join(plan_of(name=f"run-{index}", privacy=privacy))
        with suppress(PolicyError):
            part = site.desk.part(plan, plan.digest(), policy)
        if not any(count >= 10 for count in site.store.counts.find(plan.digest()).counts):
            with pytest.raises(PolicyError, match="by noisy counts no class has enough records"):
                site.desk.part(plan, plan.digest(), policy)
            kept.append((False,) * 3)
            continue
        takes_part = part.counts > 0
        assert set(np.unique(part.data.y)) == set(np.flatnonzero(takes_part))
        assert part.records == 112, "what was left out does not show in the number that may leave"
        assert (part.counts[takes_part] >= 10).all()
        kept.append(tuple(takes_part))
    assert len(set(kept)) > 1


def test_the_log_has_it_before_anything_is_computed(site, plan_of):
    policy, plan = site.policy(), site.join(plan_of())
    part = site.desk.part(plan, plan.digest(), policy)
    ctx = site.desk.pay(plan, site.key(plan, 3), part, policy)
    entries = site.purse.ledger().entries()
    logged = [record.body["hash"] for record in site.log.records() if record.kind == CHARGED]
    assert logged == [entry.hash for entry in entries]
    assert [entry.what.round for entry in entries] == [0, 3]
    assert ctx.counts == tuple(part.counts)
    assert ctx.records == 112
    assert ctx.settings == plan.privacy
    assert "private, round 4 round: charged: epsilon" in site.said.getvalue()


@pytest.mark.parametrize("stage", ["log", "draw"])
def test_a_crash_between_charge_and_use_over_counts(site, plan_of, monkeypatch, stage):
    """Whatever comes after the ledger may fail: the spend stays, and the same work pays again."""

    def crash(*args, **more):
        raise KeyboardInterrupt

    append = type(site.log).append

    def crash_at_charge(log, kind, body, **more):
        return crash() if kind == CHARGED else append(log, kind, body, **more)

    policy, plan = site.policy(), site.join(plan_of())
    if stage == "log":
        monkeypatch.setattr(type(site.log), "append", crash_at_charge)
    else:
        monkeypatch.setattr(desk_module, "counted_once", crash)
    with pytest.raises(KeyboardInterrupt):
        site.desk.part(plan, plan.digest(), policy)
    monkeypatch.undo()
    desk = site.again()
    site.purse.check()  # as the daemon does at its start: the log catches up
    assert len([record for record in site.log.records() if record.kind == CHARGED]) == 1
    assert site.store.counts.find(plan.digest()) is None
    desk.part(plan, plan.digest(), policy)
    assert site.paid() == [(0, "counting")] * 2


def test_every_attempt_pays(site, plan_of):
    policy, plan = site.policy(), site.join(plan_of())
    part = site.desk.part(plan, plan.digest(), policy)
    for attempt in (0, 0, 1):
        site.desk.pay(plan, site.key(plan, 0, attempt), part, policy)
    assert site.paid() == [(0, "counting"), (0, "round"), (0, "round"), (0, "round")]


def test_the_cap_holds_and_nothing_is_spent_past_it(site, plan_of):
    plan = site.join(plan_of(rounds=1))
    policy = site.policy(epsilon=2.0)
    part = site.desk.part(plan, plan.digest(), policy)

    def pay() -> None:
        for round_ in range(1000):
            site.desk.pay(plan, site.key(plan, round_), part, policy)

    with pytest.raises(PrivacyBudgetExceeded, match="past the cap of 2"):
        pay()
    data_set = part.data_set
    with Ledger(site.settings.ledger) as ledger:
        history = ledger.history(data_set)
    delta = 1 / (10 * 112)
    assert epsilon(history, delta) <= 2.0
    assert len(site.paid()) > 3
    logged = [record for record in site.log.records() if record.kind == CHARGED]
    assert len(logged) == len(site.paid()), "what was refused is in no book"


def test_a_run_keeps_to_the_records_that_it_counted(site, plan_of, records_of):
    policy, plan = site.policy(), site.join(plan_of())
    site.desk.part(plan, plan.digest(), policy)
    site.put(records_of((60, 50, 3)))
    with pytest.raises(DataError, match="no longer those that this run counted"):
        site.again().part(plan, plan.digest(), policy)


def test_records_that_change_while_they_are_read_have_no_identity(site, plan_of, records_of, monkeypatch):
    import fedsecure.data as data

    load = data.load_dataset

    def meanwhile(source, task):
        found = load(source, task)
        site.put(records_of((61, 50, 2)))
        return found

    monkeypatch.setattr(data, "load_dataset", meanwhile)
    with pytest.raises(DataError, match="changed while they were read"):
        site.data().digests(plan_of())


def test_a_second_process_on_the_same_records_is_refused(site, plan_of):
    """Here by another purse with another ledger: on Linux both would hold the same name of the machine."""
    from fedsecure_node.spending.purse import Purse

    digests = site.data().digests(plan_of())
    site.purse.hold(digests)
    other = Purse(site.settings.ledger.with_name("other.db"), site.log, node_id="hospital-b")
    with pytest.raises(LocalProtocolError, match=r"another daemon.*computes on it"):
        other.hold(digests)
    site.purse.close()
    other.hold(digests)
    other.close()


def test_an_older_ledger_pays_for_nothing(site, plan_of):
    policy, plan = site.policy(), site.join(plan_of())
    part = site.desk.part(plan, plan.digest(), policy)
    site.purse.close()
    older = site.settings.ledger.read_bytes()
    site.again().pay(plan, site.key(plan), part, policy)
    site.purse.close()
    site.settings.ledger.write_bytes(older)
    desk = site.again()
    with pytest.raises(PrivacyBudgetExceeded, match="older copy"):
        site.purse.check()
    with pytest.raises(PrivacyBudgetExceeded, match="older copy"):
        desk.pay(plan, site.key(plan, 1), part, policy)


def test_a_release_without_a_guarantee_is_noted_beside_a_ledger(site, plan_of):
    policy, plain = site.policy(), site.join(plan_of(privacy=None, name="plain"))
    site.desk.note_unprotected(plain, site.key(plain))
    assert not site.settings.ledger.exists(), "there is no ledger to tell"
    plan = site.join(plan_of())
    part = site.desk.part(plan, plan.digest(), policy)
    site.desk.note_unprotected(plain, site.key(plain))
    (noted,) = site.purse.ledger().unprotected(part.data_set)
    assert (noted.what.name, noted.what.mechanism) == ("plain", "none")
    assert noted.hash in site.log.charges(), "an older copy of the ledger that lacks it is found out"
    site.desk.pay(plan, site.key(plan), part, policy)
    label = site.desk.label(plan, part, policy)
    assert label.unprotected == 1
    assert "Not covered: 1 release of before without a guarantee." in guarantee_words(label.to_json())


def test_noise_that_can_be_repeated_stays_in_what_later_labels_say(site, plan_of):
    policy = site.policy(noise=["csprng", "torch"])
    seeded = site.join(plan_of(name="seeded", privacy={**plan_of().privacy.model_dump(), "noise": "torch"}))
    part = site.desk.part(seeded, seeded.digest(), policy)
    site.desk.pay(seeded, site.key(seeded), part, policy)
    assert site.desk.label(seeded, part, policy).to_json()["label"] == "heuristic"
    assert {entry.what.noise for entry in site.purse.ledger().entries()} == {"torch"}
    plan = site.join(plan_of())
    part = site.desk.part(plan, plan.digest(), policy)
    site.desk.pay(plan, site.key(plan), part, policy)
    assert site.desk.label(plan, part, policy).unprotected == 2, "the counting, and the round"


def test_what_was_released_before_there_was_a_ledger_is_noted_first(site, plan_of):
    plain, policy = site.join(plan_of(privacy=None, name="plain")), site.policy()
    method = build_method(plain)
    key = site.key(plain)
    _, contribution = method.client_update(
        "round",
        method.broadcast("round", method.init_server(1)),
        Tensors(),
        site.data()(plain),
        ClientContext("hospital-a", 0, 1),
    )
    payload = encode_contribution(contribution)
    gate = Gate(site.store, site.log, node_id="hospital-a", hold=False)
    done = site.store.runs.finish(key, broadcast="b" * 64, payload=payload, before="", local=Tensors(), now_ms=3)
    gate.log(plain, method, done, payload, contribution, read_policy(site.settings.policy), Destination("a", "b"))
    plan = site.join(plan_of())
    site.desk.admit(plan, policy)
    (noted,) = site.purse.ledger().entries()
    assert (noted.kind, noted.what.name) == ("unprotected", "plain")
    assert set(site.log.charges()) == {noted.hash}
    site.again().admit(plan, policy)
    assert len(site.purse.ledger().entries()) == 1


def test_limits_are_the_institutions(site, plan_of):
    plan = site.join(plan_of())
    with pytest.raises(PolicyError, match=r"privacy.delta: 0.01 is not below 1 / n"):
        site.desk.part(plan, plan.digest(), site.policy(delta=0.01))
    no_budget = site.policy()
    no_budget = no_budget.model_copy(update={"privacy": no_budget.privacy.model_copy(update={"epsilon": None})})
    with pytest.raises(PolicyError, match=r"privacy.epsilon: .*nothing may be spent"):
        site.desk.part(plan, plan.digest(), no_budget)
    assert site.paid() == []
