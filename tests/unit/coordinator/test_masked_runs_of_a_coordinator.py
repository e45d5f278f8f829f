"""Runs whose sums are masked, from submission to their end: real machines of nodes, no network."""

from __future__ import annotations

import numpy as np
import pytest

from fedsecure.errors import DataError
from fedsecure.randomness import server_seed
from fedsecure.secagg.protocol.results import parse_result
from fedsecure.tensors import Tensors
from fedsecure_coordinator.views.runs import run_view, sentence

START = float(server_seed(5) % 7)


def final(office, row):
    return Tensors.from_bytes(office.blobs.get(row.server))["total"]


def kinds(office):
    return [n.kind for n in office.notices]


def details(office, kind):
    return [n.detail for n in office.notices if n.kind == kind]


def test_a_masked_run_gives_what_a_plain_one_gives_and_nodes_keep_their_summed_half(masked_run, masked_plan):
    run = masked_run()
    office, plan = run.office, masked_plan()
    digest = run.open(plan)
    run.pump(digest, lambda: run.ended(digest))
    row = run.ended(digest)
    assert (row.phase, row.reason) == ("COMPLETED", "")
    assert final(office, row).tolist() == [START + 2 * (0 + 1 + 2 + 3) + 1] * 4
    # every contribution came without its summed half, under the cohort that the node pinned
    assert {cohort for _, _, cohort, _ in run.results} == {run.manifest.digest.hex()}
    for round_ in range(2):
        stored = office.journal.submissions(digest, round_, "one", 0)
        assert sorted(stored) == list("abcd")
        assert all(s.bytes < 200 for s in stored.values())
    # the second round announces the first one's sum, and its nodes accepted a session that is chained to it
    assert {result for round_, _, _, result in run.results if round_ == 0} == {b""}
    (announced,) = {result for round_, _, _, result in run.results if round_ == 1}
    result, kept = parse_result(announced), office.journal.masked_sum(digest, 0, "one", 0)
    assert (result.transcript3.hex(), result.survivors) == (kept.transcript, tuple("abcd"))
    assert tuple(d.hex() for d in result.sum_sha256) == kept.sum_digests
    assert [what for _, leg, what in run.answered if leg == 2] == ["masked"] * 8
    # nothing but the final state is still needed
    assert office.blobs.digests() == [row.server]
    assert [d["survivors"] for d in details(office, "masked-sum")] == [list("abcd")] * 2
    assert [d["leg"] for d in details(office, "session-leg")] == [0, 1, 2, 3, 4] * 2
    view = run_view(office.journal, row)
    assert view["cohort"] == run.manifest.digest.hex()
    assert view["session"] is None
    assert view["history"][0]["masked"] == [{"exchange": "one", "survivors": list("abcd"), "dropped": {}, "clipped": 0}]
    assert all(up >= 4 * 8 for up in view["history"][0]["bytes_up"].values())  # the masked vectors are counted
    assert all(sentence(n.kind, n.detail) != n.kind for n in office.notices)
    said = [sentence("contribution", detail) for detail in details(office, "contribution")]
    assert said[0] == "round 1, one: a is ready, under masks"
    assert len(said) == 8


@pytest.mark.parametrize("leg", [0, 1, 2, 3, 4])
def test_a_node_that_vanishes_at_a_leg(masked_run, masked_plan, leg):
    run = masked_run()
    office = run.office
    digest = run.open(masked_plan())
    run.vanish["d"] = leg
    run.pump(digest, lambda: "masked-sum" in kinds(office))
    run.vanish.clear()  # it asks for work again, and is in from the next round on
    run.pump(digest, lambda: run.ended(digest))
    row = run.ended(digest)
    assert row.phase == "COMPLETED"
    in_sum = leg > 2
    first, second = details(office, "masked-sum")
    assert first["survivors"] == (list("abcd") if in_sum else list("abc"))
    assert ("d" in first["dropped"]) is not in_sum
    left = [d["node"] for d in details(office, "left")]
    assert left == ([] if in_sum else ["d"])
    if not in_sum:
        assert details(office, "left")[0]["reason"] == "dropped out of the masked sum"
    assert {"a", "b", "c"} <= set(second["survivors"])
    sums = sum(sum(run.values[n] for n in found["survivors"]) for found in (first, second))
    assert final(office, row).tolist() == [START + sums + 1] * 4


