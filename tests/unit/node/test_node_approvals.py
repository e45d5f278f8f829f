"""Plans: no policy, no run; a digest approved by hand or by a rule; the policy asked again each time; plans in
words."""

from __future__ import annotations

import pytest

from fedsecure.errors import ConfigError, LocalProtocolError, PolicyError
from fedsecure_node.plans.approvals import RULE, approve, consider, refuse, standing, verdict, who
from fedsecure_node.plans.describe import describe, duration, human_bytes
from fedsecure_node.plans.institution import ABSENT_GRACE_S, PolicyWatch, read_policy


def look(node, watch=None):
    watch = watch or PolicyWatch(node.settings.policy)
    seen, judged = consider(node.store, node.store.plans.get(node.plan.digest()), watch)
    return seen, judged, standing(seen, judged)


def test_no_policy_no_run(node):
    node.settings.policy.unlink()
    now = [100.0]
    watch = PolicyWatch(node.settings.policy, lambda: now[0])
    assert look(node, watch)[2] == "still"  # an editor may be replacing it
    now[0] += ABSENT_GRACE_S
    seen, judged, stand = look(node, watch)
    assert (stand, seen.decision) == ("no", "pending")
    assert "no policy, so nothing is allowed" in judged.fault
    with pytest.raises(PolicyError, match="no policy"):
        approve(node.store, node.settings.policy, node.plan.digest(), by="ada")


def test_a_broken_policy_allows_nothing(node):
    now = [100.0]
    watch = PolicyWatch(node.settings.policy, lambda: now[0])
    for broken in ("format = 1\nplans = 3\n", "", "format"):
        node.settings.policy.write_text(broken)
        now[0] += 1e6
        seen, judged, stand = look(node, watch)
        assert (stand, seen.decision, judged.passes) == ("still", "pending", False)
    with pytest.raises(ConfigError, match="policy.toml"):
        approve(node.store, node.settings.policy, node.plan.digest(), by="ada")


def test_manual_approval_needs_a_person(node):
    assert look(node)[2] == "wait"
    seen = approve(node.store, node.settings.policy, node.plan.digest()[:8].upper(), by="ada")
    assert (seen.decision, seen.decided_by) == ("approved", "ada")
    assert look(node)[2] == "go"


def test_a_person_who_refuses_while_the_rule_judges_is_not_overruled(node):
    node.policy(approval="rule")
    digest = node.plan.digest()
    before = node.store.plans.get(digest)
    refuse(node.store, digest, reason="not with us", by="ada")
    seen, judged = consider(node.store, before, PolicyWatch(node.settings.policy))
    assert (seen.decision, seen.decided_by) == ("refused", "ada")
    assert standing(seen, judged) == "no"


def test_the_rule_approves_what_passes_and_only_while_it_stands(node):
    node.policy(approval="rule")
    seen, _, stand = look(node)
    assert (stand, seen.decided_by) == ("go", RULE)
    node.policy(approval="manual")
    assert look(node)[2] == "wait"
    approve(node.store, node.settings.policy, node.plan.digest(), by="ada")
    assert look(node)[2] == "go"


def test_a_policy_made_stricter_takes_an_approval_back(node):
    approve(node.store, node.settings.policy, node.plan.digest(), by="ada")
    node.policy(max_ipc=1)
    _, judged, stand = look(node)
    assert stand == "no"
    assert "condensation.max_ipc: 2 images per class (allowed: <= 1)" in judged.words()
    with pytest.raises(PolicyError, match=r"condensation\.max_ipc"):
        approve(node.store, node.settings.policy, node.plan.digest(), by="ada")


def test_a_refused_plan_stays_refused_under_a_rule(node):
    node.policy(approval="rule")
    look(node)
    seen = refuse(node.store, node.plan.digest()[:10], reason="not   this\nstudy", by="ada")
    assert seen.reason == "not this study"
    assert look(node)[2] == "no"


@pytest.mark.parametrize("text", ["", "1234567", "zzzzzzzzzz", "../../etc", "0" * 65])
def test_a_digest_that_is_none_is_refused(node, text):
    with pytest.raises(ConfigError):
        approve(node.store, node.settings.policy, text, by="ada")


def test_the_person_behind_sudo_is_named(monkeypatch):
    monkeypatch.setenv("SUDO_USER", "ada")
    monkeypatch.setenv("LOGNAME", "fedsecure")
    assert who() == "ada (as fedsecure)"


@pytest.mark.parametrize("state", ["completed", "aborted"])
@pytest.mark.parametrize("left", [False, True])
def test_nothing_is_decided_about_a_run_that_is_over(node, state, left):
    digest = node.plan.digest()
    approve(node.store, node.settings.policy, digest, by="ada")
    if left:
        node.store.runs.join(digest, 1)
        node.store.runs.end(digest, "left", "a fault", 15, 2)
    node.store.plans.set_offered(digest, state)
    for decide in (
        lambda: refuse(node.store, digest, reason="late", by="bob"),
        lambda: approve(node.store, node.settings.policy, digest, by="bob"),
        lambda: approve(node.store, node.settings.policy, digest, by="bob", rejoin=True),
    ):
        with pytest.raises(LocalProtocolError, match=rf"its run is over \({state}\)"):
            decide()
    seen = node.store.plans.get(digest)
    assert (seen.decision, seen.decided_by, seen.reason) == ("approved", "ada", "")


