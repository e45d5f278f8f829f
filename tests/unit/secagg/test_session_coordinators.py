"""The coordinator's machine: who sends garbage is out by name and the others go on; answers twice, broken uploads,
wrong shares that nobody can be blamed for, and how much memory it all takes."""

from __future__ import annotations

import hashlib
import os
import tracemalloc

import numpy as np
import pytest
from rehearsal import NOW, STREAMS, Rehearsal, answer_leg, cohort_of, make_stream, run, run_to, signed_sums

from fedsecure.errors import ConfigError, LocalProtocolError, RemoteProtocolError, SecAggError
from fedsecure.secagg.machines import unmasking
from fedsecure.secagg.machines.coordinator import SecAggCoordinator
from fedsecure.secagg.machines.session import run_session
from fedsecure.secagg.machines.unmasking import check_range
from fedsecure.secagg.protocol.messages import (
    CHUNK_BYTES,
    OwnerShare,
    encrypted_shares,
    masked_chunk,
    masked_done,
    parse_encrypted_shares,
    parse_unmask_shares,
    sign,
    unmask_shares,
)
from fedsecure.secagg.v1 import secagg_pb2 as pb


@pytest.fixture
def rehearsal():
    return Rehearsal(5)


def stopped_at(rehearsal, leg):
    coordinator, nodes = rehearsal.coordinator(), rehearsal.nodes()
    run_to(coordinator, nodes, leg)
    return coordinator, nodes


def finish_without(rehearsal, coordinator, nodes, name, leg):
    """The others go on, and their sum is exact; ``name`` counts in it when its vector was complete before."""
    run(coordinator, nodes)
    sums = coordinator.outcome
    assert sums.survivors == tuple(n for n in rehearsal.names if n != name or leg > 2)
    assert signed_sums(sums) == rehearsal.plain_sum(sums.survivors)
    return sums


@pytest.mark.parametrize(
    ("leg", "code"), [(0, "SIGNATURE"), (1, "SHARE"), (2, "SIGNATURE"), (3, "SIGNATURE"), (4, "SHARE")]
)
def test_who_sends_garbage_is_out_by_name_and_the_others_go_on(rehearsal, leg, code):
    coordinator, nodes = stopped_at(rehearsal, leg)
    with pytest.raises(SecAggError, match=rf"^BAD_{code}: "):
        coordinator.receive("n02", leg, b"\xff garbage")
    assert "n02" not in coordinator.waiting
    assert coordinator.message("n02") is None
    sums = finish_without(rehearsal, coordinator, nodes, "n02", leg)
    assert sums.dropped["n02"].startswith(f"BAD_{code}: ")


@pytest.mark.parametrize(("leg", "code"), [(0, "SIGNATURE"), (1, "SHARE"), (2, "SIGNATURE"), (3, "SIGNATURE")])
def test_what_another_node_answered_is_not_ones_own_answer(rehearsal, leg, code):
    coordinator, nodes = stopped_at(rehearsal, leg)
    answer = nodes["n00"].answer(leg, coordinator.message("n00"))
    with pytest.raises(SecAggError, match=rf"^BAD_{code}: "):
        coordinator.receive("n03", leg, answer if leg != 2 else answer.done)


def test_another_nodes_unmasking_shares_do_not_fit(rehearsal):
    """They are not signed: the channel says whose they are. Under another index they are on no polynomial."""
    coordinator, nodes = stopped_at(rehearsal, 4)
    coordinator.receive("n03", 4, nodes["n00"].unmask(coordinator.message("n00")))
    for name in ("n01", "n02", "n04"):
        coordinator.receive(name, 4, nodes[name].unmask(coordinator.message(name)))
    with pytest.raises(SecAggError, match=r"^BAD_SHARE: "):
        coordinator.advance()


@pytest.mark.parametrize("leg", range(5))
def test_the_same_answer_again_changes_nothing_and_another_one_puts_out(rehearsal, leg):
    coordinator, nodes = stopped_at(rehearsal, leg)
    answer = nodes["n01"].answer(leg, coordinator.message("n01"))
    data = answer if leg != 2 else answer.done
    for _ in range(2):
        if leg == 2 and coordinator.begin_vectors("n01"):
            for chunk in answer.chunks():
                coordinator.receive_chunk("n01", chunk)
        coordinator.receive("n01", leg, data)
    assert "n01" not in coordinator.waiting
    assert coordinator.dropped == {}
    with pytest.raises(RemoteProtocolError, match="twice with different bytes"):
        coordinator.receive("n01", leg, data + b"\0")
    assert "n01" in coordinator.dropped
    run(coordinator, nodes)
    counted = coordinator.outcome.survivors
    assert ("n01" in counted) == (leg >= 2), "a complete vector stays in the sum"
    coordinator.receive("n01", leg, data)  # also after the end


