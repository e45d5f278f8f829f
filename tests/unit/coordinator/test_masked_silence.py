"""The first leg of a session may be long, for nodes that compute for another run; not for one that is gone."""

from __future__ import annotations

import time

import pytest


def details(office, kind):
    return [n.detail for n in office.notices if n.kind == kind]


def test_the_first_leg_does_not_wait_for_a_node_that_is_not_there(masked_run, masked_plan):
    run = masked_run(silent=lambda node: node == "d")
    digest = run.open(masked_plan(rounds=1))
    run.vanish["d"] = 0
    run.pump(digest, lambda: details(run.office, "session"), tick_ms=1)
    begun = run.office.clock.now
    run.pump(digest, lambda: run.ended(digest), tick_ms=1)
    assert run.office.clock.now - begun < 4000  # the leg's own time is 5 s, by this clock
    assert run.ended(digest).phase == "COMPLETED"
    (found,) = details(run.office, "masked-sum")
    assert (found["survivors"], list(found["dropped"])) == (["a", "b", "c"], ["d"])


@pytest.mark.parametrize(
    ("gone", "silent", "min_nodes"),
    [("d", "", 3), ("d", "c", 3), ("cd", "c", 3), ("d", "d", 4), ("cd", "cd", 3)],
    ids=["at work", "another is silent", "one of two is at work", "all must stay", "too few are left"],
)
def test_it_waits_for_a_node_at_work_and_where_too_few_are_left(masked_run, masked_plan, gone, silent, min_nodes):
    silent = set(silent)
    run = masked_run(silent=silent.__contains__)
    digest = run.open(masked_plan(min_nodes=min_nodes, rounds=1))
    run.vanish |= dict.fromkeys(gone, 0)
    run.pump(digest, lambda: details(run.office, "session"), tick_ms=1)
    end = time.monotonic() + 1.2  # it is looked at twice
    run.pump(digest, lambda: time.monotonic() > end, tick_ms=1)
    assert details(run.office, "session-leg") == []
    silent.clear()
    run.vanish.clear()
    run.pump(digest, lambda: run.ended(digest))
    assert run.ended(digest).phase == "COMPLETED"


def test_who_was_given_an_exchange_is_at_work_until_it_contributed_or_asks_again(open_office, toy):
    office = open_office()
    digest = office.gather(toy.plan())
    desk = office.desk
    poll = lambda node: desk.next_work(node, [digest], 0, lambda: False)  # noqa: E731 - one expression
    assert not desk.is_at_work("a")
    for node in "ab":
        assert poll(node).slot.node == node
    assert (desk.is_at_work("a"), desk.is_at_work("b"), desk.is_at_work("c")) == (True, True, False)
    office.send(digest, "a")
    assert not desk.is_at_work("a")
    assert poll("a") is None
    assert (desk.is_at_work("a"), desk.is_at_work("b")) == (False, True)
