"""Queries at the node: who may ask, in which form, how fresh and how many; every fault has its name, and what is
answered or refused is in the log before it leaves."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from fedsecure.crypto.certificates import fingerprint
from fedsecure.crypto.sealing import SEAL_OVERHEAD, SealingKey, seal
from fedsecure.errors import (
    CertificateError,
    DataError,
    NodeUnreachable,
    PolicyError,
    RemoteProtocolError,
    StoreError,
)
from fedsecure.prediction.queries import query_info
from fedsecure.wire.v1 import prediction_pb2 as pb
from fedsecure_node.serving import answering
from fedsecure_node.serving.admission import Nonces


def kinds(serving):
    return [r.kind for r in serving.records]


def refusal(serving):
    """The reason that the log gives for its last record, which is a refusal."""
    last = serving.records[-1]
    assert last.kind == "prediction-refused"
    return last.body


def test_an_answer_is_the_methods_own_and_in_the_log_before_it_leaves(serving):
    x = serving.x(3)
    asked, reply = serving.asked(x)
    sent = serving.answerer.answer(serving.relayed(asked), serving.link)
    got = serving.opened(sent, asked, reply, x)
    weight = 0.5 + 4.0
    e = np.exp(x.reshape(3, -1)[:, :3] * weight)
    np.testing.assert_allclose(got.probabilities, e / e.sum(axis=1, keepdims=True), rtol=1e-5)
    (record,) = serving.records
    body = record.body
    assert record.kind == "prediction"
    assert (body["analyst"], body["records"], body["form"]) == ("dr-weber", 3, "sealed")
    assert body["query"] == asked.digest
    assert body["plan"] == {"digest": serving.node.plan.digest(), "name": "toy", "method": "fedaf"}
    assert body["certificate"].startswith("SHA256:")
    assert body["guarantee"] == {"label": "none"}
    assert body["destination"] == {"address": "localhost:1", "certificate": "SHA256:aa"}
    assert body["policy"] == hashlib.sha256(serving.node.settings.policy.read_bytes()).hexdigest()
    from fedsecure.prediction.queries import answer_info

    opened = reply.open(sent.sealed, answer_info(asked.digest))
    assert body["answer"] == {"sha256": hashlib.sha256(opened).hexdigest(), "bytes": len(opened)}
    assert str(x.ravel()[0]) not in serving.out.getvalue()


def test_a_log_that_cannot_be_written_lets_nothing_leave(serving, monkeypatch):
    from fedsecure.errors import StoreError

    def full(*_, **__):
        raise StoreError("disk full")

    monkeypatch.setattr(serving.log, "append", full)
    with pytest.raises(StoreError, match="disk full"):
        serving.ask()
    with pytest.raises(StoreError, match="disk full"):
        serving.ask(np.full((1, 1, 8, 8), np.nan, np.float32))


@pytest.mark.parametrize(
    ("x", "says"),
    [
        (np.zeros((1, 8, 8), np.float32), r"tensor x: shape"),
        (np.zeros((1, 1, 8, 9), np.float32), r"tensor x: shape \[1, 1, 8, 9\] where \[1, 1, 8, 8\]"),
        (np.zeros((0, 1, 8, 8), np.float32), "tensor x"),
        (np.full((1, 1, 8, 8), np.nan, np.float32), "tensor x: 64 of 64 values are not finite"),
        (np.full((1, 1, 8, 8), 1.5, np.float32), r"tensor x: values 1.5..1.5 outside 0..1"),
        (np.full((1, 1, 8, 8), -0.1, np.float32), "tensor x: values"),
    ],
)
def test_wrong_records_are_named_and_never_reach_the_model(serving, x, says):
    with pytest.raises(DataError, match="hospital-a: .*" + says):
        serving.ask(x)
    assert serving.method.predicted == 0
    assert refusal(serving)["error"] == "DataError"


@pytest.mark.parametrize("junk", [b"", b"\x07", b"{}" * 40])
def test_records_that_are_no_tensors_are_a_fault_of_the_data(serving, monkeypatch, junk):
    from fedsecure.tensors import Tensors

    monkeypatch.setattr(Tensors, "to_bytes", lambda self: junk)
    asked, reply = serving.asked()
    relayed = serving.relayed(asked)
    monkeypatch.undo()
    with pytest.raises(DataError):
        serving.opened(serving.answerer.answer(relayed, serving.link), asked, reply, serving.x())
    assert refusal(serving)["records"] == 0


def test_who_is_not_named_may_not_ask(serving):
    with pytest.raises(PolicyError, match=r"prediction.analysts: .* dr-moss"):
        serving.ask(analyst="dr-moss")
    assert refusal(serving)["rule"] == "prediction.analysts"
    serving.policy(analysts=False)
    with pytest.raises(PolicyError, match=r"prediction.analysts: .* dr-weber"):
        serving.ask()
    assert serving.method.predicted == 0


def test_the_policy_is_read_for_every_query(serving):
    serving.ask()
    serving.policy(analysts=False)
    with pytest.raises(PolicyError, match="prediction.analysts"):
        serving.ask()
    serving.node.settings.policy.write_text("format = 1\nnonsense")
    with pytest.raises(NodeUnreachable, match="reason of its own"):
        serving.ask()
    assert "nonsense" in refusal(serving)["reason"] or "policy.toml" in refusal(serving)["reason"]
    serving.policy()
    serving.ask()


def test_the_plain_form_only_where_the_policy_says_so(serving):
    with pytest.raises(PolicyError, match="prediction.coordinator_routed"):
        serving.ask(plain=True)
    serving.policy(plain="true")
    serving.ask(plain=True)
    last = serving.records[-1]
    assert (last.kind, last.body["form"]) == ("prediction", "plain")


def test_too_many_records_in_a_query(serving):
    serving.policy(per_query=3)
    serving.ask(serving.x(3))
    with pytest.raises(PolicyError, match=r"prediction.max_records_per_query: 4 records \(allowed: <= 3\)"):
        serving.ask(serving.x(4))


def test_the_hourly_limit_is_counted_from_the_log_and_survives_a_restart(serving, make_answerer):
    serving.policy(per_hour=5)
    serving.ask(serving.x(3))
    with pytest.raises(PolicyError, match="prediction.max_records_per_hour: 3 records after 3 of analyst dr-weber"):
        serving.ask(serving.x(3))
    again = make_answerer()
    with pytest.raises(PolicyError, match="prediction.max_records_per_hour: 3 records after 3"):
        again.ask(again.x(3))
    again.ask(again.x(2))
    with pytest.raises(PolicyError, match="prediction.max_records_per_hour: 1 record after 5"):
        again.ask(again.x(1))


def test_a_query_is_answered_once_also_after_a_restart(serving, make_answerer):
    serving.policy(plain="true")
    asked, reply = serving.asked(plain=True)
    x = serving.x()
    serving.opened(serving.answerer.answer(serving.relayed(asked, plain=True), serving.link), asked, reply, x)
    with pytest.raises(RemoteProtocolError, match="came a second time"):
        serving.opened(serving.answerer.answer(serving.relayed(asked, plain=True), serving.link), asked, reply, x)
    again = make_answerer()
    with pytest.raises(RemoteProtocolError, match="came a second time"):
        again.opened(again.answerer.answer(again.relayed(asked, plain=True), again.link), asked, reply, x)
    assert kinds(serving).count("prediction") == 1


def test_a_sealed_query_that_comes_again_is_refused(serving):
    asked, reply = serving.asked()
    relayed = serving.relayed(asked)
    serving.opened(serving.answerer.answer(relayed, serving.link), asked, reply, serving.x())
    with pytest.raises(RemoteProtocolError, match="came a second time"):
        serving.opened(serving.answerer.answer(relayed, serving.link), asked, reply, serving.x())


@pytest.mark.parametrize(("off", "says"), [(-301_000, "301 s back"), (301_500, "301 s ahead")])
def test_stale_queries_are_refused_by_the_coordinators_clock(serving, off, says, monkeypatch):
    now = answering.now_ms()
    monkeypatch.setattr(answering, "now_ms", lambda: now)
    at = now + off
    with pytest.raises(RemoteProtocolError, match=says[:3]):
        serving.ask(now_ms=at)
    assert says.split()[-1] in refusal(serving)["reason"]
    from dataclasses import replace

    serving.link = replace(serving.link, clock_ms=off)  # our own clock is the wrong one
    serving.ask(now_ms=at, relay={"deadline_unix_ms": at + 9_000})


def test_a_query_nobody_waits_for_any_more_is_left_alone(serving):
    asked, _ = serving.asked()
    assert serving.answerer.answer(serving.relayed(asked, deadline_unix_ms=1), serving.link) is None
    assert serving.records == ()


def answer(serving, relayed):
    """What the coordinator gets for a query that does not open: a refusal that it can read."""
    before = len(serving.records)
    sent = serving.answerer.answer(relayed, serving.link)
    assert sent.WhichOneof("form") == "refusal"
    assert serving.method.predicted == 0
    assert [r.kind for r in serving.records[before:]] == ["prediction-refused"]
    return sent.refusal


def refused(serving, relayed, asked, reply):
    """What the sender of a query gets that opens and is nobody's: a refusal that the coordinator cannot read."""
    before = len(serving.records)
    sent = serving.answerer.answer(relayed, serving.link)
    assert sent.WhichOneof("form") == "sealed"
    assert serving.method.predicted == 0
    with pytest.raises((CertificateError, RemoteProtocolError)) as caught:
        serving.opened(sent, asked, reply, serving.x())
    assert [r.kind for r in serving.records[before:]] == ["prediction-refused"]
    assert refusal(serving)["verified"] is False
    return caught.value


