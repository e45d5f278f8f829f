"""What a node refuses around masked sums: before it computes, between READY and the vector, after a sum was read."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest

from fedsecure.cli import run as command
from fedsecure.secagg.protocol.aborts import AbortCode
from fedsecure.secagg.protocol.messages import parse_survivors, survivors
from fedsecure.wire.v1 import coordinator_pb2 as pb
from fedsecure_node.plans.localdata import LocalData
from fedsecure_node.settings import load_settings

READY = ["release", "sending", "acknowledged"]


def kinds(site):
    return [r.kind for r in site.records()]


def left_before_anything_was_computed(site, script, reason, words):
    node = site.start()
    node.until(lambda: script.refusals)
    node.end()
    assert node.error is None, node.text
    assert reason in script.refusals[0][1]
    assert words in node.text
    assert "computing" not in node.text
    assert kinds(site) == []


def test_masks_where_the_plan_has_none(site, script, cohort, masked_plan):
    script.offer(plan := masked_plan(secagg="off"))
    script.sums.ask(plan)
    left_before_anything_was_computed(site, script, "asks for masks", "the plan says secagg 'off'")


def test_a_cohort_that_is_not_pinned(site, script, cohort, masked_plan):
    script.offer(plan := masked_plan())
    script.sums.ask(plan, cohort="ab" * 32)
    left_before_anything_was_computed(
        site,
        script,
        "secure aggregation: the cohort is not the one that is pinned",
        "names the cohort 'abababababababab'",
    )


def test_nothing_pinned_at_all(site, script, masked_plan):
    script.offer(plan := masked_plan())
    script.sums.ask(plan, cohort="ab" * 32)
    words = "joined; WARNING: no cohort of exactly the nodes hospital-a, hospital-b, hospital-c is trusted by node"
    left_before_anything_was_computed(site, script, "the cohort is not the one that is pinned", words)


def test_a_plain_sum_where_the_plan_requires_masks(site, script, cohort, masked_plan):
    script.offer(plan := masked_plan())
    script.sums.ask(plan, cohort="")
    left_before_anything_was_computed(site, script, "a sum without masks", "the plan says secagg 'required'")


def test_a_plain_sum_where_the_policy_requires_masks(site, script, cohort, masked_plan):
    site.policy(hold='false\nmasks = "required"')
    script.offer(plan := masked_plan(secagg="optional"))
    script.sums.ask(plan, cohort="")
    left_before_anything_was_computed(site, script, "rule release.masks", "release.masks: the coordinator asks")


def test_a_policy_that_requires_masks_while_a_plain_sum_is_computed(site, script, cohort, masked_plan):
    """At the first of the two looks at the records it did not yet; the sum is computed, and stays here."""
    settings = load_settings(site.folder)
    records, looks = LocalData(settings.data, lambda lines: None), []

    def load(plan):
        looks.append(plan)
        if len(looks) == 2:  # the first one is that of the join
            site.policy(hold='false\nmasks = "required"')
        return records(plan)

    script.offer(plan := masked_plan(secagg="optional"))
    script.sums.ask(plan, cohort="")
    node = site.start(load_data=load)
    node.until(lambda: script.refusals)
    node.end()
    assert "rule release.masks" in script.refusals[0][1]
    assert "computing" in node.text
    assert kinds(site) == []
    assert not script.partial


def test_a_run_that_was_masked_cannot_be_talked_down(site, script, cohort, masked_plan):
    script.offer(plan := masked_plan(secagg="optional"))
    script.sums.ask(plan)
    node = site.start()
    node.until(lambda: script.sums.session and script.sums.session.sums)
    script.sums.ask(plan, 1, cohort="", result=script.sums.session.result)
    node.until(lambda: script.refusals)
    node.end()
    assert "a sum without masks, in a run whose sums were masked before" in script.refusals[0][1]
    assert node.text.count("computing") == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"next_state_digest": bytes(32)}, "the broadcast is not the one that the announced sum gave"),
        ({"transcript3": bytes(32)}, "another than the one that this node helped to unmask"),
        ({"survivors": ("hospital-a", "hospital-b")}, "said to be over other nodes than the one of the same"),
        ({"survivors": ("hospital-b", "hospital-c")}, "said to be over other nodes than the one of the same"),
        ({"transcript3": bytes(32), "survivors": ("hospital-b", "hospital-c")}, "over 2 nodes (allowed: >= 3)"),
        (
            {"transcript3": bytes(32), "survivors": ("hospital-b", "hospital-c", "stranger")},
            "over stranger, not of the cohort",
        ),
        ({"sum_sha256": (bytes(32),) * 9}, "9 streams where"),
        ({"round": 1}, "announces a sum of round 2 round with it"),
        ({"purpose": "statistics"}, "announces a sum of round 1 statistics with it"),
        (None, "sends another model than in round 1, and announces no sum since"),
    ],
)
def test_an_announced_sum_that_does_not_fit(site, script, cohort, masked_plan, change, words):
    script.offer(plan := masked_plan())
    script.sums.ask(plan)
    node = site.start()
    node.until(lambda: script.sums.session and script.sums.session.sums)
    session = script.sums.session
    script.sums.ask(plan, 1, result=lambda b: b"" if change is None else session.result(b, **change))
    node.until(lambda: script.refusals)
    node.end()
    assert words in script.refusals[0][1]
    assert node.text.count("computing") == 1
    assert len(script.sums.sessions) == 1


def test_the_same_model_for_a_second_masked_sum(site, script, cohort, masked_plan):
    """The two sums could be subtracted: with a node left out of one of them, the rest is what it made of the model."""
    script.offer(plan := masked_plan())
    script.sums.ask(plan)
    node = site.start()
    node.until(lambda: script.sums.session and script.sums.session.sums)
    script.sums.ask(plan, 1, scale=1.0, result=script.sums.session.result)
    node.until(lambda: script.refusals)
    node.end()
    assert "sends the same model as in round 1, for another masked sum" in script.refusals[0][1]
    assert node.text.count("computing") == 1
    assert len(script.sums.sessions) == 1


def test_a_policy_withdrawn_between_ready_and_the_vector(site, script, cohort, masked_plan):

    def withdrawn(leg):
        if leg == 1:
            (site.folder / "policy.toml").write_text("format = 1\n")

    script.sums.before = withdrawn
    script.offer(plan := masked_plan())
    script.sums.ask(plan)
    node = site.start()
    node.until(lambda: script.refusals)
    node.end()
    assert node.error is None, node.text
    session = script.sums.session
    assert session.aborted is not None
    assert session.aborted.code is AbortCode.WITHDRAWN
    assert [leg for leg, _ in session.answers] == [0, 1], "the vector never left"
    assert script.sums.chunks == 0
    assert kinds(site) == [*READY, "closed"]
    assert "rule plans.methods" in script.refusals[0][1]


def test_an_approval_withdrawn_after_the_vector_gives_no_share(site, script, cohort, masked_plan):
    script.offer(plan := masked_plan())
    script.sums.ask(plan)

    def withdrawn(leg):
        if leg == 3:
            done = command(["node", "refuse-plan", plan.digest(), "--reason", "no", "--dir", str(site.folder)])
            assert done == 0

    script.sums.before = withdrawn
    node = site.start()
    node.until(lambda: script.refusals)
    node.end()
    assert script.sums.session.aborted.code is AbortCode.WITHDRAWN
    assert script.sums.session.sums is None
    assert kinds(site) == [*READY, "masked", "confirmed", "closed"]


def test_a_policy_that_cannot_be_read_holds_the_session_still(site, script, cohort, masked_plan):
    policy = site.folder / "policy.toml"

    def broken(leg):
        if leg == 1:
            policy.write_text("format = ")

    script.sums.before = broken
    script.offer(plan := masked_plan())
    script.sums.ask(plan)
    node = site.start()
    node.until(lambda: "nothing leaves, under masks or not" in node.text)
    assert [leg for leg, _ in script.sums.session.answers] == [0, 1]
    script.sums.before = lambda leg: None
    site.policy()
    node.until(lambda: script.sums.session.sums)
    node.end()
    assert node.error is None, node.text


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"state_digest": bytes(32)}, AbortCode.BAD_CONFIG),
        ({"round": 1}, AbortCode.BAD_CONFIG),
        ({"prev_result": bytes(32)}, AbortCode.BAD_CONFIG),
        ({"deadline_ms": 1}, AbortCode.DEADLINE),
    ],
)
def test_a_session_that_is_not_the_one_that_is_due(site, script, cohort, masked_plan, session_of, changes, code):
    """A model that only some nodes trained from, another round, a broken chain."""
    script.sums.make = lambda plan, work: session_of(cohort, plan, work, **changes)
    script.offer(plan := masked_plan())
    script.sums.ask(plan)
    node = site.start()
    node.until(lambda: script.sums.session and script.sums.session.aborted)
    node.end()
    assert script.sums.session.aborted.code is code
    assert kinds(site) == READY


def test_a_leg_for_a_release_that_never_left(site, script, cohort, masked_plan, session_of):
    """Held, and asked for in a session all the same."""
    site.policy(hold="true")
    script.offer(plan := masked_plan())
    script.sums.ask(plan)
    node = site.start()
    node.until(lambda: "is held until a person decides" in node.text)
    work = script.work.pop(0)
    script.sums.sessions.append(session_of(cohort, plan, work))
    node.until(lambda: script.sums.session.aborted)
    node.end()
    assert script.sums.session.aborted.code is AbortCode.BAD_CONFIG
    assert script.sums.session.answers == []


def test_a_second_session_after_the_sum_was_read(site, script, cohort, masked_plan, session_of):
    """Also after a restart, and also when the memory of sessions is gone but the log is not."""
    script.offer(plan := masked_plan())
    script.sums.ask(plan)
    node = site.start()
    first = node.until(lambda: script.sums.session and script.sums.session.sums and script.sums.session)
    for number in (1, 2, 3):
        script.sums.sessions.append(session_of(cohort, plan, first.work, number))
        node.until(lambda: script.sums.session.aborted)
        assert script.sums.session.aborted.code is AbortCode.ALREADY_RELEASED
        assert script.sums.session.answers == []
        node.end()
        if number == 2:
            with contextlib.closing(sqlite3.connect(site.folder / "store" / "store.db")) as database, database:
                database.execute("DELETE FROM sessions")
        node = site.start()
    node.end()
    assert kinds(site) == [*READY, "masked", "confirmed", "unmasked"]


def test_a_node_that_starts_again_in_mid_session_has_no_session(site, script, cohort, masked_plan, session_of):
    script.offer(plan := masked_plan())
    script.sums.ask(plan)
    stopped = []

    def stop(leg):
        if leg == 2 and not stopped:
            stopped.append(leg)
            node.stop.set()

    script.sums.before = stop
    node = site.start()
    node.join()
    session = script.sums.session
    assert session.sums is None
    node = site.start()
    node.until(lambda: session.aborted)
    assert session.aborted.code is AbortCode.BAD_TRANSCRIPT
    script.sums.sessions.append(session_of(cohort, plan, session.work, 1))
    node.until(lambda: script.sums.session.sums)
    node.end()
    assert node.error is None, node.text
    assert kinds(site) == [*READY, "masked", "masked", "confirmed", "unmasked"]


def test_a_second_list_of_survivors_ends_the_session(site, script, cohort, masked_plan):
    shown = []

    def another(leg, message):
        if leg != 3:
            return message
        shown.append(message)
        vectors = parse_survivors(message)
        return message if len(shown) == 1 else survivors({**vectors, "hospital-b": bytes(32)})

    make = script.sums.make

    def hostile(plan, work):
        session = make(plan, work)
        session.mutate = another
        session.forgets = {3}
        return session

    script.sums.make = hostile
    script.offer(plan := masked_plan())
    script.sums.ask(plan)
    node = site.start()
    node.until(lambda: script.sums.session and script.sums.session.aborted)
    node.end()
    assert script.sums.session.aborted.code is AbortCode.BAD_TRANSCRIPT
    assert kinds(site) == [*READY, "masked", "confirmed"], "no share left"


def test_the_run_ends_with_the_session_open(site, script, cohort, masked_plan):
    """Its keys go; nothing of it leaves."""
    script.offer(plan := masked_plan())
    script.sums.ask(plan)
    gone = []

    def ends(leg):
        if leg == 1 and not gone:
            gone.append(leg)
            script.sums.sessions[-1].machine.drop("hospital-b", "vanished")
            script.end(plan, pb.RUN_STATE_ABORTED, "too few nodes")

    script.sums.before = ends
    node = site.start()
    node.until(lambda: "aborted" in node.text)
    node.end()
    assert kinds(site) == [*READY, "closed"]
