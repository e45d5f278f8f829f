"""Nothing that a coordinator or a node sends is believed unchecked, and every failed connection says why."""

from __future__ import annotations

import numpy as np
import pytest

from fedsecure.errors import CertificateError, ConfigError, RemoteProtocolError, WireError
from fedsecure.method import Prediction
from fedsecure.prediction.answers import encode_prediction
from fedsecure.tensors import Tensors
from fedsecure.wire.v1 import prediction_pb2 as pb

FOR_A = [3.0, 1.0]


def test_plan_bytes_are_those_of_the_digest(world, ask):
    world.alter = lambda model: setattr(model, "canonical", model.canonical.replace(b'"toy"', b'"top"'))
    with pytest.raises(RemoteProtocolError, match="its bytes have another digest"):
        ask()


def test_routing_parameters_are_those_announced(world, ask):
    swapped = Tensors({"weights": np.eye(2, dtype=np.float32)[::-1].copy()}).to_bytes()
    honest = world.routing

    def tamper(model):
        world.routing = swapped

    world.alter = tamper
    with pytest.raises(RemoteProtocolError, match="routing parameters of run .*: the bytes have another digest"):
        ask()
    world.routing = honest
    assert world.asked() == []


@pytest.mark.parametrize(
    ("tensors", "fault"),
    [
        ({"weights": np.full((2, 2), np.nan, np.float32)}, "not finite"),
        ({"weights": np.zeros((3, 2), np.float32)}, "shape"),
        ({"other": np.zeros((2, 2), np.float32)}, "not named by the schema"),
        ({"weights": np.full((2, 2), 99, np.float32)}, "outside"),
    ],
)
def test_routing_parameters_fit_the_plan(world, ask, tensors, fault):
    world.routing = Tensors(tensors).to_bytes()
    with pytest.raises(RemoteProtocolError, match=fault):
        ask()
    assert world.asked() == []


def test_an_endless_download_is_not_begun(world, ask):
    world.alter = lambda model: setattr(model, "routing_bytes", 1 << 40)
    with pytest.raises(RemoteProtocolError, match="bytes are announced"):
        ask()


def test_a_download_goes_on_where_it_broke(world, ask, monkeypatch):
    monkeypatch.setattr("fedsecure.analyst.client.PAUSE_S", 0.01)
    world.cut = 70
    assert len(ask().answers) == 3
    offsets = [r.offset for r in world.seen if isinstance(r, pb.DownloadRoutingRequest)]
    assert offsets == [0, 70]


def test_keys_are_the_nodes_own(world, ask):
    a, b = world.nodes["a"], world.nodes["b"]
    good = a.statement
    for statement, error, fault in (
        (b.statement, CertificateError, "another's name"),
        (a.sign(life_ms=-1000), CertificateError, "ran out"),
        (a.sign(life_ms=48 * 3_600_000), RemoteProtocolError, "valid for 4[78] hours"),
        (pb.SignedStatement(), RemoteProtocolError, "label"),
    ):
        a.statement = statement
        with pytest.raises(error, match=fault):
            ask([FOR_A])
    assert world.asked() == []
    a.statement = good
    assert len(ask([FOR_A]).answers) == 1


def test_answers_are_the_asked_nodes_own(world, ask):
    a = world.nodes["a"]

    def by_another(outcome):
        outcome.prediction.node_id = "b"
        return outcome

    def to_another_query(outcome):
        outcome.prediction.query_digest = "0" * 64
        return outcome

    def of_another_shape(outcome):
        uniform = np.full((5, 2), 0.5, np.float32)
        return encode_prediction("a", outcome.prediction.query_digest, Prediction(uniform, uniform))

    for twist, fault in (
        (by_another, "node a: an answer in the name of 'b'"),
        (to_another_query, "node a: an answer to another query"),
        (of_another_shape, r"node a: a malformed answer: .* where float32 \[1, "),
        (lambda outcome: pb.Outcome(), "neither a prediction nor a refusal"),
    ):
        a.twist = twist
        with pytest.raises(RemoteProtocolError, match=fault):
            ask([FOR_A])


def test_an_answer_is_sealed_to_the_key_in_the_query(world, ask):
    world.nodes["a"].answer = lambda run, analyst, sealed: b"x" * 200
    with pytest.raises(RemoteProtocolError, match="node a: its answer is not sealed to the key in the query"):
        ask([FOR_A])


# --- connecting ----------------------------------------------------------------------------------------------------


def test_why_there_is_no_connection_is_named(world, ask, federation_of, tmp_path):
    away = world.settings.model_copy(update={"coordinator": "localhost:1"})
    with pytest.raises(WireError, match="connection refused"):
        ask(settings=away)
    strangers = federation_of(tmp_path / "strangers").enrol("analyst", "dr-weber")
    tls = world.settings.tls.model_copy(
        update={"key": strangers.key, "cert": strangers.cert, "ca": strangers.ca, "crl": None}
    )
    with pytest.raises(CertificateError, match="unknown CA"):
        ask(settings=world.settings.model_copy(update={"tls": tls}))
    node = world.federation.root / "node-a"
    tls = tls.model_copy(update={"key": node / "tls.key", "cert": node / "tls.crt", "ca": node / "ca.crt"})
    with pytest.raises(CertificateError, match="wrong role"):
        ask(settings=world.settings.model_copy(update={"tls": tls}))
    world.clock_ms = 600_000
    with pytest.raises(CertificateError, match="clock skew"):
        ask()
    with pytest.raises(ConfigError, match="the certificate is that of analyst dr-weber"):
        ask(settings=world.settings.model_copy(update={"analyst": "dr-rot"}))