def test_sealed_to_another_key(serving):
    asked, _ = serving.asked()
    told = answer(serving, serving.relayed(asked, public=SealingKey.generate().public))
    assert told.error == "RemoteProtocolError"
    assert "does not have (any more)" in told.message


def test_sealed_for_another_node_or_run(serving):
    asked, _ = serving.asked()
    body, key = asked.statement.SerializeToString(), serving.answerer.public_key
    for info in (query_info(serving.node.plan.digest(), "hospital-b"), query_info("0" * 64, "hospital-a")):
        told = answer(serving, serving.relayed(asked, sealed=seal(key, body, info)))
        assert "does not have (any more)" in told.message


def test_signed_for_another_node_run_or_analyst(serving):
    for changes, relay, says in (
        ({"node": "hospital-b"}, {}, "is signed for node 'hospital-b'"),
        ({"run": "0" * 64}, {}, "is signed for run"),
        ({"analyst": "dr-moss", "signer": "dr-weber"}, {}, "is signed for analyst 'dr-moss'"),
    ):
        asked, reply = serving.asked(**changes)
        assert says in str(refused(serving, serving.relayed(asked, **relay), asked, reply))


def test_a_plain_query_may_name_no_node(serving):
    serving.policy(plain="true")
    asked, reply = serving.asked()
    sent = serving.answerer.answer(serving.relayed(asked, plain=True), serving.link)
    assert sent.WhichOneof("form") == "signed"
    with pytest.raises(RemoteProtocolError, match="is signed for node"):
        serving.opened(sent, asked, reply, serving.x())


