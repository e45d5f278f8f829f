"""What nodes may send to a session: only their own answers, only when due, and again as often as they like."""

from __future__ import annotations

import threading

import pytest

from fedsecure.errors import FedSecureError, RemoteProtocolError, SecAggError, WireError
from fedsecure.secagg.protocol.aborts import abort_bytes
from fedsecure.secagg.protocol.messages import MAX_LEG_BYTES
from fedsecure.wire.v1 import coordinator_pb2 as pb
from fedsecure_coordinator.masking.buffers import Buffers


def details(office, kind):
    return [n.detail for n in office.notices if n.kind == kind]


@pytest.fixture
def in_leg(masked_run, masked_plan):
    """``in_leg(2)``: a run whose session waits for everybody in this leg; ``run.leg("a")`` is what a is to answer."""

    def make(leg, *, min_nodes=3, **office):
        run = masked_run(**office)
        run.digest = run.open(masked_plan(min_nodes=min_nodes, rounds=1))
        run.vanish |= dict.fromkeys("abcd", leg)

        def waiting():
            return all(run.leg(name) is not None and run.leg(name).leg == leg for name in "abcd")

        run.leg = lambda name: (
            run.office.desk.next_work(name, [run.digest], 0, lambda: False).leg if run_open() else None
        )

        def run_open():
            return run.office.registry.run(run.digest) is not None and run.office.sessions.leg(run.digest, "a")

        run.pump(run.digest, lambda: run_open() and waiting(), tick_ms=0)
        return run

    return make


def finish(run):
    run.vanish.clear()
    run.pump(run.digest, lambda: run.ended(run.digest), tick_ms=0)
    return details(run.office, "masked-sum")[0]


def about(leg, node):
    return {"node_id": node, "plan_digest": leg.plan_digest, "config_digest": leg.config_digest}


@pytest.mark.parametrize("leg", [0, 1, 3, 4])
def test_the_same_answer_again_changes_nothing_and_another_one_is_refused(in_leg, leg):
    run = in_leg(leg)
    due = run.leg("a")
    what, made = run.nodes["a"].answer(due, run.office.registry.run(run.digest).method.schema("one"))
    assert what == "message"
    request = pb.LegAnswer(**about(due, "a"), leg=leg, message=made)
    for _ in range(3):  # the reply was lost
        run.calls.answer(request)
    with pytest.raises(FedSecureError, match="no answer is due"):
        run.calls.answer(pb.LegAnswer(**about(due, "a"), leg=leg, message=made + b"x"))
    assert run.office.desk.next_work("a", [run.digest], 0, lambda: False) is None
    assert finish(run)["survivors"] == list("abcd")
    run.calls.answer(request)  # and again when all is over


def test_masked_vectors_again_are_not_taken_twice(in_leg):
    run = in_leg(2)
    due = run.leg("a")
    _, made = run.nodes["a"].answer(due, run.office.registry.run(run.digest).method.schema("one"))
    for _ in range(3):
        run.deliver("a", due, "masked", made)
    assert finish(run)["survivors"] == list("abcd")
    run.deliver("a", due, "masked", made)
    assert run.office.journal.traffic(run.digest)[0]["a"][0] < 500  # counted once


def test_an_upload_that_broke_off_begins_again(in_leg):
    run = in_leg(2)
    due = run.leg("a")
    _, made = run.nodes["a"].answer(due, run.office.registry.run(run.digest).method.schema("one"))
    header, chunks = pb.MaskedHeader(**about(due, "a")), list(made.chunks())
    with pytest.raises(WireError, match="it broke off"):
        run.calls.upload(header, iter([pb.MaskedMessage(chunk=chunks[0])]), lambda: False)
    session = run.office.sessions.session(run.digest, due.config_digest, "a")
    assert session._held._uploads == {}  # its buffer is free again
    run.deliver("a", due, "masked", made)
    assert finish(run)["survivors"] == list("abcd")


def test_a_newer_upload_ends_the_older_one(in_leg):
    run = in_leg(2)
    due = run.leg("a")
    _, made = run.nodes["a"].answer(due, run.office.registry.run(run.digest).method.schema("one"))
    header, chunks = pb.MaskedHeader(**about(due, "a")), list(made.chunks())
    begun, go_on, faults = threading.Event(), threading.Event(), []

    def slow():
        begun.set()
        assert go_on.wait(60)
        yield pb.MaskedMessage(chunk=chunks[0])

    def upload():
        try:
            run.calls.upload(header, slow(), lambda: False)
        except WireError as error:
            faults.append(str(error))

    older = threading.Thread(target=upload)
    older.start()
    assert begun.wait(60)
    run.deliver("a", due, "masked", made)
    go_on.set()
    older.join(60)
    assert faults == ["upload: a newer upload of these vectors took over"]
    assert finish(run)["survivors"] == list("abcd")


@pytest.mark.parametrize("fault", ["garbage", "another node's", "too long", "wrong leg"])
def test_a_node_at_fault_is_out_and_the_others_go_on(in_leg, fault):
    run = in_leg(1)
    due = {name: run.leg(name) for name in "abcd"}
    schema = run.office.registry.run(run.digest).method.schema("one")
    message = {"garbage": b"\xff" * 99, "too long": bytes(MAX_LEG_BYTES + 1)}.get(fault)
    if message is None:
        message = run.nodes["b"].answer(due["b"], schema)[1]
        run.calls.answer(pb.LegAnswer(**about(due["b"], "b"), leg=1, message=message))
    leg = 3 if fault == "wrong leg" else 1
    with pytest.raises(SecAggError if fault in ("garbage", "another node's") else RemoteProtocolError):
        run.calls.answer(pb.LegAnswer(**about(due["d"], "d"), leg=leg, message=message))
    run.vanish.clear()
    if fault != "too long":  # that was not even looked at
        assert run.office.desk.next_work("d", [run.digest], 0, lambda: False) is None
        run.vanish["d"] = 0
    run.pump(run.digest, lambda: run.ended(run.digest), tick_ms=0)
    done = details(run.office, "masked-sum")[0]
    assert done["survivors"] == (list("abcd") if fault == "too long" else list("abc"))
    if fault != "too long":
        assert done["dropped"]["d"]


