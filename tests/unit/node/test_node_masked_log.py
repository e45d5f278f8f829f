"""Masked sums in the log: which record may follow which, what it says, and what leaves without a record (nothing)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from fedsecure.crypto.signatures import ephemeral_identity
from fedsecure.errors import ConfigError, LocalProtocolError, PolicyError
from fedsecure.secagg.cohort.manifest import CohortManifest
from fedsecure.secagg.values.masked import masked_streams
from fedsecure.tensors import Tensors
from fedsecure.wire.codec import encode_contribution
from fedsecure.wire.v1 import coordinator_pb2 as pb
from fedsecure_node.cli.releases import release_line
from fedsecure_node.egress import ClearedVectors
from fedsecure_node.log.absences import absence_lines, missed
from fedsecure_node.log.decisions import note
from fedsecure_node.log.maskedrounds import masked_rounds
from fedsecure_node.log.masks import MaskedSum, kept_digest, leaving, leaving_bytes
from fedsecure_node.log.releases import find_release, fold

HEADER = pb.MaskedHeader(node_id="hospital-a", plan_digest="p", config_digest="c")
T1, T3 = b"1" * 32, b"3" * 32
NAMES = ("hospital-a", "hospital-b", "hospital-c", "hospital-d")


class Vectors:
    """Masked vectors of one stream or more, as the gate sees them."""

    def __init__(self, masks: MaskedSum) -> None:
        self.stream_sha256 = tuple(hashlib.sha256(s.spec.name.encode()).digest() for s in masks.streams)
        self.done = b"done"

    def chunks(self) -> Iterator[bytes]:
        return iter(())


@pytest.fixture
def masks(node):
    keys = {name: ephemeral_identity().public_bytes for name in NAMES}
    manifest = CohortManifest.form("heart-study", "hospitals", 3, keys)
    schema = node.method.schema("statistics")
    return MaskedSum(manifest, masked_streams(schema, method="fedaf", exchange="statistics", nodes=4), "fedaf", 3)


@pytest.fixture
def logged(node, masks):
    """logged(round): a release of a round's statistics under masks, and its payload as computed."""

    def make(round_=0, *, hold=False):
        gate, key = node.gate_with(hold=hold), node.key("statistics", round_)
        payload = encode_contribution(node.contribution("statistics", round_))
        contribution = gate.check(node.plan, node.method, key, payload, node.data.counts(), node.current().policy)
        done = node.store.runs.finish(key, broadcast="b" * 64, payload=payload, before="", local=Tensors(), now_ms=3)
        made = gate.log(
            node.plan, node.method, done, payload, contribution, node.current(), node.destination, masks=masks
        )
        return fold(node.log.records())[made.number], payload

    return make


class Uplink:
    def __init__(self):
        self.sent = []

    def upload(self, cleared):
        self.sent.append(cleared.payload.data)


def acknowledged(node, logged, masks, round_=0):
    release, payload = logged(round_)
    uplink = Uplink()
    node.gate.send(node.gate.find(release.key), leaving(payload, masks), uplink)
    return node.gate.find(release.key), uplink.sent[0]


def test_the_record_speaks_of_what_leaves_and_hides_the_summed_half(node, logged, masks):
    release, payload = logged()
    empty = Tensors().to_bytes()
    body = release.body
    assert body["payload"] == {
        "sha256": hashlib.sha256(empty + empty).hexdigest(), "bytes": 2 * len(empty),
        "summed_bytes": len(empty), "released_bytes": len(empty),
    }  # fmt: skip
    assert body["secagg"]["summed"]["sha256"] == hashlib.sha256(payload.summed).hexdigest()
    assert kept_digest(body) == payload.digest()
    assert release.masked_bytes == sum(s.spec.nbytes for s in masks.streams)
    assert release.total_bytes == leaving_bytes(payload, masks) == 2 * len(empty) + release.masked_bytes
    assert leaving_bytes(payload, None) == len(payload.data)
    assert body["secagg"]["cohort"]["threshold"] == 3
    assert all("inside a masked sum of at least 3 of 4 nodes alone" in line for line in body["learns"])
    assert {row["half"] for row in body["tensors"]} == {"summed"}, "what was computed is described as ever"
    for digest in (release.payload, payload.digest()):
        data = node.store.runs.payload_path(digest).read_bytes()
        assert hashlib.sha256(data).hexdigest() == digest


