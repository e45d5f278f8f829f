"""Sums under masks over real mutual TLS: real machines of nodes against the daemon, its restart, and impostors."""

from __future__ import annotations

import re
import sys
import threading
import time
from pathlib import Path

import pytest

from fedsecure.errors import CertificateError, RemoteProtocolError, WireError
from fedsecure.secagg.cohort.manifest import parse_manifest
from fedsecure.tensors import Tensors
from fedsecure.wire.v1 import coordinator_pb2 as pb
from fedsecure_coordinator import daemon as daemon_module
from fedsecure_coordinator.cohorts.manifests import FOLDER, Cohorts

sys.path.insert(0, str(Path(__file__).parents[2]))
VALUES = {"a": 0.5, "b": 20.0, "c": -3.25}


class Node:
    """A node that works in a thread until its run is over, or until ``stop_at(leg)`` says so."""

    def __init__(self, live, node, digest, stop_at=lambda leg: False):
        self.live, self.node, self.digest, self.stop_at = live, node, digest, stop_at
        self.caller, self.legs, self.ended, self.fault = live.caller(node.name), [], None, None
        self.thread = threading.Thread(target=self._body)

    def _body(self):
        try:
            while self.ended is None and self._step():
                pass
        except Exception as error:  # looked at by the test
            self.fault = error

    def _step(self):
        work = self.caller.work(self.digest, wait_ms=2000)
        match work.WhichOneof("work"):
            case "exchange":
                self._contribute(work.exchange)
            case "leg":
                if self.stop_at(work.leg.leg):
                    return False
                self.legs.append(work.leg.leg)
                self.reply(work.leg, *self.node.answer(work.leg, self._schema()))
            case "ended":
                self.ended = work.ended
        return True

    def _schema(self):
        return self.live.daemon.registry.build_method(None).schema("one")

    def _contribute(self, exchange):
        held = self.node.contribute(
            self.live.give(VALUES[self.node.name]),
            round_=exchange.round,
            exchange=exchange.exchange,
            broadcast=exchange.broadcast_digest,
            result=exchange.result,
        )
        assert exchange.cohort_digest == self.node.manifest.digest.hex()
        assert self.caller.contribute(self.digest, held, round_=exchange.round).complete

    def reply(self, leg, what, made):
        about = {"node_id": self.node.name, "plan_digest": leg.plan_digest, "config_digest": leg.config_digest}
        if what == "masked":
            self.caller.call("UploadMasked", messages(about, made))
        else:
            self.caller.call("AnswerLeg", pb.LegAnswer(**about, leg=leg.leg, **{what: made}))


def messages(about, made):
    yield pb.MaskedMessage(header=pb.MaskedHeader(**about))
    for chunk in made.chunks():
        yield pb.MaskedMessage(chunk=chunk)
    yield pb.MaskedMessage(done=made.done)


@pytest.fixture
def masked(live):
    """A daemon that holds the manifest of a, b and c; ``masked.nodes`` are their machines."""
    from masked_nodes import cohort_of

    live.start()
    live.manifest, live.nodes = cohort_of("test.example", ("a", "b", "c"))
    Cohorts(live.folder / "store" / FOLDER).add(live.manifest, federation="test.example")
    live.masked_plan = live.plan(secagg="required", cohort={"min_nodes": 3, "nodes": ["a", "b", "c"]})
    return live


def joined(live, **how):
    digest = live.submit(live.masked_plan)
    nodes = [Node(live, node, digest, **how) for node in live.nodes.values()]
    for node in nodes:
        node.caller.join(digest)
    return digest, nodes


def run_all(nodes):
    for node in nodes:
        node.thread.start()
    for node in nodes:
        node.thread.join(120)
        assert not node.thread.is_alive()
        assert node.fault is None, repr(node.fault)


def total(live, digest):
    row = live.daemon.registry.ended()[digest]
    assert row.phase == "COMPLETED", row.reason
    return Tensors.from_bytes(live.daemon.registry.blobs.get(row.server))["total"]


def test_a_masked_run_over_the_wire(masked):
    digest, nodes = joined(masked)
    run_all(nodes)
    assert [node.ended.state for node in nodes] == [pb.RUN_STATE_COMPLETED] * 3
    assert total(masked, digest).tolist() == [2 * sum(VALUES.values())] * 50_000  # exact: powers of two
    assert [node.legs for node in nodes] == [[0, 1, 2, 3, 4] * 2] * 3
    up = masked.daemon.journal.traffic(digest)[0]["a"][0]
    assert 400_000 < up < 402_000  # 50 001 ring elements of eight bytes, and what is released


