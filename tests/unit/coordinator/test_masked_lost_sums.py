"""Sums that are lost after nodes gave their shares: the coordinator dies, and the run goes on with the next round."""

from __future__ import annotations

import re

import pytest

from fedsecure.randomness import server_seed
from fedsecure.secagg.machines.memory import MOST_SESSIONS
from fedsecure.secagg.protocol.results import parse_result
from fedsecure.tensors import Tensors
from fedsecure_coordinator.masking.lost import nodes_of_a_lost_sum, to_invite
from fedsecure_coordinator.runs.run import plan_of
from fedsecure_coordinator.views.card import model_card
from fedsecure_coordinator.views.runs import run_summary, run_view, sentence
from fedsecure_coordinator.views.status import status_lines

START = float(server_seed(5) % 7)
ALL = list("abcd")
#: What ends a run that has no further round.
TODAY = (
    r"update: too many nodes gave their unmasking shares before the sum was kept .*: "
    "submit the plan again with another seed"
)


def final(office, row):
    return Tensors.from_bytes(office.blobs.get(row.server))["total"].tolist()


def details(office, kind):
    return [n.detail for n in office.notices if n.kind == kind]


@pytest.fixture
def lose(masked_run, masked_plan, open_office):
    """``lose(rounds=2)``: a coordinator that was started again, after a and b gave their shares in session ``sums``
    + 1 and before there was a sum. ``without``: nodes that were out of it from the first leg on."""

    def make(*, sums=0, without=(), method=None, **plan):
        run = masked_run(method=method)
        digest = run.open(masked_plan(**plan))
        run.pump(digest, lambda: len(details(run.office, "masked-sum")) == sums)
        before = len(run.answered)
        run.vanish = {"c": 4, "d": 4} | dict.fromkeys(without, 0)
        run.pump(digest, lambda: [n for n, leg, _ in run.answered[before:] if leg == 4] == ["a", "b"])
        run.office.sessions.close()
        assert len(details(run.office, "masked-sum")) == sums
        again = open_office(method, times=run.office.sessions._times)
        again.preparer.take_up()
        return type(run)(again, run.manifest, run.nodes), digest

    return make


def test_the_run_goes_on_with_the_next_round_and_the_same_model(lose):
    run, digest = lose(rounds=2)
    run.pump(digest, lambda: run.ended(digest))
    office, row = run.office, run.ended(digest)
    assert (row.phase, row.reason) == ("COMPLETED", "")
    assert final(office, row) == [START + 6 + 1] * 4, "of the second round alone"
    (skipped,) = details(office, "skipped")
    assert (skipped["round"], skipped["exchange"]) == (0, "one")
    assert re.search(
        r"too many nodes gave their unmasking shares .*TOO_FEW_NODES: \d nodes? advertises? keys", skipped["reason"]
    )
    assert "submit" not in skipped["reason"]
    assert sentence("skipped", skipped).startswith("round 1, one: its sum is lost, and the round is skipped: too many")
    assert len(details(office, "session-failed")) == 1  # not tried in vain
    # nothing was announced: there was no sum, and nodes computed from the model of the first round once more
    assert [(round_, result) for round_, _, _, result in run.results] == [(1, b"")] * 4
    assert [d["survivors"] for d in details(office, "masked-sum")] == [ALL]
    assert office.blobs.digests() == [row.server]
    view = run_view(office.journal, row)
    assert (view["skipped"], run_summary(row)["skipped"]) == ([1], [1])
    assert [entry["skipped"] for entry in view["history"]] == [skipped["reason"], None]
    assert [entry["masked"] != [] for entry in view["history"]] == [False, True]
    card = model_card(plan_of(row), view, Tensors.from_bytes(office.blobs.get(row.server)))
    assert "\nRound 1 was skipped: its masked sum was lost" in card
    status = {"federation": "f", "listen": "l", "daemon": "running", "runs": [view]}
    assert any(line.startswith("    round 1: skipped: too many") for line in status_lines(status))


def test_a_round_between_two_sums(lose):
    """The third round announces the sum of the first, which its model came from."""
    run, digest = lose(sums=1, rounds=3)
    run.pump(digest, lambda: run.ended(digest))
    office, row = run.office, run.ended(digest)
    assert row.phase == "COMPLETED"
    assert final(office, row) == [START + 6 + 0 + 6 + 2] * 4
    assert run_summary(row)["skipped"] == [2]
    (announced,) = {result for round_, _, _, result in run.results if round_ == 2}
    result, kept = parse_result(announced), office.journal.masked_sum(digest, 0, "one", 0)
    assert (result.round, result.purpose, result.transcript3.hex()) == (0, "one", kept.transcript)