def test_the_record_names_the_fewest_nodes_of_the_plan(node, logged, masks):
    _, payload = logged()
    body = replace(masks, min_nodes=4).to_json(payload)
    assert (body["cohort"]["threshold"], body["least"]) == (3, 4)
    assert "at least 4 of 4" in body["learns"][0]
    assert replace(masks, min_nodes=4).words == "a masked sum of at least 4 of 4 nodes"
    assert (masks.to_json(payload)["least"], masks.words) == (3, "a masked sum of at least 3 of 4 nodes")


def test_only_the_released_half_is_sent(node, logged, masks):
    release, sent = acknowledged(node, logged, masks)
    assert sent == Tensors().to_bytes() * 2
    assert release.state == "acknowledged"
    assert "but for its summed half, which waits to leave under masks" in release.words()


def test_the_masked_half_of_a_release_without_a_receipt_never_left(node, logged, masks):
    release, _ = logged()
    note(node.log, release.number, "sending")
    assert (
        node.gate.find(release.key)
        .words()
        .endswith("no receipt yet; its summed half has not left: that takes the receipt")
    )
    node.gate.close(node.gate.find(release.key), "the run is over")
    lapsed = node.gate.find(release.key)
    assert lapsed.state == "lapsed"
    assert lapsed.words().endswith("without a receipt; its summed half never left: that takes the receipt")
    with pytest.raises(LocalProtocolError, match="cannot be masked now"):
        node.gate.mask(lapsed, HEADER, Vectors(masks), T1)


def test_a_masked_release_is_named_by_what_it_holds(node, logged):
    """What is sent of it at once is the same for all that release nothing."""
    (first, payload), (second, other) = logged(), logged(1)
    assert first.payload == second.payload
    assert (first.named, second.named) == (payload.digest(), other.digest())
    releases = fold(node.log.records())
    assert find_release(releases, first.named[:12]) == releases[first.number]
    with pytest.raises(ConfigError, match="2 releases have a SHA-256 that starts with"):
        find_release(releases, first.payload[:12])
    note(node.log, first.number, "sending")
    node.gate.close(node.gate.find(first.key), "the run is over")
    lapsed, ready = (release_line(release) for release in fold(node.log.records()).values())
    assert lapsed.endswith(f", {first.named[:12]}")
    assert "under masks" not in lapsed
    assert ready.endswith(f", {second.named[:12]}")
    assert f"bytes and {second.masked_bytes} under masks" in ready


def test_masked_then_unmasked_and_never_back(node, logged, masks):
    release, _ = acknowledged(node, logged, masks)
    with pytest.raises(LocalProtocolError, match="cannot be unmasked now"):
        node.gate.unmask(release, transcript3=T3, survivors=NAMES)
    for _ in range(2):  # a session that failed is followed by another
        cleared = node.gate.mask(release, HEADER, Vectors(masks), T1)
        assert (cleared.number, cleared.header) == (release.number, HEADER)
    node.gate.unmask(release, transcript3=T3, survivors=NAMES[:3])
    assert node.gate.find(release.key).state == "unmasked"
    with pytest.raises(LocalProtocolError, match="cannot be masked now"):
        node.gate.mask(release, HEADER, Vectors(masks), T1)
    with pytest.raises(LocalProtocolError, match="cannot be unmasked now"):
        node.gate.unmask(release, transcript3=T3, survivors=NAMES[:3])
    *_, masked, unmasked = node.log.records()
    assert masked.body["transcript1"] == T1.hex()
    assert [s["name"] for s in masked.body["streams"]] == [s.spec.name for s in masks.streams]
    assert unmasked.body == {"release": release.number, "transcript3": T3.hex(), "survivors": list(NAMES[:3])}


@pytest.mark.parametrize("hold", [False, True])
def test_nothing_is_masked_before_the_rest_was_acknowledged(node, logged, masks, hold):
    release, _ = logged(hold=hold)
    with pytest.raises(LocalProtocolError, match="cannot be masked now"):
        node.gate.mask(release, HEADER, Vectors(masks), T1)


def test_a_plain_release_has_nothing_to_mask(node, make_release, masks):
    release, payload = make_release("statistics")
    node.gate.send(release, payload, Uplink())
    with pytest.raises(LocalProtocolError, match="cannot be masked now"):
        note(node.log, release.number, "masked", {})
    assert "secagg" not in release.body
    assert kept_digest(release.body) == release.payload
    assert not release.is_masked