def test_a_node_out_for_a_moment_is_in_the_next_round_and_another_may_drop_out_of_that(masked_run, masked_plan):
    run = masked_run()
    office = run.office
    digest = run.open(masked_plan())
    run.vanish["a"] = 1
    run.pump(digest, lambda: "masked-sum" in kinds(office))
    run.vanish = {"a": -1, "d": -1}  # it is not there when the round opens, and d is slow
    run.pump(digest, lambda: sum(kind == "exchange" for kind in kinds(office)) == 2)
    run.vanish = {"b": 1}
    run.pump(digest, lambda: run.ended(digest))
    row = run.ended(digest)
    assert (row.phase, row.reason) == ("COMPLETED", "")
    assert [d["survivors"] for d in details(office, "masked-sum")] == [list("bcd"), list("acd")]
    assert [d["cohort"] for d in details(office, "exchange")] == [list("abcd"), list("bcd")]
    assert details(office, "admitted") == [{"node": "a", "round": 1, "exchange": "one", "attempt": 0}]
    assert [entry["cohort"] for entry in run_view(office.journal, row)["history"]] == [list("abcd")] * 2


def test_two_that_vanish_are_too_many_and_after_three_sessions_the_exchange_is_asked_for_again(masked_run, masked_plan):
    run = masked_run()
    office = run.office
    digest = run.open(masked_plan(rounds=1))
    run.vanish |= {"c": 1, "d": 2}
    run.pump(digest, lambda: "attempt-failed" in kinds(office), tick_ms=200)
    failed = details(office, "session-failed")
    assert [d["session"] for d in failed] == [0, 1, 2]
    assert all(d["reason"].startswith("TOO_FEW_NODES: 2 nodes") for d in failed)
    (again,) = details(office, "attempt-failed")
    assert again["reason"].startswith("3 sessions gave no sum, the last: TOO_FEW_NODES")
    run.vanish.clear()
    run.pump(digest, lambda: run.ended(digest))
    assert run.ended(digest).phase == "COMPLETED"
    assert final(office, run.ended(digest)).tolist() == [START + 6] * 4
    assert office.journal.masked_sum(digest, 0, "one", 1).survivors == tuple("abcd")


def test_contributions_with_their_summed_half_are_refused(masked_run, masked_plan, toy):
    run = masked_run()
    digest = run.open(masked_plan())
    run.office.desk.next_work("a", [digest], 0, lambda: False)
    with pytest.raises(DataError, match="tensor x: not named by the schema's summed half"):
        run.office.send(digest, "a", toy.contribution(1.0))


def test_other_runs_go_on_while_a_session_waits(masked_run, masked_plan, toy):
    run = masked_run()
    office = run.office
    masked = run.open(masked_plan())
    run.vanish |= dict.fromkeys("abcd", 0)
    run.pump(masked, lambda: "session" in kinds(office))
    plain = office.gather(toy.plan(name="plain", rounds=1))
    for node in "abc":
        office.send(plain, node)
    office.work()
    assert office.registry.ended()[plain].phase == "COMPLETED"
    assert office.registry.run(masked) is not None


