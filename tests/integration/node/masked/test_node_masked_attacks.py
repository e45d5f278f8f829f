"""The node daemon against a malicious coordinator with colluding nodes, over real mutual TLS: each attack ends in its
named abort, and nothing leaves that was not to leave. Peers' identity keys are the attacker's here."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from fedsecure.crypto.signatures import ephemeral_identity
from fedsecure.secagg.aborts import AbortCode
from fedsecure.secagg.memory import session_numbers
from fedsecure.secagg.messages import CONSISTENCY, consistency, open_signed, parse_survivors, sign, survivors
from fedsecure.secagg.results import SessionResult
from fedsecure.secagg.transcript import config_digest
from fedsecure.secagg.v1 import secagg_pb2 as spb
from fedsecure.wire.v1 import coordinator_pb2 as pb

sys.path.insert(0, str(Path(__file__).parents[3]))
from forked_nodes import ForkedNode

READY = ["release", "sending", "acknowledged"]
B, C = "hospital-b", "hospital-c"


def kinds(site):
    return [r.kind for r in site.records()]


def parsed(kind, message):
    return kind.FromString(message)


def summed_once(site, script, plan):
    """The plan's first round, masked and summed; returns the running node and the session."""
    script.offer(plan)
    script.sums.ask(plan)
    node = site.start()
    session = node.until(lambda: script.sums.session and script.sums.session.sums and script.sums.session)
    return node, session


def show(session, plan, leg, message):
    """From now on the coordinator asks for this leg, whatever came before."""
    work = session.work
    about = {"plan_digest": plan.digest(), "round": work.round, "attempt": work.attempt, "exchange": work.exchange}
    digest = config_digest(message).hex() if leg == 0 else session.machine.config_digest.hex()
    asked = pb.Leg(**about, config_digest=digest, leg=leg, message=message, deadline_unix_ms=session.deadline_ms)
    session.leg = lambda: None if session.aborted else asked


# one message of a session is changed


def swapped_key(cohort, message):
    found = parsed(spb.KeyList, message)
    found.advertise[1].CopyFrom(spb.Signed.FromString(resigned(ephemeral_identity(), found.advertise[1].payload, B)))
    return found


def colluders_key(cohort, message):
    """hospital-c signs keys in the name of hospital-b."""
    found = parsed(spb.KeyList, message)
    payload = spb.Advertise.FromString(found.advertise[1].payload)
    payload.mask_pk = bytes([9]) + bytes(31)
    signed = resigned(cohort.identities[C], payload.SerializeToString(deterministic=True), C)
    found.advertise[1].CopyFrom(spb.Signed.FromString(signed))
    return found


def key_of_another_model(cohort, message):
    """hospital-b advertised for another configuration: there the coordinator named another model."""
    found = parsed(spb.KeyList, message)
    payload = spb.Advertise.FromString(found.advertise[1].payload)
    payload.config_digest = bytes(32)
    signed = resigned(cohort.identities[B], payload.SerializeToString(deterministic=True), B)
    found.advertise[1].CopyFrom(spb.Signed.FromString(signed))
    return found


def copied_key(cohort, message):
    found = parsed(spb.KeyList, message)
    payload = spb.Advertise.FromString(found.advertise[1].payload)
    payload.share_pk = spb.Advertise.FromString(found.advertise[2].payload).share_pk
    signed = resigned(cohort.identities[B], payload.SerializeToString(deterministic=True), B)
    found.advertise[1].CopyFrom(spb.Signed.FromString(signed))
    return found


def two_keys(cohort, message):
    found = parsed(spb.KeyList, message)
    del found.advertise[2]
    return found


def resigned(identity, payload, signer):
    return sign(identity, "advertise", payload, signer=signer)


def two_sharers(cohort, message):
    found = parsed(spb.Inbox, message)
    del found.u2[2]
    del getattr(found, "in")[1]
    return found


def changed_share(cohort, message):
    found = parsed(spb.Inbox, message)
    item = getattr(found, "in")[0]
    item.ct = item.ct[:-1] + bytes([item.ct[-1] ^ 1])
    return found


def two_survivors(cohort, message):
    found = parsed(spb.Survivors, message)
    del found.u3[2], found.vector_digests[2]
    return found