def test_answers_to_a_leg_that_is_not_open(rehearsal):
    coordinator, nodes = stopped_at(rehearsal, 1)
    with pytest.raises(RemoteProtocolError, match="answered leg 3 where leg 1 is open"):
        coordinator.receive("n04", 3, b"x")
    with pytest.raises(RemoteProtocolError, match="n04 is out of this session"):
        coordinator.receive("n04", 1, b"x")
    finish_without(rehearsal, coordinator, nodes, "n04", 1)
    with pytest.raises(RemoteProtocolError, match="over"):
        coordinator.receive("n00", 4, b"x")


def test_strangers_are_not_heard(rehearsal):
    coordinator = rehearsal.coordinator()
    with pytest.raises(RemoteProtocolError, match="not invited"):
        coordinator.receive("stranger", 0, b"x")
    assert coordinator.message("stranger") is None
    coordinator.drop("stranger", "who?")
    assert coordinator.dropped == {}


def upload(coordinator, name, chunks, done):
    coordinator.begin_vectors(name)
    for chunk in chunks:
        coordinator.receive_chunk(name, chunk)
    coordinator.receive_done(name, done)


def chunks_of(coordinator, nodes, name):
    masked = nodes[name].mask(coordinator.message(name))
    return list(masked.chunks()), masked.done


@pytest.mark.parametrize("fault", ["order", "again", "session", "beyond", "after the end", "empty", "stream", "short"])
def test_chunks_come_in_order_and_not_beyond_the_end(rehearsal, fault):
    coordinator, nodes = stopped_at(rehearsal, 2)
    chunks, done = chunks_of(coordinator, nodes, "n00")
    t1, size = nodes["n00"].transcript1, STREAMS[0].spec.nbytes
    wrong = {
        "order": [chunks[1]],
        "again": [chunks[0], chunks[0]],
        "session": [masked_chunk(bytes(32), 0, 0, bytes(size))],
        "beyond": [masked_chunk(t1, 0, 0, bytes(size + 1))],
        "after the end": [*chunks, masked_chunk(t1, 3, 0, b"x")],
        "empty": [masked_chunk(t1, 0, 0, b"")],
        "stream": [masked_chunk(t1, 2**31, 0, b"x")],
        "short": [chunks[0]],
    }[fault]
    words = {
        "order": "stream 1 at byte 0 where stream 0 at byte 0 is due",
        "again": "stream 0 at byte 0 where stream 1 at byte 0 is due",
        "stream": "stream 2147483648 at byte 0 where stream 0 at byte 0 is due",
        "session": "of another session",
        "beyond": f"goes on after {size} bytes",
        "after the end": "after the last stream's end",
        "empty": "a chunk of 0 bytes",
        "short": "end in stream 1 at 0",
    }[fault]
    with pytest.raises(SecAggError, match=rf"^BAD_VECTOR: .*{words}"):
        upload(coordinator, "n00", wrong, done)
    assert coordinator._uploads == {}
    finish_without(rehearsal, coordinator, nodes, "n00", 2)


def test_a_vector_must_have_the_digest_that_its_node_signed(rehearsal):
    coordinator, nodes = stopped_at(rehearsal, 2)
    chunks, done = chunks_of(coordinator, nodes, "n00")
    coordinator.begin_vectors("n00")
    changed = bytearray(chunks[0])
    changed[-1] ^= 1
    for chunk in (bytes(changed), *chunks[1:]):
        coordinator.receive_chunk("n00", chunk)
    with pytest.raises(SecAggError, match=r"^BAD_VECTOR: .* digests that it signed"):
        coordinator.receive_done("n00", done)
    finish_without(rehearsal, coordinator, nodes, "n00", 2)


@pytest.mark.parametrize("digests", [2, 4])
def test_as_many_digests_as_streams(rehearsal, digests):
    coordinator, nodes = stopped_at(rehearsal, 2)
    payload = masked_done(nodes["n00"].transcript1, [bytes(32)] * digests)
    coordinator.begin_vectors("n00")
    with pytest.raises(SecAggError, match=rf"^BAD_VECTOR: n00 signed {digests} vectors"):
        coordinator.receive_done("n00", sign(rehearsal.identities["n00"], "masked-done", payload, signer="n00"))