@pytest.mark.parametrize(
    ("signer", "analyst", "says"),
    [
        ("dr-moss", "dr-weber", "another's name"),
        ("hospital-b", "dr-weber", "wrong role"),
        ("dr-gone", "dr-gone", "revoked"),
    ],
)
def test_certificates_that_will_not_do(serving, signer, analyst, says):
    asked, reply = serving.asked(signer=signer, analyst=analyst)
    error = refused(serving, serving.relayed(asked, analyst_id=analyst), asked, reply)
    assert type(error) is CertificateError
    assert error.exit_code == 6
    assert says in str(error)
    body = refusal(serving)
    assert (body["analyst"], body["query"], body["form"]) == (analyst, asked.digest, "sealed")
    assert body["certificate"] == fingerprint(asked.statement.certificate)
    assert says in body["reason"]


def test_a_refused_certificate_in_the_plain_form_is_told_by_the_node(serving):
    serving.policy(plain="true")
    with pytest.raises(CertificateError, match="hospital-a: .*revoked"):
        serving.ask(plain=True, analyst="dr-gone")
    assert refusal(serving)["verified"] is False


def test_a_changed_query_is_nobodys(serving):
    asked, reply = serving.asked()
    asked.statement.body += b"\x00"
    changed = type(asked)(asked.statement, hashlib.sha256(asked.statement.body).hexdigest())
    told = answer(serving, serving.relayed(asked))  # its body is none any more: there is no key to seal to
    assert told.error == "RemoteProtocolError"
    asked, reply = serving.asked()
    asked.statement.signature = asked.statement.signature[:-1] + bytes([asked.statement.signature[-1] ^ 1])
    assert type(refused(serving, serving.relayed(asked), asked, reply)) is CertificateError
    sealed = seal(serving.answerer.public_key, b"\xff\xff", query_info(serving.node.plan.digest(), "hospital-a"))
    assert "no signed query" in answer(serving, serving.relayed(changed, sealed=sealed)).message


@pytest.mark.parametrize("key", [bytes(32), b"\x01" + bytes(31), b"short", b""])
def test_a_reply_key_that_nobody_can_seal_to_is_refused_and_ends_nothing(serving, key):
    """X25519 refuses points of small order; an analyst who sends one must not end the node's thread."""
    asked, _ = serving.asked(reply_public=key)
    assert "malformed" in answer(serving, serving.relayed(asked)).message
    serving.ask()


