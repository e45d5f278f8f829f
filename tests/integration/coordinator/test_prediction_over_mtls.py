"""Routed prediction through the real daemon over mutual TLS: analysts and nodes with scripts of their own."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import numpy as np
import pytest

from fedsecure.cli import run as run_cli
from fedsecure.crypto.authority import revoke
from fedsecure.errors import CertificateError, DataError, NodeUnreachable, RemoteProtocolError, WireError
from fedsecure.tensors import Tensors
from fedsecure.wire.v1 import prediction_pb2 as pb
from fedsecure_coordinator.prediction.messages import MAX_QUERY_BYTES
from fedsecure_coordinator.prediction.turnstile import CALLS_EACH


@pytest.fixture
def served(live):
    """A completed run that node a serves: ``served.digest``, ``.a``, ``.anna``, and a pool for calls that wait."""
    live.start(live.routed())
    live.digest = live.complete(live.plan())
    live.a, live.anna = live.caller("a"), live.caller("anna")
    live.a.serve(live.digest)
    with ThreadPoolExecutor(16) as live.pool:
        yield live


def statement(digest, x=(1.0, 2.0), *, analyst="anna", node="", **changes):
    records = Tensors({"x": np.asarray([x], dtype=np.float32)}).to_bytes()
    body = pb.Query(plan_digest=digest, node_id=node, analyst_id=analyst, nonce=b"n" * 16, records=records)
    for field, value in changes.items():
        setattr(body, field, value)
    return pb.SignedStatement(label="query", body=body.SerializeToString(), certificate=b"c", signature=b"s")


def signed(outcome):
    body = pb.PlainAnswer(query_digest="q", outcome=outcome).SerializeToString()
    return pb.SignedStatement(label="plain-answer", body=body, certificate=b"c", signature=b"s")


def test_an_analyst_finds_a_run_and_all_it_takes_to_ask(served):
    hello = served.anna.hello_analyst()
    assert (hello.federation, hello.max_query_bytes, hello.max_wait_ms) == ("test.example", 1 << 20, 20_000)
    (model,) = served.anna.models()
    assert (model.plan_digest, model.canonical) == (served.digest, served.plan().canonical())
    assert [(n.node_id, n.reachable, n.key.body) for n in model.nodes] == [("a", True, b"b")]
    routing = served.anna.routing(served.digest)
    assert (hashlib.sha256(routing).hexdigest(), len(routing)) == (model.routing_digest, model.routing_bytes)
    assert served.anna.routing(served.digest, offset=1000) == routing[1000:]
    assert list(Tensors.from_bytes(routing)) == ["w"]
    with pytest.raises(RemoteProtocolError, match=f"have {len(routing)} bytes, not {len(routing) + 1}"):
        served.anna.routing(served.digest, offset=len(routing) + 1)


def test_a_sealed_query_reaches_its_node_and_the_answer_its_analyst(served):
    asked = served.pool.submit(served.anna.ask, served.digest, "a", b"\x00sealed\xff")
    query = served.a.next_query()
    assert (query.plan_digest, query.analyst_id, query.sealed) == (served.digest, "anna", b"\x00sealed\xff")
    assert 0 < query.deadline_unix_ms - time.time_ns() // 1_000_000 <= 10_000
    served.a.answer(query.query_id, sealed=b"for anna")
    assert asked.result(60) == b"for anna"
    with pytest.raises(RemoteProtocolError, match="no answer of node a is due"):
        served.a.answer(query.query_id, sealed=b"once more")


def test_a_query_that_its_node_cannot_open_comes_back_in_words(served):
    asked = served.pool.submit(served.anna.ask, served.digest, "a")
    query = served.a.next_query()
    with pytest.raises(RemoteProtocolError, match="it was sealed, and so must its answer be"):
        served.a.answer(query.query_id, signed=signed(pb.Outcome(prediction=pb.PredictionBody(node_id="a"))))
    refused = pb.Refusal(error="RemoteProtocolError", message="sealed to a key this node\n does not have", hint="again")
    served.a.answer(query.query_id, refusal=refused)
    with pytest.raises(RemoteProtocolError, match="node a: sealed to a key this node does not have") as caught:
        asked.result(60)
    assert caught.value.hint == "again"


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("CertificateError", CertificateError),
        ("NodeUnreachable", NodeUnreachable),
        ("RemoteProtocolError", RemoteProtocolError),
        ("StoreError", RemoteProtocolError),
        ("os.system", RemoteProtocolError),
    ],
)
def test_what_a_node_says_in_the_clear_keeps_its_class_by_a_table(served, name, error):
    for ask in (
        lambda: served.anna.ask(served.digest, "a"),
        lambda: served.anna.ask_plain(served.digest, statement(served.digest), rank=2),
    ):
        asked = served.pool.submit(ask)
        served.a.answer(served.a.next_query().query_id, refusal=pb.Refusal(error=name, message="words"))
        with pytest.raises(error, match="node a: words") as caught:
            asked.result(60)
        assert type(caught.value) is error


def test_a_plain_query_is_routed_here_and_reaches_the_node_as_it_was_signed(served):
    for name in "bc":
        served.caller(name).serve(served.digest)
    c, given = served.caller("c"), statement(served.digest)
    asked = served.pool.submit(served.anna.ask_plain, served.digest, given, scores=True)
    query = c.next_query()
    assert query.plain == given
    given_back = signed(pb.Outcome(prediction=pb.PredictionBody(node_id="c", query_digest="q")))
    with pytest.raises(RemoteProtocolError, match="asked in the plain form"):
        c.answer(query.query_id, sealed=b"sealed")
    with pytest.raises(RemoteProtocolError, match="the answer is signed as 'query' where 'plain-answer' is due"):
        c.answer(query.query_id, signed=given)
    c.answer(query.query_id, signed=given_back)
    reply = asked.result(60)
    assert (reply.node_id, reply.answer) == ("c", given_back)
    assert (list(reply.nodes), list(reply.scores)) == (["a", "b", "c"], [0.0, 1.0, 2.0])
    asked = served.pool.submit(served.anna.ask_plain, served.digest, given, rank=2)
    served.a.answer(served.a.next_query().query_id, signed=given_back)
    reply = asked.result(60)
    assert (reply.node_id, list(reply.scores)) == ("a", [])


@pytest.mark.parametrize(
    ("change", "fault", "message"),
    [
        (lambda d: statement(d, (np.nan, 1.0)), DataError, "tensor x: .* not finite"),
        (lambda d: statement(d, (1.0, 2.0, 3.0)), DataError, r"tensor x: records of shape \[3\] where \[2\] is due"),
        (lambda d: statement(d, ((1.0, 2.0),)), DataError, r"tensor x: records of shape \[1, 2\]"),
        (lambda d: statement(d, analyst="bert"), RemoteProtocolError, "names analyst 'bert', the call 'anna'"),
        (lambda d: statement("0" * 64), RemoteProtocolError, "the query names run '0000"),
        (lambda d: statement(d, node="a"), RemoteProtocolError, "send it sealed"),
        (lambda d: statement(d, reply_key=b"k" * 32), RemoteProtocolError, "send it sealed"),
        (lambda d: statement(d, records=b"no tensors"), DataError, "tensor file"),
        (lambda d: statement(d, records=Tensors({"y": np.ones(1)}).to_bytes()), DataError, "one tensor, named x"),
        (
            lambda d: statement(d, records=Tensors({"x": np.ones((2, 2), np.float32)}).to_bytes()),
            DataError,
            r"tensor x: float32 \[2, 2\] where float32 \[1, …\] is due: one record a query",
        ),
        (lambda d: pb.SignedStatement(label="query", body=b"\xff", certificate=b"c", signature=b"s"),
         RemoteProtocolError, "the query is malformed"),
        (lambda d: pb.SignedStatement(label="query", body=b"b"), RemoteProtocolError, "is not signed"),
        (lambda d: pb.SignedStatement(label="node-query-key"), RemoteProtocolError, "signed as 'node-query-key'"),
    ],
)  # fmt: skip
def test_a_plain_query_that_is_wrong_is_refused_by_name(served, change, fault, message):
    with pytest.raises(fault, match=message):
        served.anna.ask_plain(served.digest, change(served.digest))


def test_a_rank_beyond_the_nodes_is_refused(served):
    with pytest.raises(RemoteProtocolError, match="rank 3: run .* has 3 nodes"):
        served.anna.ask_plain(served.digest, statement(served.digest), rank=3)


def test_who_is_not_there_is_named(served):
    with pytest.raises(NodeUnreachable, match="node b does not serve run"):
        served.anna.ask(served.digest, "b")
    with pytest.raises(NodeUnreachable, match="node c does not serve run"):
        served.anna.ask_plain(served.digest, statement(served.digest))
    with pytest.raises(RemoteProtocolError, match="node 'z' has no part in run .*") as caught:
        served.anna.ask(served.digest, "z")
    assert caught.value.hint == "its nodes are a, b, c"
    with pytest.raises(RemoteProtocolError, match="run '000000000000' answers no queries here"):
        served.anna.ask("0" * 64, "a")
    served.a.serve()
    with pytest.raises(NodeUnreachable, match="node a does not serve run"):
        served.anna.ask(served.digest, "a")


def test_a_node_that_takes_a_query_and_never_answers_is_unreachable_in_time(served):
    asked = served.pool.submit(served.anna.ask, served.digest, "a", wait_ms=500)
    query = served.a.next_query()
    with pytest.raises(NodeUnreachable, match="node a did not answer in time"):
        asked.result(60)
    with pytest.raises(RemoteProtocolError, match="no answer of node a is due"):
        served.a.answer(query.query_id, sealed=b"late")


def test_a_node_whose_connection_breaks_is_unreachable_at_once(served):
    killed = served.caller("a", options=[("grpc.use_local_subchannel_pool", 1)])
    polled = killed.predictions.NextQuery.future(pb.NextQueryRequest(node_id="a", wait_ms=60_000))
    served.until(lambda: served.daemon.dispatcher._relay._nodes["a"].polls)
    killed.channel.close()
    assert polled.done()
    served.until(lambda: not served.anna.models()[0].nodes[0].reachable, seconds=12)  # its poll would last 20
    with pytest.raises(NodeUnreachable, match="node a cannot be reached"):
        served.anna.ask(served.digest, "a")


@pytest.mark.parametrize(
    ("who", "call", "message"),
    [
        ("a", lambda c, d: c.models(), "speaks as another: the certificate is that of node a"),
        ("a", lambda c, d: c.hello_analyst(), "speaks as another"),
        ("a", lambda c, d: c.routing(d), "speaks as another"),
        ("a", lambda c, d: c.ask(d, "a"), "in the name of analyst a"),
        ("a", lambda c, d: c.ask_plain(d, statement(d)), "in the name of analyst a"),
        ("anna", lambda c, d: c.serve(d), "the certificate is that of analyst anna, .* in the name of node anna"),
        ("anna", lambda c, d: c.next_query(), "in the name of node anna"),
        ("anna", lambda c, d: c.answer("q", sealed=b"s"), "in the name of node anna"),
        ("anna", lambda c, d: c.hello(), "in the name of node anna"),
        ("anna", lambda c, d: c.join(d), "in the name of node anna"),
    ],
)
def test_analysts_are_no_nodes_and_nodes_no_analysts(served, caplog, who, call, message):
    with pytest.raises(CertificateError, match=message):
        call(served.caller(who), served.digest)
    assert any(getattr(r, "fields", {}).get("event") == "refused" for r in caplog.records)


def test_an_analyst_speaks_for_itself_alone(served):
    request = pb.AskSealedRequest(analyst_id="bert", plan_digest=served.digest, node_id="a", sealed=b"s")
    with pytest.raises(CertificateError, match="certificate is that of analyst anna, .* in the name of analyst bert"):
        served.anna.call("AskSealed", request)


def test_a_node_answers_only_what_it_was_given(served):
    b = served.caller("b")
    b.serve(served.digest)
    asked = served.pool.submit(served.anna.ask, served.digest, "a")
    query = served.a.next_query()
    assert b.next_query(wait_ms=100) is None
    with pytest.raises(RemoteProtocolError, match="no answer of node b is due"):
        b.answer(query.query_id, sealed=b"forged")
    served.a.answer(query.query_id, sealed=b"true")
    assert asked.result(60) == b"true"


def test_a_node_serves_only_runs_that_it_took_part_in(served, enrolled, caplog):
    enrolled.enrol("d")
    stranger = served.caller("d")
    with pytest.raises(RemoteProtocolError, match="node d took no part in it"):
        stranger.serve(served.digest)
    with pytest.raises(RemoteProtocolError, match="node d has not said which runs it serves"):
        stranger.next_query()
    served.a.serve(served.digest, "0" * 64)
    assert "node a offers to serve run '000000000000', which it cannot: left out" in caplog.text
    key = pb.SignedStatement(label="node-query-key", body=b"b", certificate=b"c" * 20_000, signature=b"s")
    for wrong, message in ((key, "has 20"), (pb.SignedStatement(label="query"), "is signed as 'query'")):
        with pytest.raises(RemoteProtocolError, match=f"the node's key {message}"):
            served.a.serve(served.digest, key=wrong)


def test_messages_have_bounds(served):
    with pytest.raises(RemoteProtocolError, match=f"the sealed query of {MAX_QUERY_BYTES + 1} bytes"):
        served.anna.ask(served.digest, "a", b"x" * (MAX_QUERY_BYTES + 1))
    with pytest.raises(RemoteProtocolError, match="the sealed query of 0 bytes"):
        served.anna.ask(served.digest, "a", b"")
    with pytest.raises(RemoteProtocolError, match="the query has .* bytes"):
        served.anna.ask_plain(served.digest, statement(served.digest, np.ones(300_000)))
    asked = served.pool.submit(served.anna.ask, served.digest, "a", b"x" * MAX_QUERY_BYTES)
    query = served.a.next_query()
    assert len(query.sealed) == MAX_QUERY_BYTES
    with pytest.raises(RemoteProtocolError, match="the answer of 1048577 bytes"):
        served.a.answer(query.query_id, sealed=b"y" * (MAX_QUERY_BYTES + 1))
    served.a.answer(query.query_id, sealed=b"y" * MAX_QUERY_BYTES)
    assert len(asked.result(60)) == MAX_QUERY_BYTES


def test_an_analyst_who_floods_gets_its_share_and_starves_nobody(served):
    flood = [
        served.anna.predictions.AskSealed.future(
            pb.AskSealedRequest(
                analyst_id="anna", plan_digest=served.digest, node_id="a", sealed=b"flood", wait_ms=60_000
            )
        )
        for _ in range(60)
    ]
    served.until(lambda: sum(call.done() for call in flood) >= 60 - CALLS_EACH)
    refused = [call for call in flood if call.done()]
    assert len(refused) == 60 - CALLS_EACH
    assert all("analyst anna: 4 calls go on already" in call.details() for call in refused)
    # everybody else goes on: another analyst, and nodes
    asked = served.pool.submit(served.caller("bert").ask, served.digest, "a", b"bert's")
    start = time.monotonic()
    other = served.submit(served.plan(name="other"))
    for name in "bc":
        served.caller(name).join(other)
    assert served.caller("b").work(other, wait_ms=50).WhichOneof("work") == "nothing"
    assert time.monotonic() - start < 15  # the flood's calls wait for 20
    for _ in range(CALLS_EACH + 1):
        query = served.a.next_query()
        served.a.answer(query.query_id, sealed=query.sealed)
    assert asked.result(60) == b"bert's"
    served.until(lambda: all(call.done() for call in flood))
    assert sum(call.code().name == "OK" for call in flood) == CALLS_EACH


def test_after_a_restart_nodes_serve_again_and_the_run_is_the_same(served):
    (before,) = served.anna.models()
    waiting = served.pool.submit(served.anna.ask, served.digest, "a", wait_ms=60_000)
    served.a.next_query()
    stopping = threading.Thread(target=served.stop)
    stopping.start()
    with pytest.raises(WireError):
        waiting.result(60)
    stopping.join(60)
    served.start(served.routed())
    a, anna = served.caller("a"), served.caller("anna")
    served.until(lambda: served.daemon.registry.ready)
    (after,) = anna.models()
    assert (after.routing_digest, after.canonical, list(after.nodes)) == (before.routing_digest, before.canonical, [])
    with pytest.raises(NodeUnreachable, match="node a does not serve run"):
        anna.ask(served.digest, "a")
    with pytest.raises(RemoteProtocolError, match="has not said which runs it serves"):
        a.next_query()
    ended = a.work(served.digest).ended  # a node that was away is told what to keep, and gets it
    assert hashlib.sha256(a.download(ended.serving_digest)).hexdigest() == ended.serving_digest
    a.serve(served.digest)
    asked = served.pool.submit(anna.ask, served.digest, "a")
    a.answer(a.next_query().query_id, sealed=b"again")
    assert asked.result(60) == b"again"


def test_the_operator_sees_who_serves_and_how_much_was_asked(served, capsys):
    for _ in range(2):
        asked = served.pool.submit(served.anna.ask, served.digest, "a")
        served.a.answer(served.a.next_query().query_id, sealed=b"answer")
        asked.result(60)
    with pytest.raises(NodeUnreachable):
        served.anna.ask(served.digest, "b")
    due = {
        "a": {"reachable": True, "relayed": 2, "unreachable": 0},
        "b": {"reachable": False, "relayed": 0, "unreachable": 1},
    }

    def status(*more):
        capsys.readouterr()
        assert run_cli(["coordinator", "status", "--dir", str(served.folder), *more]) == 0
        return capsys.readouterr().out

    def serving():
        (run,) = json.loads(status("--json"))["runs"]
        return run["serving"]

    served.until(lambda: served.a.next_query(wait_ms=10) is None and serving() == due)
    assert "queries: a: 2 relayed, 0 unreachable; b (away): 0 relayed, 1 unreachable" in status()
    served.stop()
    assert serving() == {}
    assert "queries: nobody serves" in status()


def test_clocks_and_versions_are_checked_for_analysts_too(served):
    with pytest.raises(RemoteProtocolError, match="analyst anna speaks protocol 9"):
        served.anna.hello_analyst(protocol=9)
    with pytest.raises(RemoteProtocolError, match=r"the clock of analyst anna is (39\d|400) s ahead of"):
        served.anna.hello_analyst(skew_ms=400_000)


def test_a_revoked_analyst_is_out_at_once(live):
    live.start(live.routed())
    live.enrolled.enrol("carl", "analyst")
    carl = live.caller("carl")
    carl.hello_analyst()
    revoke(live.enrolled.ca, "carl", passphrase=None, now=datetime.now(UTC))
    (live.folder / "crl.pem").write_bytes((live.enrolled.ca / "crl.pem").read_bytes())
    with pytest.raises(CertificateError, match="analyst carl .* was revoked"):
        carl.models()


def test_a_download_that_is_broken_off_gives_its_place_back(live):
    settings = live.folder / "coordinator.toml"
    settings.write_text(settings.read_text().replace("chunk_bytes = 1048576", "chunk_bytes = 1024"))
    live.start(live.routed())
    digest, anna = live.complete(live.plan()), live.caller("anna")
    for _ in range(2 * CALLS_EACH):
        call = anna.predictions.DownloadRouting(pb.DownloadRoutingRequest(analyst_id="anna", plan_digest=digest))
        assert len(next(call).data) == 1024
        call.cancel()

    def free():
        try:
            return len(anna.routing(digest)) > 400_000
        except WireError:
            return False

    live.until(free)