def test_an_upload_that_broke_off_may_begin_again(rehearsal):
    coordinator, nodes = stopped_at(rehearsal, 2)
    chunks, done = chunks_of(coordinator, nodes, "n00")
    coordinator.begin_vectors("n00")
    coordinator.receive_chunk("n00", chunks[0])
    coordinator.abandon_vectors("n00")
    with pytest.raises(LocalProtocolError, match="before begin_vectors"):
        coordinator.receive_chunk("n00", chunks[1])
    assert coordinator.begin_vectors("n00")
    for chunk in chunks:
        coordinator.receive_chunk("n00", chunk)
    coordinator.receive_done("n00", done)
    assert not coordinator.begin_vectors("n00"), "complete"
    coordinator.receive_chunk("n00", chunks[0])
    coordinator.receive_done("n00", done)
    run(coordinator, nodes)
    assert signed_sums(coordinator.outcome) == rehearsal.plain_sum(rehearsal.names)


def test_memory_is_one_total_and_one_buffer_per_upload():
    stream = make_stream("m.update.a", 32, (4 << 20) - 1)
    rehearsal = Rehearsal(5, streams=(make_stream("m.update.a", 32, 3),))
    rehearsal.streams = (stream,)
    size = stream.spec.nbytes
    vector = np.zeros(stream.spec.length, np.uint32)
    rehearsal.vector = lambda _: {stream.spec.name: vector}
    coordinator, nodes = stopped_at(rehearsal, 2)
    tracemalloc.start()
    try:
        for name in coordinator.waiting:
            masked = nodes[name].mask(coordinator.message(name))
            coordinator.begin_vectors(name)
            for chunk in masked.chunks():
                coordinator.receive_chunk(name, chunk)
            coordinator.receive_done(name, masked.done)
            del masked, chunk
            assert coordinator._uploads == {}
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1.2 * size, "the total alone"
    assert peak < 3.2 * size + 8 * CHUNK_BYTES, "the total, one upload, and the copy that its node masked"
    run(coordinator, nodes)
    assert not coordinator.outcome.vectors[stream.spec.name].any()


def change_share(coordinator, nodes, holder, owner, by=1):
    """The answer of ``holder`` to leg 4 with its share of ``owner`` changed."""
    transcript3, items = parse_unmask_shares(nodes[holder].unmask(coordinator.message(holder)))
    value = (int.from_bytes(items[owner].value, "big") ^ by).to_bytes(33, "big")
    return unmask_shares(transcript3, items | {owner: OwnerShare(items[owner].kind, value)})


@pytest.mark.parametrize("owner", ["n01", "n03"])
def test_a_wrong_share_is_found_but_nobody_is_put_out_for_it(rehearsal, owner):
    """One holder too many makes it possible to tell; who changed the share, holder or owner, it does not."""
    coordinator, nodes = stopped_at(rehearsal, 4)
    coordinator.receive("n00", 4, change_share(coordinator, nodes, "n00", owner))
    run(coordinator, nodes)
    sums = coordinator.outcome
    assert signed_sums(sums) == rehearsal.plain_sum(rehearsal.names)
    assert sums.dropped == {}
    (finding,) = sums.findings
    assert finding == (f"the share of {owner} held by n00 does not fit the others: n00 changed it, or {owner} dealt it")


def test_a_wrong_share_of_a_private_key_is_found():
    rehearsal = Rehearsal(10)
    coordinator, nodes = rehearsal.coordinator(), rehearsal.nodes()
    run_to(coordinator, nodes, 4, {"n05": 2})
    coordinator.receive("n00", 4, change_share(coordinator, nodes, "n00", "n05"))
    run(coordinator, nodes)
    assert signed_sums(coordinator.outcome) == rehearsal.plain_sum([n for n in rehearsal.names if n != "n05"])
    assert "the share of n05 held by n00" in coordinator.outcome.findings[0]


def test_holders_of_wrong_shares_are_tried_last(monkeypatch):
    """Two of ten give nothing but wrong shares: found out at the first owner, passed over at the others."""
    rehearsal, given = Rehearsal(10), []
    coordinator, nodes = rehearsal.coordinator(), rehearsal.nodes()
    run_to(coordinator, nodes, 4)
    for name in ("n00", "n01"):
        transcript3, items = parse_unmask_shares(nodes[name].unmask(coordinator.message(name)))
        wrong = {owner: OwnerShare(share.kind, bytes(33)) for owner, share in items.items()}
        coordinator.receive(name, 4, unmask_shares(transcript3, wrong))
    recover = unmasking.recover_secret
    monkeypatch.setattr(
        unmasking, "recover_secret", lambda shares, *a: given.append(len(shares)) or recover(shares, *a)
    )
    run(coordinator, nodes)
    assert signed_sums(coordinator.outcome) == rehearsal.plain_sum(rehearsal.names)
    assert given == [10] + 9 * [8]
    assert [finding[:31] for finding in coordinator.outcome.findings] == [
        "the share of n00 held by n00 do",
        "the share of n00 held by n01 do",
    ]


