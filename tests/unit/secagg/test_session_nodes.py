"""A node's machine: one way through, each refusal named and final, secrets overwritten wherever it ends."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from rehearsal import NOW, STREAMS, Rehearsal, answer_leg, make_stream, run, run_to

from fedsecure.crypto.keystream import Prg
from fedsecure.crypto.signatures import ephemeral_identity
from fedsecure.errors import LocalProtocolError, SecAggError, StoreError
from fedsecure.secagg.machines.node import NodeState
from fedsecure.secagg.protocol.messages import (
    abort_bytes,
    code_of,
    consistency_set,
    inbox,
    key_list,
    parse_abort,
    survivors,
)
from fedsecure.secagg.v1 import secagg_pb2 as pb

ORDER = (NodeState.IDLE, NodeState.ADVERTISED, NodeState.SHARED, NodeState.UPLOADED, NodeState.CONFIRMED)


@pytest.fixture
def rehearsal():
    return Rehearsal(4)


def session_of(rehearsal, leg):
    """A coordinator in ``leg`` and the nodes that wait for its messages."""
    coordinator, nodes = rehearsal.coordinator(), rehearsal.nodes()
    run_to(coordinator, nodes, leg)
    return coordinator, nodes


def refusal(node, leg, message):
    with pytest.raises(SecAggError) as caught:
        node.answer(leg, message)
    return code_of(caught.value).name


@pytest.mark.parametrize(("state", "asked"), [(s, a) for s in range(5) for a in range(5) if s != a])
def test_any_other_leg_than_the_next_ends_the_session(rehearsal, state, asked):
    name = rehearsal.names[0]
    full = messages_of(rehearsal)
    rehearsal.round += 1
    coordinator, nodes = session_of(rehearsal, state)
    assert nodes[name].state is ORDER[state]
    assert refusal(nodes[name], asked, full[asked]) == "BAD_TRANSCRIPT"
    assert nodes[name].state is NodeState.ABORTED
    due = coordinator.message(name)
    assert refusal(nodes[name], state, due) == "BAD_TRANSCRIPT"


def messages_of(rehearsal):
    """What one node is sent in a whole session, by leg."""
    coordinator, nodes, found = rehearsal.coordinator(), rehearsal.nodes(), []
    while not coordinator.done:
        found.append(coordinator.message(rehearsal.names[0]))
        answer_leg(coordinator, nodes, {})
        coordinator.advance()
    return found


@pytest.mark.parametrize("leg", range(5))
def test_a_released_session_answers_nothing_more(rehearsal, leg):
    coordinator, nodes = rehearsal.coordinator(), rehearsal.nodes()
    messages = []
    while not coordinator.done:
        messages.append(coordinator.message("n00"))
        answer_leg(coordinator, nodes, {})
        coordinator.advance()
    assert refusal(nodes["n00"], leg, messages[leg]) == "ALREADY_RELEASED"
    assert nodes["n00"].state is NodeState.RELEASED


@pytest.mark.parametrize("leg", [-1, 5, 99])
def test_there_is_no_other_leg(rehearsal, leg):
    node = rehearsal.node("n00")
    assert refusal(node, leg, b"") == "BAD_TRANSCRIPT"
    assert node.state is NodeState.ABORTED


@pytest.mark.parametrize("leg", range(5))
def test_after_the_deadline_nothing_is_answered(rehearsal, leg):
    coordinator, nodes = session_of(rehearsal, leg)
    rehearsal.now = NOW + 60_000
    message = coordinator.message("n01")
    assert refusal(nodes["n01"], leg, message) == "DEADLINE"
    assert nodes["n01"].state is NodeState.ABORTED


@pytest.mark.parametrize("leg", range(1, 5))
@pytest.mark.parametrize("end", ["deadline", "wipe", "refusal"])
def test_secrets_are_overwritten_at_every_end(rehearsal, leg, end):
    _, nodes = session_of(rehearsal, leg)
    node = nodes["n02"]
    secrets = buffers(node)
    assert any(any(buffer) for buffer in secrets)
    if end == "deadline":
        assert not node.expire()
        rehearsal.now = NOW + 60_000
        assert node.expire()
    elif end == "wipe":
        node.wipe()
    else:
        refusal(node, leg, b"\xff")
    assert node.state is NodeState.ABORTED
    assert not any(any(buffer) for buffer in secrets)


def buffers(node):
    """Every buffer of ``node`` that holds a secret."""
    keys = node._keys
    held = [share for pair in keys._held.values() for share in pair]
    return [keys._seed, keys._share._secret, keys._mask._secret, *held]


def test_secrets_are_overwritten_when_the_sum_is_released(rehearsal):
    coordinator, nodes = session_of(rehearsal, 2)
    own = {name: buffers(node)[:3] for name, node in nodes.items()}
    answer_leg(coordinator, nodes, {})
    assert not any(any(buffer) for secrets in own.values() for buffer in secrets), "masked: own keys are done with"
    coordinator.advance()
    held = {name: buffers(node)[3:] for name, node in nodes.items()}
    assert all(any(buffer) for shares in held.values() for buffer in shares)
    run(coordinator, nodes)
    assert not any(any(buffer) for shares in held.values() for buffer in shares)
    assert {node.state for node in nodes.values()} == {NodeState.RELEASED}


def test_vectors_are_left_as_they_are(rehearsal):
    vectors = rehearsal.vector("n00")
    before = {name: vector.copy() for name, vector in vectors.items()}
    coordinator, nodes = rehearsal.coordinator(), rehearsal.nodes()
    nodes["n00"] = type(nodes["n00"])(
        rehearsal.due("n00"), rehearsal.identities["n00"], vectors, rehearsal.memories["n00"], now_ms=lambda: NOW
    )
    run(coordinator, nodes)
    assert coordinator.outcome.survivors == rehearsal.names
    assert all(np.array_equal(vectors[name], before[name]) for name in vectors)


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("experiment", "ab" * 32, "BAD_CONFIG"),
        ("round", 7, "BAD_CONFIG"),
        ("purpose", "other", "BAD_CONFIG"),
        ("cohort_digest", b"c" * 32, "BAD_COHORT"),
        ("state_digest", b"m" * 32, "BAD_CONFIG"),
        ("prev_result", b"r" * 32, "BAD_CONFIG"),
        ("threshold", 4, "BAD_CONFIG"),
        ("min_survivors", 5, "BAD_CONFIG"),
        ("prg", Prg.CHACHA20, "BAD_CONFIG"),
        ("streams", (STREAMS[0].spec,), "BAD_CONFIG"),
        ("streams", (make_stream("m.update.a", 32, 7).spec, *(s.spec for s in STREAMS[1:])), "BAD_CONFIG"),
        ("dp_digest", b"d" * 32, "BAD_CONFIG"),
        ("deadline_ms", NOW, "DEADLINE"),
        ("deadline_ms", NOW + 8 * 86_400_000, "BAD_CONFIG"),
    ],
)
def test_a_configuration_is_held_to_what_is_due(rehearsal, field, value, code):
    changes = {field: value} | ({"min_survivors": 4} if field == "threshold" else {})
    node = rehearsal.node("n00", due=rehearsal.due("n00", prgs=(Prg.AES_256_CTR,)))
    with pytest.raises(SecAggError) as caught:
        node.advertise(rehearsal.config(**changes).to_bytes())
    assert code_of(caught.value).name == code
    if code == "BAD_CONFIG":
        assert field in str(caught.value) or "stream" in str(caught.value)
    assert rehearsal.memories["n00"]._highest == {}, "nothing was begun"


@pytest.mark.parametrize("leg", range(5))
def test_below_a_higher_floor_of_survivors_nobody_goes_on(rehearsal, leg):
    """Until the vectors are there, fewer than ``min_survivors`` end it at once; after that t are enough."""
    coordinator = rehearsal.coordinator(rehearsal.config(min_survivors=4))
    run(coordinator, rehearsal.nodes(), {"n03": leg})
    assert coordinator.leg == (leg if leg < 3 else 4)
    assert (coordinator.failure is None) == (leg > 2)


def test_a_higher_floor_of_survivors_is_kept(rehearsal):
    coordinator = rehearsal.coordinator(rehearsal.config(min_survivors=4))
    nodes = rehearsal.nodes()
    run(coordinator, nodes, {"n03": 2})
    assert str(coordinator.failure).startswith("TOO_FEW_NODES: 3 nodes")
    again = rehearsal.nodes()
    coordinator = rehearsal.coordinator(rehearsal.config(min_survivors=4))
    run_to(coordinator, again, 3)
    vectors = {k: v for k, v in coordinator._answers.vectors.items() if k != "n03"}
    assert refusal(again["n00"], 3, survivors(vectors)) == "TOO_FEW_NODES"


def test_an_unsigned_manifest_is_no_cohort(rehearsal):
    bare = rehearsal.manifest.model_copy(update={"signatures": {}})
    node = rehearsal.node("n00", due=rehearsal.due("n00", manifest=bare))
    assert refusal(node, 0, rehearsal.config().to_bytes()) == "BAD_COHORT"


def test_a_list_of_keys_without_ones_own_is_refused(rehearsal):
    coordinator, nodes = session_of(rehearsal, 1)
    signed = pb.KeyList.FromString(coordinator.message("n00")).advertise
    others = [s.SerializeToString() for s in signed if s.signer != "n00"]
    assert refusal(nodes["n00"], 1, key_list(others)) == "BAD_TRANSCRIPT"


def test_a_list_of_keys_below_the_threshold_is_refused(rehearsal):
    coordinator, nodes = session_of(rehearsal, 1)
    signed = pb.KeyList.FromString(coordinator.message("n00")).advertise
    assert refusal(nodes["n00"], 1, key_list(s.SerializeToString() for s in signed[:2])) == "TOO_FEW_NODES"


def test_an_inbox_must_be_that_of_its_list(rehearsal):
    coordinator, nodes = session_of(rehearsal, 2)
    sealed = coordinator._answers.sealed_for("n00")
    assert refusal(nodes["n00"], 2, inbox(sealed, rehearsal.names[:3])) == "BAD_TRANSCRIPT"
    assert refusal(nodes["n01"], 2, inbox(sealed, ("n00", "n02", "n03"))) == "BAD_TRANSCRIPT"
    del sealed["n03"]
    swapped = dict(zip(("n00", "n02"), sealed.values(), strict=True))
    with pytest.raises(SecAggError, match=r"^BAD_SHARE: ") as caught:
        nodes["n03"].mask(inbox(swapped, ("n00", "n02", "n03")))
    assert parse_abort(abort_bytes(caught.value)).peer in swapped


def test_an_inbox_below_the_threshold_is_refused(rehearsal):
    coordinator, nodes = session_of(rehearsal, 2)
    sealed = {"n01": coordinator._answers.sealed_for("n00")["n01"]}
    assert refusal(nodes["n00"], 2, inbox(sealed, ("n00", "n01"))) == "TOO_FEW_NODES"


def test_ones_own_vector_must_be_the_one_that_was_sent(rehearsal):
    coordinator, nodes = session_of(rehearsal, 3)
    vectors = coordinator._answers.vectors | {"n00": bytes(32)}
    assert refusal(nodes["n00"], 3, survivors(vectors)) == "BAD_VECTOR"


def test_confirmations_must_be_enough_and_by_different_survivors(rehearsal):
    coordinator, nodes = session_of(rehearsal, 4)
    signed = coordinator._answers.confirmations(rehearsal.names)
    assert refusal(nodes["n00"], 4, consistency_set(signed[:2])) == "TOO_FEW_NODES"
    assert refusal(nodes["n01"], 4, consistency_set([*signed[:2], signed[0]])) == "BAD_TRANSCRIPT"
    forged = pb.Signed.FromString(signed[3])
    forged.signer = "n02"
    assert refusal(nodes["n02"], 4, consistency_set([*signed[:2], forged.SerializeToString()])) == "BAD_SIGNATURE"


def test_nothing_leaves_when_the_memory_cannot_be_written(rehearsal):
    class Full:
        def begin(self, *triple):
            pass

        def release(self, *triple):
            raise StoreError("node.sqlite: the disk is full")

        def released(self, *triple):
            return None

        def survivors(self, *model):
            return None

    rehearsal.memories["n00"] = Full()
    coordinator, nodes = session_of(rehearsal, 4)
    secrets = buffers(nodes["n00"])
    with pytest.raises(StoreError):
        nodes["n00"].unmask(coordinator.message("n00"))
    assert nodes["n00"].state is NodeState.ABORTED
    assert not any(any(buffer) for buffer in secrets)


def test_what_is_released_is_remembered_before_the_answer(rehearsal):
    coordinator, nodes = session_of(rehearsal, 4)
    nodes["n00"].unmask(coordinator.message("n00"))
    memory = rehearsal.memories["n00"]
    assert memory.released(coordinator.config.experiment, "update", 0) == nodes["n00"].transcript3


@pytest.mark.parametrize("fault", ["stream", "shape", "dtype", "identity", "stranger"])
def test_a_node_is_made_of_what_belongs_together(rehearsal, fault):
    vectors, identity, due = rehearsal.vector("n00"), rehearsal.identities["n00"], rehearsal.due("n00")
    if fault == "stream":
        del vectors["m.update.a"]
    elif fault == "shape":
        vectors["m.update.a"] = vectors["m.update.a"][1:]
    elif fault == "dtype":
        vectors["m.update.a"] = vectors["m.update.a"].astype(np.int32)
    elif fault == "identity":
        identity = ephemeral_identity()
    else:
        due = rehearsal.due("stranger")
    with pytest.raises(LocalProtocolError):
        type(rehearsal.node("n00"))(due, identity, vectors, rehearsal.memories["n00"], now_ms=lambda: NOW)


def test_nothing_secret_shows(rehearsal):
    _, nodes = session_of(rehearsal, 3)
    shown = repr(nodes["n00"]) + repr(nodes["n00"]._keys)
    assert shown == "SecAggNode(n00, update of round 1, uploaded)NodeKeys(n00)"
    with pytest.raises(TypeError, match="do not leave"):
        pickle.dumps(nodes["n00"]._keys)


def test_an_abort_names_code_and_transcript_and_nothing_else(rehearsal):
    _, nodes = session_of(rehearsal, 3)
    node = nodes["n00"]
    with pytest.raises(SecAggError) as caught:
        node.confirm(b"\xff")
    abort = parse_abort(abort_bytes(caught.value, node.transcript))
    assert (abort.code.name, abort.transcript) == ("BAD_TRANSCRIPT", node.transcript1)
    assert abort.detail == "a message does not fit what went before; the node may have started again"