def another_vector(cohort, message):
    found = parsed(spb.Survivors, message)
    found.vector_digests[0] = bytes(32)
    return found


def two_confirmations(cohort, message):
    found = parsed(spb.ConsistencySet, message)
    del found.consistency[2]
    return found


def forged_confirmation(cohort, message):
    found = parsed(spb.ConsistencySet, message)
    found.consistency[1].signature = bytes(64)
    return found


def confirmations_of_another_list(cohort, message):
    """The colluders signed another list than the one that this node was shown."""
    found = parsed(spb.ConsistencySet, message)
    for place, node in ((1, B), (2, C)):
        other = sign(cohort.identities[node], CONSISTENCY, consistency(bytes(32)), signer=node)
        found.consistency[place].CopyFrom(spb.Signed.FromString(other))
    return found


CHANGES = [
    (1, swapped_key, "BAD_SIGNATURE"), (1, colluders_key, "BAD_KEY"), (1, key_of_another_model, "BAD_TRANSCRIPT"),
    (1, copied_key, "BAD_KEY"), (1, two_keys, "TOO_FEW_NODES"), (2, two_sharers, "TOO_FEW_NODES"),
    (2, changed_share, "BAD_SHARE"), (3, two_survivors, "TOO_FEW_NODES"), (3, another_vector, "BAD_VECTOR"),
    (4, two_confirmations, "TOO_FEW_NODES"), (4, forged_confirmation, "BAD_SIGNATURE"),
    (4, confirmations_of_another_list, "BAD_TRANSCRIPT"),
]  # fmt: skip


@pytest.mark.parametrize(("at", "change", "code"), CHANGES, ids=lambda v: getattr(v, "__name__", str(v)))
def test_a_changed_message_ends_the_session_and_a_fresh_one_completes(
    site, script, cohort, masked_plan, session_of, at, change, code
):
    def make(plan, work):
        session = session_of(cohort, plan, work)
        session.mutate = lambda leg, message: change(cohort, message).SerializeToString() if leg == at else message
        return session

    script.sums.make = make
    script.offer(plan := masked_plan())
    script.sums.ask(plan)
    node = site.start()
    session = node.until(lambda: script.sums.session and script.sums.session.aborted and script.sums.session)
    assert session.aborted.code is AbortCode[code]
    assert [leg for leg, _ in session.answers] == list(range(at))
    assert kinds(site) == [*READY, *["masked", "confirmed"][: max(at - 2, 0)]]
    script.sums.sessions.append(session_of(cohort, plan, session.work, 1))
    node.until(lambda: script.sums.session.sums)
    node.end()
    assert node.error is None, node.text
    assert "Traceback" not in node.text
    assert kinds(site)[-3:] == ["masked", "confirmed", "unmasked"]


def refused_in_leg_0(site, script, masked_plan, change):
    """The node refuses a session whose configuration ``change`` altered, and nothing of it leaves."""
    made = script.sums.make

    def make(plan, work):
        session = made(plan, work)
        message = spb.SessionConfig.FromString(session.config.to_bytes())
        change(message)
        show(session, plan, 0, message.SerializeToString(deterministic=True))
        return session

    script.sums.make = make
    script.sums._session = lambda digest, context: script.sums.session
    script.offer(plan := masked_plan())
    script.sums.ask(plan)
    node = site.start()
    session = node.until(lambda: script.sums.session and script.sums.session.aborted and script.sums.session)
    node.end()
    assert session.aborted.code is AbortCode.BAD_CONFIG
    assert session.answers == []
    assert kinds(site) == READY


@pytest.mark.parametrize(
    "change",
    [
        {"threshold": 2}, {"min_survivors": 2}, {"threshold": 2, "min_survivors": 2}, {"prg": 0}, {"round": 2**63},
        {"global_state_digest": b""}, {"attempt": 0, "purpose": "other"},
    ],
    ids="-".join,
)  # fmt: skip
def test_a_hostile_configuration(site, script, cohort, masked_plan, change):
    def alter(message):
        for name, value in change.items():
            setattr(message, name, value)

    refused_in_leg_0(site, script, masked_plan, alter)