def test_an_owner_whose_sound_shares_are_too_few_is_rebuilt_from_all():
    """n00 dealt n01 a wrong share; when n04 then gives a wrong one of n02, that of n01 is needed and right."""
    rehearsal = Rehearsal(5)
    coordinator, nodes = rehearsal.coordinator(), rehearsal.nodes()
    run_to(coordinator, nodes, 4)
    coordinator.receive("n01", 4, change_share(coordinator, nodes, "n01", "n00"))
    coordinator.receive("n04", 4, change_share(coordinator, nodes, "n04", "n02"))
    run(coordinator, nodes)
    assert signed_sums(coordinator.outcome) == rehearsal.plain_sum(rehearsal.names)
    assert len(coordinator.outcome.findings) == 2


def test_too_many_wrong_shares_end_the_session_and_blame_nobody(rehearsal):
    coordinator, nodes = stopped_at(rehearsal, 4)
    for name, by in (("n00", 1), ("n01", 2)):  # by as much, they would make up for one another in 1, 2, 4 and 5
        coordinator.receive(name, 4, change_share(coordinator, nodes, name, "n03", by))
    run(coordinator, nodes)
    assert str(coordinator.failure).startswith("BAD_SHARE: 5 shares of n03")
    assert coordinator.dropped == {}
    with pytest.raises(LocalProtocolError, match="over"):
        coordinator.advance()


def test_shares_that_do_not_open_end_the_receivers_session_and_name_the_sender(rehearsal):
    """The coordinator cannot see it; the receiver names the sender, but the coordinator may have changed them."""
    coordinator, nodes = stopped_at(rehearsal, 1)
    transcript1, sealed = parse_encrypted_shares(nodes["n04"].share(coordinator.message("n04")))
    coordinator.receive("n04", 1, encrypted_shares(transcript1, sealed | {"n00": bytes(83)}))
    answer_leg(coordinator, nodes, {})
    coordinator.advance()
    with pytest.raises(SecAggError, match=r"^BAD_SHARE: the sealed shares from n04 to n00") as caught:
        nodes["n00"].mask(coordinator.message("n00"))
    coordinator.drop("n00", str(caught.value))
    finish_without(rehearsal, coordinator, nodes, "n00", 2)


@pytest.mark.parametrize("fault", ["missing", "session"])
def test_sealed_shares_are_for_exactly_the_others(rehearsal, fault):
    coordinator, nodes = stopped_at(rehearsal, 1)
    transcript1, sealed = parse_encrypted_shares(nodes["n04"].share(coordinator.message("n04")))
    if fault == "missing":
        del sealed["n00"]
    else:
        transcript1 = bytes(32)
    with pytest.raises(SecAggError, match=r"^BAD_(SHARE|TRANSCRIPT): "):
        coordinator.receive("n04", 1, encrypted_shares(transcript1, sealed))
    finish_without(rehearsal, coordinator, nodes, "n04", 1)


@pytest.mark.parametrize("fault", ["kind", "owner", "sum"])
def test_unmasking_shares_are_those_that_are_due(rehearsal, fault):
    coordinator, nodes = stopped_at(rehearsal, 4)
    transcript3, items = parse_unmask_shares(nodes["n04"].unmask(coordinator.message("n04")))
    if fault == "kind":
        items["n01"] = OwnerShare("mask_sk", items["n01"].value)
    elif fault == "owner":
        del items["n01"]
    else:
        transcript3 = bytes(32)
    with pytest.raises(SecAggError, match=r"^BAD_(SHARE|TRANSCRIPT): "):
        coordinator.receive("n04", 4, unmask_shares(transcript3, items))
    finish_without(rehearsal, coordinator, nodes, "n04", 4)


@pytest.mark.parametrize("ring_bits", [32, 64])
@pytest.mark.parametrize("place", ["value", "clipped"])
def test_a_sum_that_nobody_can_have_contributed_to_is_none(ring_bits, place):
    stream = make_stream("m.update.a", ring_bits, 3)
    rehearsal = Rehearsal(4, streams=(stream,))
    vector = rehearsal.vector("n02")
    vector[stream.spec.name][0 if place == "value" else -1] = 2 ** (ring_bits - 1) - 5
    coordinator, nodes = rehearsal.coordinator(), rehearsal.nodes()
    nodes["n02"] = type(nodes["n02"])(
        rehearsal.due("n02"), rehearsal.identities["n02"], vector, rehearsal.memories["n02"], now_ms=lambda: NOW
    )
    with pytest.raises(SecAggError, match=r"^BAD_SUM: stream m\.update\.a"):
        run_session(coordinator, nodes)
    with pytest.raises(SecAggError, match=r"^BAD_SUM: "):
        _ = coordinator.outcome


