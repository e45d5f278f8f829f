"""The node daemon against configurations, streams and legs that no honest coordinator sends, over real mutual TLS."""

from __future__ import annotations

import pytest
from attack_steps import READY, kinds, show

from fedsecure.secagg.protocol.aborts import AbortCode
from fedsecure.secagg.v1 import secagg_pb2 as spb


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
