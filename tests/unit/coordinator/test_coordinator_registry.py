"""Runs from submission to their end, through the registry, desk, uploads and worker, without a network."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from fedsecure.errors import RemoteProtocolError, WireError
from fedsecure.method import Cancelled
from fedsecure.randomness import server_seed
from fedsecure.tensors import Tensors
from fedsecure_coordinator.store.journal import RunRow


def never_gone():
    return False


def kinds(office):
    return [n.kind for n in office.notices]


def test_a_run_from_submission_to_completion(open_office, toy):
    office = open_office(evaluate=lambda plan, model: {"accuracy": 0.5})
    digest = office.submit(toy.plan())
    for node in "abc":
        assert office.desk.join(node, digest).digest == digest
    for round_ in range(2):
        for value, node in enumerate("abc"):
            work = office.desk.next_work(node, [digest], 0, never_gone)
            assert (work.slot.round, work.slot.exchange, work.slot.node) == (round_, "one", node)
            assert b"".join(office.desk.broadcast(node, work.broadcast, 0, 7))
            assert office.send(digest, node, toy.contribution(value), round_=round_)[1]
            assert office.desk.next_work(node, [digest], 0, never_gone) is None
        office.work()
    row = office.registry.ended()[digest]
    assert row.phase == "COMPLETED"
    start = toy.method().init_server(server_seed(5))["total"][0]
    final = Tensors.from_bytes(office.blobs.get(row.server))
    assert final["total"].tolist() == [start + 3 + 0 + 3 + 1] * 4
    assert office.journal.metrics(digest)[1] == {"accuracy": 0.5, "loss": 1.0, "seconds": 0.0}
    assert office.blobs.digests() == [row.server]  # nothing else is needed any more
    assert office.desk.next_work("a", [digest], 0, never_gone).ended.phase == "COMPLETED"
    assert kinds(office)[-3:] == ["aggregating", "round", "completed"]


def test_a_node_learns_only_what_is_its_own(open_office, toy):
    office = open_office()
    digest = office.submit(toy.plan())
    assert office.desk.offers("z") == []
    for call in (
        lambda: office.desk.join("z", digest),
        lambda: office.desk.refuse("z", digest, "no"),
        lambda: office.desk.next_work("z", [digest], 0, never_gone),
        lambda: office.desk.join("a", "0" * 64),
    ):
        with pytest.raises(RemoteProtocolError, match="is not known here"):
            call()
    with pytest.raises(RemoteProtocolError, match="node a has not joined run"):
        office.desk.next_work("a", [digest], 0, never_gone)
    office.desk.join("a", digest)
    office.desk.join("b", digest)
    office.desk.refuse("c", digest, "plans.methods: fedavg\n(allowed: none)")
    work = office.desk.next_work("a", [digest], 0, never_gone)
    with pytest.raises(RemoteProtocolError, match="is not on offer to node c"):
        next(office.desk.broadcast("c", work.broadcast, 0, 10))
    with pytest.raises(RemoteProtocolError, match="is not on offer to node a"):
        next(office.desk.broadcast("a", office.registry.run(digest).row.server[:-1] + "x", 0, 10))
    assert office.journal.members(digest)["c"] == (False, "plans.methods: fedavg (allowed: none)")


def test_an_ended_run_is_listed_for_who_left_it_or_never_decided_but_not_for_strangers(open_office, toy):
    office = open_office()
    digest = office.submit(toy.plan())
    office.desk.join("a", digest)
    office.desk.refuse("b", digest, "no")
    office.journal.request_abort(digest, "enough")
    office.registry.take_abort_requests()
    for node, joined in (("a", True), ("b", False), ("c", False)):
        assert [(row.phase, took) for row, took in office.desk.offers(node)] == [("ABORTED", joined)]
    assert office.desk.offers("z") == []
    with pytest.raises(RemoteProtocolError, match="is over: ABORTED"):
        office.desk.next_work("c", [digest], 0, never_gone)


def test_stragglers_are_named_and_come_back_by_asking(open_office, toy):
    office = open_office()
    digest = office.gather(toy.plan())
    office.send(digest, "a")
    office.send(digest, "b")
    office.clock.now += 30_001
    office.registry.pass_deadlines()
    assert "stragglers" in kinds(office)
    with pytest.raises(RemoteProtocolError, match="node c is not in the cohort"):
        office.send(digest, "c")
    office.work()
    assert office.registry.run(digest).machine.state.cohort == ("a", "b")
    assert office.desk.next_work("c", [digest], 0, never_gone) is None
    assert office.registry.run(digest).machine.state.present == ("a", "b", "c")


def test_quorum_ends_a_run_naming_the_missing(open_office, toy):
    office = open_office()
    digest = office.gather(toy.plan())
    office.send(digest, "b")
    office.clock.now += 30_001
    office.registry.pass_deadlines()
    row = office.registry.ended()[digest]
    assert (row.phase, row.reason) == ("ABORTED", "quorum: fewer than 2 nodes; missing: a; c")
    assert office.desk.join("a", digest).phase == "ABORTED"
    with pytest.raises(RemoteProtocolError, match="is over: ABORTED"):
        office.send(digest, "a")


def test_a_restart_goes_on_where_it_was(open_office, toy):
    office = open_office()
    digest = office.gather(toy.plan())
    office.send(digest, "a", toy.contribution(2))
    before = office.registry.run(digest)
    again = open_office()
    again.preparer.take_up()
    after = again.registry.run(digest)
    assert after.machine.snapshot() == before.machine.snapshot()
    assert (after.row.server, after.row.broadcast) == (before.row.server, before.row.broadcast)
    assert again.send(digest, "a", toy.contribution(2))[1]  # what was acknowledged is known
    for node in "bc":
        again.send(digest, node)
    # killed before the update: the next process makes it
    third = open_office()
    third.preparer.take_up()
    third.work()
    assert third.registry.run(digest).machine.state.round == 1
    assert kinds(third)[0] == "resumed"


def test_a_restart_gives_nodes_time_to_come_back(open_office, toy):
    office = open_office()
    digest = office.gather(toy.plan())
    office.clock.now += 3_600_000
    again = open_office()
    again.preparer.take_up()
    again.registry.pass_deadlines()
    assert again.registry.run(digest) is not None
    again.clock.now += 30_001
    again.registry.pass_deadlines()
    assert again.registry.ended()[digest].phase == "ABORTED"
    third = open_office()
    third.preparer.take_up()
    assert third.registry.ended()[digest].reason == "quorum: fewer than 2 nodes; missing: a; b; c"


def test_a_damaged_contribution_is_asked_for_again(open_office, toy, tmp_path):
    office = open_office()
    digest = office.gather(toy.plan())
    for node in "abc":
        office.send(digest, node, toy.contribution(ord(node) - 96))
    payload = office.journal.submissions(digest, 0, "one", 0)["b"].payload
    (tmp_path / "blobs" / payload).write_bytes(b"rot")
    office.work()
    work = office.desk.next_work("b", [digest], 0, never_gone)
    assert (work.slot.round, work.slot.attempt) == (0, 1)
    for node in "abc":
        office.send(digest, node, attempt=1)
    office.work()
    assert office.registry.run(digest).machine.state.round == 1


def test_a_failing_update_ends_the_run_with_its_reason(open_office, toy):
    office = open_office(toy.method(fail_in_round=1))
    digest = office.gather(toy.plan())
    for round_ in range(2):
        for node in "abc":
            office.send(digest, node, round_=round_)
        office.work()
    assert office.registry.ended()[digest].reason == "update: the update diverged"


def test_a_state_that_is_not_finite_is_named(open_office, toy):
    class Diverging(toy.method):
        def server_update(self, exchange, server, aggregate, ctx):
            return Tensors({"total": np.full(4, np.inf)})

    office = open_office(Diverging())
    digest = office.gather(toy.plan())
    for node in "abc":
        office.send(digest, node)
    office.work()
    assert office.registry.ended()[digest].reason == "update: the update diverged: tensor total is not finite"


def test_a_failing_broadcast_ends_the_run(open_office, toy):
    class Mute(toy.method):
        def broadcast(self, exchange, server):
            raise RuntimeError("no words")

    office = open_office(Mute())
    digest = office.submit(toy.plan())
    office.desk.join("a", digest)
    office.desk.join("b", digest)
    office.desk.join("c", digest)
    assert office.registry.ended()[digest].reason == "update: broadcast of one: RuntimeError: no words"


def test_a_plan_that_cannot_be_built_ends_and_stops_nobody(open_office, toy):
    class Unbuilt(toy.method):
        def init_server(self, seed):
            raise MemoryError

    office = open_office(Unbuilt())
    digest = office.submit(toy.plan())
    assert office.registry.ended()[digest].reason == "update: MemoryError"
    assert office.registry.idle()
    again = open_office()
    again.preparer.take_up()
    assert again.registry.ended()[digest].phase == "ABORTED"


def test_evaluation_that_fails_is_no_end(open_office, toy):
    office = open_office(evaluate=lambda plan, model: 1 / 0)
    digest = office.gather(toy.plan())
    for node in "abc":
        office.send(digest, node)
    office.work()
    assert office.registry.run(digest).machine.state.round == 1
    assert "not-evaluated" in kinds(office)


def test_abort_requests_are_taken_up_once(open_office, toy):
    office = open_office()
    digest = office.submit(toy.plan())
    office.journal.request_abort(digest, "wrong data")
    office.registry.take_abort_requests()
    assert office.registry.ended()[digest].reason == "operator: wrong data"
    assert office.journal.abort_requests() == {}


def test_a_cancelled_update_is_made_after_the_next_start(open_office, toy):
    class Slow(toy.method):
        def server_update(self, exchange, server, aggregate, ctx):
            if ctx.cancelled():
                raise Cancelled("stopped")
            return super().server_update(exchange, server, aggregate, ctx)

    office = open_office(Slow())
    digest = office.gather(toy.plan())
    for node in "abc":
        office.send(digest, node)
    office.stop.set()
    office.work()
    assert office.registry.run(digest).machine.state.phase == "AGGREGATING"
    again = open_office()
    again.preparer.take_up()
    again.work()
    assert again.registry.run(digest).machine.state.round == 1


def test_two_exchanges(open_office, toy):
    office = open_office(toy.method(exchanges=("one", "two")))
    digest = office.gather(toy.plan(rounds=1))
    for exchange in ("one", "two"):
        for node in "abc":
            office.send(digest, node, exchange=exchange)
        office.work()
    assert office.registry.ended()[digest].phase == "COMPLETED"
    assert office.desk.untold() == 3
    office.desk.next_work("a", [digest], 0, never_gone)
    assert office.desk.untold() == 2


def test_a_newer_poll_ends_the_older_and_closing_sends_all_home(open_office, toy):
    office = open_office()
    digest = office.submit(toy.plan())
    office.desk.join("a", digest)
    answers = []
    older = threading.Thread(target=lambda: answers.append(office.desk.next_work("a", [digest], 30, never_gone)))
    older.start()
    while not office.desk._polls:
        pass
    assert office.desk.next_work("a", [digest], 0, never_gone) is None
    older.join(60)
    assert answers == [None]
    office.registry.close()
    with pytest.raises(WireError, match="shutting down"):
        office.desk.next_work("a", [digest], 30, never_gone)


def test_the_number_of_nodes_is_bounded(open_office, toy):
    office = open_office()
    office.desk._max_nodes = 2
    digest = office.submit(toy.plan())
    office.desk.join("a", digest)
    office.desk.join("b", digest)
    office.desk.join("a", digest)
    with pytest.raises(WireError, match="already serves 2 nodes"):
        office.desk.join("c", digest)


def test_while_it_starts_no_run_seems_unknown(open_office, toy):
    office = open_office()
    digest = office.gather(toy.plan())
    again = open_office()
    for call in (
        lambda: again.desk.offers("a"),
        lambda: again.desk.join("a", digest),
        lambda: again.desk.refuse("a", digest, "no"),
        lambda: again.desk.next_work("a", [digest], 0, never_gone),
        lambda: again.send(digest, "a"),
    ):
        with pytest.raises(WireError, match="the coordinator is starting"):
            call()
    again.preparer.take_up()
    assert again.send(digest, "a")[1]
    later = toy.plan(name="later")
    again.journal.add_run(RunRow(later.digest(), later.name, later.canonical(), 1))
    with pytest.raises(WireError, match="is being prepared"):
        again.desk.join("a", later.digest())