def test_a_daemon_that_is_stopped_in_mid_session_goes_on_with_a_new_one(masked):
    digest, nodes = joined(masked, stop_at=lambda leg: leg == 3)
    run_all(nodes)
    begun = time.monotonic()
    masked.stop()
    assert time.monotonic() - begun < 25  # an open session holds up no end
    masked.start()
    masked.until(lambda: masked.daemon.registry.run(digest) is not None)
    again = [Node(masked, node.node, digest) for node in nodes]
    run_all(again)
    assert total(masked, digest).tolist() == [2 * sum(VALUES.values())] * 50_000
    assert [node.legs[:5] for node in again] == [[0, 1, 2, 3, 4]] * 3  # from the first leg on, without an exchange


def test_nobody_answers_for_another(masked):
    digest, nodes = joined(masked, stop_at=lambda leg: leg == 1)
    run_all(nodes)
    leg = nodes[0].caller.work(digest).leg
    assert leg.leg == 1
    about = {"node_id": "a", "plan_digest": digest, "config_digest": leg.config_digest}
    other = nodes[1].caller
    for method, request in (
        ("AnswerLeg", pb.LegAnswer(**about, leg=1, message=b"x")),
        ("AnswerLeg", pb.LegAnswer(**about, leg=1, abort=b"")),
        ("UploadMasked", iter([pb.MaskedMessage(header=pb.MaskedHeader(**about))])),
        ("CohortManifest", pb.CohortManifestRequest(node_id="a", cohort_digest=masked.manifest.digest.hex())),
    ):
        with pytest.raises(CertificateError):
            other.call(method, request)
    assert nodes[0].caller.work(digest).leg == leg  # it is still waited for


def test_malformed_uploads_are_refused_and_the_session_goes_on(masked):
    digest, nodes = joined(masked, stop_at=lambda leg: leg == 2)
    run_all(nodes)
    leg = nodes[0].caller.work(digest).leg
    assert leg.leg == 2
    header = pb.MaskedHeader(node_id="a", plan_digest=digest, config_digest=leg.config_digest)
    caller = nodes[0].caller
    with pytest.raises(RemoteProtocolError, match="does not begin with a header"):
        caller.call("UploadMasked", iter([pb.MaskedMessage(chunk=b"x")]))
    with pytest.raises(RemoteProtocolError, match="a second header"):
        caller.call("UploadMasked", iter([pb.MaskedMessage(header=header)] * 2))
    with pytest.raises(WireError, match="it broke off"):
        caller.call("UploadMasked", iter([pb.MaskedMessage(header=header)]))
    again = [Node(masked, node.node, digest) for node in nodes]
    run_all(again)
    assert total(masked, digest)[0] == 2 * sum(VALUES.values())


def test_the_manifest_over_the_wire(masked):
    caller = masked.caller("b")
    digest = masked.manifest.digest.hex()
    reply = caller.call("CohortManifest", pb.CohortManifestRequest(node_id="b", cohort_digest=digest))
    got = parse_manifest(reply.manifest, "what came")
    got.require_signed()
    assert got.digest == masked.manifest.digest
    with pytest.raises(RemoteProtocolError, match="has no manifest"):
        caller.call("CohortManifest", pb.CohortManifestRequest(node_id="b", cohort_digest="0" * 64))


def limited(live, **limits):
    """The daemon again, with these limits."""
    live.stop()
    path = live.folder / "coordinator.toml"
    text = path.read_text()
    for name, value in limits.items():
        text, count = re.subn(rf"(?m)^{name} = \d+", f"{name} = {value}", text)
        assert count == 1
    path.write_text(text)
    live.start()


def test_a_leg_waits_as_long_as_the_operator_says(masked):
    limited(masked, leg_seconds=1)
    digest, nodes = joined(masked, stop_at=lambda leg: leg == 1)
    run_all(nodes)
    begun = time.monotonic()
    masked.until(lambda: [n for n in masked.notices if n.kind == "session-failed"])
    assert time.monotonic() - begun < 25  # 30 without that
    again = [Node(masked, node.node, digest) for node in nodes]
    run_all(again)
    assert total(masked, digest)[0] == 2 * sum(VALUES.values())


def test_a_node_is_silent_once_it_calls_no_more_and_has_nothing_to_compute(masked, monkeypatch):
    monkeypatch.setattr(daemon_module, "SILENT_SECONDS", 2.0)
    limited(masked, max_wait_ms=100)
    silent = masked.daemon._is_silent
    assert not silent("a")  # it never called; the daemon has just begun
    masked.until(lambda: silent("a"))
    digest, (a, *_) = joined(masked)
    assert not silent("a")
    assert a.caller.work(digest).WhichOneof("work") == "exchange"
    masked.until(lambda: silent("b"))
    time.sleep(2.5)
    assert not silent("a")  # it computes
    a._contribute(a.caller.work(digest).exchange)
    masked.until(lambda: silent("a"))
    a.caller.work(digest, wait_ms=1)
    assert not silent("a")