def test_cleared_vectors_come_from_the_gate_alone(masks):
    with pytest.raises(TypeError, match="from the gate alone"):
        ClearedVectors(1, HEADER, Vectors(masks))


@pytest.mark.parametrize("sessions", [0, 1, 2])
def test_the_masked_vectors_count_towards_what_a_run_may_release(node, logged, masks, monkeypatch, sessions):
    """Those of every session; before the first, those of the one that is to come."""
    release, _ = acknowledged(node, logged, masks) if sessions else logged()
    for number in range(sessions):
        node.gate.mask(node.gate.find(release.key), HEADER, Vectors(masks), bytes([number]) * 32)
    vectors = release.masked_bytes
    sent = 2 * len(Tensors().to_bytes()) + max(sessions, 1) * vectors
    again = encode_contribution(node.contribution("statistics", 1))
    monkeypatch.setattr(type(node.current().policy), "violations", lambda self, plan: [])  # refused before otherwise
    for most, fits in ((sent + 2 * len(Tensors().to_bytes()) + vectors, True), (sent + vectors, False)):
        check = limited(node, "max_bytes_per_run", most)
        if fits:
            check(again, masks)
        else:
            with pytest.raises(PolicyError, match=f"release.max_bytes_per_run: {sent} bytes left before"):
                check(again, masks)


def test_the_masked_vectors_are_the_size_of_a_release(node, masks, monkeypatch):
    monkeypatch.setattr(type(node.current().policy), "violations", lambda self, plan: [])
    payload = encode_contribution(node.contribution("statistics", 1))
    assert leaving_bytes(payload, masks) != leaving_bytes(payload, None) == len(payload.data)
    for each in (masks, None):
        size = leaving_bytes(payload, each)
        limited(node, "max_bytes", size)(payload, each)
        with pytest.raises(PolicyError, match=f"release.max_bytes: this release has {size} bytes"):
            limited(node, "max_bytes", size - 1)(payload, each)


def limited(node, name, most):
    """The gate's check of a contribution to the second round, under a policy with this limit."""
    policy = node.current().policy
    changed = policy.model_copy(update={"release": policy.release.model_copy(update={name: most})})
    about = (node.plan, node.method, node.key("statistics", 1))
    return lambda payload, masks: node.gate.check(*about, payload, node.data.counts(), changed, masks=masks)


def test_a_new_process_knows_the_same(node, logged, masks, reopened):
    release, _ = acknowledged(node, logged, masks)
    node.gate.mask(release, HEADER, Vectors(masks), T1)
    node.gate.unmask(release, transcript3=T3, survivors=NAMES[:3])
    brief = reopened().releases()[release.number]
    assert (brief.state, brief.is_masked) == ("unmasked", True)
    assert [e.kind for e in brief.events] == ["masked", "unmasked"], "what the daemon counts absences by"
    assert json.dumps(fold(reopened().records())[release.number].to_json())


def sums(node, logged, masks, *survivors):
    for round_, there in enumerate(survivors):
        release, _ = acknowledged(node, logged, masks, round_)
        node.gate.mask(release, HEADER, Vectors(masks), T1)
        node.gate.unmask(release, transcript3=T3, survivors=there)
    return masked_rounds(fold(node.log.records()).values())


def test_who_was_missing_and_rounds_that_differ_by_one(node, logged, masks):
    rounds = sums(node, logged, masks, NAMES, NAMES[:3])
    assert [str(r) for r in rounds] == ["toy, round 1 statistics", "toy, round 2 statistics"]
    assert missed(rounds) == {"hospital-d": 1}
    assert absence_lines(rounds) == [
        "node hospital-d: missing from 1 sum of 2 that this node is inside",
        "warning: 1 pair of successive rounds differ by node hospital-d alone: where values change little from round "
        "to round, the difference of two sums is about what hospital-d sent",
    ]
    assert masked_rounds(fold(node.log.records()).values(), cohort="another") == []


def test_nobody_missing_and_nothing_to_warn_of(node, logged, masks):
    assert absence_lines(sums(node, logged, masks, NAMES, NAMES)) == []


def test_the_same_absence_twice_tells_nothing_apart(node, logged, masks):
    lines = absence_lines(sums(node, logged, masks, NAMES[:3], NAMES[:3]))
    assert lines == ["node hospital-d: missing from 2 sums of 2 that this node is inside"]