def test_the_most_that_all_can_give_is_a_sum():
    spec = make_stream("m.update.a", 32, 1).spec
    top = np.array([spec.limit(5), 5 * spec.clipped_limit(5)], np.uint32)
    check_range(spec, top, contributors=5, nodes=5)
    with pytest.raises(SecAggError, match=r"^BAD_SUM: "):
        check_range(spec, top, contributors=4, nodes=5)


def test_the_digests_of_the_sums_are_of_what_is_handed_out(rehearsal):
    coordinator = rehearsal.coordinator()
    sums = run_session(coordinator, rehearsal.nodes())
    assert list(sums.vectors) == [s.spec.name for s in STREAMS]
    assert sums.sum_sha256 == tuple(hashlib.sha256(v.tobytes()).digest() for v in sums.vectors.values())


def test_a_session_in_one_process_goes_on_without_those_who_fail(rehearsal):
    coordinator, nodes = rehearsal.coordinator(), rehearsal.nodes()
    nodes["n03"].wipe()
    sums = run_session(coordinator, nodes)
    assert sums.survivors == ("n00", "n01", "n02", "n04")
    assert sums.dropped["n03"].startswith("BAD_TRANSCRIPT: ")


def test_a_session_in_one_process_that_fails_leaves_no_secrets(rehearsal):
    nodes = rehearsal.nodes()
    for name in ("n03", "n04"):
        del nodes[name]
    with pytest.raises(
        SecAggError, match=r"^TOO_FEW_NODES: 3 nodes advertise keys where 4 are needed \(n03: is not there"
    ):
        run_session(rehearsal.coordinator(), nodes)
    assert {node.state.name for node in nodes.values()} == {"ABORTED"}


@pytest.mark.parametrize(("leg", "words"), [(0, "1 node advertises keys"), (2, "1 node sends its masked vectors")])
def test_one_node_alone_is_spoken_of_as_one(rehearsal, leg, words):
    coordinator, nodes = rehearsal.coordinator(), rehearsal.nodes()
    while coordinator.leg < leg:
        answer_leg(coordinator, nodes, {})
        coordinator.advance()
    answer_leg(coordinator, nodes, dict.fromkeys(rehearsal.names[1:], leg))
    with pytest.raises(SecAggError, match=f"^TOO_FEW_NODES: {words} where 4 are needed"):
        coordinator.advance()


def test_the_list_of_one_node_is_spoken_of_as_one(rehearsal):
    """At the node, which refuses it."""
    coordinator, nodes = rehearsal.coordinator(), rehearsal.nodes()
    answer_leg(coordinator, nodes, {})
    coordinator.advance()
    alone = pb.KeyList.FromString(coordinator.message("n00"))
    del alone.advertise[1:]
    with pytest.raises(SecAggError, match="^TOO_FEW_NODES: 1 node advertised keys where 4 are needed"):
        nodes["n00"].share(alone.SerializeToString())


def test_before_the_end_there_is_no_outcome(rehearsal):
    coordinator = rehearsal.coordinator()
    with pytest.raises(LocalProtocolError, match="leg 0"):
        _ = coordinator.outcome
    assert (coordinator.done, coordinator.failure, coordinator.survivors) == (False, None, ())


@pytest.mark.parametrize("fault", ["cohort", "streams", "stranger", "twice"])
def test_what_a_session_begins_with_belongs_together(rehearsal, fault):
    config, streams, invited = rehearsal.config(), rehearsal.streams, list(rehearsal.names)
    if fault == "cohort":
        config = rehearsal.config(cohort_digest=os.urandom(32))
    elif fault == "streams":
        streams = streams[:1]
    elif fault == "stranger":
        invited[0] = "stranger"
    else:
        invited[0] = invited[1]
    with pytest.raises(ConfigError):
        SecAggCoordinator(config, rehearsal.manifest, streams, invited)


def test_too_few_invited_are_no_session(rehearsal):
    manifest, _ = cohort_of(5)
    with pytest.raises(SecAggError, match=r"^TOO_FEW_NODES: 3 nodes invited where 4"):
        SecAggCoordinator(rehearsal.config(), manifest, rehearsal.streams, rehearsal.names[:3])
