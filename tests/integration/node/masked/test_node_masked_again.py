"""A coordinator that offers the same thing again and again, whatever the node says: it is held off and told of once."""

from __future__ import annotations

import time

import pytest

from fedsecure.wire.v1 import coordinator_pb2 as pb


@pytest.fixture
def offered(site, script, cohort, masked_plan, session_of):
    """offered(change): a node that answered leg 0 and then is offered ``change(leg)`` at every poll, until it has
    answered three times. Returns the node and the times (seconds) at which it answered."""

    def begin(change, *, answers_count=False):
        times = []

        def make(plan, work):
            session = session_of(cohort, plan, work)
            genuine, first = session.leg, []

            def leg():
                if not first and (found := genuine()) is not None:
                    first.append(found)
                again = pb.Leg.FromString(first[0].SerializeToString())
                change(again)
                return again

            session.leg = leg
            session.abort = lambda data: times.append(time.monotonic())
            if answers_count:
                session.receive = lambda leg, data: times.append(time.monotonic())
            return session

        script.sums.make = make
        script.sums._session = lambda digest, context: script.sums.session
        script.offer(plan := masked_plan())
        script.sums.ask(plan)
        node = site.start()
        node.until(lambda: len(times) >= 3)
        node.end()
        assert node.error is None, node.text
        return node, times

    return begin


def set_exchange(leg):
    leg.exchange = "another"


def set_plan(leg):
    leg.plan_digest = "0" * 64


def set_session(leg):
    leg.leg, leg.config_digest = 1, "ab" * 32


@pytest.mark.parametrize("change", [set_exchange, set_plan, set_session])
def test_a_leg_that_is_refused_is_answered_ever_more_rarely_and_told_of_once(offered, change):
    node, times = offered(change)
    assert node.text.count("left a session") == 1
    assert times[2] - times[0] > 1.5  # at 0, 1 and 3 seconds


def test_a_leg_that_was_answered_is_answered_again_but_not_in_a_rush(offered):
    node, times = offered(lambda leg: None, answers_count=True)
    assert times[2] - times[0] > 1  # at 0, 1 and 2 seconds
    assert node.text.count("its keys for this session are advertised") == 1


@pytest.mark.parametrize("kind", ["exchange", "ended"])
def test_work_of_a_run_that_was_not_asked_for(site, script, masked_plan, kind):
    sent = []

    def next_work(request, context):
        sent.append(time.monotonic())
        work = {"exchange": pb.Exchange(plan_digest="0" * 64), "ended": pb.Ended(plan_digest="0" * 64, state=3)}[kind]
        return pb.NextWorkReply(**{kind: work})

    script.NextWork = next_work
    script.offer(masked_plan())
    node = site.start()
    node.until(lambda: len(sent) >= 3)
    node.end()
    assert node.error is None, node.text
    assert sent[2] - sent[0] > 1.5  # at 0, 1 and 3 seconds
    assert node.text.count("work that it was not asked for") == 1
    assert script.refusals == []
