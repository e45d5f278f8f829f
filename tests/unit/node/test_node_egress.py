"""The gate: what it refuses is named, and then nothing is logged, stored as released, or sent."""

from __future__ import annotations

import numpy as np
import pytest

from fedsecure.errors import DataError, FedSecureError, LocalProtocolError, PolicyError
from fedsecure.plan.size import header_bytes, release_bytes
from fedsecure.schema import Contribution
from fedsecure.tensors import Tensors
from fedsecure.wire.codec import encode_contribution
from fedsecure_node.egress import Cleared
from fedsecure_node.log.decisions import decide
from fedsecure_node.log.releases import fold
from fedsecure_node.plans.reasons import public_reason


class Recorder:
    """An uplink that keeps what it was given."""

    def __init__(self, log=None, fail=False):
        self.sent = []
        self._log, self._fail = log, fail

    def upload(self, cleared):
        if self._log is not None:
            assert [r.kind for r in self._log.records()][-1] == "sending"
        if self._fail:
            raise FedSecureError("cut")
        self.sent.append(cleared.payload.data)


def refused(node, exchange, contribution, error, match):
    key = node.key(exchange)
    payload = encode_contribution(contribution)
    with pytest.raises(error, match=match) as caught:
        node.gate.check(node.plan, node.method, key, payload, node.data.counts(), node.current().policy)
    assert node.log.records() == ()
    assert not list((node.settings.store / "releases").iterdir())
    return caught.value


def changed(contribution, name, array):
    half = contribution.summed if name in contribution.summed else contribution.released
    new = half.with_({name: array})
    return Contribution(summed=new) if half is contribution.summed else Contribution(released=new)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite(node, value):
    good = node.contribution()
    images = good.released["images"].copy()
    images[0, 0, 0, 0] = value
    error = refused(
        node, "condensation", changed(good, "images", images), DataError, "tensor images: 1 of .* not finite"
    )
    assert public_reason(error, "round 1") == "round 1: tensor images is not what the plan's schema allows"


def test_wrong_shape_dtype_range_and_labels(node):
    good = node.contribution()
    images = good.released["images"]
    cases = [
        ("images", images[:, :, :4], "tensor images: shape"),
        ("images", images[:-1], "shape"),
        ("images", images.astype(np.float64), "tensor images: dtype float64"),
        ("images", images * 100, "tensor images: values"),
        ("labels", good.released["labels"] + 2, "tensor labels: values"),
        ("labels", good.released["labels"] - 1, "tensor labels: values"),
        ("labels", good.released["labels"].astype(np.int32), "tensor labels: dtype"),
    ]
    for name, array, match in cases:
        refused(node, "condensation", changed(good, name, array), DataError, match)


def test_a_tensor_that_the_schema_does_not_name_cannot_leave(node):
    good = node.contribution()
    extra = Contribution(released=good.released.with_({"records": np.zeros(3, np.float32)}))
    refused(node, "condensation", extra, DataError, "tensor records: not named")
    half = Contribution(summed=Tensors({"records": np.zeros(3, np.float32)}), released=good.released)
    refused(node, "condensation", half, DataError, "tensor records: not named by the schema's summed half")
    refused(node, "condensation", Contribution(), DataError, "tensor images: named by .* but missing")


def test_policy_limits_are_named(node):
    good = node.contribution()
    node.policy(max_bytes=100)
    error = refused(node, "condensation", good, PolicyError, r"release\.max_bytes: a release of up to \d+ bytes")
    assert "rule release.max_bytes" in public_reason(error, "round 1")
    node.policy(max_bytes_per_run=100)
    refused(node, "condensation", good, PolicyError, r"release\.max_bytes_per_run")
    node.policy(max_ipc=1)
    refused(node, "condensation", good, PolicyError, r"condensation\.max_ipc")
    node.policy(min_records=13)
    refused(node, "condensation", good, PolicyError, r"condensation\.min_records_per_class")


def test_more_images_of_a_class_than_the_plan_says(node):
    good = node.contribution()
    labels = np.zeros(4, np.int64)
    refused(node, "condensation", changed(good, "labels", labels), PolicyError, r"max_ipc: 4 images of class 'normal'")


def test_a_class_below_the_floor_shows_nowhere(node):
    good = node.contribution()
    labels = good.released["labels"].copy()
    labels[-1] = 2  # three records only
    error = refused(node, "condensation", changed(good, "labels", labels), PolicyError, "is below the floor of 10")
    assert "odd" not in public_reason(error, "round 1")
    statistics = node.contribution("statistics")
    logits = statistics.summed["mean_logits"].copy()
    logits[2, 0] = 0.5
    refused(node, "statistics", changed(statistics, "mean_logits", logits), PolicyError, "tensor mean_logits speaks of")