def test_a_run_that_this_node_finished_names_its_reason(node):
    digest = node.plan.digest()
    approve(node.store, node.settings.policy, digest, by="ada")
    node.store.runs.join(digest, 1)
    node.store.runs.end(digest, "aborted", "too few nodes", 17, 2)
    with pytest.raises(LocalProtocolError, match=r"its run is over \(aborted: too few nodes\)"):
        refuse(node.store, digest, reason="late", by="bob")


def words(node, plan, fault=""):
    from fedsecure.methods import build_method

    return "\n".join(
        describe(plan, node.current().policy if not fault else None, build_method(plan), policy_fault=fault)
    )


def test_a_plan_in_words_says_what_leaves_and_what_the_policy_thinks(node):
    text = words(node, node.plan)
    for part in (
        f"digest {node.plan.digest()}",
        "images of 8 x 8 pixels",
        "2 condensed images for each class of at least 10 records",
        "starting from noise",
        "leaves each round, exchange 'statistics'",
        "leaves each round, exchange 'condensation'",
        "images: condensed records",
        "guarantee: none",
        "preset: protective",
        "departure: ipc = 2 (preset: 10) - fewer images leave for each class",
        "policy: yes, rule by rule",
        "yes condensation.init",
    ):
        assert part in text, part


def test_a_plan_in_words_names_each_broken_rule(node, plan_of):
    plan = plan_of(
        preset="paper", randomness="plan",
        method={"name": "fedaf", "init": "avg", "ipc": 200, "real_means": "batch", "logit_clip": "none"},
    )  # fmt: skip
    text = words(node, plan)
    assert "policy: NO" in text
    for rule in (
        "condensation.init",
        "condensation.max_ipc",
        "condensation.fresh_queries",
        "condensation.max_logit_clip",
    ):
        assert f"NO  {rule}" in text
    assert "made for accuracy" in text
    assert "the coordinator knows every draw" in text
    for rule in verdict(plan, PolicyWatch(node.settings.policy)).violations:
        assert rule in text


def test_plans_of_other_kinds_are_described(node, plan_of):
    table = {
        "kind": "table", "classes": ["a", "b"],
        "columns": [{"kind": "numeric", "name": "age", "low": 0.0, "high": 120.0, "mean": 50.0, "std": 20.0}],
    }  # fmt: skip
    text = words(node, plan_of(task=table, method={"name": "fedavg", "local_steps": 5}), fault="there is none")
    assert "rows of 1 columns (age)" in text
    assert "trained on the records for 5 steps" in text
    assert "policy: NO - there is none" in text
    assert "not masked" in text


def test_deadlines_and_the_floor_of_records_in_words(node, plan_of):
    text = words(node, plan_of(method={"name": "fedavg", "local_steps": 5}, deadlines={"join": 5400, "exchange": 90}))
    assert "joining closes 1 h 30 min after the run starts" in text
    assert "each exchange closes 1 min 30 s after it begins" in text
    assert "Classes of fewer than 10 records at this institution are left out" in text
    assert [duration(s) for s in (0.6, 0.2, 59, 86_400, 90_061)] == ["1 s", "0.2 s", "59 s", "1 d", "1 d 1 h"]


def test_a_plan_whose_run_is_over_or_left_is_not_approved_in_silence(node):
    digest, path = node.plan.digest(), node.settings.policy
    node.store.runs.end(digest, "left", "plans.max_rounds: 5 rounds", 4, 5)
    with pytest.raises(LocalProtocolError, match=r"left its run: plans\.max_rounds") as caught:
        approve(node.store, path, digest, by="ada")
    assert "--rejoin" in caught.value.hint
    assert node.store.plans.get(digest).decision == "pending"
    assert approve(node.store, path, digest, by="ada", rejoin=True).decision == "approved"
    node.store.plans.set_offered(digest, "aborted")
    with pytest.raises(LocalProtocolError, match=r"its run is over \(aborted"):
        approve(node.store, path, digest, by="ada", rejoin=True)


def test_a_policy_that_a_group_can_write_counts_only_for_a_users_own_group(node, monkeypatch):
    import grp
    import os
    import pwd
    from types import SimpleNamespace

    path = node.settings.policy
    path.chmod(0o664)
    user = pwd.getpwuid(path.stat().st_uid)
    gid = path.stat().st_gid
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: SimpleNamespace(pw_name=user.pw_name, pw_gid=gid))

    def group(name, members):
        monkeypatch.setattr(grp, "getgrgid", lambda number: SimpleNamespace(gr_name=name, gr_mem=members))

    group(user.pw_name, [])
    read_policy(path)
    for name, members in ((user.pw_name, ["eve"]), ("staff", [])):
        group(name, members)
        with pytest.raises(ConfigError, match=rf"its group {name} can write to it \(mode 0664\)"):
            read_policy(path)
    path.chmod(0o644)
    read_policy(path)
    assert os.access(path, os.R_OK)


def test_sizes_in_words():
    assert [human_bytes(n) for n in (0, 1023, 1024, 5 * 2**20, 3 * 2**40)] == [
        "0 B", "1023 B", "1.0 KiB", "5.0 MiB", "3.0 TiB",
    ]  # fmt: skip
