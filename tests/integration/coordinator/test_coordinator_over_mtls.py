"""The coordinator over real mutual TLS on the loopback: rounds, refusals, resumption."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from fedsecure.errors import CertificateError, DataError, RemoteProtocolError, WireError
from fedsecure.tensors import Tensors
from fedsecure.wire.v1 import coordinator_pb2 as pb


def join_all(live, digest):
    callers = {name: live.caller(name) for name in "abc"}
    for caller in callers.values():
        caller.hello()
        caller.join(digest)
    return callers


def stored(live):
    return sorted(p.name for p in (live.folder / "store" / "partial").rglob("*") if p.is_file())


def test_a_run_over_the_wire(live):
    live.start()
    digest = live.submit(live.plan())
    callers = {name: live.caller(name) for name in "abc"}
    (offered,) = callers["a"].call("ListPlans", pb.ListPlansRequest(node_id="a")).plans
    assert (offered.digest, offered.canonical, offered.joined) == (digest, live.plan().canonical(), False)
    for caller in callers.values():
        assert caller.hello().federation == "test.example"
        caller.join(digest)
    for round_ in range(2):
        for value, (name, caller) in enumerate(callers.items()):
            exchange = caller.work(digest).exchange
            assert (exchange.round, exchange.exchange, exchange.attempt) == (round_, "one", 0)
            data = caller.download(exchange.broadcast_digest)
            assert len(data) == exchange.broadcast_bytes
            assert caller.download(exchange.broadcast_digest, offset=1000) == data[1000:]
            assert Tensors.from_bytes(data)["total"][0] == 3 * round_
            reply = caller.contribute(digest, live.give(value), round_=round_)
            assert reply.complete, name
    for caller in callers.values():
        ended = caller.work(digest).ended
        assert (ended.plan_digest, ended.state) == (digest, pb.RUN_STATE_COMPLETED)
    row = live.daemon.registry.ended()[digest]
    assert Tensors.from_bytes(live.daemon.registry.blobs.get(row.server))["total"].tolist() == [6.0] * 50_000
    traffic = live.daemon.journal.traffic(digest)
    assert traffic[0]["a"][0] > 200_000
    assert traffic[0]["a"][1] == 2 * len(data) - 1000


def test_a_long_poll_is_woken_by_what_happens(live):
    live.start()
    digest = live.submit(live.plan())
    callers = join_all(live, digest)
    for caller in callers.values():
        caller.work(digest)
    callers["a"].contribute(digest)
    callers["b"].contribute(digest)
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(callers["a"].work(digest, wait_ms=15_000)))
    waiting.start()
    callers["c"].contribute(digest)
    waiting.join(60)
    assert answers[0].exchange.round == 1


def test_a_poll_waits_no_longer_than_asked(live):
    live.start()
    digest = live.submit(live.plan())
    caller = live.caller("a")
    caller.join(digest)
    assert caller.work(digest, wait_ms=150).WhichOneof("work") == "nothing"


def test_an_upload_goes_on_after_a_cut_connection(live):
    live.start()
    digest = live.submit(live.plan())
    callers = join_all(live, digest)
    data, key = callers["a"].sealed(digest)
    cut = live.caller("a", options=[("grpc.use_local_subchannel_pool", 1)])
    reached = threading.Event()

    def messages():
        yield pb.UploadMessage(header=pb.UploadHeader(key=key, offset=0))
        yield pb.UploadMessage(data=data[:100_000])
        reached.set()
        threading.Event().wait(20)

    call = cut._stub.Upload.future(messages(), timeout=30)
    assert reached.wait(60)
    live.until(lambda: callers["a"].offset(key).offset == 100_000)
    call.cancel()
    cut.channel.close()
    with pytest.raises(RemoteProtocolError, match="continues at byte 0 where 100000 are stored"):
        callers["a"].upload(key, data)
    reply = callers["a"].upload(key, data[100_000:], offset=100_000)
    assert (reply.offset, reply.complete) == (len(data), True)
    assert callers["a"].upload(key, data).complete  # idempotent
    assert callers["a"].offset(key).complete


def test_another_payload_for_an_accepted_contribution_is_refused(live):
    live.start()
    digest = live.submit(live.plan())
    callers = join_all(live, digest)
    callers["a"].contribute(digest, live.give(1))
    with pytest.raises(RemoteProtocolError, match="another contribution to round 1, one is already accepted"):
        callers["a"].contribute(digest, live.give(2))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": np.full(50_000, np.nan, np.float32)}, "tensor x: 50000 of 50000 values are not finite"),
        ({"x": np.zeros(49_999, np.float32)}, r"tensor x: shape \[49999\] where \[50000\] is due"),
        ({"x": np.zeros(50_000)}, "tensor x: dtype float64 where float32 is due"),
        ({"x": np.zeros(2_000_000, np.float32)}, r"tensor x: shape \[2000000\]"),
        ({"labels": (0, 7)}, "tensor labels: values 0..7 outside 0..2"),
    ],
)
def test_tensors_that_the_schema_does_not_allow_are_refused_by_name(live, changes, message):
    live.start()
    digest = live.submit(live.plan())
    callers = join_all(live, digest)
    with pytest.raises(DataError, match=message):
        callers["a"].contribute(digest, live.give(**changes))
    assert stored(live) == []
    assert callers["a"].contribute(digest).complete


def test_a_node_speaks_only_for_itself(live):
    live.start()
    digest = live.submit(live.plan())
    callers = join_all(live, digest)
    data, key = callers["a"].sealed(digest, node_id="b")
    calls = {
        "Hello": lambda: callers["a"].hello(node_id="b"),
        "Join": lambda: callers["a"].call("Join", pb.JoinRequest(node_id="b", plan_digest=digest)),
        "Refuse": lambda: callers["a"].call("Refuse", pb.RefuseRequest(node_id="b", plan_digest=digest)),
        "ListPlans": lambda: callers["a"].call("ListPlans", pb.ListPlansRequest(node_id="b")),
        "NextWork": lambda: callers["a"].call("NextWork", pb.NextWorkRequest(node_id="b", plan_digests=[digest])),
        "UploadOffset": lambda: callers["a"].offset(key),
        "Upload": lambda: callers["a"].upload(key, data),
    }
    for call in calls.values():
        with pytest.raises(CertificateError, match="speaks as another"):
            call()
    assert stored(live) == []


def test_a_revoked_node_is_refused_as_soon_as_the_list_changes(live):
    from datetime import UTC, datetime

    from fedsecure.crypto.authority import revoke

    live.start()
    folder = live.enrolled.enrol("doomed")
    caller = live.caller("doomed", folder)
    caller.hello()
    revoke(live.enrolled.ca, "doomed", passphrase=None, now=datetime.now(UTC))
    (live.folder / "crl.pem").write_bytes((live.enrolled.ca / "crl.pem").read_bytes())
    with pytest.raises(CertificateError, match="revoked"):
        caller.hello()
    live.caller("a").hello()
    (live.folder / "crl.pem").unlink()
    with pytest.raises(CertificateError, match="revocation list is gone"):
        live.caller("a").hello()


def test_hello_names_versions_and_clocks_that_differ(live):
    live.start()
    caller = live.caller("a")
    with pytest.raises(RemoteProtocolError, match="node a speaks protocol 9, this coordinator 1"):
        caller.hello(protocol=9)
    with pytest.raises(RemoteProtocolError, match=r"clock of node a is 3[56]\d\d s behind the coordinator's"):
        caller.hello(skew_ms=-3_600_000)
    with pytest.raises(RemoteProtocolError, match="ahead of"):
        caller.hello(skew_ms=3_600_000)


def test_stragglers_quorum_and_the_reason_in_the_end(live):
    live.start()
    digest = live.submit(live.plan(deadlines={"join": 60.0, "exchange": 4.0}))
    callers = join_all(live, digest)
    callers["a"].contribute(digest)
    callers["b"].contribute(digest)
    live.until(lambda: any(n.kind == "stragglers" for n in live.notices))
    with pytest.raises(RemoteProtocolError):
        callers["c"].contribute(digest)
    ended = callers["a"].work(digest)
    assert ended.exchange.round == 1
    live.until(lambda: digest in live.daemon.registry.ended())
    ended = callers["a"].work(digest).ended
    assert (ended.state, ended.reason) == (pb.RUN_STATE_ABORTED, "quorum: fewer than 2 nodes; missing: a; b")


def test_a_late_node_comes_in_at_the_next_round(live):
    live.start()
    plan = live.plan(cohort={"min_nodes": 2, "nodes": ["a", "b", "c"]}, deadlines={"join": 3.0, "exchange": 60.0})
    callers = {name: live.caller(name) for name in "abc"}
    for caller in callers.values():
        caller.hello()
    digest = live.submit(plan)
    callers["a"].join(digest)
    callers["b"].join(digest)
    assert callers["a"].work(digest).exchange.round == 0
    assert callers["c"].join(digest) == pb.RUN_STATE_RUNNING
    with pytest.raises(RemoteProtocolError, match="node c is not in the cohort"):
        callers["c"].contribute(digest)
    callers["a"].contribute(digest)
    callers["b"].contribute(digest)
    assert callers["c"].work(digest).exchange.round == 1


def test_a_refusal_is_told_to_the_others(live):
    live.start()
    digest = live.submit(live.plan(cohort={"min_nodes": 3, "nodes": ["a", "b", "c"]}))
    callers = {name: live.caller(name) for name in "abc"}
    callers["a"].join(digest)
    request = pb.RefuseRequest(node_id="b", plan_digest=digest, reason="plans.methods: fedavg (allowed: none)")
    callers["b"].call("Refuse", request)
    ended = callers["a"].work(digest).ended
    assert ended.reason == "quorum: fewer than 3 nodes; missing: b (plans.methods: fedavg (allowed: none))"


def test_a_restart_keeps_runs_uploads_and_reasons(live):
    live.start()
    digest = live.submit(live.plan())
    callers = join_all(live, digest)
    callers["a"].contribute(digest)
    data, key = callers["b"].sealed(digest)
    assert not callers["b"].upload(key, data[:70_000]).complete
    other = live.submit(live.plan(name="other"))
    live.daemon.journal.request_abort(other, "not today")
    live.until(lambda: other in live.daemon.registry.ended())
    live.stop()
    live.start()
    live.until(lambda: not live.daemon.registry.unprepared())
    assert live.daemon.registry.ended()[other].reason == "operator: not today"
    callers = {name: live.caller(name) for name in "abc"}
    assert callers["a"].contribute(digest).complete
    assert callers["b"].offset(key).offset == 70_000
    assert callers["b"].upload(key, data[70_000:], offset=70_000).complete
    callers["c"].contribute(digest)
    assert callers["c"].work(digest).exchange.round == 1


def test_stopping_sends_long_polls_home(live):
    live.start()
    digest = live.submit(live.plan())
    caller = live.caller("a")
    caller.join(digest)
    faults = []

    def poll():
        try:
            caller.work(digest, wait_ms=20_000)
        except WireError as error:
            faults.append(error)

    waiting = threading.Thread(target=poll)
    waiting.start()
    live.until(lambda: live.daemon.desk._polls)
    live.stop()
    waiting.join(60)
    assert "shutting down" in str(faults[0])
