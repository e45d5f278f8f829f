"""A round whose sum the coordinator lost: the node computes the next one from the same model, and what it lets be read
of that model is one sum over one set of nodes."""

from __future__ import annotations

import pytest

from fedsecure.secagg.protocol.aborts import AbortCode
from fedsecure_node.log.releases import fold

ONE_SUM = ["release", "sending", "acknowledged", "masked", "confirmed", "unmasked"]


def kinds(site):
    return [r.kind for r in site.records()]


def states(site):
    return [release.state for release in fold(site.records()).values()]


@pytest.fixture
def unmasked(site, script, four, masked_plan):
    """The node gave its shares for a sum of round 1 over all four, which the coordinator says it lost."""
    plan = masked_plan(cohort={"min_nodes": 3, "nodes": list(four.nodes)}, rounds=3)
    script.offer(plan)
    script.sums.ask(plan)
    node = site.start()
    node.until(lambda: script.sums.session and script.sums.session.sums)
    return plan, node


def second(script, plan, node, result=lambda sent: b"", **how):
    script.sums.ask(plan, 1, result=result, **how)
    return node.until(lambda: len(script.sums.sessions) == 2 and script.sums.session)


def test_the_next_round_from_the_same_model(site, script, unmasked):
    plan, node = unmasked
    session = second(script, plan, node, scale=1.0)
    node.until(lambda: session.sums)
    assert session.sums.survivors == script.sums.sessions[0].sums.survivors
    script.sums.ask(plan, 2, result=session.result)
    node.until(lambda: len(script.sums.sessions) == 3 and script.sums.session.sums)
    node.end()
    assert node.error is None, node.text
    assert kinds(site) == ONE_SUM * 3, "nothing says that the lost sum was read or was not"
    assert states(site) == ["unmasked"] * 3


def test_a_second_sum_of_the_same_model_without_a_node(site, script, unmasked, session_of, four):
    """The coordinator has the first sum all the same, and leaves a node out of the second: the rest would be what that
    node made of the model."""
    plan, node = unmasked

    def make(plan, work):
        session = session_of(four, plan, work)
        session.machine.drop(four.nodes[-1], "left out")
        session.pump()
        return session

    script.sums.make = make
    session = second(script, plan, node, scale=1.0)
    node.until(lambda: session.aborted)
    node.end()
    assert session.aborted.code is AbortCode.ALREADY_RELEASED
    assert "over other nodes than the one of the same model that this node helped to unmask before" in node.text
    assert session.sums is None
    assert states(site) == ["unmasked", "masked"]


def test_another_model_without_a_sum_since(site, script, unmasked):
    plan, node = unmasked
    script.sums.ask(plan, 1)
    node.until(lambda: script.refusals)
    node.end()
    assert "sends another model than in round 1, and announces no sum since" in script.refusals[0][1]
    assert node.text.count("computing") == 1


def test_a_round_that_was_announced_is_not_skipped_afterwards(site, script, unmasked):
    plan, node = unmasked
    first = script.sums.session
    session = second(script, plan, node, first.result)
    node.until(lambda: session.sums)
    script.sums.ask(plan, 2, scale=1.0, result=lambda sent: b"")
    node.until(lambda: script.refusals)
    node.end()
    assert "sends another model than in round 2, and announces no sum since" in script.refusals[0][1]
    assert node.text.count("computing") == 2