def test_logits_beyond_the_policys_bound(node):
    node.policy(max_abs_logit=0.01)
    refused(node, "statistics", node.contribution("statistics"), PolicyError, r"broadcast\.max_abs_logit")


def test_bytes_of_the_run_add_up(node, make_release):
    """A plan that may pass the limit is refused beforehand; repeated attempts can still add up to more."""
    least = (release_bytes(node.plan) + header_bytes(node.plan)) * node.plan.rounds
    node.policy(max_bytes_per_run=least - 1)
    with pytest.raises(PolicyError, match=rf"max_bytes_per_run: up to {least} bytes in 2 rounds"):
        make_release()
    node.policy(max_bytes_per_run=least)
    fit = least // len(make_release()[1].data)
    for round_ in range(1, fit):
        make_release(round_=round_)
    with pytest.raises(PolicyError, match=r"max_bytes_per_run: \d+ bytes left before"):
        make_release(round_=fit)
    assert len(fold(node.log.records())) == fit


def test_logged_before_the_first_byte_and_receipted_after_the_last(node, make_release):
    release, payload = make_release()
    link = Recorder(node.log)
    node.gate.send(release, payload, link)
    assert link.sent == [payload.data]
    assert [r.kind for r in node.log.records()] == ["release", "sending", "acknowledged"]


def test_a_send_that_breaks_is_taken_up_with_the_same_bytes_and_no_second_record(node, make_release):
    release, payload = make_release()
    with pytest.raises(FedSecureError, match="cut"):
        node.gate.send(release, payload, Recorder(fail=True))
    again = node.gate.find(release.key)
    assert again.state == "sending"
    link = Recorder()
    node.gate.send(again, payload, link)
    assert link.sent == [payload.data]
    assert [r.kind for r in node.log.records()] == ["release", "sending", "acknowledged"]


def test_a_held_release_is_not_sent_until_a_person_lets_it_go(node, make_release):
    release, payload = make_release(hold=True)
    link = Recorder()
    with pytest.raises(LocalProtocolError, match="held"):
        node.gate.send(release, payload, link)
    assert link.sent == []
    decide(node.log, release.number, release=True, by="ada", reason="looked at it")
    node.gate.send(node.gate.find(release.key), payload, link)
    assert link.sent == [payload.data]
    assert [r.kind for r in node.log.records()] == ["release", "held", "released", "sending", "acknowledged"]


def test_a_refused_release_never_leaves(node, make_release):
    release, payload = make_release(hold=True)
    decide(node.log, release.number, release=False, by="ada", reason="no")
    link = Recorder()
    with pytest.raises(LocalProtocolError, match="refused by a person"):
        node.gate.send(node.gate.find(release.key), payload, link)
    assert link.sent == []


def test_the_policys_hold_holds_as_the_flag_does(node, make_release):
    node.policy(hold="true")
    release, _ = make_release()
    assert release.state == "held"


def test_other_bytes_than_the_logged_ones_are_not_sent(node, make_release):
    release, _ = make_release()
    other = encode_contribution(node.contribution(round_=1))
    link = Recorder()
    with pytest.raises(DataError, match="not those in the log"):
        node.gate.send(release, other, link)
    assert link.sent == []


def test_only_the_gate_makes_what_an_uplink_takes(node):
    payload = encode_contribution(node.contribution())
    with pytest.raises(TypeError):
        Cleared(1, node.gate.upload_key(node.key(), payload), payload)


def test_a_release_whose_exchange_is_over_says_whether_bytes_left(node, make_release):
    unsent, _ = make_release(hold=True)
    node.gate.close(unsent, "its exchange is over")
    sent, payload = make_release(round_=1)
    with pytest.raises(FedSecureError):
        node.gate.send(sent, payload, Recorder(fail=True))
    node.gate.close(node.gate.find(sent.key), "its exchange is over")
    assert [r.state for r in fold(node.log.records()).values()] == ["unsent", "lapsed"]
    with pytest.raises(LocalProtocolError, match="never sent"):
        decide(node.log, unsent.number, release=True, by="ada", reason="")


def test_weighted_sums_of_logits_are_bounded_as_means(node):
    from fedsecure.policy import BroadcastRules, Policy
    from fedsecure_node.checking import _check_logits

    sums = Tensors({"mean_logits": np.full((3, 3), 500.0, np.float32), "class_weight": np.array([100, 100, 100])})
    policy = Policy(format=1, broadcast=BroadcastRules(max_abs_logit=5.0))
    schema = node.method.schema("statistics")
    _check_logits(schema, Contribution(summed=sums), policy)
    with pytest.raises(PolicyError, match="max_abs_logit"):
        _check_logits(schema, Contribution(summed=sums.with_({"class_weight": np.array([100, 99, 100])})), policy)
