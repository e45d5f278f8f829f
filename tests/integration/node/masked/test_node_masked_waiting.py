"""A node whose session is open and waits: what ends it, and what the node does meanwhile."""

from __future__ import annotations

import time

import pytest

from fedsecure.cli import run as command
from fedsecure.secagg.machines.memory import MOST_SESSIONS
from fedsecure.secagg.protocol.aborts import AbortCode
from fedsecure_node.masking import lifetime

READY = ["release", "sending", "acknowledged"]


def now_ms():
    return time.time_ns() // 1_000_000


def kinds(site):
    return [r.kind for r in site.records()]


@pytest.fixture
def waits(site, script, cohort, session_of):
    """waits(plan): the node answered leg 0 of a session whose other nodes are busy; the node and the session.
    ``lasts_ms``: from when it is opened to its deadline."""

    def begin(plan, *, lasts_ms=120_000):
        def make(plan, work):
            session = session_of(cohort, plan, work, deadline_ms=now_ms() + lasts_ms)
            session.held = True
            return session

        script.sums.make = make
        script.offer(plan)
        script.sums.ask(plan)
        node = site.start()
        session = node.until(lambda: script.sums.session)
        node.until(lambda: session.answers)
        return node, session

    return begin


def test_a_plan_that_is_refused_meanwhile(site, script, masked_plan, waits):
    node, session = waits(plan := masked_plan())
    assert command(["node", "refuse-plan", plan.digest(), "--reason", "no more", "--dir", str(site.folder)]) == 0
    node.until(lambda: script.refusals)
    node.until(lambda: "the node takes no further part in the run" in node.text)
    session.held = False
    session.pump()
    node.end()
    assert node.error is None, node.text
    assert [leg for leg, _ in session.answers] == [0]
    assert kinds(site) == [*READY, "closed"]


def test_a_deadline_that_passes_and_the_session_after_it(site, script, cohort, masked_plan, waits, session_of):
    plan = masked_plan()
    node, session = waits(plan, lasts_ms=8_000)
    node.until(lambda: "its deadline has passed" in node.text)
    assert [leg for leg, _ in session.answers] == [0]
    script.sums.sessions.append(session_of(cohort, plan, session.work, 1))
    node.until(lambda: script.sums.session.sums)
    node.end()
    assert kinds(site) == [*READY, "masked", "confirmed", "unmasked"]


@pytest.mark.parametrize("shift_ms", [-240_000, 240_000])
def test_a_deadline_that_is_days_away_by_a_clock_that_is_wrong(
    site, script, cohort, masked_plan, waits, session_of, monkeypatch, shift_ms
):
    """The coordinator's word does not keep keys alive for longer than the plan gives the legs of a session."""
    monkeypatch.setattr(lifetime, "LEGS_S", 4.0)
    script.clock_ms = shift_ms
    plan = masked_plan(deadlines={"exchange": 1})
    node, session = waits(plan, lasts_ms=6 * 86_400_000)
    node.until(lambda: "its deadline has passed" in node.text)
    assert [leg for leg, _ in session.answers] == [0]
    monkeypatch.undo()
    script.sums.sessions.append(session_of(cohort, plan, session.work, 1, deadline_ms=now_ms() + 600_000))
    node.until(lambda: script.sums.session.sums)
    node.end()
    assert kinds(site) == [*READY, "masked", "confirmed", "unmasked"]


def test_one_session_too_many_of_a_contribution(site, script, cohort, masked_plan, waits, session_of):
    """Those that were begun before the node was started again count."""
    plan = masked_plan()
    node, session = waits(plan)
    for number in range(1, MOST_SESSIONS + 1):
        if number == MOST_SESSIONS - 2:
            node.end()
            node = site.start()
        made = session_of(cohort, plan, session.work, number)
        made.held = True
        script.sums.sessions.append(made)
        node.until(lambda made=made: made.answers or made.aborted)
    node.end()
    assert [bool(s.answers) for s in script.sums.sessions] == [True] * MOST_SESSIONS + [False]
    assert made.aborted.code is AbortCode.REPLAYED
    assert f"after {MOST_SESSIONS} others" in node.text
    assert kinds(site) == READY


def test_another_session_takes_its_place(site, script, cohort, masked_plan, waits, session_of):
    plan = masked_plan()
    node, session = waits(plan)
    script.sums.sessions.append(session_of(cohort, plan, session.work, 1))
    node.until(lambda: script.sums.session.sums)
    script.sums.sessions.append(session)  # the old one again
    session.held = False
    session.pump()
    node.until(lambda: session.aborted)
    node.end()
    assert session.aborted.code is AbortCode.BAD_TRANSCRIPT
    assert [leg for leg, _ in session.answers] == [0]
    assert "the coordinator opened another" in node.text


def test_a_manifest_that_was_replaced_after_the_contribution(site, script, cohort, masked_plan, session_of):
    """The sum is for the cohort in the log's record; a new version counts from the next exchange on."""
    plan = masked_plan()
    script.sums.make = lambda plan, work: cohort.pin(cohort.signed(2)) or session_of(cohort, plan, work)
    script.offer(plan)
    script.sums.ask(plan)
    node = site.start()
    node.until(lambda: script.sums.session and script.sums.session.aborted)
    node.end()
    assert script.sums.session.aborted.code is AbortCode.BAD_COHORT
    assert "pinned is version 2" in node.text
    assert kinds(site) == READY


def test_no_other_computation_begins_meanwhile(site, script, masked_plan, waits, plan_of):
    """The others of the cohort would wait for it; it is taken up once the session is over."""
    script.offer(other := plan_of(name="other"))
    node, session = waits(masked_plan())
    script.ask(other)
    node.until(lambda: script.sums.polled[-1] == (session.work.plan_digest,))
    assert node.text.count("computing") == 1
    session.held = False
    session.pump()
    node.until(lambda: session.sums)
    node.until(lambda: node.text.count("the coordinator has it") >= 2)
    node.end()
    assert node.error is None, node.text
    assert kinds(site) == [*READY, "masked", "confirmed", "unmasked", *READY]


def test_two_sessions_at_once(site, script, cohort, masked_plan, session_of):
    """A node that answered a leg of one also answers those of the other: no two nodes wait for one another."""
    works = []
    script.sums.make = lambda plan, work: works.append(work)
    plans = [masked_plan(name=name) for name in ("one", "two")]
    for attempt, plan in enumerate(plans):  # the script tells contributions apart by round and attempt
        script.offer(plan)
        script.sums.ask(plan, attempt=attempt, scale=1 - attempt / 64)  # nothing goes into sums of two runs
    node = site.start()
    node.until(lambda: len(works) == 2)
    one, two = (session_of(cohort, plan, work) for plan, work in zip(plans, works, strict=True))
    one.held = two.held = True
    script.sums.sessions += [one, two]
    node.until(lambda: one.answers and two.answers)
    two.held = False
    two.pump()
    node.until(lambda: two.sums)
    assert [leg for leg, _ in one.answers] == [0]
    one.held = False
    one.pump()
    node.until(lambda: one.sums)
    node.end()
    assert node.error is None, node.text
    assert sorted(kinds(site)) == sorted([*READY, "masked", "confirmed", "unmasked"] * 2)