def test_after_a_restart_in_mid_session_a_new_one_sums_the_same_contributions(masked_run, masked_plan, open_office):
    run = masked_run()
    digest = run.open(masked_plan(rounds=1))
    run.vanish |= dict.fromkeys("abcd", 3)  # everybody stops before the survivors are confirmed
    run.pump(digest, lambda: len(details(run.office, "session-leg")) == 3)
    run.office.sessions.close()
    again = masked_again(run, open_office)
    again.pump(digest, lambda: again.ended(digest))
    assert again.ended(digest).phase == "COMPLETED"
    assert final(again.office, again.ended(digest)).tolist() == [START + 6] * 4
    assert again.results == []  # nobody computed again


def test_after_a_restart_a_sum_in_the_journal_is_used_without_a_session(masked_run, masked_plan, open_office):
    run = masked_run()
    office = run.office
    digest = run.open(masked_plan(rounds=1))
    office.work = lambda: begin_session(office)
    run.pump(digest, lambda: kept(office, digest))
    assert office.registry.run(digest) is not None
    office.sessions.close()
    again = masked_again(run, open_office)
    again.vanish |= dict.fromkeys("abcd", -1)  # nobody is there any more
    again.pump(digest, lambda: again.ended(digest))
    assert final(again.office, again.ended(digest)).tolist() == [START + 6] * 4
    assert "session" not in kinds(again.office)


def kept(office, digest):
    return office.journal.masked_sum(digest, 0, "one", 0)


def begin_session(office):
    """The worker's part up to the session, and nothing after it: the coordinator dies before its update."""
    due = office.registry.next_due(0)
    if due is not None:
        office.work = lambda: None
        office.worker.aggregate(due)


def masked_again(run, open_office):
    """The same nodes at a coordinator that was started again over the same store."""
    office = open_office(times=run.office.sessions._times)
    office.preparer.take_up()
    return type(run)(office, run.manifest, run.nodes)


def test_an_operator_s_abort_ends_the_session_at_once(masked_run, masked_plan):
    run = masked_run()
    office = run.office
    digest = run.open(masked_plan())
    run.vanish |= dict.fromkeys("abcd", 1)
    run.pump(digest, lambda: (leg := office.sessions.leg(digest, "a")) is not None and leg.leg == 1)
    assert len(details(office, "session-leg")) == 1
    office.journal.request_abort(digest, "enough")
    office.registry.take_abort_requests()
    assert run.ended(digest).reason == "operator: enough"
    assert office.desk.next_work("a", [digest], 0, lambda: False).ended.phase == "ABORTED"
    for thread in office.sessions._threads:
        thread.join(60)
        assert not thread.is_alive()
    assert "session-failed" not in kinds(office)


def test_a_node_that_leaves_the_run_is_not_waited_for(masked_run, masked_plan):
    run = masked_run()
    office = run.office
    digest = run.open(masked_plan())
    run.vanish["d"] = 1
    run.pump(digest, lambda: len(details(office, "session-leg")) == 1, tick_ms=0)
    office.desk.refuse("d", digest, "policy withdrawn")
    run.vanish["d"] = -1
    run.pump(digest, lambda: run.ended(digest), tick_ms=0)  # no clock goes on: nothing here waits for a deadline
    assert run.ended(digest).phase == "COMPLETED"
    assert details(office, "session-leg")[1]["dropped"] == {"d": "it left the run"}
    assert details(office, "masked-sum")[0]["survivors"] == list("abc")


def test_no_single_vector_is_ever_in_the_store(masked_run, masked_plan, tmp_path):
    run = masked_run()
    digest = run.open(masked_plan())
    seen = []

    def remember(name, leg, what, made, deliver=run.deliver):
        if what == "masked":
            seen.extend(bytes(chunk)[-40:] for chunk in made.chunks())
        deliver(name, leg, what, made)

    run.deliver = remember
    run.pump(digest, lambda: run.ended(digest))
    run.office.journal.close()
    stored = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    assert len(seen) == 8
    assert not any(vector[:24] in stored or vector[16:] in stored for vector in seen)
    plain = {np.full(4, value, np.float32).tobytes() for value in run.values.values() if value}
    assert not any(vector in stored for vector in plain)