@pytest.mark.parametrize(
    ("field", "value"),
    [("length", 2**62), ("frac_bits", 0), ("clip_abs", 1e-9), ("ring_bits", 32), ("max_count", 1)],
)
def test_a_hostile_stream(site, script, cohort, masked_plan, field, value):
    refused_in_leg_0(site, script, masked_plan, lambda message: setattr(message.streams[0], field, value))


LEGS = [
    ({"leg": 9}, "BAD_TRANSCRIPT"), ({"leg": 2**32 - 1}, "BAD_TRANSCRIPT"), ({"leg": 4}, "BAD_TRANSCRIPT"),
    ({"round": 2**32 - 1}, "BAD_CONFIG"), ({"attempt": 7}, "BAD_CONFIG"), ({"exchange": "x" * 100_000}, "BAD_CONFIG"),
    ({"exchange": ""}, "BAD_CONFIG"), ({"plan_digest": "0" * 64}, "BAD_CONFIG"), ({"message": b""}, "BAD_TRANSCRIPT"),
    ({"config_digest": "ab" * 32}, "BAD_TRANSCRIPT"), ({"config_digest": ""}, "BAD_TRANSCRIPT"),
    ({"message": bytes(3_000_000)}, "BAD_KEY"), ({"leg": 0, "message": bytes(3_000_000)}, "BAD_TRANSCRIPT"),
    ({"deadline_unix_ms": 2**64 - 1, "message": b"\x0a\x00" * 30_000}, "BAD_KEY"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "code"), LEGS, ids=lambda v: v if isinstance(v, str) else "-".join(v))
def test_a_hostile_leg(site, script, cohort, masked_plan, session_of, changes, code):
    """In place of leg 1: numbers, names and sizes that no leg has. The node leaves, says so, and goes on."""

    def make(plan, work):
        session = session_of(cohort, plan, work)
        genuine = session.leg

        def leg():
            found = genuine()
            if found is not None and found.leg == 1:
                for name, value in changes.items():
                    setattr(found, name, value)
            return found

        session.leg = leg
        return session

    script.sums.make = make
    script.sums._session = lambda digest, context: script.sums.session
    script.offer(plan := masked_plan())
    script.sums.ask(plan)
    node = site.start()
    session = node.until(lambda: script.sums.session and script.sums.session.aborted and script.sums.session)
    assert session.aborted.code is AbortCode[code]
    assert [leg for leg, _ in session.answers] == [0]
    script.sums.sessions.append(session_of(cohort, plan, session.work, 1))
    node.until(lambda: script.sums.session.sums)
    node.end()
    assert node.error is None, node.text
    assert "Traceback" not in node.text
    assert kinds(site) == [*READY, "masked", "confirmed", "unmasked"]


# after the sum


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


# killed in mid-session


@pytest.fixture
def process(site):
    """Starts ``fedsecure node run``; whatever still runs at the end is killed."""
    started = []

    def start():
        started.append(ForkedNode(site.folder, site.folder / "out.txt"))
        return started[-1]

    yield start
    for one in started:
        if one.poll() is None:
            one.kill()
        one.wait(60)


def until(condition, site, seconds=150):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, (site.folder / "out.txt").read_text()
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_killed_in_mid_session(site, script, cohort, masked_plan, session_of, process, at):
    """kill -9 as the answer to a leg arrives. The new process has no session, and a fresh one completes; unless its
    shares may be on their way, which it knows from its store: then never."""
    running = []

    def kill(leg):
        if leg == at and len(running) == 1:
            running[0].kill()
            running[0].wait(60)
            running.append(process())

    script.sums.before = kill
    script.offer(plan := masked_plan())
    script.sums.ask(plan)
    running.append(process())
    until(lambda: len(running) == 2, site)
    first = script.sums.session
    if at != 4:
        until(lambda: first.aborted, site)
        assert first.aborted.code is AbortCode.BAD_TRANSCRIPT
        assert first.sums is None
    second = session_of(cohort, plan, first.work, 1)
    script.sums.sessions.append(second)
    until(lambda: second.aborted or second.sums, site)
    running[-1].terminate()
    assert running[-1].wait(60) == 0
    if at == 4:
        assert second.aborted.code is AbortCode.ALREADY_RELEASED
        assert second.answers == []
    else:
        assert second.sums is not None
    assert "Traceback" not in (site.folder / "out.txt").read_text()
    assert kinds(site).count("unmasked") == 1
