"""What a store keeps of all masked sums that its node ever gave to: by model, by values, and by vectors."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from fedsecure.crypto.signatures import ephemeral_identity
from fedsecure.errors import RemoteProtocolError
from fedsecure.schema import Contribution
from fedsecure.secagg.cohort.manifest import CohortManifest
from fedsecure.secagg.values.masked import masked_streams
from fedsecure.wire.codec import encode_contribution
from fedsecure_node.cli.forgetting import forget_log
from fedsecure_node.keys import ExchangeKey
from fedsecure_node.log.masks import MaskedSum
from fedsecure_node.masking.repeats import Repeats
from fedsecure_node.store.store import Store

FIRST, SECOND = "1" * 64, "2" * 64
MODEL, OTHER_MODEL = "a" * 64, "b" * 64
NAMES = tuple(f"hospital-{letter}" for letter in "abcdef")


def key(run, round_=0, attempt=0, exchange="statistics"):
    return ExchangeKey(run, round_, 0, attempt, exchange)


def masks_of(node, count):
    keys = {name: ephemeral_identity().public_bytes for name in NAMES[:count]}
    manifest = CohortManifest.form("heart-study", "hospitals", 1, keys)
    streams = masked_streams(node.method.schema("statistics"), method="fedaf", exchange="statistics", nodes=count)
    return MaskedSum(manifest, streams, "fedaf", 3)


def nudged(contribution, by):
    """Each value that is not zero, moved by ``by``."""
    logits = contribution.summed["mean_logits"]
    moved = np.where(logits == 0, logits, logits + np.float32(by)).astype(np.float32)
    return Contribution(summed=contribution.summed.with_({"mean_logits": moved}))


@pytest.fixture
def repeats(node):
    return Repeats(node.store.marks)


@pytest.fixture
def payload(node):
    return encode_contribution(node.contribution("statistics"))


@pytest.fixture
def taken(node, repeats, payload):
    """The first run's contribution."""
    repeats.check_model(key(FIRST), MODEL)
    repeats.take(key(FIRST), MODEL, payload, masks_of(node, 4))


def test_one_model_for_one_run_alone(repeats, taken):
    with pytest.raises(RemoteProtocolError, match="REPLAYED: round 3 statistics: the coordinator sends the model"):
        repeats.check_model(key(SECOND, 2), MODEL)
    repeats.check_model(key(SECOND), OTHER_MODEL)
    repeats.check_model(key(SECOND, exchange="condensation"), MODEL)


def test_attempts_and_rounds_of_the_same_run_are_not_its_business(node, repeats, payload, taken):
    for again in (key(FIRST), key(FIRST, attempt=2), key(FIRST, 1)):
        repeats.check_model(again, MODEL)
        repeats.take(again, MODEL, payload, masks_of(node, 4))


def test_the_same_values_from_another_model(node, repeats, payload, taken):
    """A model that was changed where nothing depends on it, for a cohort of another size."""
    for count in (4, 5):
        with pytest.raises(RemoteProtocolError, match="REPLAYED: round 1 statistics: this is bit for bit what"):
            repeats.take(key(SECOND), OTHER_MODEL, payload, masks_of(node, count))
    with pytest.raises(RemoteProtocolError, match="the model that this node computed from"):
        repeats.check_model(key(SECOND), MODEL)
    repeats.check_model(key(FIRST), OTHER_MODEL)


def test_values_that_differ_by_less_than_the_ring_holds(node, repeats, taken):
    """The step of the ring is 2^-f, here about 2^-41; a float32 near 0 can be moved by less."""
    contribution = node.contribution("statistics")
    logits = contribution.summed["mean_logits"]
    small = Contribution(
        summed=contribution.summed.with_({"mean_logits": np.where(logits == 0, logits, 1e-9).astype(np.float32)})
    )
    masks = masks_of(node, 4)
    repeats.take(key(FIRST, 1), OTHER_MODEL, encode_contribution(small), masks)
    near = nudged(small, 2.0**-46)
    assert near.summed["mean_logits"].tobytes() != small.summed["mean_logits"].tobytes()
    with pytest.raises(RemoteProtocolError, match="bit for bit"):
        repeats.take(key(SECOND), "c" * 64, encode_contribution(near), masks)
    repeats.take(key(SECOND), "c" * 64, encode_contribution(nudged(small, 0.5)), masks)


def test_nothing_is_kept_of_what_is_refused(node, repeats, payload, taken):
    with pytest.raises(RemoteProtocolError):
        repeats.take(key(SECOND), OTHER_MODEL, payload, masks_of(node, 4))
    assert node.store.marks.runs() == {FIRST}


def test_a_run_that_ends_and_a_store_that_is_opened_again(node, repeats, taken):
    node.store.close()
    with Store(node.settings.store) as store, pytest.raises(RemoteProtocolError, match="REPLAYED"):
        Repeats(store.marks).check_model(key(SECOND), MODEL)


def released(node, payload, masks):
    """A release in the log, under masks, of the node's own plan."""
    from fedsecure.tensors import Tensors

    gate, own = node.gate, node.key("statistics")
    contribution = gate.check(node.plan, node.method, own, payload, node.data.counts(), node.current().policy)
    done = node.store.runs.finish(own, broadcast=MODEL, payload=payload, before="", local=Tensors(), now_ms=3)
    gate.log(node.plan, node.method, done, payload, contribution, node.current(), node.destination, masks=masks)


def test_a_log_that_is_forgotten(node, repeats, payload, taken):
    log_path = node.settings.store / "releases.jsonl"
    released(node, payload, masks_of(node, 4))
    log_path.write_bytes(b"")
    node.store.close()
    forget_log(node.settings, reason="it is empty", by="ada")
    with Store(node.settings.store) as store, pytest.raises(RemoteProtocolError, match="REPLAYED"):
        Repeats(store.marks).check_model(key(SECOND), MODEL)


def test_a_log_that_is_forgotten_gives_a_new_store_what_it_still_tells(node, payload):
    """All but the log is lost."""
    masks = masks_of(node, 4)
    released(node, payload, masks)
    node.store.close()
    log = (node.settings.store / "releases.jsonl").read_bytes()
    shutil.rmtree(node.settings.store)
    with Store(node.settings.store):
        pass
    (node.settings.store / "releases.jsonl").write_bytes(log + b"damaged\n")
    forget_log(node.settings, reason="the disk died", by="ada")
    with Store(node.settings.store) as store:
        assert store.marks.runs() == {node.plan.digest()}
        with pytest.raises(RemoteProtocolError, match=f"for a masked sum of plan {node.plan.digest()[:12]}"):
            Repeats(store.marks).check_model(key(SECOND), MODEL)
        with pytest.raises(RemoteProtocolError, match="bit for bit"):
            Repeats(store.marks).take(key(SECOND), OTHER_MODEL, payload, masks)
