"""Which sum a coordinator must announce with an exchange, and what does not fit it."""

from __future__ import annotations

from functools import partial

import pytest

from fedsecure.crypto.signatures import ephemeral_identity
from fedsecure.errors import PolicyError, RemoteProtocolError, SecAggError
from fedsecure.plan import Cohort
from fedsecure.policy import Policy
from fedsecure.secagg.cohort.manifest import CohortManifest
from fedsecure.secagg.protocol.results import SessionResult, result_digest
from fedsecure.secagg.values.masked import masked_streams
from fedsecure.tensors import Tensors
from fedsecure.wire.codec import Payload, encode_contribution
from fedsecure.wire.v1 import coordinator_pb2 as pb
from fedsecure_node.keys import ExchangeKey
from fedsecure_node.log.masks import MaskedSum
from fedsecure_node.masking.announced import check_announced_sum, last_masked
from fedsecure_node.masking.prepared import prepare
from fedsecure_node.masking.terms import MaskTerms
from fedsecure_node.store.sessionbook import Asked

NAMES = ("hospital-a", "hospital-b", "hospital-c")
T3 = bytes([7]) * 32
BROADCAST = "ab" * 32


class Trusted:
    def __init__(self, manifest):
        self.manifest = manifest

    def for_nodes(self, nodes):
        return self.manifest


@pytest.fixture
def manifest():
    return CohortManifest.form("heart-study", "hospitals", 1, {n: ephemeral_identity().public_bytes for n in NAMES})


@pytest.fixture
def check(node, manifest):
    def run(exchange, round_, **changes):
        streams = len(masked_streams(node.method.schema("statistics"), method="fedaf", exchange="statistics", nodes=3))
        fields = {
            "transcript3": T3, "sum_sha256": (bytes(32),) * streams, "survivors": NAMES,
            "next_state_digest": bytes.fromhex(BROADCAST), "round": 0, "purpose": "statistics",
        }  # fmt: skip
        data, least = changes.pop("data", None), changes.pop("least", 3)
        result = SessionResult(**{**fields, **changes}).to_bytes() if data is None else data
        work = pb.Exchange(broadcast_digest=BROADCAST, result=result)
        key = node.key(exchange, round_)
        book = node.store.sessions
        about = {"plan": node.plan, "node": "hospital-a", "least": least}
        return check_announced_sum(work, node.method, key, manifest, book, **about)

    return run


@pytest.mark.parametrize(
    ("exchange", "round_", "due"),
    [
        ("statistics", 0, None),
        ("condensation", 0, (0, 0)),
        ("statistics", 1, (0, 0)),
        ("condensation", 1, (1, 0)),
    ],
)
def test_the_last_exchange_that_sums(node, exchange, round_, due):
    """FedAF sums in its first exchange of two."""
    assert last_masked(node.method, node.key(exchange, round_)) == due


def test_what_fits(node, check):
    assert check("condensation", 0) == (0, 0)
    assert check("statistics", 1) == (0, 0)
    assert check("statistics", 0, data=b"") is None
    node.store.sessions.release(node.plan.digest(), "statistics", 0, T3)
    check("condensation", 0)


def test_a_sum_that_this_node_unmasked_is_over_the_nodes_that_it_saw(node, check):
    """By the store alone, should the log be a new one."""
    plan, key = node.plan.digest(), node.key("statistics")
    made = encode_contribution(node.contribution("statistics"))
    node.store.runs.finish(key, broadcast="ab" * 32, payload=made, before="", local=Tensors(), now_ms=3)
    node.store.sessions.release(plan, "statistics", 0, T3)
    node.store.sessions.keep_survivors(plan, "statistics", bytes.fromhex("cd" * 32), NAMES)  # another model
    node.store.sessions.keep_survivors(plan, "statistics", bytes.fromhex("ab" * 32), (*NAMES, "hospital-d"))
    with pytest.raises(RemoteProtocolError, match="said to be over other nodes than the one of the same transcript"):
        check("condensation", 0)


def test_rounds_that_were_skipped(node, check):
    """Announced is the last sum that there was, or none yet; within a round nothing is skipped."""
    assert check("statistics", 1, data=b"") is None
    assert check("statistics", 3, round=0) == (0, 0)
    node.store.sessions.release(node.plan.digest(), "statistics", 2, bytes(32))  # its shares for the lost sum
    assert check("statistics", 3, round=1) == (1, 0)
    for data in (b"", None):
        with pytest.raises(RemoteProtocolError, match="does not say which sum|announces a sum of round 1 statistics"):
            check("condensation", 3, data=data, round=0)


