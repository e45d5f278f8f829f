"""The node daemon once its sum was read, or its exchange is over, against a coordinator that asks for more of it, over
real mutual TLS."""

from __future__ import annotations

import pytest
from attack_steps import READY, B, C, kinds, show, summed_once, two_keys, two_survivors

from fedsecure.secagg.machines.memory import session_numbers
from fedsecure.secagg.protocol.aborts import AbortCode
from fedsecure.secagg.protocol.messages import CONSISTENCY, consistency, open_signed, parse_survivors, sign, survivors
from fedsecure.secagg.protocol.results import SessionResult
from fedsecure.secagg.v1 import secagg_pb2 as spb


def second_list(session):
    vectors = parse_survivors(survivors(session.machine._answers.vectors))
    return survivors({**vectors, B: bytes(32)})


@pytest.mark.parametrize("what", ["both shares", "a second list", "the vectors again"])
def test_after_the_shares_left_nothing_more_does(site, script, cohort, masked_plan, what):
    """A second unmasking under other signatures would give the other share of a node that the list leaves out."""
    plan = masked_plan()
    node, session = summed_once(site, script, plan)
    given = list(session.answers)
    own = next(data for leg, data in given if leg == 3)
    assert open_signed(own, CONSISTENCY, cohort.manifest)[0] == "hospital-a"
    signed = [sign(cohort.identities[n], CONSISTENCY, consistency(bytes(32)), signer=n) for n in (B, C)]
    leg, message = {
        "both shares": (4, spb.ConsistencySet(consistency=[spb.Signed.FromString(s) for s in (own, *signed)])),
        "a second list": (3, spb.Survivors.FromString(second_list(session))),
        "the vectors again": (2, spb.Inbox(u2=["hospital-a", B, C])),
    }[what]
    before = kinds(site)
    show(session, plan, leg, message.SerializeToString())
    node.until(lambda: session.aborted)
    node.end()
    assert session.aborted.code is AbortCode.ALREADY_RELEASED
    assert session.answers == given
    assert kinds(site) == before == [*READY, "masked", "confirmed", "unmasked"]


def test_the_shares_asked_for_again_are_the_same_bytes(site, script, cohort, masked_plan, session_of):
    """A lost reply is no second release."""

    def make(plan, work):
        session = session_of(cohort, plan, work)
        session.forgets = {4}
        return session

    script.sums.make = make
    script.offer(plan := masked_plan())
    script.sums.ask(plan)
    node = site.start()
    node.until(lambda: script.sums.session and len(script.sums.session.answers) >= 6)
    node.end()
    given = [data for leg, data in script.sums.session.answers if leg == 4]
    assert len(given) >= 2
    assert len(set(given)) == 1
    assert kinds(site) == [*READY, "masked", "confirmed", "unmasked"]


def test_a_retry_after_success_and_a_replay_of_every_message(site, script, cohort, masked_plan, session_of):
    """ "It failed": a session of another number, then the first session's own messages, before and after a restart."""
    plan = masked_plan()
    node, first = summed_once(site, script, plan)
    for restart in (False, True):
        if restart:
            node.end()
            node = site.start()
        second = session_of(cohort, plan, first.work, 1 + restart)
        script.sums.sessions.append(second)
        node.until(lambda second=second: second.aborted)
        assert second.aborted.code is AbortCode.ALREADY_RELEASED
        assert second.answers == []
    script.sums.sessions.append(first)
    show(first, plan, 0, first.config.to_bytes())
    node.until(lambda: first.aborted)
    node.end()
    assert first.aborted.code is AbortCode.ALREADY_RELEASED
    assert kinds(site) == [*READY, "masked", "confirmed", "unmasked"]


@pytest.mark.parametrize("way", ["round", "attempt"])
def test_an_exchange_that_was_left_behind(site, script, cohort, masked_plan, session_of, way):
    """It never got its sum; once the next one was begun it never will, though its contribution is still there."""
    at, change = (3, two_survivors) if way == "round" else (1, two_keys)

    def make(plan, work):
        session = session_of(cohort, plan, work, session_numbers(work.attempt)[0])
        if (work.round, work.attempt) == (0, 0):
            session.mutate = lambda leg, m: change(cohort, m).SerializeToString() if leg == at else m
        return session

    script.sums.make = make
    script.offer(plan := masked_plan())
    script.sums.ask(plan)
    node = site.start()
    first = node.until(lambda: script.sums.session and script.sums.session.aborted and script.sums.session)
    if way == "round":  # the coordinator says that the others opened a sum with it
        script.sums.ask(plan, 1, result=lambda broadcast: said_of(first, broadcast))
    else:
        script.sums.ask(plan, attempt=1)
    node.until(lambda: len(script.sums.sessions) == 2 and script.sums.session.sums)
    script.sums.sessions.append(session_of(cohort, plan, first.work, 1))
    node.until(lambda: script.sums.session.aborted)
    node.end()
    assert script.sums.session.aborted.code is AbortCode["ALREADY_RELEASED" if way == "round" else "REPLAYED"]
    assert script.sums.session.answers == []
    left = ["masked", "announced"] if way == "round" else ["closed"]
    assert kinds(site) == [*READY, *left, *READY, "masked", "confirmed", "unmasked"]


def test_an_announced_sum_with_a_vector_that_never_left(site, script, cohort, masked_plan, session_of):
    def make(plan, work):
        session = session_of(cohort, plan, work)
        session.mutate = lambda leg, m: two_keys(cohort, m).SerializeToString() if leg == 1 else m
        return session

    script.sums.make = make
    script.offer(plan := masked_plan())
    script.sums.ask(plan)
    node = site.start()
    first = node.until(lambda: script.sums.session and script.sums.session.aborted and script.sums.session)
    script.sums.ask(plan, 1, result=lambda broadcast: said_of(first, broadcast))
    node.until(lambda: script.refusals)
    node.end()
    assert "said to hold release 1, whose summed half never left" in script.refusals[0][1]
    assert kinds(site) == [*READY, "closed"]


def said_of(session, broadcast):
    """A sum that this node did not see: the coordinator says that the others went on without it."""
    digests = tuple(bytes(32) for _ in session.streams)
    about = (session.work.round, session.work.exchange)
    return SessionResult(bytes(32), digests, ("hospital-a", B, C), bytes.fromhex(broadcast), *about).to_bytes()
