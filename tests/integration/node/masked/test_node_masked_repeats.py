"""One model, two runs: what a node gave to a masked sum of one run does not go into a sum of another."""

from __future__ import annotations

import pytest

from fedsecure.wire.v1 import coordinator_pb2 as pb

ONE_SUM = ["release", "sending", "acknowledged", "masked", "confirmed", "unmasked"]


def kinds(site):
    return [r.kind for r in site.records() if r.kind != "closed"]


@pytest.fixture
def four_plan(four, masked_plan):
    """four_plan(name): the same plan but for its name, of FedAF, whose statistics follow from the model alone."""

    def make(name, method="fedaf"):
        return masked_plan(method, name=name, rounds=1, cohort={"min_nodes": 3, "nodes": list(four.nodes)})

    return make


@pytest.fixture
def ended(site, script, four_plan):
    """A run that is over, with a masked sum of all four, and its node."""
    plan = four_plan("first")
    script.offer(plan)
    script.sums.ask(plan)
    node = site.start()
    node.until(lambda: script.sums.session and script.sums.session.sums)
    script.end(plan)
    node.until(lambda: "completed" in node.text)
    script.states[plan.digest()] = pb.RUN_STATE_COMPLETED
    script.ended = None
    script.complete.clear()  # which the script keeps by round and exchange alone
    return plan, node


def without_the_last(script, four, session_of):
    def make(plan, work):
        session = session_of(four, plan, work)
        session.machine.drop(four.nodes[-1], "left out")
        session.pump()
        return session

    script.sums.make = make


def test_the_same_plan_under_another_name(site, script, four, four_plan, ended, session_of):
    """Its sum over three, taken from the first one over four, would be the fourth node's vector."""
    first, node = ended
    without_the_last(script, four, session_of)
    script.offer(plan := four_plan("second"))
    script.sums.ask(plan)
    node.until(lambda: script.refusals)
    node.end()
    assert node.error is None, node.text
    assert script.refusals[0][0] == plan.digest()
    assert "REPLAYED: round 1 statistics: the coordinator sends the model" in script.refusals[0][1]
    assert f"for a masked sum of plan {first.digest()[:12]}" in script.refusals[0][1]
    assert "it takes another seed" in script.refusals[0][1]
    assert "it takes another seed" in node.text
    assert node.text.count("computing") == 1
    assert kinds(site) == ONE_SUM
    assert len(script.sums.sessions) == 1


def test_it_is_refused_after_a_restart_of_the_node_as_well(site, script, four_plan, ended):
    _, node = ended
    node.end()
    script.offer(plan := four_plan("second"))
    script.sums.ask(plan)
    again = site.start()
    again.until(lambda: script.refusals)
    again.end()
    assert "REPLAYED" in script.refusals[0][1]
    assert "computing" not in again.text


def test_another_model_is_another_sum(site, script, four_plan, ended):
    """As another seed gives."""
    _, node = ended
    script.offer(plan := four_plan("second"))
    script.sums.ask(plan, scale=0.5)
    node.until(lambda: len(script.sums.sessions) == 2 and script.sums.session.sums)
    node.end()
    assert script.refusals == []
    assert kinds(site) == ONE_SUM * 2


def test_a_contribution_that_waits_counts(site, script, four_plan):
    """The first run opened no session yet: one contribution is made for it, and none for the second."""
    script.sums.make = lambda plan, work: None
    first, second = four_plan("first"), four_plan("second")
    script.offer(first)
    script.sums.ask(first)
    node = site.start()
    node.until(lambda: "the coordinator has it" in node.text)
    script.offer(second)
    script.sums.ask(second)
    node.until(lambda: script.refusals)
    node.end()
    assert script.refusals[0][0] == second.digest()
    assert "REPLAYED" in script.refusals[0][1]
    assert node.text.count("computing") == 1


def test_an_exchange_without_a_model_is_the_same_in_every_round_and_run(site, script, four, masked_plan):
    """Numbers of records depend on none: each node's own stand in the sum as they are, masked or not."""
    site.policy(hold="false")
    text = (site.folder / "policy.toml").read_text().replace('"fedavg"', '"fedavg", "fedspm"')
    (site.folder / "policy.toml").write_text(text)

    def make(name):
        cohort = {"min_nodes": 3, "nodes": list(four.nodes)}
        counting = {"share_counts": True, "parametrisation": "explicit"}
        return masked_plan("fedspm", name=name, settings=counting, cohort=cohort)

    script.sums.make = lambda plan, work: None
    node = site.start()
    for count, name in enumerate(("first", "second"), 1):
        script.complete.clear()
        script.offer(plan := make(name))
        script.sums.ask(plan, exchange="counts")
        node.until(lambda count=count: script.refusals or node.text.count("the coordinator has it") == count)
    node.end()
    assert script.refusals == []
