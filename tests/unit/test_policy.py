"""The institution's policy: absent means no, and every refusal names its rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsecure.config import validate
from fedsecure.errors import ConfigError, PolicyError
from fedsecure.plan import Plan
from fedsecure.plan.size import header_bytes, release_bytes
from fedsecure.policy import Policy, load_policy

PLAN = {
    "format": 1,
    "name": "p",
    "rounds": 3,
    "task": {"kind": "image", "classes": ["0", "1"], "shape": [1, 8, 8]},
    "model": {"name": "convnet", "depth": 2},
    "method": {"name": "fedaf"},
}


def plan(method: dict[str, object] | None = None, **changes: object) -> Plan:
    return validate(Plan, {**PLAN, "method": {"name": "fedaf", **(method or {})}, **changes}, "plan")


def policy(**tables: object) -> Policy:
    return validate(Policy, {"format": 1, "plans": {"methods": ["fedaf"]}, **tables}, "policy")


def test_an_absent_policy_denies_everything(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="no policy, so nothing is allowed"):
        load_policy(tmp_path / "policy.toml")


def test_an_empty_policy_allows_no_method() -> None:
    with pytest.raises(PolicyError, match=r"plans.methods: fedaf \(allowed: none\)"):
        validate(Policy, {"format": 1}, "policy").check_plan(plan())


def test_the_protective_preset_passes_the_default_rules() -> None:
    assert policy().violations(plan()) == []


@pytest.mark.parametrize(
    ("bad", "rule"),
    [
        (plan({"init": "avg"}), "condensation.init: avg"),
        (plan({"init": "real"}), "condensation.init: real"),
        (plan({"ipc": 51}), "condensation.max_ipc: 51"),
        (plan({"min_count": 9}), "condensation.min_records_per_class: classes of 9"),
        (plan({"real_means": "batch"}), "condensation.fresh_queries: the records are asked anew at every step: real_"),
        (plan({"resample": "step", "steps": 5}), "condensation.fresh_queries: the records are asked anew at every ste"),
        (plan({"resample_interval": 1, "steps": 5}), "'interval' of 1 (allowed: 'round', or 'interval' of two steps"),
        (
            plan({"resample_interval": 2, "steps": 41}),
            "condensation.max_networks: 21 networks a round (allowed: <= 20)",
        ),
        (plan({"logit_clip": 101.0}), "condensation.max_logit_clip: 101"),
        (plan({"logit_clip": "none"}), "condensation.max_logit_clip: logits unclipped"),
        (plan(rounds=101), "plans.max_rounds: 101"),
        (plan(cohort={"min_nodes": 2}), "plans.min_nodes: sums over 2"),
        (plan(randomness="plan"), "plans.shared_randomness"),
    ],
)
def test_asking_for_less_privacy_is_refused_naming_the_rule(bad: Plan, rule: str) -> None:
    with pytest.raises(PolicyError, match="policy refuses plan p") as caught:
        policy().check_plan(bad)
    assert rule in str(caught.value)


def test_averages_need_classes_twice_as_large_as_what_they_use() -> None:
    rules = policy(condensation={"init": ["noise", "avg"], "min_init_n": 5})
    assert rules.violations(plan({"init": "avg", "ipc": 5, "init_n": 5, "min_count": 50})) == []
    broken = rules.violations(plan({"init": "avg", "ipc": 5, "init_n": 5, "min_count": 49}))
    assert len(broken) == 1
    assert "group_rule" in broken[0]
    assert "= 50" in broken[0]


def test_averages_are_of_as_many_records_as_the_policy_asks() -> None:
    few = plan({"init": "avg", "ipc": 1, "init_n": 9, "min_count": 50})
    assert policy(condensation={"init": ["avg"]}).violations(few) == [
        "condensation.min_init_n: averages of 9 records (allowed: >= 10)"
    ]


def test_a_class_takes_part_with_twice_as_many_records_as_images_and_what_they_average() -> None:
    rules = policy(condensation={"init": ["noise", "avg"]})
    assert rules.class_floor(plan({"ipc": 3})) == 10, "plans.min_records_per_class"
    assert rules.class_floor(plan({"ipc": 10})) == 20
    assert rules.class_floor(plan({"ipc": 2, "init": "avg", "init_n": 10})) == 40
    assert rules.class_floor(plan({"name": "fedavg", "local_steps": 1})) == 10
    assert policy(condensation={"group_rule": False}).class_floor(plan({"ipc": 10})) == 10


def test_what_an_audit_cannot_decide_waits_for_a_person_where_it_compared_with_anybody() -> None:
    rules = policy().audit
    assert (rules.before_release, rules.holdout) == ("quick", 0.0)
    assert (rules.unsure(held_out=True), rules.unsure(held_out=False)) == ("hold", "release")
    strict = policy(audit={"on_inconclusive": "hold"}).audit
    assert strict.unsure(held_out=False) == "hold"
    with pytest.raises(ConfigError, match=r"audit.holdout"):
        policy(audit={"holdout": 1.0})


def test_too_few_records_take_no_part_and_their_number_is_not_told() -> None:
    policy().check_records(50)
    with pytest.raises(PolicyError, match=r"plans.min_records: fewer records than the 50") as caught:
        policy().check_records(37)
    assert "37" not in str(caught.value) + caught.value.hint
    policy(plans={"methods": ["fedaf"], "min_records": 1}).check_records(1)


def test_a_policy_may_leave_logits_unbounded_by_word() -> None:
    rules = policy(condensation={"max_logit_clip": "none"})
    assert rules.violations(plan({"logit_clip": "none"})) == []
    with pytest.raises(ConfigError, match=r"condensation.max_logit_clip: 'null' is out of range .*or 'none'"):
        policy(condensation={"max_logit_clip": "null"})


def test_how_often_the_records_are_asked_is_bounded_unless_the_policy_says_otherwise() -> None:
    for allowed in ({"resample": "round", "steps": 1000}, {"resample_interval": 2, "steps": 40}, {"steps": 1}):
        assert policy().violations(plan(allowed)) == []
    often = plan({"resample": "step", "real_means": "batch"})
    assert policy(condensation={"fresh_queries": True}).violations(often) == []
    few = policy(condensation={"max_networks": 4}).violations(plan())
    assert few == ["condensation.max_networks: 5 networks a round (allowed: <= 4)"]
    feddm = validate(Policy, {"format": 1, "plans": {"methods": ["feddm"]}}, "policy")
    assert "fresh_queries" in feddm.violations(plan({"name": "feddm", "resample": "step"}))[0]


def test_bytes_that_a_plan_can_need_are_refused_before_anything_is_computed() -> None:
    avg = plan({"name": "fedavg", "local_steps": 1}, rounds=10)
    most = release_bytes(avg) + header_bytes(avg)

    def rules(**release: int) -> list[str]:
        return validate(
            Policy, {"format": 1, "plans": {"methods": ["fedavg"]}, "release": release}, "policy"
        ).violations(avg)

    assert rules(max_bytes=most, max_bytes_per_run=10 * most) == []
    assert rules(max_bytes=most - 1) == [f"release.max_bytes: a release of up to {most} bytes (allowed: <= {most - 1})"]
    assert rules(max_bytes_per_run=10 * most - 1) == [
        f"release.max_bytes_per_run: up to {10 * most} bytes in 10 rounds (allowed: <= {10 * most - 1})"
    ]


COHORT = {"min_nodes": 3, "nodes": ["a", "b", "c"]}


def test_a_policy_that_requires_masks_refuses_plain_sums_and_nothing_else() -> None:
    rules = policy(plans={"methods": ["fedaf", "feddm"]}, release={"masks": "required"})
    broken = rules.violations(plan(cohort=COHORT))
    assert len(broken) == 1
    assert broken[0].startswith("release.masks: secagg 'off'")
    with pytest.raises(PolicyError, match=r"release\.masks"):
        rules.check_plan(plan(cohort=COHORT))
    for masked in ("required", "optional"):
        assert rules.violations(plan(cohort=COHORT, secagg=masked)) == []
    assert rules.violations(plan({"name": "feddm"})) == []
    assert policy().violations(plan(cohort=COHORT)) == []


def test_all_broken_rules_are_named_at_once() -> None:
    assert len(policy().violations(plan({"init": "real", "ipc": 99}, rounds=1000))) == 3


def test_a_wrong_policy_file_denies_and_names_the_key(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("format = 1\n[plans]\nmethods = ['fedaf', 'feddx']\n")
    with pytest.raises(ConfigError, match=r"plans.methods.1: 'feddx' is not one of") as caught:
        load_policy(path)
    assert "nothing is allowed" in caught.value.hint