def test_a_sum_that_this_node_was_not_in_may_be_another(node, check):
    """It helped to unmask one that failed for want of shares; the others made another without it."""
    node.store.sessions.release(node.plan.digest(), "statistics", 0, bytes(32))
    with pytest.raises(RemoteProtocolError, match="another than the one that this node helped to unmask"):
        check("condensation", 0)


@pytest.mark.parametrize(
    ("exchange", "changes", "words"),
    [
        ("condensation", {"data": b""}, "does not say which sum"),
        ("statistics", {}, "before there was any"),
        ("condensation", {"round": 1}, "announces a sum of round 2 statistics with it"),
        ("condensation", {"purpose": "condensation"}, "announces a sum of round 1 condensation with it"),
        ("condensation", {"purpose": "other"}, "announces a sum of round 1 other with it"),
        ("condensation", {"next_state_digest": bytes(32)}, "not the one that the announced sum gave"),
        ("condensation", {"survivors": NAMES[:2]}, "over 2 nodes"),
        ("condensation", {"least": 4}, r"over 3 nodes \(allowed: >= 4\)"),
        ("condensation", {"survivors": (*NAMES, "stranger")}, "stranger, not of the cohort"),
        ("condensation", {"sum_sha256": (bytes(32),) * 5}, "5 streams where statistics has"),
    ],
)
def test_what_does_not_fit(check, exchange, changes, words):
    with pytest.raises(RemoteProtocolError, match=words):
        check(exchange, 0, **changes)


def test_a_malformed_result(check):
    with pytest.raises(SecAggError, match="^BAD_TRANSCRIPT"):
        check("condensation", 0, data=b"\xff\xff")


def terms(node, manifest, work, *, secagg="optional", **policy):
    node.policy()
    rules = node.current().policy
    rules = rules.model_copy(update={"release": rules.release.model_copy(update=policy)})
    plan = node.other_plan(secagg=secagg)
    return MaskTerms(node.store.sessions, Trusted(manifest), node_id="hospital-a").check(
        plan, node.method, node.key(work.exchange, work.round), work, rules
    )


def test_terms_with_masks(node, manifest):
    work = pb.Exchange(exchange="statistics", cohort_digest=manifest.digest.hex(), broadcast_digest=BROADCAST)
    found = terms(node, manifest, work)
    assert found.masks.cohort == manifest.digest.hex()
    assert found.masks.words == "a masked sum of at least 3 of 3 nodes"
    assert found.asked == Asked(manifest.digest.hex(), b"")


@pytest.mark.parametrize(("by_plan", "by_policy", "least"), [(1, 1, 3), (4, 1, 4), (1, 5, 5)])
def test_terms_take_the_fewest_nodes_of_a_sum_from_plan_policy_and_manifest(node, manifest, by_plan, by_policy, least):
    plan = node.other_plan(secagg="required", cohort=Cohort(min_nodes=by_plan))
    rules = Policy.model_validate({"format": 1, "plans": {"min_nodes": by_policy}}, strict=False)
    terms = MaskTerms(node.store.sessions, Trusted(manifest), node_id="hospital-a")
    assert terms.masks(plan, node.method, ExchangeKey(plan.digest(), 0, 0, 0, "statistics"), rules).least == least


def test_terms_of_an_exchange_that_sums_nothing(node, manifest):
    for digest in ("", manifest.digest.hex()):
        work = pb.Exchange(exchange="condensation", cohort_digest=digest, broadcast_digest=BROADCAST)
        assert terms(node, manifest, work, masks="required", secagg="required").masks is None


def test_terms_keep_the_digest_of_what_was_announced(node, manifest):
    streams = masked_streams(node.method.schema("statistics"), method="fedaf", exchange="statistics", nodes=3)
    result = SessionResult(T3, (bytes(32),) * len(streams), NAMES, bytes.fromhex(BROADCAST), 0, "statistics").to_bytes()
    work = pb.Exchange(
        exchange="statistics", round=1, cohort_digest=manifest.digest.hex(), broadcast_digest=BROADCAST, result=result
    )
    assert terms(node, manifest, work).asked.previous == result_digest(result)


