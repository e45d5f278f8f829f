"""A plan that asks for more nodes in a sum than the threshold: the node counts, whatever the coordinator says."""

from __future__ import annotations

import pytest

from fedsecure.secagg.protocol.aborts import AbortCode
from fedsecure.secagg.v1 import secagg_pb2 as spb

READY = ["release", "sending", "acknowledged"]


@pytest.fixture
def plan(four, masked_plan):
    """Four nodes, of which t = 3 could unmask a sum; the plan has no sum over fewer than all four."""
    return masked_plan(cohort={"min_nodes": 4, "nodes": list(four.nodes)})


def kinds(site):
    return [r.kind for r in site.records()]


def test_a_session_that_would_do_with_fewer(site, script, four, plan):
    """Its configuration says three, which is what the threshold alone asks for."""
    script.offer(plan)
    script.sums.ask(plan)
    node = site.start()
    node.until(lambda: script.sums.session and script.sums.session.aborted)
    node.end()
    assert script.sums.session.aborted.code is AbortCode.BAD_CONFIG
    assert "min_survivors 3 where 4..4 is due" in node.text
    assert script.sums.session.answers == []
    assert kinds(site) == READY


def test_a_list_of_fewer_survivors(site, script, four, plan, session_of):
    """The configuration is right, and the list of leg 3 lacks a node that uploaded."""

    def shorter(leg, message):
        if leg == 3:
            listed = spb.Survivors.FromString(message)
            del listed.u3[-1], listed.vector_digests[-1]
            return listed.SerializeToString(deterministic=True)
        return message

    def make(plan, work):
        session = session_of(four, plan, work, min_survivors=4)
        session.mutate = shorter
        return session

    script.sums.make = make
    script.offer(plan)
    script.sums.ask(plan)
    node = site.start()
    node.until(lambda: script.sums.session and script.sums.session.aborted)
    node.end()
    assert script.sums.session.aborted.code is AbortCode.TOO_FEW_NODES
    assert "3 nodes uploaded where 4 are needed" in node.text
    assert [leg for leg, _ in script.sums.session.answers] == [0, 1, 2]
    assert kinds(site) == [*READY, "masked"]


def test_an_announced_sum_over_fewer(site, script, four, plan, session_of):
    """The sum of all four is read; what is announced is another, over three of them."""
    script.sums.make = lambda plan, work: session_of(four, plan, work, min_survivors=4)
    script.offer(plan)
    script.sums.ask(plan)
    node = site.start()
    node.until(lambda: script.sums.session and script.sums.session.sums)
    few = script.sums.session.sums.survivors[:3]
    script.sums.ask(plan, 1, result=lambda sent: script.sums.session.result(sent, survivors=few, transcript3=bytes(32)))
    node.until(lambda: script.refusals)
    node.end()
    assert "over 3 nodes (allowed: >= 4)" in script.refusals[0][1]
    assert node.text.count("computing") == 1
    (release,) = (r.body for r in site.records() if r.kind == "release")
    assert (release["secagg"]["cohort"]["threshold"], release["secagg"]["least"]) == (3, 4)
    assert all("of at least 4 of 4 nodes alone" in line for line in release["learns"])


def test_a_session_of_another_attempt(site, script, four, plan, session_of):
    """Sessions are numbered by the attempt of the exchange that they sum."""
    script.sums.make = lambda plan, work: session_of(four, plan, work, min_survivors=4, attempt=3)
    script.offer(plan)
    script.sums.ask(plan)
    node = site.start()
    node.until(lambda: script.sums.session and script.sums.session.aborted)
    node.end()
    assert script.sums.session.aborted.code is AbortCode.BAD_CONFIG
    assert "attempt 4 where 1..3 is due" in node.text