def test_a_node_that_aborts_is_out_with_its_code(in_leg):
    run = in_leg(2)
    due = run.leg("d")
    told = abort_bytes(SecAggError("BAD_SHARE: what the node alone knows"))
    for _ in range(2):
        run.calls.answer(pb.LegAnswer(**about(due, "d"), leg=2, abort=told))
    run.vanish = {"d": 0}
    run.pump(run.digest, lambda: run.ended(run.digest), tick_ms=0)
    done = details(run.office, "masked-sum")[0]
    assert done["survivors"] == list("abc")
    assert done["dropped"]["d"].startswith("BAD_SHARE: shares do not open")
    with pytest.raises(SecAggError, match="a Abort message of 4096 bytes"):
        run.calls.answer(pb.LegAnswer(**about(due, "d"), leg=2, abort=bytes(4096)))


@pytest.mark.parametrize(("peer", "fair"), [("b", True), ("", False), ("d", False), ("stranger", False)])
def test_of_shares_that_do_not_open_sender_and_receiver_are_named(in_leg, peer, fair):
    """Neither is said to be the one: not the receiver for saying so, and not whom it names."""
    run = in_leg(2)
    told = abort_bytes(SecAggError("BAD_SHARE: what the node alone knows", peer=peer))
    run.calls.answer(pb.LegAnswer(**about(run.leg("d"), "d"), leg=2, abort=told))
    run.vanish = {"d": 0}
    run.pump(run.digest, lambda: run.ended(run.digest), tick_ms=0)
    (why,) = details(run.office, "masked-sum")[0]["dropped"].values()
    words = "the shares from b to d cannot be opened by d: b or d is at fault"
    assert why == f"BAD_SHARE: {words if fair else 'shares do not open, or do not give the secret that was advertised'}"


@pytest.mark.parametrize("leg", [0, 1, 2])
def test_nobody_is_waited_for_where_the_sum_cannot_have_its_nodes_any_more(in_leg, leg):
    """All four must be in the sum, by the plan; three would do to unmask it. No clock goes on."""
    run = in_leg(leg, min_nodes=4)
    told = abort_bytes(SecAggError("WITHDRAWN: what the institution alone knows"))
    run.calls.answer(pb.LegAnswer(**about(run.leg("d"), "d"), leg=leg, abort=told))
    run.pump(run.digest, lambda: details(run.office, "session-failed"), tick_ms=0)
    reason = details(run.office, "session-failed")[0]["reason"]
    assert reason.startswith("TOO_FEW_NODES: ")
    assert "d: WITHDRAWN: the institution does not allow the run any more" in reason
    assert "what the institution alone knows" not in reason


def test_for_the_signatures_of_a_sum_fewer_nodes_are_enough(in_leg):
    run = in_leg(3, min_nodes=4)
    told = abort_bytes(SecAggError("WITHDRAWN: by its policy"))
    run.calls.answer(pb.LegAnswer(**about(run.leg("d"), "d"), leg=3, abort=told))
    assert finish(run)["survivors"] == list("abcd")


def test_who_is_not_in_a_session_gets_nothing_of_it(in_leg):
    run = in_leg(1)
    due = run.leg("a")
    assert run.office.sessions.leg(run.digest, "z") is None
    assert run.office.sessions.leg("0" * 64, "a") is None
    for wrong in (
        {**about(due, "z")},
        {**about(due, "a"), "config_digest": "0" * 64},
        {**about(due, "a"), "plan_digest": "0" * 64},
    ):
        with pytest.raises(RemoteProtocolError, match="is in no open session"):
            run.calls.answer(pb.LegAnswer(**wrong, leg=1, message=b""))
        with pytest.raises(RemoteProtocolError, match="is in no open session"):
            run.calls.upload(pb.MaskedHeader(**wrong), iter(()), lambda: False)


def test_a_manifest_is_for_its_own_nodes(masked_run):
    run = masked_run("abcd")
    digest = run.manifest.digest.hex()
    assert type(run.manifest).model_validate_json(run.calls.manifest("a", digest)) == run.manifest
    for node, asked in (("z", digest), ("a", "0" * 64), ("a", "../../etc/passwd")):
        with pytest.raises(RemoteProtocolError, match="this coordinator has no manifest"):
            run.calls.manifest(node, asked)


def test_room_for_vectors_is_bounded_and_waited_for():
    room = Buffers(100)
    assert (room.turns(5, 40), room.turns(5, 1000), room.turns(0, 10)) == (3, 5, 0)
    inside, leave, order = threading.Event(), threading.Event(), []

    def first():
        with room.hold(1000, lambda: False):  # larger than the bound: one at a time, then
            inside.set()
            assert leave.wait(60)
            order.append("first")

    def second():
        with room.hold(60, lambda: False):
            order.append("second")

    threads = [threading.Thread(target=first)]
    threads[0].start()
    assert inside.wait(60)
    threads.append(threading.Thread(target=second))
    threads[1].start()
    with pytest.raises(WireError, match="given up before there was room"), room.hold(60, lambda: True):
        pass
    leave.set()
    for thread in threads:
        thread.join(60)
    assert order == ["first", "second"]


def test_uploads_take_turns_when_there_is_room_for_one(in_leg):
    run = in_leg(2, buffers=Buffers(1))
    assert finish(run)["survivors"] == list("abcd")