@pytest.mark.parametrize(
    ("digest", "how", "error", "words"),
    [
        ("", {"secagg": "required"}, RemoteProtocolError, "the plan says secagg 'required'"),
        ("", {"masks": "required"}, PolicyError, "^release.masks: "),
        ("cd" * 32, {}, SecAggError, "^BAD_COHORT: .*names the cohort 'cdcdcdcdcdcdcdcd'"),
        ("cd" * 32, {"secagg": "off"}, RemoteProtocolError, "the plan says secagg 'off'"),
    ],
)
def test_terms_that_are_refused(node, manifest, digest, how, error, words):
    work = pb.Exchange(exchange="statistics", cohort_digest=digest, broadcast_digest=BROADCAST)
    with pytest.raises(error, match=words):
        terms(node, manifest, work, **how)


def test_a_result_in_a_run_without_masks(node, manifest):
    work = pb.Exchange(exchange="condensation", broadcast_digest=BROADCAST, result=b"x")
    with pytest.raises(RemoteProtocolError, match="in a run without masks"):
        terms(node, manifest, work, secagg="off")


def test_a_contribution_is_compared_with_its_record_before_it_is_masked(node, manifest):
    from fedsecure_node.log.releases import Release

    streams = masked_streams(node.method.schema("statistics"), method="fedaf", exchange="statistics", nodes=3)
    masks = MaskedSum(manifest, streams, "fedaf", 3)
    payload = encode_contribution(node.contribution("statistics"))
    body = {"secagg": masks.to_json(payload)}
    release = Release(1, "acknowledged", "", "hospital-a", "", body)
    vectors = prepare(payload, masks, release)
    assert {name: v.shape for name, v in vectors.items()} == {s.spec.name: (s.spec.length,) for s in streams}
    with pytest.raises(SecAggError, match="^BAD_VECTOR: release 1: its summed half is not the one in the log"):
        prepare(Payload(payload.summed + b" ", payload.released), masks, release)
    newer = MaskedSum(manifest.model_copy(update={"version": 2}), streams, "fedaf", 3)
    with pytest.raises(SecAggError, match="^BAD_COHORT: release 1 is for version 1 of the cohort, pinned is version 2"):
        prepare(payload, newer, release)


# the model of a round after one that was skipped

ONE, TWO, THREE = (letter * 64 for letter in "abc")


@pytest.fixture
def computed(node):
    """``computed(exchange, round, broadcast)``: what the node contributed, and from which model."""

    def finish(exchange, round_, broadcast):
        payload = encode_contribution(node.contribution(exchange, round_))
        about = {"payload": payload, "before": "", "local": Tensors(), "now_ms": 3}
        node.store.runs.finish(node.key(exchange, round_), broadcast=broadcast, **about)

    return finish


@pytest.mark.parametrize(
    ("announced", "broadcast", "words"),
    [
        ((1, 0), THREE, None),
        ((1, 0), ONE, "the same model as in round 1, for another masked sum"),
        ((1, 0), TWO, "the same model as in round 2, for another masked sum"),
        ((0, 0), TWO, None),  # the sum of round 2 was lost
        ((0, 0), THREE, "another model than in round 2, and announces no sum since"),
        ((0, 0), ONE, "another model than in round 2, and announces no sum since"),
        (None, ONE, "another model than in round 2, and announces no sum since"),
    ],
)
def test_the_model_after_a_sum_is_another_and_after_a_lost_one_the_same(node, computed, announced, broadcast, words):
    computed("statistics", 0, ONE)
    computed("statistics", 1, TWO)
    check = partial(node.store.runs.check_model, node.key("statistics", 2), broadcast, announced)
    if words is None:
        check()
    else:
        with pytest.raises(RemoteProtocolError, match=words):
            check()


def test_rounds_that_were_skipped_in_a_row_have_one_model(node, computed):
    computed("statistics", 0, ONE)
    computed("statistics", 1, ONE)
    node.store.runs.check_model(node.key("statistics", 2), ONE, None)
    node.store.runs.check_model(node.key("statistics", 1), ONE, None)  # asked for again


def test_a_later_exchange_of_a_round_that_was_skipped_may_have_another_model(node, computed):
    """The exchanges before it went into the model."""
    computed("condensation", 0, ONE)
    node.store.runs.check_model(node.key("condensation", 1), TWO, (0, 0))
    node.store.runs.check_model(node.key("condensation", 1), ONE, (0, 0))
    with pytest.raises(RemoteProtocolError, match="the same model as in round 1"):
        node.store.runs.check_model(node.key("condensation", 1), ONE, (0, 1))