def test_what_is_wrong_with_the_nodes_own_files_is_not_told(serving):
    from dataclasses import replace

    asked, reply = serving.asked()
    serving.answerer._use.admission._files = lambda: replace(serving.pki.files, ca=serving.pki.ca / "nowhere.crt")
    with pytest.raises(NodeUnreachable, match="reason of its own") as caught:
        serving.opened(serving.answerer.answer(serving.relayed(asked), serving.link), asked, reply, serving.x())
    assert "nowhere" not in str(caught.value)
    assert "nowhere.crt" in refusal(serving)["reason"]

    def no_key():
        raise StoreError("tls.key: no such file")

    serving.policy(plain="true")
    serving.answerer._signer = no_key
    told = serving.answerer.answer(serving.relayed(serving.asked(plain=True)[0], plain=True), serving.link).refusal
    assert told.error == "NodeUnreachable"
    assert "tls.key" not in told.message


def test_a_refusal_and_an_answer_look_alike_to_the_coordinator(serving):
    asked, _ = serving.asked()
    answered = serving.answerer.answer(serving.relayed(asked), serving.link)
    sizes = {len(answered.sealed)}
    for changes in ({"analyst": "dr-moss"}, {"signer": "dr-moss"}, {"x": np.full((1, 1, 8, 8), np.nan, np.float32)}):
        asked, _ = serving.asked(**changes)
        relayed = serving.relayed(asked, analyst_id=changes.get("analyst", "dr-weber"))
        sizes.add(len(serving.answerer.answer(relayed, serving.link).sealed))
    assert kinds(serving) == ["prediction"] + 3 * ["prediction-refused"]
    assert sizes == {4096 + SEAL_OVERHEAD}


def test_a_run_without_a_model_here(serving):
    serving.node.store.database.write("DELETE FROM serving")
    with pytest.raises(NodeUnreachable, match="has no model of run"):
        serving.ask()


def test_a_run_that_the_institution_took_back(serving):
    serving.node.store.plans.decide(serving.node.plan.digest(), "refused", by="x", reason="", now_ms=9)
    with pytest.raises(PolicyError, match="the institution does not allow it"):
        serving.ask()
    serving.node.store.plans.decide(serving.node.plan.digest(), "approved", by="x", reason="", now_ms=9)
    text = serving.node.settings.policy.read_text().replace('["fedaf", "fedavg"]', '["fedavg"]')
    serving.node.settings.policy.write_text(text)
    with pytest.raises(PolicyError, match=r"rule plans.methods\)$"):
        serving.ask()
    assert "fedaf (allowed: fedavg)" in refusal(serving)["reason"]


def test_damaged_files_are_the_nodes_affair(serving):
    folder = serving.node.settings.store / "serving"
    (path,) = folder.glob("*.safetensors")
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(NodeUnreachable, match="cannot read its model") as caught:
        serving.ask()
    assert str(folder) not in str(caught.value)
    assert str(path) in refusal(serving)["reason"]


def test_a_fault_of_the_method_is_logged_and_not_told(serving, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("secret inside")

    monkeypatch.setattr(serving.method, "predict", broken)
    with pytest.raises(NodeUnreachable) as caught:
        serving.ask()
    assert "secret" not in str(caught.value)
    assert "secret inside" in refusal(serving)["reason"]


def test_analysts_whom_the_policy_does_not_name_take_no_room_of_others(serving):
    nonces = serving.answerer._use.admission._nonces
    with pytest.raises(PolicyError):
        serving.ask(analyst="dr-moss")
    assert "dr-moss" not in nonces._seen
    serving.ask()
    assert len(nonces._seen["dr-weber"]) == 1


def test_nonces_are_kept_as_long_as_they_matter_and_no_more_than_fit():
    clock = [0.0]
    nonces = Nonces(lambda: clock[0], limit=1)
    nonces.take("a", b"1")
    with pytest.raises(RemoteProtocolError, match="second time"):
        nonces.take("a", b"1")
    with pytest.raises(RemoteProtocolError, match="too many queries of analyst a"):
        nonces.take("a", b"2")
    nonces.take("b", b"1")
    clock[0] = 599.0
    with pytest.raises(RemoteProtocolError, match="second time"):
        nonces.take("a", b"1")
    clock[0] = 600.0
    nonces.take("a", b"1")


def test_an_outcome_is_never_empty(serving):
    asked, _ = serving.asked()
    sent = serving.answerer.answer(serving.relayed(asked), serving.link)
    assert isinstance(sent, pb.AnswerRequest)
    assert len(sent.sealed) > 48