def test_the_second_exchange_of_a_round(lose, toy):
    """What the first one gave stays in the state, and its sum is announced with the next round."""
    run, digest = lose(sums=1, rounds=2, method=toy.method(("one", "two")))
    run.pump(digest, lambda: run.ended(digest))
    office, row = run.office, run.ended(digest)
    assert row.phase == "COMPLETED"
    assert final(office, row) == [START + 6 + 0 + 2 * (6 + 1)] * 4
    assert [(d["round"], d["exchange"]) for d in details(office, "skipped")] == [(0, "two")]
    announced = [(r.round, r.purpose) for r in (parse_result(found[3]) for found in run.results)]
    assert announced == [(0, "one")] * 4 + [(1, "one")] * 4


def test_the_last_round_cannot_be_skipped(lose):
    run, digest = lose(rounds=1)
    run.pump(digest, lambda: run.ended(digest))
    row = run.ended(digest)
    assert row.phase == "ABORTED"
    assert re.match(TODAY, row.reason)
    assert run_summary(row)["skipped"] == []
    assert details(run.office, "skipped") == []


def test_a_node_that_was_not_in_the_lost_sum_is_not_in_the_next_one(lose):
    """Who gave shares for a, b and c helps with no sum of the same model over other nodes."""
    run, digest = lose(rounds=2, without="d")
    run.pump(digest, lambda: run.ended(digest))
    office, row = run.office, run.ended(digest)
    assert row.phase == "COMPLETED"
    assert [d["invited"] for d in details(office, "session")] == [ALL, list("abc")]
    assert [d["survivors"] for d in details(office, "masked-sum")] == [list("abc")]
    assert {"node": "d", "reason": "dropped out of the masked sum"} in details(office, "left")
    assert final(office, row) == [START + 3 + 1] * 4


@pytest.mark.parametrize("computes", [True, False])
def test_when_a_node_of_the_lost_sum_is_gone_no_sum_of_the_same_model_is_made(lose, computes):
    run, digest = lose(rounds=2)
    run.vanish["d"] = 0 if computes else -1
    run.pump(digest, lambda: len(run.results) == 3 + computes)
    run.office.clock.now += 0 if computes else 10**7
    run.office.registry.pass_deadlines()
    run.pump(digest, lambda: run.ended(digest))
    row = run.ended(digest)
    assert row.phase == "ABORTED"
    gone = r"update: 3 attempts failed, .*[ab]: ALREADY_RELEASED.*; d: did not advertise keys in time"
    assert re.match(gone if computes else TODAY, row.reason)
    assert {name for name, at, what in run.answered if (at, what) == (3, "abort")} <= {"a", "b"}
    assert details(run.office, "masked-sum") == []
    assert run_summary(row)["skipped"] == [1]


@pytest.mark.parametrize("rounds", [1, 2])
def test_nodes_that_began_all_their_sessions_are_not_asked_in_vain(masked_run, masked_plan, rounds):
    run = masked_run()
    office = run.office
    digest = run.open(masked_plan(rounds=rounds))
    for name in "ab":
        for _ in range(MOST_SESSIONS):
            run.nodes[name].memory.begin(digest, "one", 0)
    run.pump(digest, lambda: run.ended(digest))
    assert len(details(office, "session-failed")) == 1
    reason = "too many nodes began all 9 sessions that they begin for one sum"
    if rounds == 1:
        assert run.ended(digest).reason.startswith(f"update: {reason}")
        assert "submit the plan again" in run.ended(digest).reason
    else:
        assert details(office, "skipped")[0]["reason"].startswith(reason)
        assert final(office, run.ended(digest)) == [START + 6 + 1] * 4


def leg(number, nodes):
    return 0, "session-leg", {"leg": number, "nodes": list(nodes)}


LOST, SUM = (0, "skipped", {}), (0, "masked-sum", {})


@pytest.mark.parametrize(
    ("events", "nodes"),
    [
        ([], ""),
        ([leg(2, "abcd"), leg(3, "abc"), SUM], ""),
        ([leg(2, "abcd"), leg(3, "abc"), LOST], "abcd"),
        ([leg(2, "abcd"), leg(3, "abc"), leg(2, "bcd"), leg(3, "bcd"), LOST], "bcd"),
        ([leg(2, "abcd"), leg(3, "abc"), leg(2, "bcd"), LOST], "abcd"),  # nobody was asked for shares in the second
        ([leg(2, "abcd"), leg(3, "abc"), LOST, leg(2, "abc"), LOST], "abcd"),
        ([leg(2, "abcd"), leg(3, "abc"), LOST, leg(2, "abc"), leg(3, "abc"), LOST], "abc"),
        ([leg(2, "abcd"), leg(3, "abcd"), LOST, leg(2, "abcd"), leg(3, "abcd"), SUM, leg(2, "abc")], ""),
    ],
)
def test_whose_sum_was_lost(events, nodes):
    assert nodes_of_a_lost_sum(events) == tuple(nodes)
    assert to_invite(tuple("abcde"), events) == tuple(nodes or "abcde")
    assert to_invite(tuple("be"), events) == tuple("be"), "not all are there: whoever is"
